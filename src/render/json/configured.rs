//! What `config` and `context` tell, as objects.

use super::{Object, line, op, put, put_some};
use crate::commands::configured::{Configured, Row, Shown};

/// The lines of a record: one object, or one for each context.
pub(super) fn lines(configured: &Configured) -> String {
    match configured {
        Configured::Contexts(contexts) => contexts
            .iter()
            .map(|context| {
                let mut object = op("context");
                put(&mut object, "context", context.name.as_str());
                put(&mut object, "broker", context.broker.as_str());
                put(&mut object, "default", context.is_default);
                put(&mut object, "read_only", context.is_read_only);
                line(object)
            })
            .collect(),
        other => line(object(other)),
    }
}

fn object(configured: &Configured) -> Object {
    match configured {
        Configured::Path { file, exists } => {
            let mut object = op("config");
            put(&mut object, "file", file.to_string_lossy());
            put(&mut object, "exists", *exists);
            object
        }
        Configured::Settings { context, file, settings, .. } => {
            let mut object = op("config");
            put(&mut object, "context", context.as_deref());
            put_some(&mut object, "file", file.as_ref().map(|file| file.to_string_lossy()));
            put(&mut object, "settings", settings_of(settings));
            object
        }
        Configured::Context { name, file, is_default, settings } => {
            let mut object = op("context");
            put(&mut object, "context", name.as_str());
            put(&mut object, "file", file.to_string_lossy());
            put(&mut object, "default", *is_default);
            put(&mut object, "settings", settings_of(settings));
            object
        }
        Configured::NoContext => {
            let mut object = op("context");
            put(&mut object, "context", None::<String>);
            object
        }
        Configured::Changed { change, context, file } => {
            let mut object = op("context");
            put(&mut object, "change", change.word());
            put_some(&mut object, "context", context.as_deref());
            put(&mut object, "file", file.to_string_lossy());
            object
        }
        Configured::Contexts(_) => Object::new(),
    }
}

fn settings_of(settings: &[Row]) -> Object {
    let mut all = Object::new();
    for row in settings {
        let mut object = Object::new();
        match &row.value {
            Shown::Text(text) => put(&mut object, "value", text.as_str()),
            Shown::Number(number) => put(&mut object, "value", *number),
            Shown::Switch(switch) => put(&mut object, "value", *switch),
        }
        put(&mut object, "origin", row.origin.as_str());
        put(&mut all, &row.name, object);
    }
    all
}
