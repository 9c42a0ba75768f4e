//! JSON requests of a batch, parsed as commands.

use super::args::fence::FenceArgs;
use super::args::key::{KeyArgs, KeyListArgs};
use super::args::value::ValueArgs;
use super::command::Command;
use super::del::DelArgs;
use super::error::CommandError;
use super::get::GetArgs;
use super::lines::records::{
    Id, Member, Members, Named, begins_with_verb, data_error, decoded, is_object, missing, text,
};
use super::set::SetArgs;
use super::vdel::VdelArgs;
use crate::protocol::Condition;

/// Parses a request. Its id is returned even if the rest is invalid.
pub fn parse(line: &[u8]) -> (Option<Id>, Result<Command, CommandError>) {
    let mut members = match Members::parse(line) {
        Ok(members) => members,
        Err(error) => return (None, Err(with_example(line, error))),
    };
    (members.id(), members.check_version().and_then(|()| command(members)))
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

fn command(mut members: Members<'_>) -> Result<Command, CommandError> {
    let op = text(("op", members.op.take()))?.ok_or_else(|| missing("op"))?;
    let key = bytes(("key", members.key.take()), ("key_encoding", members.key_encoding.take()))?;
    // Members that the op does not have are left, and reported at the end.
    let mut value = || {
        let value = ("value", members.value.take());
        bytes(value, ("encoding", members.encoding.take())).map(ValueArgs::bytes)
    };
    let command = match op.as_ref() {
        "get" => Command::Get(GetArgs::plain(KeyListArgs::bytes(key))),
        "set" => {
            let (value, fence) = (value()?, FenceArgs::token(members.fence()?));
            let (condition, ttl) = (condition(&mut members)?, members.ttl_ms()?);
            let set = SetArgs::plain(KeyArgs::bytes(key), value, condition, ttl);
            Command::Set(set.with_fence(fence, persist(&mut members)?))
        }
        "del" => Command::Del(DelArgs::plain(KeyListArgs::bytes(key), FenceArgs::token(members.fence()?))),
        "vdel" => {
            let (value, fence) = (value()?, FenceArgs::token(members.fence()?));
            Command::Vdel(VdelArgs::plain(KeyArgs::bytes(key), value, fence))
        }
        other => return Err(data_error(format!("unknown op: {other}")).hint("use get, set, del or vdel")),
    };
    // A misspelt member would be a condition or an expiry that is silently left out.
    match left(&members) {
        None => Ok(command),
        Some(name) => Err(data_error(format!("unknown member \"{name}\" of {op}"))),
    }
}

/// Returns the first member that was not taken.
fn left<'a>(members: &'a Members<'_>) -> Option<&'a str> {
    let Members { value, encoding, ttl_ms, expires, condition, fence, persist, .. } = members;
    let known = [
        ("value", value),
        ("encoding", encoding),
        ("ttl_ms", ttl_ms),
        ("expires", expires),
        ("condition", condition),
        ("fence", fence),
        ("persist", persist),
    ];
    members
        .unknown
        .as_deref()
        .or_else(|| known.into_iter().find_map(|(name, member)| member.as_ref().map(|_| name)))
}

/// Returns the bytes of a member that must exist; another member states its encoding.
fn bytes(member: Named<'_>, encoding: Named<'_>) -> Result<Vec<u8>, CommandError> {
    let (name, encoding_name) = (member.0, encoding.0);
    let encoding = text(encoding)?;
    let text = text(member)?.ok_or_else(|| missing(name))?;
    decoded(name, text.into_owned(), encoding_name, encoding.as_deref())
}

fn condition(members: &mut Members<'_>) -> Result<Option<Condition>, CommandError> {
    match text(("condition", members.condition.take()))?.as_deref() {
        None => Ok(None),
        Some("nx") => Ok(Some(Condition::Absent)),
        Some("nex") => Ok(Some(Condition::AbsentOrEqual)),
        Some(other) => {
            Err(data_error(format!("invalid \"condition\": {other}")).hint("use \"nx\" or \"nex\""))
        }
    }
}

fn persist(members: &mut Members<'_>) -> Result<bool, CommandError> {
    let name = "persist";
    match members.persist.take().map(Member::into_value) {
        None => Ok(false),
        Some(flag) => {
            flag.as_bool().ok_or_else(|| data_error(format!("invalid \"{name}\": neither true nor false")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::commands::error::Kind;

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
        assert!(parse(br#"{"v":2,"id":7,"op":"get","key":"k"}"#).0.is_some());
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
