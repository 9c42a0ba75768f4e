//! Properties of MQTT 5: their identifiers, and how the decoder reads them.

use bytes::Bytes;

use super::error::Cause;
use super::packet::USER_PROPERTIES_MAX;
use super::reader::Reader;
use crate::protocol::message::Message;

// Identifiers (MQTT 5, 2.2.2.2).
pub(super) const PAYLOAD_FORMAT: u8 = 0x01;
pub(super) const MESSAGE_EXPIRY: u8 = 0x02;
pub(super) const CONTENT_TYPE: u8 = 0x03;
pub(super) const RESPONSE_TOPIC: u8 = 0x08;
pub(super) const CORRELATION_DATA: u8 = 0x09;
pub(super) const SUBSCRIPTION_ID: u8 = 0x0B;
pub(super) const SESSION_EXPIRY: u8 = 0x11;
pub(super) const ASSIGNED_CLIENT_ID: u8 = 0x12;
pub(super) const SERVER_KEEP_ALIVE: u8 = 0x13;
pub(super) const AUTHENTICATION_METHOD: u8 = 0x15;
pub(super) const AUTHENTICATION_DATA: u8 = 0x16;
pub(super) const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
pub(super) const WILL_DELAY: u8 = 0x18;
pub(super) const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
pub(super) const SERVER_REFERENCE: u8 = 0x1C;
pub(super) const REASON_STRING: u8 = 0x1F;
pub(super) const RECEIVE_MAXIMUM: u8 = 0x21;
pub(super) const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
pub(super) const TOPIC_ALIAS: u8 = 0x23;
pub(super) const USER_PROPERTY: u8 = 0x26;
pub(super) const MAXIMUM_PACKET_SIZE: u8 = 0x27;

/// Reads the length of the properties and calls `read` with the identifier of each, in their order; `read` takes its
/// value from the reader. Values that reach beyond the properties fail, also where the packet goes on.
#[inline]
pub(super) fn read_each<'a>(
    body: &mut Reader<'a>,
    mut read: impl FnMut(u8, &mut Reader<'a>) -> Result<(), Cause>,
) -> Result<(), Cause> {
    let length = body.varint()?;
    // A varint fits in 28 bits; where usize has 16, the packet is not that long.
    let length = usize::try_from(length).map_err(|_| Cause::EndsEarly)?;
    let mut properties = Reader::new(body.bytes(length)?);
    while !properties.is_empty() {
        let id = properties.u8()?;
        read(id, &mut properties)?;
    }
    Ok(())
}

/// Keeps the value of a property that is allowed once: all but the user property (MQTT 5, 2.2.2).
#[inline]
pub(super) fn set<T>(place: &mut Option<T>, id: u8, value: T) -> Result<(), Cause> {
    if place.is_some() {
        return Err(Cause::PropertyRepeated(id));
    }
    *place = Some(value);
    Ok(())
}

/// Reads a property that a PUBLISH and a will have in common (MQTT 5, 3.3.2.3 and 3.1.3.2).
#[inline]
pub(super) fn read_of_message(id: u8, value: &mut Reader<'_>, message: &mut Message) -> Result<(), Cause> {
    match id {
        PAYLOAD_FORMAT => set(&mut message.payload_format, id, flag(id, value)?),
        MESSAGE_EXPIRY => set(&mut message.expiry_s, id, value.u32()?),
        CONTENT_TYPE => set(&mut message.content_type, id, value.content_type()?),
        RESPONSE_TOPIC => match value.topic_name() {
            Ok(topic) if !topic.is_empty() => set(&mut message.response_topic, id, topic.into_owned()),
            Ok(_) | Err(Cause::TopicWildcard) => Err(Cause::PropertyValue(id)),
            Err(cause) => Err(cause),
        },
        CORRELATION_DATA => set(&mut message.correlation, id, Bytes::copy_from_slice(value.binary()?)),
        USER_PROPERTY => {
            // Those that follow each other are copied at once.
            let (encoded, count) = value.string_pairs(id)?;
            if message.user_properties.len().saturating_add(count) > USER_PROPERTIES_MAX {
                return Err(Cause::TooManyUserProperties);
            }
            message.user_properties.push_encoded(encoded, count);
            Ok(())
        }
        _ => Err(Cause::PropertyNotAllowed(id)),
    }
}

/// Validates a user property that is not used.
pub(super) fn skip_user_property(value: &mut Reader<'_>) -> Result<(), Cause> {
    value.string_pair().map(drop)
}

/// Reads a byte that is 0 or 1.
pub(super) fn flag(id: u8, value: &mut Reader<'_>) -> Result<u8, Cause> {
    match value.u8()? {
        flag @ 0..=1 => Ok(flag),
        _ => Err(Cause::PropertyValue(id)),
    }
}
