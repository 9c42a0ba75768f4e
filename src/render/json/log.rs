//! Lines of a server's log, and answers of `serve`, as objects.

use super::object::{self, Object, line, op, put, put_bytes, put_some};
use crate::render::duration::rfc3339;
use crate::render::log_field::Field;

/// Renders a line of a log.
pub(in crate::render) fn log(
    at_ms: u64,
    event: &str,
    fields: impl IntoIterator<Item = (&'static str, Field)>,
) -> String {
    let mut object = object::event(event);
    put_some(&mut object, "time", rfc3339(at_ms));
    put_fields(&mut object, fields);
    line(&object)
}

/// Renders an answer.
pub(in crate::render) fn answer(
    name: &str,
    fields: impl IntoIterator<Item = (&'static str, Field)>,
) -> String {
    let mut object = op(name);
    put_fields(&mut object, fields);
    line(&object)
}

fn put_fields(object: &mut Object, fields: impl IntoIterator<Item = (&'static str, Field)>) {
    for (name, field) in fields {
        match field {
            Field::Text(text) => put(object, name, text),
            Field::Number(number) => put(object, name, number),
            Field::Signed(number) => put(object, name, number),
            Field::List(texts) => put(object, name, texts),
            Field::Switch(switch) => put(object, name, switch),
            Field::Bytes(bytes) => put_bytes(object, name, &format!("{name}_encoding"), &bytes),
            Field::Records(records) => {
                let objects = records.into_iter().map(|fields| {
                    let mut object = Object::new();
                    put_fields(&mut object, fields);
                    object
                });
                put(object, name, objects.collect::<Vec<_>>());
            }
        }
    }
}
