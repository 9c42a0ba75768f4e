//! Time to live and fencing token of a key: an extension of GET.

use std::num::NonZeroU64;

use super::message::{KEY_FENCE, TIME_TO_LIVE};
use super::timestamp::Timestamp;
use super::user_properties::UserProperties;

/// The value of [`TIME_TO_LIVE`] for a key that does not expire.
const NEVER: &str = "none";

/// What a store with the extension adds to the response to a GET that asks for it, if the key exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The milliseconds until the key expires, rounded down; `None`: never.
    pub ttl_ms: Option<NonZeroU64>,
    /// The fencing token that protects the key.
    pub fence: Option<Timestamp>,
}

impl Details {
    /// Returns the user properties of the response.
    #[must_use]
    pub fn properties(&self) -> UserProperties {
        let mut properties = UserProperties::default();
        match self.ttl_ms {
            Some(ttl_ms) => properties.push(TIME_TO_LIVE, &ttl_ms.to_string()),
            None => properties.push(TIME_TO_LIVE, NEVER),
        }
        if let Some(fence) = &self.fence {
            properties.push_timestamp(KEY_FENCE, fence);
        }
        properties
    }

    /// Parses the user properties of a response. `Ok(None)`: the store does not have the extension.
    ///
    /// # Errors
    /// The property that is malformed.
    pub fn parse(ttl: Option<&str>, fence: Option<&str>) -> Result<Option<Self>, &'static str> {
        let Some(ttl) = ttl else { return Ok(None) };
        let ttl_ms = match ttl {
            NEVER => None,
            ms => Some(ms.parse().map_err(|_| TIME_TO_LIVE)?),
        };
        let fence = fence.map(str::parse).transpose().map_err(|_| KEY_FENCE)?;
        Ok(Some(Self { ttl_ms, fence }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(properties: &UserProperties) -> Result<Option<Details>, &'static str> {
        Details::parse(properties.get(TIME_TO_LIVE), properties.get(KEY_FENCE))
    }

    #[test]
    fn details_are_read_as_they_are_written() {
        for ttl_ms in [None, NonZeroU64::new(1), NonZeroU64::new(u64::MAX)] {
            for fence in [None, Some(Timestamp::of_store(5, 3))] {
                let details = Details { ttl_ms, fence };
                assert_eq!(parse(&details.properties()), Ok(Some(details)));
            }
        }
        let properties = Details { ttl_ms: NonZeroU64::new(60), fence: None }.properties();
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("mqkv-ttl", "60")]);
        assert_eq!(Details::default().properties().get("mqkv-ttl"), Some("none"));
    }

    #[test]
    fn a_store_without_the_extension_is_known_by_the_lack_of_a_property() {
        assert_eq!(parse(&UserProperties::default()), Ok(None));
        for (ttl, fence, name) in
            [("0", None, "mqkv-ttl"), ("-1", None, "mqkv-ttl"), ("none", Some("1:x"), "mqkv-fence")]
        {
            assert_eq!(Details::parse(Some(ttl), fence), Err(name));
        }
    }
}
