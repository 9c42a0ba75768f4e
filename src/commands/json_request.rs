//! JSON requests of a batch, parsed as commands.

use super::args::fence::FenceArgs;
use super::args::key::{KeyArgs, KeyListArgs};
use super::args::value::ValueArgs;
use super::command::Command;
use super::del::DelArgs;
use super::error::CommandError;
use super::get::GetArgs;
use super::lines::records::{Id, Record, begins_with_verb, data_error, is_object};
use super::set::SetArgs;
use super::vdel::VdelArgs;

/// Parses a request. Its id is returned even if the rest is invalid.
pub fn parse(line: &[u8]) -> (Option<Id>, Result<Command, CommandError>) {
    let mut record = match Record::parse(line) {
        Ok(record) => record,
        Err(error) => return (None, Err(with_example(line, error))),
    };
    (record.id(), command(record))
}

/// Adds hints to the error of a line that is no object.
fn with_example(line: &[u8], error: CommandError) -> CommandError {
    if is_object(line) {
        return error;
    }
    let error = error.hint(r#"each line is an object: {"op":"set","key":"line1/temp","value":"21.5"}"#);
    match begins_with_verb(line) {
        true => error.hint("omit --format jsonl for lines such as: set KEY VALUE"),
        false => error,
    }
}

fn command(mut record: Record) -> Result<Command, CommandError> {
    let op = record.required_text("op")?;
    let key = record.required_bytes("key", "key_encoding")?;
    // Members that the op does not have stay in the record, and are reported at the end.
    let fence = |record: &mut Record| record.fence().map(FenceArgs::token);
    let value = |record: &mut Record| record.required_bytes("value", "encoding").map(ValueArgs::bytes);
    let command = match op.as_str() {
        "get" => Command::Get(GetArgs::plain(KeyListArgs::bytes(key))),
        "set" => {
            let (value, fence) = (value(&mut record)?, fence(&mut record)?);
            let (condition, ttl) = (record.condition()?, record.ttl_ms()?);
            let set = SetArgs::plain(KeyArgs::bytes(key), value, condition, ttl);
            Command::Set(set.with_fence(fence, record.flag("persist")?))
        }
        "del" => Command::Del(DelArgs::plain(KeyListArgs::bytes(key), fence(&mut record)?)),
        "vdel" => {
            let (value, fence) = (value(&mut record)?, fence(&mut record)?);
            Command::Vdel(VdelArgs::plain(KeyArgs::bytes(key), value, fence))
        }
        other => return Err(data_error(format!("unknown op: {other}")).hint("use get, set, del or vdel")),
    };
    record.finish(&op)?;
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::commands::error::Kind;
    use crate::protocol::Condition;

    fn failure(line: &str) -> String {
        parse(line.as_bytes()).1.unwrap_err().message
    }

    fn debug(line: &str) -> String {
        format!("{:?}", parse(line.as_bytes()).1.unwrap())
    }

    #[test]
    fn a_request_has_all_options_of_a_line() {
        let plain = |key: &str| KeyArgs::bytes(key.into());
        assert_eq!(
            debug(
                r#"{"op":"set","key":"k","value":"AP8=","encoding":"base64","ttl_ms":5,"condition":"nx","persist":true}"#
            ),
            format!(
                "{:?}",
                Command::Set(
                    SetArgs::plain(
                        plain("k"),
                        ValueArgs::bytes(vec![0, 255]),
                        Some(Condition::Absent),
                        NonZeroU64::new(5)
                    )
                    .with_fence(FenceArgs::default(), true)
                )
            )
        );
        assert_eq!(
            debug(r#"{"v":1,"op":"get","key":"k"}"#),
            format!("{:?}", Command::Get(GetArgs::plain(KeyListArgs::bytes(b"k".to_vec()))))
        );
        assert!(
            debug(r#"{"op":"del","key":"/w==","key_encoding":"base64","fence":"1:2:n"}"#).contains("255")
        );
    }

    #[test]
    fn an_id_is_any_json_and_is_returned_for_an_invalid_request_too() {
        let (id, result) = parse(br#"{"id":{"a":[1]},"op":"gte","key":"k"}"#);
        assert_eq!(id.unwrap().value().to_string(), r#"{"a":[1]}"#);
        let error = result.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::Data, "unknown op: gte"));
    }

    #[test]
    fn an_invalid_request_has_an_error_that_names_the_member() {
        for (line, message) in [
            ("set k v", "not a JSON object"),
            ("[1]", "not a JSON object"),
            (r#"{"op":"get","key":"k""#, "invalid JSON: unexpected end of line"),
            (r#"{"op":"get"}"#, "missing member \"key\""),
            (r#"{"key":"k"}"#, "missing member \"op\""),
            (r#"{"op":"set","key":"k"}"#, "missing member \"value\""),
            (r#"{"op":"set","key":"k","value":5}"#, "invalid \"value\": not a string"),
            (r#"{"op":"set","key":"k","value":"v","ttl":5}"#, "unknown member \"ttl\" of set"),
            (r#"{"op":"get","key":"k","value":"v"}"#, "unknown member \"value\" of get"),
            (
                r#"{"op":"set","key":"k","value":"v","ttl_ms":0}"#,
                "invalid \"ttl_ms\": not a positive integer",
            ),
            (r#"{"v":2,"op":"get","key":"k"}"#, "unsupported schema version 2: expected \"v\":1"),
            (r#"{"op":"get","key":"k","key_encoding":"hex"}"#, "invalid \"key_encoding\": hex"),
        ] {
            assert_eq!(failure(line), message, "{line}");
        }
        assert!(
            failure(r#"{"op":"get","key":"!","key_encoding":"base64"}"#)
                .starts_with("invalid \"key\": invalid base64")
        );
        assert!(failure(r#"{"op":"del","key":"k","fence":"5"}"#).starts_with("invalid \"fence\": "));
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_rejected(line in vec(any::<u8>(), 0..60)) {
            let _ = parse(&line);
        }
    }
}
