//! Arguments that several verbs share: keys, values, fencing tokens.

pub mod fence;
pub mod key;
pub mod value;
