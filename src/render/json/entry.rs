//! Entries of an export.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::object::{SCHEMA, text_and_encoding};
use crate::commands::output::VersionedValue;
use crate::protocol::Key;

/// An entry of an export. There are many of them, and an object of JSON values takes four times as long as writing its members.
pub(super) struct Entry<'a> {
    pub(super) key: &'a Key,
    pub(super) found: &'a VersionedValue,
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, key_encoding) = text_and_encoding(self.key.as_bytes());
        let (value, encoding) = text_and_encoding(&self.found.value);
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("v", &SCHEMA)?;
        members.serialize_entry("op", "export")?;
        members.serialize_entry("key", &key)?;
        if key_encoding == "base64" {
            members.serialize_entry("key_encoding", key_encoding)?;
        }
        members.serialize_entry("value", &value)?;
        members.serialize_entry("encoding", encoding)?;
        if let Some(version) = &self.found.version {
            members.serialize_entry("version", &version.to_text())?;
        }
        members.end()
    }
}
