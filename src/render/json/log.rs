//! Lines of a server's log, as objects.

use super::super::log::Field;
use super::{line, put, put_some, schema_and};
use crate::commands::duration::rfc3339;

/// Renders a line of a log.
pub(in crate::render) fn log(
    at_ms: u64,
    event: &str,
    fields: impl IntoIterator<Item = (&'static str, Field)>,
) -> String {
    let mut object = schema_and("event", event.into());
    put_some(&mut object, "time", rfc3339(at_ms));
    for (name, field) in fields {
        match field {
            Field::Text(text) => put(&mut object, name, text),
            Field::Number(number) => put(&mut object, name, number),
            Field::List(texts) => put(&mut object, name, texts),
        }
    }
    line(object)
}
