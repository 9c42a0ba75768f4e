//! Arguments that several verbs share: keys, values, fencing tokens, etcd; and what a value is.

pub mod etcd;
pub mod fence;
pub mod key;
pub mod kind;
pub mod value;
