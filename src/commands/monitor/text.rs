//! Events of `monitor` for terminals and pipes (pure).

use std::time::Duration;

use super::members::Malformed;
use super::traffic_event::{DecodedNotification, DecodedReply, DecodedRequest, RequestSummary, TrafficEvent};
use crate::protocol::{Condition, Notification, Reply, Request};
use crate::render::cut::{Span, cut, cut_front, width_of};
use crate::render::duration::ms_text;
use crate::render::escape::escape;
use crate::render::style::Paint;
use crate::render::{Rendered, Style, Widths, counted, notice as message, time};

/// The separator of columns in a pipe.
const TAB: &str = "\t";
/// The separator of columns on a terminal.
const GAP: &str = "  ";
/// Terminals with fewer columns have no space for the longest verb in every line.
const NARROW: usize = 100;
/// The maximum widths of columns that align; longer texts move the rest of their line.
const CLIENT_WIDTH_MAX: usize = 24;
const KEY_WIDTH_MAX: usize = 32;
/// The minimum width of a value; other columns are left out if less is left.
const VALUE_WIDTH_MIN: usize = 16;

/// The columns of a line, escaped.
#[derive(Default)]
struct TrafficRow {
    word: &'static str,
    client: String,
    verb: String,
    key: String,
    /// Options of a request, outcome of a reply.
    detail: String,
    is_wrong: bool,
    size: Option<usize>,
    version: Option<String>,
    fence: Option<String>,
    elapsed: Option<Duration>,
    value: Option<String>,
}

/// Formats an event for a terminal of `columns_max` columns.
#[must_use]
pub fn text(
    event: &TrafficEvent,
    at_ms: u64,
    columns_max: Option<usize>,
    style: &Style,
    widths: &mut Widths,
) -> Rendered {
    let Some(row) = row(event, columns_max, style.stdout_is_terminal, style) else {
        return notice(event, style);
    };
    let dim = Some(Paint::Dim);
    let wrong = row.is_wrong.then_some(Paint::Error);
    // Long names would leave no space for the rest. The end of a client id is kept, because generated ids differ there.
    let is_narrow = columns_max.is_some_and(|max| max < NARROW);
    let client_max = columns_max.map_or(usize::MAX, |max| if is_narrow { max / 8 } else { max / 5 }.max(8));
    let key_max = columns_max.map_or(usize::MAX, |max| (max / 4).max(8));
    let mut client = cut_front(&row.client, client_max);
    let mut verb = row.verb;
    let mut key = cut(&[(row.key, None)], key_max, false);
    // A column is padded only for another one behind it: an error needs the space.
    let (has_verb, has_key) = (!verb.is_empty() || !key.is_empty(), !key.is_empty());
    if has_verb || !client.is_empty() {
        client = widths.client.pad(client, client_max.min(CLIENT_WIDTH_MAX));
    }
    if has_verb {
        verb = widths.verb.pad(verb, if is_narrow { "DELETE".len() } else { "KEYNOTIFY".len() });
    }
    if has_key {
        key = widths.key.pad(key, key_max.min(KEY_WIDTH_MAX));
    }
    let size = row.size.map(|size| counted(size, "byte"));
    let elapsed = row
        .elapsed
        .map(|elapsed| if elapsed == Duration::ZERO { "<1 ms".to_owned() } else { ms_text(elapsed) });
    let fence = row.fence.map(|fence| format!("fence {fence}"));
    let mut spans: Vec<Span> = vec![
        (time::of_stream(at_ms, style.stdout_is_terminal, style), dim),
        (format!("{:<8}", row.word), if row.detail.is_empty() { wrong } else { None }),
        (client, None),
        (verb, None),
        (key, None),
        (row.detail, wrong),
        (size.unwrap_or_default(), dim),
        (elapsed.unwrap_or_default(), dim),
        (fence.unwrap_or_default(), dim),
        (row.version.unwrap_or_default(), dim),
    ];
    // Left out in this order if the value or the outcome has too little space.
    const SIZE: usize = 6;
    const TOOK: usize = 7;
    const VERSION: usize = 9;
    let value = row.value.unwrap_or_default();
    let value_width = width_of(&value).min(VALUE_WIDTH_MIN);
    let needed = |spans: &[Span]| {
        let widths = spans.iter().map(|(text, _)| width_of(text)).chain([value_width]);
        let widths = widths.filter(|width| *width > 0).map(|width| width.saturating_add(GAP.len()));
        widths.fold(0, usize::saturating_add).saturating_sub(GAP.len())
    };
    for part in [VERSION, SIZE, TOOK] {
        let is_wanted = part == VERSION && style.verbose;
        if !is_wanted && columns_max.is_some_and(|max| needed(&spans) > max) {
            spans.iter_mut().skip(part).take(1).for_each(|(text, _)| text.clear());
        }
    }
    spans.push((value, None));
    let line = cut(&separated(spans), columns_max.unwrap_or(usize::MAX), style.color_stdout);
    Rendered::stdout(format!("{}\n", line.trim_end()))
}

/// Formats an event for a pipe: eleven columns, empty if unknown.
#[must_use]
pub fn columns(event: &TrafficEvent, at_ms: u64, style: &Style) -> Rendered {
    let Some(row) = row(event, None, false, style) else { return notice(event, style) };
    let elapsed = row.elapsed.map(|elapsed| format!("{:.3}", elapsed.as_secs_f64() * 1000.0));
    let columns = [
        time::in_utc(at_ms),
        row.word.to_owned(),
        row.client,
        row.verb,
        row.key,
        row.detail,
        row.size.map(|size| size.to_string()).unwrap_or_default(),
        row.version.unwrap_or_default(),
        row.fence.unwrap_or_default(),
        elapsed.unwrap_or_default(),
        row.value.unwrap_or_default(),
    ];
    Rendered::stdout(format!("{}\n", columns.join(TAB)))
}

/// Formats an event for standard error.
fn notice(event: &TrafficEvent, style: &Style) -> Rendered {
    let escaped = |text: &str| escape(text.as_bytes());
    match event {
        TrafficEvent::Listening { broker, filters, refused } => {
            let refused = refused.as_ref().map_or_else(String::new, |why| {
                format!("{}; only replies on the topics of the SDKs are visible\n", escaped(why))
            });
            let filters = escaped(&filters.join(", "));
            message(&format!("{refused}listening at {} to {filters}", escaped(broker)), style)
        }
        TrafficEvent::Lost { cause, .. } => {
            message(&format!("connection lost: {}; reconnecting", escaped(cause)), style)
        }
        _ => Rendered::default(),
    }
}

fn separated(parts: Vec<Span>) -> Vec<Span> {
    let mut spans = Vec::with_capacity(parts.len().saturating_mul(2));
    for part in parts.into_iter().filter(|(text, _)| !text.is_empty()) {
        if !spans.is_empty() {
            spans.push((GAP.to_owned(), None));
        }
        spans.push(part);
    }
    spans
}

/// Returns the columns of an event; None if it is not data. `columns_max` bounds the part of a value that is escaped.
fn row(
    event: &TrafficEvent,
    columns_max: Option<usize>,
    is_terminal: bool,
    style: &Style,
) -> Option<TrafficRow> {
    Some(match event {
        TrafficEvent::Listening { .. } | TrafficEvent::Lost { .. } => return None,
        TrafficEvent::Request(seen) => request_row(seen, columns_max),
        TrafficEvent::Reply(seen) => reply_row(seen, columns_max),
        TrafficEvent::Notification(seen) => notification_row(seen, columns_max),
        TrafficEvent::Unanswered { summary, waited } => TrafficRow {
            word: "NO-REPLY",
            elapsed: Some(*waited),
            detail: "timed out".to_owned(),
            is_wrong: true,
            ..summary_row(summary)
        },
        TrafficEvent::Gap { since_ms, until_ms } => {
            let detail = time::gap(*since_ms, *until_ms, is_terminal, style);
            TrafficRow { word: "GAP", detail, is_wrong: true, ..TrafficRow::default() }
        }
    })
}

fn summary_row(summary: &RequestSummary) -> TrafficRow {
    TrafficRow {
        client: summary.client.as_deref().map(escape).unwrap_or_default(),
        verb: summary.verb.unwrap_or_default().to_owned(),
        key: summary.key.as_ref().map(|key| escape(key.as_bytes())).unwrap_or_default(),
        ..TrafficRow::default()
    }
}

fn request_row(seen: &DecodedRequest, columns_max: Option<usize>) -> TrafficRow {
    let mut words = Vec::new();
    let mut value = None;
    match &seen.request {
        Ok(Request::Set { value: set, condition, ttl_ms, .. }) => {
            value = Some(set);
            words.extend(condition.map(|condition| match condition {
                Condition::Absent => "NX".to_owned(),
                Condition::AbsentOrEqual => "NEX".to_owned(),
            }));
            words.extend(ttl_ms.map(|ms| format!("PX {ms}")));
        }
        Ok(Request::VDel { value: expected, .. }) => value = Some(expected),
        Ok(Request::KeyNotify { stop: true, .. }) => words.push("STOP".to_owned()),
        Ok(Request::Scan { pattern, token }) => {
            words.push(escape(pattern));
            words.extend(token.as_ref().map(|_| "next page".to_owned()));
        }
        Ok(_) => {}
        Err(Malformed { error, payload }) => {
            words.push(format!("invalid request: {error}"));
            value = Some(payload);
        }
    }
    words.extend(seen.persist.then(|| "persist".to_owned()));
    words.extend(seen.problem.map(str::to_owned));
    TrafficRow {
        word: "REQUEST",
        detail: words.join(" "),
        is_wrong: seen.request.is_err() || seen.problem.is_some(),
        size: value.map(|value| value.len()),
        fence: seen.fence.as_ref().map(|fence| escape(fence.as_bytes())),
        value: value.map(|value| beginning(value, columns_max)),
        ..summary_row(&seen.summary)
    }
}

fn reply_row(seen: &DecodedReply, columns_max: Option<usize>) -> TrafficRow {
    let verb = seen.summary.verb;
    let (detail, value) = match &seen.reply {
        Ok(Reply::Done) => ("OK".to_owned(), None),
        Ok(Reply::Value(value)) => (String::new(), Some(value)),
        Ok(Reply::Count(0)) if verb == Some("KEYNOTIFY") => ("was not watched".to_owned(), None),
        Ok(Reply::Count(0)) if verb.is_some() => ("key not found".to_owned(), None),
        Ok(Reply::Count(1)) if verb.is_some() => ("deleted".to_owned(), None),
        Ok(Reply::Count(count)) => (count.to_string(), None),
        Ok(Reply::NotApplied) if verb == Some("VDEL") => ("value differs".to_owned(), None),
        Ok(Reply::NotApplied) => ("not applied".to_owned(), None),
        Ok(Reply::Absent) => ("key not found".to_owned(), None),
        Ok(Reply::Keys { keys, token }) => {
            let more = if token.is_some() { ", more to come" } else { "" };
            (format!("{}{more}", counted(keys.len(), "key")), None)
        }
        Ok(Reply::Error(refusal)) => (format!("refused: {}", escape(refusal.text().as_bytes())), None),
        Err(Malformed { error, payload }) => (format!("invalid reply: {error}"), Some(payload)),
    };
    let unseen = if seen.elapsed.is_none() { "request not seen" } else { "" };
    let words = [detail.as_str(), unseen];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    TrafficRow {
        word: "REPLY",
        detail: words.join(", "),
        is_wrong: matches!(seen.reply, Ok(Reply::Error(_)) | Err(_)),
        size: value.map(|value| value.len()),
        version: seen.version.as_ref().map(|version| escape(version.as_bytes())),
        elapsed: seen.elapsed,
        value: value.map(|value| beginning(value, columns_max)),
        ..summary_row(&seen.summary)
    }
}

fn notification_row(seen: &DecodedNotification, columns_max: Option<usize>) -> TrafficRow {
    let (verb, detail, value) = match &seen.change {
        Ok(Notification::Set(value)) => ("SET", String::new(), value.as_ref()),
        Ok(Notification::Delete) => ("DELETE", String::new(), None),
        Err(Malformed { error, payload }) => ("", format!("invalid notification: {error}"), Some(payload)),
    };
    TrafficRow {
        word: "NOTIFY",
        client: escape(&seen.client),
        verb: verb.to_owned(),
        key: escape(seen.key.as_bytes()),
        detail,
        is_wrong: seen.change.is_err(),
        size: value.map(|value| value.len()),
        version: seen.version.as_ref().map(|version| escape(version.as_bytes())),
        value: value.map(|value| beginning(value, columns_max)),
        ..TrafficRow::default()
    }
}

/// Returns the beginning of a value: a little more than a line can show, so that the cut is marked.
fn beginning(value: &[u8], columns_max: Option<usize>) -> String {
    // A character has at most 4 bytes, and nearly always a width of 1.
    const BYTES_PER_COLUMN: usize = 4;
    let bytes_max = columns_max.map_or(usize::MAX, |max| max.saturating_mul(BYTES_PER_COLUMN));
    match value.get(..bytes_max) {
        Some(beginning) if beginning.len() < value.len() => format!("{}…", escape(beginning)),
        _ => escape(value),
    }
}

#[cfg(test)]
mod tests;
