//! Lines of a trace as text and as JSON; long strings and values are cut.

use crate::client::ReasonCode;
use crate::client::trace::{ConnectPacket, Packet, Property, TraceEvent};
use crate::protocol::frame::Frame;
use crate::protocol::message::Message;
use crate::protocol::topic::Topic;
use crate::protocol::{Notification, Reply};
use crate::render::encoding::to_hex;
use crate::render::escape::{escape, spell};
use crate::render::style::{Paint, paint};
use crate::render::{Format, Style, time};

mod row;

use row::{Field, TraceRow, redacted};

/// The maximum number of bytes of a string or a value.
const SHOWN_BYTES_MAX: usize = 512;
/// The maximum number of words, keys or user properties of a packet.
const SHOWN_MAX: usize = 32;

/// Formats an event as a line for standard error or a file.
#[must_use]
pub fn line(traced: &TraceEvent, at_ms: u64, style: &Style) -> String {
    let row = row(traced);
    if style.format == Format::Json {
        return row.json(at_ms);
    }
    let arrow = match row.what {
        "sent" => "->",
        "received" => "<-",
        _ => "--",
    };
    let time =
        paint(&time::of_stream(at_ms, style.stderr_is_terminal, style), Paint::Dim, style.color_stderr);
    let mut line = format!("{time}  {arrow}  {}", escape(row.text.as_bytes()));
    line.push_str(row.packet.as_deref().unwrap_or_default());
    if row.packet.is_some() {
        for (name, field) in &row.fields {
            line.push_str(&text(name, field));
        }
    }
    line.push('\n');
    line
}

fn text(name: &str, field: &Field) -> String {
    match field {
        Field::Word(word) => format!(" {word}"),
        Field::Number(number) => format!(" {name}={number}"),
        Field::Text(text) => format!(" {name}={}", word(text.as_bytes())),
        Field::Escaped(word) => format!(" {name}={word}"),
        Field::Words(words) => format!(" [{}]", words.join(" ")),
        Field::Secret(bytes) => format!(" {name}={}", redacted(*bytes)),
        Field::User(pairs) => {
            let pair = |(name, value): &(String, String)| {
                format!(" {}={}", word(name.as_bytes()), word(value.as_bytes()))
            };
            pairs.iter().map(pair).collect()
        }
    }
}

fn row(traced: &TraceEvent) -> TraceRow {
    let event = |what, text: String, fields| TraceRow { what, packet: None, fields, text };
    let text = |text: &str| Field::Text(text.to_owned());
    match traced {
        TraceEvent::Sent(packet) => packet_row("sent", packet),
        TraceEvent::Received(packet) => packet_row("received", packet),
        TraceEvent::Connecting { target } => {
            event("connecting", format!("connecting to {target}"), vec![("broker", text(target))])
        }
        TraceEvent::Connected { address, tls, is_resumed } => {
            let mut fields: Vec<_> = address.iter().map(|address| ("address", text(address))).collect();
            fields.extend(tls.map(|tls| ("tls", text(tls))));
            fields.extend(is_resumed.then_some(("resumed", Field::Word("resumed"))));
            let to = address.as_ref().map_or_else(String::new, |address| format!(" to {address}"));
            let tls = tls.map_or_else(String::new, |tls| format!(", TLS {tls}"));
            let resumed = if *is_resumed { ", resumed" } else { "" };
            event("connected", format!("connected{to}{tls}{resumed}"), fields)
        }
        TraceEvent::Lost { cause, again_in } => {
            let mut fields = vec![("cause", text(cause))];
            let again = again_in.map_or_else(String::new, |after| {
                let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                fields.push(("again_ms", Field::Number(ms)));
                format!("; retrying in {ms} ms")
            });
            event("lost", format!("no connection: {cause}{again}"), fields)
        }
        TraceEvent::EarlyPacketsRefused => {
            let words = "packets before the CONNACK were not answered; waiting for it from now on";
            event("early-packets-refused", words.to_owned(), vec![])
        }
        TraceEvent::NewToken => {
            event("new-token", "re-authenticating with the new token of the file".to_owned(), vec![])
        }
        TraceEvent::TokenUnanswered => {
            let words = "the broker has not confirmed the new token; the session continues";
            event("token-unanswered", words.to_owned(), vec![])
        }
        TraceEvent::TooLarge { size, max } => {
            let fields = vec![("size", number(*size)), ("max", number(*max))];
            event("not-sent", format!("not sent: {size} bytes; the broker accepts at most {max}"), fields)
        }
    }
}

fn packet_row(what: &'static str, packet: &Packet) -> TraceRow {
    let id = |packet_id: u16| ("id", Field::Number(packet_id.into()));
    let (name, fields) = match packet {
        Packet::Connect(connect) => ("CONNECT", connect_fields(connect)),
        Packet::ConnAck { reason, session_present, properties } => {
            let mut fields = reason_fields(reason);
            if *session_present {
                fields.push(("session_present", Field::Word("session-present")));
            }
            fields.extend(property_fields(properties));
            ("CONNACK", fields)
        }
        Packet::Publish { packet_id, message } => {
            let mut fields: Vec<_> = packet_id.map(id).into_iter().collect();
            fields.extend(message_fields(message));
            ("PUBLISH", fields)
        }
        Packet::PubAck { packet_id, reason } => ("PUBACK", joined(id(*packet_id), reason_fields(reason))),
        Packet::Subscribe { packet_id, filter } => {
            ("SUBSCRIBE", vec![id(*packet_id), ("qos", Field::Number(1)), ("filter", text_field(filter))])
        }
        Packet::SubAck { packet_id, reason } => {
            let judged = match reason.code {
                qos @ 0..=2 => vec![("qos", Field::Number(qos.into()))],
                _ => reason_fields(reason),
            };
            ("SUBACK", joined(id(*packet_id), judged))
        }
        Packet::Unsubscribe { packet_id, filter } => {
            ("UNSUBSCRIBE", vec![id(*packet_id), ("filter", text_field(filter))])
        }
        Packet::UnsubAck { packet_id, reason } => ("UNSUBACK", joined(id(*packet_id), reason_fields(reason))),
        Packet::PingReq => ("PINGREQ", vec![]),
        Packet::PingResp => ("PINGRESP", vec![]),
        Packet::Auth { reason, method, data_bytes } => {
            let mut fields = reason_fields(reason);
            fields.extend(method.iter().map(|method| ("method", text_field(method))));
            fields.extend(data_bytes.map(|bytes| ("data", Field::Secret(Some(bytes)))));
            ("AUTH", fields)
        }
        Packet::Disconnect { reason } => ("DISCONNECT", reason_fields(reason)),
        Packet::Other(name) => (name.as_str(), vec![]),
    };
    TraceRow { what, packet: Some(name.to_owned()), fields, text: String::new() }
}

fn joined(one: (&'static str, Field), more: Vec<(&'static str, Field)>) -> Vec<(&'static str, Field)> {
    std::iter::once(one).chain(more).collect()
}

fn connect_fields(connect: &ConnectPacket) -> Vec<(&'static str, Field)> {
    let mut fields = vec![("client-id", text_field(&connect.client_id))];
    if connect.clean_start {
        fields.push(("clean-start", Field::Word("clean-start")));
    }
    fields.push(("keep-alive", Field::Number(connect.keep_alive_s.into())));
    fields.push(("session-expiry", Field::Number(connect.session_expiry_s.into())));
    fields.push(("packet-bytes-max", Field::Number(connect.packet_bytes_max.into())));
    fields.extend(connect.username.iter().map(|username| ("user", text_field(username))));
    if connect.has_password {
        fields.push(("password", Field::Secret(None)));
    }
    fields.extend(connect.method.iter().map(|method| ("method", text_field(method))));
    fields.extend(connect.data_bytes.map(|bytes| ("data", Field::Secret(Some(bytes)))));
    fields
}

fn reason_fields(reason: &ReasonCode) -> Vec<(&'static str, Field)> {
    let bare = ReasonCode { text: None, ..reason.clone() };
    let name = if reason.code == 0 { "success".to_owned() } else { bare.to_string() };
    let mut fields = vec![("reason", Field::Text(name))];
    fields.extend(reason.text.iter().map(|text| ("text", text_field(text))));
    fields
}

fn property_fields(properties: &[Property]) -> Vec<(&'static str, Field)> {
    let mut users = Vec::new();
    let mut fields = Vec::new();
    for property in properties {
        match property {
            Property::Number(name, number) => fields.push((*name, Field::Number((*number).into()))),
            Property::Text(name, text) => fields.push((*name, text_field(text))),
            Property::Secret(name, bytes) => fields.push((*name, Field::Secret(Some(*bytes)))),
            Property::User(name, value) => users.push((name.as_str(), value.as_str())),
        }
    }
    fields.extend(user_field(users.into_iter()));
    fields
}

fn user_field<'a>(pairs: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> Option<(&'static str, Field)> {
    let left = pairs.len().saturating_sub(SHOWN_MAX);
    let shown = pairs.take(SHOWN_MAX).map(|(name, value)| (cut_text(name), cut_text(value)));
    let mut shown: Vec<_> = shown.collect();
    if left > 0 {
        shown.push(("…".to_owned(), format!("and {left} more")));
    }
    (!shown.is_empty()).then_some(("user_properties", Field::User(shown)))
}

fn message_fields(message: &Message) -> Vec<(&'static str, Field)> {
    let topic = Topic::parse(&message.topic);
    let (kind, words) = match &topic {
        Some(Topic::Request) => ("request", request_words(message)),
        Some(Topic::Response { .. }) => ("reply", reply_words(message)),
        Some(Topic::Notify { .. }) => ("notification", notification_words(message)),
        None => ("message", vec![value(&message.payload)]),
    };
    let mut fields = vec![("kind", Field::Word(kind)), ("words", Field::Words(words))];
    if let Some(Topic::Notify { key, .. }) = &topic {
        fields.push(("key", Field::Escaped(value(key.as_bytes()))));
    }
    fields.push(("size", number(message.payload.len())));
    fields.push(("qos", Field::Number(message.qos as u64)));
    if message.retain {
        fields.push(("retain", Field::Word("retain")));
    }
    fields.push(("topic", text_field(&message.topic)));
    fields.extend(message.response_topic.iter().map(|topic| ("response-topic", text_field(topic))));
    let correlation = message.correlation.as_ref().map(|bytes| text_field(&to_hex(beginning(bytes))));
    fields.extend(correlation.map(|correlation| ("correlation", correlation)));
    fields.extend(message.content_type.iter().map(|kind| ("content-type", text_field(kind))));
    fields.extend(message.expiry_s.map(|seconds| ("expiry", Field::Number(seconds.into()))));
    fields.extend(message.payload_format.map(|format| ("payload-format", Field::Number(format.into()))));
    fields.extend(user_field(message.user_properties.iter()));
    fields
}

/// Returns the words of a request, valid or not.
fn request_words(message: &Message) -> Vec<String> {
    let Ok(Frame::Array(frames)) = Frame::decode(&message.payload) else {
        return vec![value(&message.payload)];
    };
    let word = |frame: &Frame| match frame {
        Frame::Bulk(bytes) => value(bytes),
        other => cut_text(&escape(format!("{other:?}").as_bytes())),
    };
    let left = frames.len().saturating_sub(SHOWN_MAX);
    let mut words: Vec<_> = frames.iter().take(SHOWN_MAX).map(word).collect();
    words.extend((left > 0).then(|| format!("… and {left} more")));
    words
}

fn reply_words(message: &Message) -> Vec<String> {
    let plain = |word: &str| vec![word.to_owned()];
    match Reply::decode(&message.payload) {
        Ok(Reply::Done) => plain("OK"),
        Ok(Reply::Value(bytes)) => vec![value(&bytes)],
        Ok(Reply::Count(count)) => vec![count.to_string()],
        Ok(Reply::NotApplied) => plain("-1"),
        Ok(Reply::Absent) => plain("key not found"),
        Ok(Reply::Keys { keys, token }) => {
            let left = keys.len().saturating_sub(SHOWN_MAX);
            let mut words: Vec<_> = keys.iter().take(SHOWN_MAX).map(|key| value(key)).collect();
            words.extend((left > 0).then(|| format!("… and {left} more")));
            words.extend(token.map(|_| "(more to come)".to_owned()));
            words
        }
        Ok(Reply::Error(refusal)) => plain(&format!("-ERR {}", cut_text(&escape(refusal.text().as_bytes())))),
        Err(_) => vec![value(&message.payload)],
    }
}

fn notification_words(message: &Message) -> Vec<String> {
    match Notification::decode(&message.payload) {
        Ok(Notification::Set(Some(bytes))) => vec!["SET".to_owned(), value(&bytes)],
        Ok(Notification::Set(None)) => vec!["SET".to_owned()],
        Ok(Notification::Delete) => vec!["DELETE".to_owned()],
        Err(_) => vec![value(&message.payload)],
    }
}

fn number(count: usize) -> Field {
    Field::Number(count as u64)
}

fn text_field(text: &str) -> Field {
    Field::Text(cut_text(text))
}

fn beginning(bytes: &[u8]) -> &[u8] {
    bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes)
}

/// Returns a value as a word; a cut value has its length.
fn value(bytes: &[u8]) -> String {
    let shown = beginning(bytes);
    let mark = if shown.len() < bytes.len() { format!("…({} bytes)", bytes.len()) } else { String::new() };
    word(shown) + &mark
}

/// Returns a word, in quotes if it is empty or contains blanks.
fn word(bytes: &[u8]) -> String {
    let escaped = spell(bytes);
    let is_plain = !escaped.is_empty() && !escaped.contains([' ', '"', '[', ']', '\u{a0}']);
    if is_plain { escaped } else { format!("\"{}\"", escaped.replace('"', "\\x22")) }
}

fn cut_text(text: &str) -> String {
    match text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)) {
        Some(shown) if shown.len() < text.len() => format!("{shown}…"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
