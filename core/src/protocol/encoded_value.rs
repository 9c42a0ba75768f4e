//! A long value together with its encodings, so that it is copied once and shared by all messages that carry it.

use bytes::{BufMut, Bytes, BytesMut};

use super::frame::{bulk_len, put_bulk};
use super::key::Value;

/// The start of a notification that has a value.
const NOTIFY_SET_VALUE: &[u8] = b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n";
const CRLF: &[u8] = b"\r\n";

/// A value as in a notification, of which the reply to a GET and the value itself are parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedValue {
    notification: Bytes,
    len: usize,
}

impl EncodedValue {
    /// Copies a value: a slice of the packet it arrived in would keep the whole packet in memory.
    #[must_use]
    pub fn new(value: &[u8]) -> Self {
        let mut out = BytesMut::with_capacity(NOTIFY_SET_VALUE.len().saturating_add(bulk_len(value)));
        out.put_slice(NOTIFY_SET_VALUE);
        put_bulk(&mut out, value);
        Self { notification: out.freeze(), len: value.len() }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.notification.len().saturating_sub(CRLF.len());
        self.notification.get(end.saturating_sub(self.len)..end).unwrap_or_default()
    }

    /// Returns the value, which shares its memory.
    #[must_use]
    pub fn value(&self) -> Value {
        self.notification.slice_ref(self.as_bytes())
    }

    /// Returns the payload of the reply to a GET, which shares its memory.
    #[must_use]
    pub fn reply(&self) -> Bytes {
        self.notification.slice(NOTIFY_SET_VALUE.len().min(self.notification.len())..)
    }

    /// Returns the payload of the notification of a SET, which shares its memory.
    #[must_use]
    pub fn notification(&self) -> Bytes {
        self.notification.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Notification, Reply};
    use super::*;

    #[test]
    fn the_encodings_are_those_of_a_reply_and_of_a_notification_and_share_one_copy() {
        for len in [0, 1, 9, 10, 1_025, 100_000] {
            let value = Value::from(vec![b'v'; len]);
            let encoded = EncodedValue::new(&value);
            assert_eq!(encoded.value(), value);
            assert_eq!(encoded.reply(), Reply::Value(value.clone()).encode());
            assert_eq!(encoded.notification(), Notification::Set(Some(value)).encode());
            let range = encoded.notification.as_ptr_range();
            assert!(len == 0 || range.contains(&encoded.value().as_ptr()));
            assert!(range.contains(&encoded.reply().as_ptr()));
        }
    }
}
