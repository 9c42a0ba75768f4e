//! What the MQTT crate lets through in a client's packet of MQTT 5: found in its bytes, before they are decoded.

use super::packet::{FILTERS_MAX, Fault};
use super::reason::Reason;

/// The user property: the only one that a client may send more than once.
const USER_PROPERTY: u8 = 0x26;

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const UNSUBSCRIBE: u8 = 10;
const PINGREQ: u8 = 12;
const DISCONNECT: u8 = 14;
const AUTH: u8 = 15;

const WILL: u8 = 0b0000_0100;
const WILL_QOS: u8 = 0b0001_1000;
const WILL_RETAIN: u8 = 0b0010_0000;

/// Looks once at the flags, the lengths and the properties of a whole packet. What is wrong in another way is left to
/// the decoder.
///
/// # Errors
///
/// A [`Fault`] where a number takes more bytes than it needs (MQTT 5, 1.5.5), properties are longer than their
/// length or followed by something, one comes twice (2.2.2), a CONNECT contradicts its flags (3.1.2), AUTH is
/// left without its reason, or there are more than [`FILTERS_MAX`] filters.
pub fn check(packet: &[u8]) -> Result<(), Fault> {
    let Some((first, rest)) = packet.split_first() else { return Ok(()) };
    let mut body = Reader(rest);
    let Some(length) = body.number()? else { return Ok(()) };
    // A body that ends before it should is the decoder's to refuse.
    check_body(*first, length, body).unwrap_or(Ok(()))
}

/// None where the body ends too soon.
fn check_body(first: u8, length: usize, mut body: Reader<'_>) -> Option<Result<(), Fault>> {
    body.0 = body.0.get(..length)?;
    match first >> 4 {
        CONNECT => return check_connect(body),
        PUBLISH => {
            body.skip_field()?;
            if first & 0b0110 != 0 {
                body.skip(2)?;
            }
            return check_properties(&mut body);
        }
        // The reason and the properties may be left out (3.4.2.2.1).
        PUBACK..=PUBCOMP if length < 4 => return None,
        PUBACK..=PUBCOMP => body.skip(3)?,
        kind @ (SUBSCRIBE | UNSUBSCRIBE) => {
            body.skip(2)?;
            let checked = check_properties(&mut body)?;
            return Some(checked.and_then(|()| check_filters(body, kind == SUBSCRIBE)));
        }
        PINGREQ if length > 0 => {
            return Some(Err(Fault::new(Reason::MalformedPacket, "a PINGREQ with a body")));
        }
        DISCONNECT if length < 2 => return None,
        // It says success, which only a server may say (3.15.2.1).
        AUTH if length == 0 => {
            return Some(Err(Fault::new(Reason::ProtocolError, "an AUTH without a reason")));
        }
        DISCONNECT | AUTH => body.skip(1)?,
        _ => return None,
    }
    let checked = check_properties(&mut body)?;
    Some(checked.and_then(|()| match body.0 {
        [] => Ok(()),
        _ => Err(Fault::new(Reason::MalformedPacket, "bytes behind the last property")),
    }))
}

fn check_connect(mut body: Reader<'_>) -> Option<Result<(), Fault>> {
    body.skip_field()?;
    // Another version is not refused for its form.
    if body.byte()? != 5 {
        return None;
    }
    let flags = body.byte()?;
    let has_will = flags & WILL != 0;
    if (!has_will && flags & (WILL_QOS | WILL_RETAIN) != 0) || flags & WILL_QOS == WILL_QOS {
        return Some(Err(Fault::new(Reason::MalformedPacket, "flags of a will that cannot be")));
    }
    body.skip(2)?;
    if let Err(fault) = check_properties(&mut body)? {
        return Some(Err(fault));
    }
    body.skip_field()?;
    if has_will { check_properties(&mut body) } else { Some(Ok(())) }
}

/// Counts the filters before any of them is kept.
fn check_filters(mut body: Reader<'_>, with_options: bool) -> Result<(), Fault> {
    let next = |body: &mut Reader<'_>| body.skip_field().and_then(|()| body.skip(usize::from(with_options)));
    let mut count = 0_usize;
    while next(&mut body).is_some() {
        count = count.saturating_add(1);
        if count > FILTERS_MAX {
            return Err(Fault::too_many_filters());
        }
    }
    Ok(())
}

fn check_properties(body: &mut Reader<'_>) -> Option<Result<(), Fault>> {
    let length = match body.number() {
        Ok(length) => length?,
        Err(fault) => return Some(Err(fault)),
    };
    let properties = body.0.get(..length)?;
    body.skip(length)?;
    let mut properties = Reader(properties);
    let mut seen = 0_u64;
    while let Some(name) = properties.byte() {
        match properties.skip_property(name) {
            Ok(Some(())) => {}
            Ok(None) => {
                let text = "a property that is longer than all of them";
                return Some(Err(Fault::new(Reason::MalformedPacket, text)));
            }
            Err(fault) => return Some(Err(fault)),
        }
        let bit = 1_u64.checked_shl(u32::from(name)).unwrap_or(0);
        if name != USER_PROPERTY && seen & bit != 0 {
            let text = format!("property 0x{name:02X} more than once");
            return Some(Err(Fault::new(Reason::ProtocolError, text)));
        }
        seen |= bit;
    }
    Some(Ok(()))
}

/// What is left to be looked at. None wherever there is not as much as asked for.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// A string, or bytes with their length before them.
    fn skip_field(&mut self) -> Option<()> {
        let length = u16::from_be_bytes([self.byte()?, self.byte()?]);
        self.skip(usize::from(length))
    }

    /// A number of one to four bytes (MQTT 5, 1.5.5).
    fn number(&mut self) -> Result<Option<usize>, Fault> {
        let mut number = 0_usize;
        for shift in [0, 7, 14, 21_u32] {
            let Some(byte) = self.byte() else { return Ok(None) };
            number |= usize::from(byte & 0x7F).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    Err(Fault::new(Reason::MalformedPacket, "a number of more bytes than it needs"))
                } else {
                    Ok(Some(number))
                };
            }
        }
        Err(Fault::new(Reason::MalformedPacket, "a number of more than four bytes"))
    }

    /// The value of a property (MQTT 5, 2.2.2.2).
    fn skip_property(&mut self, name: u8) -> Result<Option<()>, Fault> {
        Ok(match name {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => self.skip(1),
            0x13 | 0x21 | 0x22 | 0x23 => self.skip(2),
            0x02 | 0x11 | 0x18 | 0x27 => self.skip(4),
            0x0B => self.number()?.map(drop),
            0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => self.skip_field(),
            USER_PROPERTY => self.skip_field().and_then(|()| self.skip_field()),
            _ => {
                return Err(Fault::new(
                    Reason::MalformedPacket,
                    format!("no property is called 0x{name:02X}"),
                ));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_property_that_comes_twice_is_found_wherever_it_is() {
        let alias = [0x23, 0, 1];
        let twice = [alias, alias].concat();
        let cases: [(u8, &[u8], &[u8]); 6] = [
            (0x30, &[0, 1, b'a'], &twice),
            (0x32, &[0, 1, b'a', 0, 1], &twice),
            (0x82, &[0, 1], &[0x0B, 1, 0x0B, 2]),
            (0x40, &[0, 1, 0], &[0x1F, 0, 0, 0x1F, 0, 0]),
            (0xE0, &[0], &[0x11, 0, 0, 0, 1, 0x11, 0, 0, 0, 1]),
            (0x10, b"\0\x04MQTT\x05\x02\0\0", &[0x21, 0, 1, 0x21, 0, 1]),
        ];
        for (first, head, properties) in cases {
            let (length, count) = (head.len() + 1 + properties.len(), properties.len());
            let lengths = [u8::try_from(length).unwrap(), u8::try_from(count).unwrap()];
            let packet = [&[first, lengths[0]], head, &[lengths[1]], properties].concat();
            let reason = check(&packet).unwrap_err().reason;
            assert_eq!(reason, Reason::ProtocolError, "{packet:?}");
        }
        let will = b"\x10\x18\0\x04MQTT\x05\x06\0\0\0\0\x01a\x04\x01\0\x01\0\0\x01w\0\0";
        assert_eq!(check(will).unwrap_err().reason, Reason::ProtocolError);
    }

    #[test]
    fn user_properties_may_come_as_often_as_they_like() {
        let pair = [0x26, 0, 0, 0, 0];
        let packet = [&[0x30, 14, 0, 1, b'a', 10][..], &pair, &pair].concat();
        assert_eq!(check(&packet), Ok(()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Err(fault) = check(&bytes) {
                prop_assert!(fault.reason.code() >= 0x80);
            }
        }
    }
}
