//! Arguments that several verbs share: keys, values, fencing tokens, etcd.

pub mod etcd;
pub mod fence;
pub mod key;
pub mod value;
