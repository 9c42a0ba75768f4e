//! User properties of a response, as a client reads them.

use super::message::{
    KEY_FENCE, LIMITED, Message, PENDING, PREFIX, PROTOCOL_VERSION, STATUS, TIME_TO_LIVE, TIMESTAMP,
};

/// The user properties of a response that a client reads: the first one of each name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseProperties<'a> {
    pub status: Option<&'a str>,
    pub protocol_version: Option<&'a str>,
    pub timestamp: Option<&'a str>,
    pub time_to_live: Option<&'a str>,
    pub key_fence: Option<&'a str>,
    pub limited: Option<&'a str>,
    pub pending: Option<&'a str>,
    pub prefix: Option<&'a str>,
}

impl<'a> ResponseProperties<'a> {
    /// Returns those of a message.
    #[must_use]
    pub fn of(message: &'a Message) -> Self {
        let mut properties = Self::default();
        message.user_properties.iter().for_each(|(name, value)| properties.note(name, value));
        properties
    }

    /// Notes the next user property of a message. Other names are ignored.
    pub fn note(&mut self, name: &str, value: &'a str) {
        let noted = match name {
            STATUS => &mut self.status,
            PROTOCOL_VERSION => &mut self.protocol_version,
            TIMESTAMP => &mut self.timestamp,
            TIME_TO_LIVE => &mut self.time_to_live,
            KEY_FENCE => &mut self.key_fence,
            LIMITED => &mut self.limited,
            PENDING => &mut self.pending,
            PREFIX => &mut self.prefix,
            _ => return,
        };
        noted.get_or_insert(value);
    }
}
