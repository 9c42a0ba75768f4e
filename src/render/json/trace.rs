//! Lines of a trace, as objects.

use super::object::{line, put, put_some, schema_and};
use crate::commands::duration::rfc3339;
use crate::render::trace::row::{Field, Row, redacted};

/// Renders a line of a trace.
pub(in crate::render) fn trace(row: Row, at_ms: u64) -> String {
    let mut object = schema_and("trace", row.what.into());
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
    line(object)
}
