//! What a monitor sees, as objects.

use super::object::{Object, ms, put, put_bytes, put_some, reply_name, schema_and};
use crate::commands::duration::rfc3339;
use crate::commands::encoding::to_hex;
use crate::commands::monitor::traffic_event::{
    Correlation, DecodedNotification, DecodedReply, DecodedRequest, RequestSummary, TrafficEvent,
};
use crate::protocol::{Condition, Notification, Reply, Request};

/// Returns the object of an event.
pub(super) fn object(event: &TrafficEvent, at_ms: u64, sequence: Option<u64>) -> Object {
    let name = match event {
        TrafficEvent::Listening { .. } => "listening",
        TrafficEvent::Request(_) => "request",
        TrafficEvent::Reply(_) => "reply",
        TrafficEvent::Unanswered { .. } => "no-reply",
        TrafficEvent::Notification(_) => "notification",
        TrafficEvent::Gap { .. } => "gap",
        TrafficEvent::Lost { .. } => "lost",
    };
    let mut object = schema_and("event", name.into());
    put(&mut object, "received", rfc3339(at_ms));
    put_some(&mut object, "seq", sequence);
    match event {
        TrafficEvent::Listening { broker, filters, refused } => {
            put(&mut object, "broker", broker.as_str());
            put(&mut object, "filters", filters.as_slice());
            put_some(&mut object, "refused", refused.as_deref());
        }
        TrafficEvent::Request(seen) => put_request(&mut object, seen),
        TrafficEvent::Reply(seen) => put_reply(&mut object, seen),
        TrafficEvent::Unanswered { summary, waited } => {
            put_asked(&mut object, summary);
            put(&mut object, "ms", ms(*waited));
        }
        TrafficEvent::Notification(seen) => put_notification(&mut object, seen),
        TrafficEvent::Gap { since_ms, until_ms } => {
            put(&mut object, "since", rfc3339(*since_ms));
            put(&mut object, "until", rfc3339(*until_ms));
            put(&mut object, "ms", until_ms.saturating_sub(*since_ms));
        }
        TrafficEvent::Lost { since_ms, cause } => {
            put(&mut object, "since", rfc3339(*since_ms));
            put(&mut object, "cause", cause.as_str());
        }
    }
    object
}

fn put_asked(object: &mut Object, summary: &RequestSummary) {
    if let Some(client) = &summary.client {
        put_bytes(object, "client", "client_encoding", client);
    }
    put_some(object, "verb", summary.verb);
    if let Some(key) = &summary.key {
        put_bytes(object, "key", "key_encoding", key.as_bytes());
    }
}

fn put_value(object: &mut Object, value: &[u8]) {
    put_bytes(object, "value", "encoding", value);
    put(object, "size", value.len());
}

fn put_malformed(object: &mut Object, error: &str, payload: &[u8]) {
    put(object, "malformed", error);
    put_bytes(object, "payload", "payload_encoding", payload);
    put(object, "size", payload.len());
}

fn put_correlation(object: &mut Object, correlation: &Correlation) {
    put_some(object, "response_topic", correlation.response_topic.as_deref());
    put_some(object, "correlation", correlation.data.as_ref().map(|bytes| to_hex(bytes)));
}

fn put_request(object: &mut Object, seen: &DecodedRequest) {
    put_asked(object, &seen.summary);
    match &seen.request {
        Ok(Request::Set { value, condition, ttl_ms, .. }) => {
            let condition = condition.map(|condition| match condition {
                Condition::Absent => "nx",
                Condition::AbsentOrEqual => "nex",
            });
            put_some(object, "condition", condition);
            put_some(object, "ttl_ms", ttl_ms.map(std::num::NonZeroU64::get));
            put_value(object, value);
        }
        Ok(Request::VDel { value, .. }) => put_value(object, value),
        Ok(Request::KeyNotify { stop, .. }) => put(object, "stop", *stop),
        Ok(Request::Scan { pattern, token }) => {
            put_bytes(object, "pattern", "pattern_encoding", pattern);
            if let Some(token) = token {
                put_bytes(object, "token", "token_encoding", token);
            }
        }
        Ok(Request::Get { .. } | Request::Del { .. }) => {}
        Err(error) => put_malformed(object, error, &seen.payload),
    }
    put_some(object, "persist", seen.persist.then_some(true));
    put_some(object, "fence", seen.fence.as_deref());
    put_some(object, "timestamp", seen.timestamp.as_deref());
    put_some(object, "expiry_s", seen.expiry_s);
    put_correlation(object, &seen.correlation);
    put_some(object, "trouble", seen.problem);
}

fn put_reply(object: &mut Object, seen: &DecodedReply) {
    put_asked(object, &seen.summary);
    match &seen.reply {
        Ok(reply) => {
            put(object, "reply", reply_name(reply));
            match reply {
                Reply::Value(value) => put_value(object, value),
                Reply::Count(count) => put(object, "count", *count),
                Reply::Keys { keys, token } => {
                    put(object, "count", keys.len());
                    put(object, "more", token.is_some());
                }
                Reply::Error(refusal) => put(object, "refused", refusal.text()),
                Reply::Done | Reply::NotApplied | Reply::Absent => {}
            }
        }
        Err(error) => put_malformed(object, error, &seen.payload),
    }
    put_some(object, "version", seen.version.as_deref());
    put_some(object, "ms", seen.elapsed.map(ms));
    put_correlation(object, &seen.correlation);
}

fn put_notification(object: &mut Object, seen: &DecodedNotification) {
    put_bytes(object, "client", "client_encoding", &seen.client);
    put_bytes(object, "key", "key_encoding", seen.key.as_bytes());
    match &seen.change {
        Ok(Notification::Set(value)) => {
            put(object, "change", "set");
            if let Some(value) = value {
                put_value(object, value);
            }
        }
        Ok(Notification::Delete) => put(object, "change", "delete"),
        Err(error) => put_malformed(object, error, &seen.payload),
    }
    put_some(object, "version", seen.version.as_deref());
}
