//! Notifications of changed keys (protocol §3).

use bytes::{Bytes, BytesMut};

use super::frame::{BULK_OVERHEAD_MAX, Frame, put_array, put_bulk};
use super::key::Value;
use super::reply::ReplyError;

/// A change of a watched key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// The key was set, to this value if the sender includes it (protocol §0 row 10).
    Set(Option<Value>),
    /// The key was deleted or has expired.
    Delete,
}

impl Notification {
    /// Encodes the payload: `NOTIFY SET VALUE v`, `NOTIFY SET` or `NOTIFY DELETE`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self::Set(value) = self else {
            return Bytes::from_static(b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n");
        };
        let len = value.as_ref().map_or(0, Bytes::len);
        let mut out = BytesMut::with_capacity(len.saturating_add(BULK_OVERHEAD_MAX.saturating_mul(3)));
        put_array(&mut out, if value.is_some() { 4 } else { 2 });
        put_bulk(&mut out, b"NOTIFY");
        put_bulk(&mut out, b"SET");
        if let Some(value) = value {
            put_bulk(&mut out, b"VALUE");
            put_bulk(&mut out, value);
        }
        out.freeze()
    }

    /// Decodes a payload. `DEL` is accepted for `DELETE`, and a SET with or without its value (protocol §0
    /// rows 3, 10).
    ///
    /// # Errors
    /// [`ReplyError`] for anything else.
    pub fn decode(payload: &Bytes) -> Result<Self, ReplyError> {
        let Frame::Array(frames) = Frame::decode(payload).map_err(ReplyError::Frame)? else {
            return Err(ReplyError::Unexpected);
        };
        let word = |frame| match frame {
            Frame::Bulk(word) => Ok(word),
            _ => Err(ReplyError::Unexpected),
        };
        let words = frames.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
        match words.as_slice() {
            [notify, set] if notify == "NOTIFY" && set == "SET" => Ok(Self::Set(None)),
            [notify, set, key, value] if notify == "NOTIFY" && set == "SET" && key == "VALUE" => {
                Ok(Self::Set(Some(value.clone())))
            }
            [notify, delete] if notify == "NOTIFY" && (delete == "DELETE" || delete == "DEL") => {
                Ok(Self::Delete)
            }
            _ => Err(ReplyError::Unexpected),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::super::frame::{FrameError, FrameErrorKind};
    use super::super::strategies::{bytes, mutated};
    use super::super::vectors::{Case, check, escape};
    use super::*;

    fn show(notification: &Notification) -> String {
        match notification {
            Notification::Set(None) => "Set".to_owned(),
            Notification::Set(Some(value)) if value.is_empty() => "Set <empty>".to_owned(),
            Notification::Set(Some(value)) => format!("Set {}", escape(value)),
            Notification::Delete => "Delete".to_owned(),
        }
    }

    fn run(case: &Case<'_>) -> String {
        let ["decode"] = case.operation() else { case.unknown() };
        let payload = case.bytes();
        match Notification::decode(&payload) {
            Ok(notification) if notification.encode() == payload => show(&notification),
            Ok(notification) => {
                format!("{}\nencodes {}", show(&notification), escape(&notification.encode()))
            }
            Err(ReplyError::Unexpected) => "Unexpected".to_owned(),
            Err(ReplyError::Frame(FrameError { offset, kind })) => match kind {
                FrameErrorKind::UnknownType(byte) => format!("UnknownType {} at {offset}", escape(&[byte])),
                kind => format!("{kind:?} at {offset}"),
            },
        }
    }

    #[test]
    fn notifications_are_as_in_the_vectors() {
        check(include_str!("../../../tests/vectors/notification.txt"), run);
    }

    fn notification() -> impl Strategy<Value = Notification> {
        prop_oneof![option::of(bytes(40)).prop_map(Notification::Set), Just(Notification::Delete),]
    }

    proptest! {
        #[test]
        fn an_encoded_notification_decodes_to_itself(notification in notification()) {
            prop_assert_eq!(Notification::decode(&notification.encode()), Ok(notification));
        }

        #[test]
        fn a_decoded_notification_survives_another_round_trip(
            payload in prop_oneof![bytes(64), mutated(notification().prop_map(|notification| notification.encode()))],
        ) {
            if let Ok(notification) = Notification::decode(&payload) {
                prop_assert_eq!(Notification::decode(&notification.encode()), Ok(notification));
            }
        }
    }
}
