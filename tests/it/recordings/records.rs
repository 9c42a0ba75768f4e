//! JSON records of the commands, compared with the schemas of the present version.
//!
//! `tests/schemas/validate` compares them with what the commands print.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::read;

/// A kind of record as a version has printed it: its schema, the members that are always there, and a record.
struct Recorded {
    schema: String,
    required: BTreeSet<String>,
    record: Value,
}

fn parse(line: &str) -> Recorded {
    let line: Value = serde_json::from_str(line).unwrap();
    let schema = line["kind"].as_str().unwrap().split(':').next().unwrap().to_owned();
    Recorded { schema, required: texts(&line["required"]), record: line["record"].clone() }
}

fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schemas/{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the kinds of records of a schema.
fn kinds(schema: &Value) -> Vec<Value> {
    let one = schema.get("items").unwrap_or(schema);
    one.get("oneOf").map_or_else(|| vec![one.clone()], |kinds| kinds.as_array().unwrap().clone())
}

/// Returns the first member of a value that a schema does not have, or has with another type or other values.
fn foreign(value: &Value, schema: &Value, common: &Value) -> Option<String> {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let name = name.rsplit('/').next().unwrap();
        return foreign(value, &common["$defs"][name], common);
    }
    let is_type = schema.get("type").is_none_or(|types| match types {
        Value::Array(types) => types.iter().any(|name| has_type(value, name)),
        name => has_type(value, name),
    });
    let is_value = schema.get("const").is_none_or(|known| known == value)
        && schema.get("enum").is_none_or(|known| known.as_array().unwrap().contains(value));
    if !is_type || !is_value {
        return Some(format!(": {value}"));
    }
    let others = schema.get("additionalProperties").filter(|others| others.is_object());
    match (value, schema.get("properties"), schema.get("items")) {
        (Value::Object(members), properties, _) if properties.or(others).is_some() => {
            let in_member = |(name, value): (&String, &Value)| {
                let schema = properties.and_then(|known| known.get(name)).or(others);
                schema
                    .map_or(Some(String::new()), |schema| foreign(value, schema, common))
                    .map(|path| format!(".{name}{path}"))
            };
            members.iter().find_map(in_member)
        }
        (Value::Array(items), _, Some(schema)) => {
            items.iter().find_map(|item| foreign(item, schema, common)).map(|path| format!("[]{path}"))
        }
        _ => None,
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    }
}

/// Returns what the schemas of this version do not have of a recorded record.
fn difference(recorded: &Recorded, schema: &Value, common: &Value) -> Option<String> {
    let Recorded { required, record, .. } = recorded;
    let of_kind = |kind: &Value| {
        let missing = required.difference(&texts(&kind["required"])).next().cloned();
        missing.map(|name| format!(".{name} is not always there")).or_else(|| foreign(record, kind, common))
    };
    let differences: Vec<_> = kinds(schema).iter().map(of_kind).collect();
    let is_known = differences.iter().any(Option::is_none);
    (!is_known).then(|| differences.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[test]
fn schemas_have_all_members_of_the_records_of_every_version_with_their_types() {
    let common = schema("common");
    for file in read("records.jsonl") {
        assert!(file.lines().count() > 90);
        let differences = file.lines().filter_map(|line| {
            let recorded = parse(line);
            Some((difference(&recorded, &schema(&recorded.schema), &common)?, line))
        });
        let differences: Vec<_> = differences.map(|(cause, line)| format!("{cause}: {line}")).collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

#[test]
fn a_member_that_is_gone_or_has_another_type_is_found() {
    let common = schema("common");
    let line = r#"{"kind":"set: set","required":["v","op","key","applied"],"record":{"v":1,"op":"set","key":"k","applied":true}}"#;
    let difference = |change: &dyn Fn(&mut Value)| {
        let mut schema = schema("set");
        change(&mut schema);
        difference(&parse(line), &schema, &common)
    };
    assert_eq!(difference(&|_| ()), None);
    let found = difference(&|schema| drop(schema["properties"].as_object_mut().unwrap().remove("applied")));
    assert_eq!(found.unwrap(), ".applied");
    let found = difference(&|schema| schema["properties"]["applied"]["type"] = "string".into());
    assert_eq!(found.unwrap(), ".applied: true");
    let found = difference(&|schema| drop(schema["required"].as_array_mut().unwrap().pop()));
    assert_eq!(found.unwrap(), ".applied is not always there");
}
