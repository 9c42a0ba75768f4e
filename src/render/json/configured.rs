//! Records of `config` and `context` as JSON objects.

use super::object::{Object, line, op, put, put_some};
use crate::commands::configured::{ConfigRecord, SettingRow, SettingValue};

/// The lines of a record: one object, or one for each context.
pub(super) fn lines(configured: &ConfigRecord) -> String {
    match configured {
        ConfigRecord::Contexts(contexts) => contexts
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

fn object(configured: &ConfigRecord) -> Object {
    match configured {
        ConfigRecord::Path { file, exists } => {
            let mut object = op("config");
            put(&mut object, "file", file.to_string_lossy());
            put(&mut object, "exists", *exists);
            object
        }
        ConfigRecord::Settings { context, file, settings, .. } => {
            let mut object = op("config");
            put(&mut object, "context", context.as_deref());
            put_some(&mut object, "file", file.as_ref().map(|file| file.to_string_lossy()));
            put(&mut object, "settings", settings_of(settings));
            object
        }
        ConfigRecord::Context { name, file, is_default, settings } => {
            let mut object = op("context");
            put(&mut object, "context", name.as_str());
            put(&mut object, "file", file.to_string_lossy());
            put(&mut object, "default", *is_default);
            put(&mut object, "settings", settings_of(settings));
            object
        }
        ConfigRecord::NoContext => {
            let mut object = op("context");
            put(&mut object, "context", None::<String>);
            object
        }
        ConfigRecord::Changed { change, context, file } => {
            let mut object = op("context");
            put(&mut object, "change", change.name());
            put_some(&mut object, "context", context.as_deref());
            put(&mut object, "file", file.to_string_lossy());
            object
        }
        ConfigRecord::Contexts(_) => Object::new(),
    }
}

fn settings_of(settings: &[SettingRow]) -> Object {
    let mut all = Object::new();
    for row in settings {
        let mut object = Object::new();
        match &row.value {
            SettingValue::Text(text) => put(&mut object, "value", text.as_str()),
            SettingValue::Number(number) => put(&mut object, "value", *number),
            SettingValue::Switch(switch) => put(&mut object, "value", *switch),
        }
        put(&mut object, "origin", row.origin.as_str());
        put(&mut all, &row.name, object);
    }
    all
}
