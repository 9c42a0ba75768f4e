//! The token of a SCAN's next page (protocol §7), which is opaque to clients.

use bytes::{Buf, BufMut, Bytes};

/// Where a SCAN goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanToken {
    /// The run of the store, or its ownership in a cluster, that has given it out: in another one, keys have other slots.
    pub life: u64,
    pub position: Bytes,
}

impl ScanToken {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(16);
        out.put_u64(self.life);
        out.put_slice(&self.position);
        out.into()
    }

    /// Returns the token, `None` if it is none of this program.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let life = bytes.try_get_u64().ok()?;
        Some(Self { life, position: Bytes::copy_from_slice(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_decoded_as_it_was_encoded_and_others_are_refused() {
        for position in [&b""[..], b"\0\0\x01\x02"] {
            let token = ScanToken { life: u64::MAX, position: Bytes::from_static(position) };
            assert_eq!(ScanToken::decode(&token.encode()), Some(token));
        }
        assert_eq!(ScanToken::decode(b"\0\0\0\x01"), None);
    }
}
