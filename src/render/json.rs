//! Records as JSON: one object per line, schema 1.

mod members;
mod writer;

pub use members::{
    MaybeBytes, client, client_id, condition, details, display, gap, holder, key, ms, path, path_if_any,
    pattern, payload, payload_value, prefix, reply_name, start, time, time_if_any, token, value, version,
};
pub use writer::{Json, text_of};
