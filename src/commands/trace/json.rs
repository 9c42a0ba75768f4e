//! Lines of a trace, as objects.

use super::row::{Field, Row, redacted};
use crate::render::duration::rfc3339;
use crate::render::json::object::{self, put, put_some};

/// Renders a line of a trace.
pub(super) fn line(row: Row, at_ms: u64) -> String {
    let mut object = object::with("trace", row.what.into());
    put(&mut object, "at", rfc3339(at_ms));
    put_some(&mut object, "packet", row.packet);
    for (name, field) in row.fields {
        let name = &name.replace('-', "_");
        match field {
            // Where the word is the name, it is true; else it is a matter of choice.
            Field::Word(word) if word.replace('-', "_") == *name => put(&mut object, name, true),
            Field::Word(word) => put(&mut object, name, word),
            Field::Number(number) => put(&mut object, name, number),
            Field::Text(text) | Field::Escaped(text) => put(&mut object, name, text),
            Field::Words(words) => put(&mut object, name, words),
            Field::Secret(bytes) => put(&mut object, name, redacted(bytes)),
            Field::User(pairs) => {
                let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| vec![name, value]).collect();
                put(&mut object, name, pairs);
            }
        }
    }
    object::line(&object)
}
