//! The list of keys, and the page of one key with its value.

use std::time::Duration;

use bytes::Bytes;

use super::query::{self, KEYS, Query};
use super::selection::{Rank, Selection};
use super::table::{Column, List, Order, selected};
use super::text;
use crate::clock;
use crate::protocol::{Key, Timestamp};
use crate::server::operations::monitor::ServerMonitor;
use crate::store::{InvalidPattern, KeyView, KeyWalk, Version};

/// The most bytes of a key in the list.
const SHOWN_BYTES_MAX: usize = 120;
/// The longest key with a link to its value: the head of a request is limited.
const LINKED_BYTES_MAX: usize = 1_024;
/// The most bytes of a value on the page of its key.
const VALUE_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyColumn {
    Key,
    Size,
    Ttl,
    Watchers,
    Changed,
}

const COLUMNS: &[Column<KeyColumn>] = &[
    Column { name: "key", title: "Key", column: KeyColumn::Key, is_number: false },
    Column { name: "size", title: "Value size", column: KeyColumn::Size, is_number: true },
    Column { name: "ttl", title: "Expires in", column: KeyColumn::Ttl, is_number: true },
    Column { name: "watchers", title: "Watchers", column: KeyColumn::Watchers, is_number: true },
    Column { name: "changed", title: "Changed", column: KeyColumn::Changed, is_number: true },
];

struct Row {
    /// The beginning of the key.
    key: Bytes,
    key_len: usize,
    value_len: usize,
    ttl_ms: Option<u64>,
    watchers: usize,
    version: Version,
    is_fenced: bool,
}

impl Row {
    fn of(view: KeyView<'_>) -> Self {
        let key = view.key();
        Self {
            key: Bytes::copy_from_slice(key.get(..LINKED_BYTES_MAX).unwrap_or(key)),
            key_len: key.len(),
            value_len: view.value_len(),
            ttl_ms: view.ttl_ms(),
            watchers: view.watchers(),
            version: view.version(),
            is_fenced: view.fence().is_some(),
        }
    }

    fn html(&self, now_ms: u64) -> String {
        let key = link(&self.key, self.key_len);
        let fence = if self.is_fenced { " <span class=\"tag\">fenced</span>" } else { "" };
        let dim = |text: &str| format!("<span class=\"dim\">{text}</span>");
        let watchers = if self.watchers == 0 { dim("0") } else { self.watchers.to_string() };
        format!(
            "<tr><th scope=\"row\">{key}{fence}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{watchers}</td><td class=\"n\">{}</td></tr>\n",
            size(self.value_len),
            self.ttl_ms.map_or_else(|| dim("never"), expires),
            changed(self.version, now_ms),
        )
    }
}

/// Returns a key as HTML, with a link to its value. `key` is the beginning of the key at least.
pub(super) fn link(key: &[u8], key_len: usize) -> String {
    let shown = text::shortened(key, key_len, SHOWN_BYTES_MAX);
    match key_len <= LINKED_BYTES_MAX {
        true => format!("<a href=\"/key?{}={}\"><code>{shown}</code></a>", query::KEY, query::encode(key)),
        false => format!("<code>{shown}</code> <span class=\"tag\">{} long</span>", size(key_len)),
    }
}

pub(super) fn size(len: usize) -> String {
    text::bytes(len as u64)
}

fn expires(ttl_ms: u64) -> String {
    text::duration(Duration::from_secs(ttl_ms.div_ceil(1_000)))
}

/// Returns the time of a version. It may be ahead of this machine's clock.
fn changed(version: Version, now_ms: u64) -> String {
    let age = |ms: u64| text::duration(Duration::from_millis(ms));
    match now_ms.checked_sub(version.ms) {
        Some(ms) => text::time(version.ms, &format!("{} ago", age(ms))),
        None => text::time(version.ms, &format!("{} ahead", age(version.ms.saturating_sub(now_ms)))),
    }
}

/// Returns the list.
pub async fn html(monitor: &ServerMonitor, query: &Query, keys: usize) -> String {
    let list = List::new(query, (KEYS, "keys"), COLUMNS, KeyColumn::Key);
    let mut html = list.form("Filter keys", "part of a key, or a pattern: line1/*");
    html.push_str("<div id=\"keys-list\" data-live>\n");
    match rows(monitor, &list, keys).await {
        Ok(rows) => html.push_str(&rows),
        Err(InvalidPattern) => {
            html.push_str("<p class=\"bad\">The filter is not a valid pattern: [ needs a ].</p>\n")
        }
    }
    html.push_str("</div>\n");
    html
}

async fn rows(
    monitor: &ServerMonitor,
    list: &List<'_, KeyColumn>,
    keys: usize,
) -> Result<String, InvalidPattern> {
    let Order { column, is_descending } = list.order;
    let mut selection = Selection::new(selected(list.skip()), is_descending);
    let visit = |view: KeyView<'_>| {
        let number = |number: usize| Some(Rank::Number(number as u64));
        let key = view.key();
        let rank = match column {
            KeyColumn::Key => Some(Rank::Text(key.get(..LINKED_BYTES_MAX).unwrap_or(key))),
            KeyColumn::Size => number(view.value_len()),
            KeyColumn::Ttl => view.ttl_ms().map(Rank::Number),
            KeyColumn::Watchers => number(view.watchers()),
            // The latest change is the first in descending order.
            KeyColumn::Changed => Some(Rank::Number(view.version().ms)),
        };
        selection.offer(rank, || Row::of(view));
    };
    let (filter, from) = (list.query.get(KEYS.filter), list.query.number(KEYS.from));
    let mut walk = KeyWalk::new(filter, u32::try_from(from).unwrap_or(u32::MAX))?;
    monitor.service.walk_keys(&mut walk, visit).await;
    let (all, now_ms) = (selection.offered(), clock::wall_ms());
    let rows = selection.into_rows(list.skip());
    let mut html = String::new();
    if walk.is_too_expensive() {
        html.push_str("<p class=\"bad\">The filter takes too long for a key: use one without ? and [.</p>\n");
    } else if walk.next_slot().is_some() || from > 0 {
        let number = |number: usize| text::count(number as u64);
        html.push_str(&format!(
            "<p class=\"note\">This part of the store has {} of {} keys. Filter and order apply to the part.</p>\n",
            number(walk.seen().min(keys)),
            number(keys),
        ));
    }
    html.push_str(&list.head("Keys"));
    for row in &rows {
        html.push_str(&row.html(now_ms));
    }
    html.push_str(&list.foot(rows.len(), all, walk.next_slot().map(u64::from)));
    Ok(html)
}

/// A key with its value.
struct Detail {
    row: Row,
    /// The beginning of the value.
    value: Bytes,
    memory_bytes: u64,
    fence: Option<String>,
    is_persistent: bool,
}

/// Returns a key's properties and value; `None` if the key is absent.
pub fn detail(monitor: &ServerMonitor, key: &Key) -> Option<String> {
    // Everything is copied under the store's lock, and formatted without it.
    let read = |view: KeyView<'_>| Detail {
        row: Row::of(view),
        value: view.value(VALUE_BYTES_MAX),
        memory_bytes: view.memory_bytes(),
        fence: view.fence().map(Timestamp::to_text),
        is_persistent: view.is_persistent(),
    };
    let detail = monitor.service.view_key(key, read)?;
    Some(detail.html(clock::wall_ms()))
}

impl Detail {
    fn html(&self, now_ms: u64) -> String {
        let Self { row, value, memory_bytes, fence, is_persistent } = self;
        let version = row.version;
        let properties = [
            ("Value size", size(row.value_len)),
            ("Memory", text::bytes(*memory_bytes)),
            ("Expires in", row.ttl_ms.map_or_else(|| "never".to_owned(), expires)),
            ("Changed", changed(version, now_ms)),
            ("Version", format!("<code>{}:{}</code>", version.ms, version.counter)),
            (
                "Fencing token",
                fence.as_ref().map_or_else(
                    || "none".to_owned(),
                    |fence| format!("<code>{}</code>", text::escape(fence.as_bytes())),
                ),
            ),
            ("Watchers", row.watchers.to_string()),
            ("Persistent", if *is_persistent { "yes" } else { "no" }.to_owned()),
        ];
        let properties: String = properties
            .iter()
            .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n"))
            .collect();
        let shown = text::beginning(value, VALUE_BYTES_MAX);
        let note = match shown.len() < row.value_len {
            true => format!(
                "<p class=\"note\">The first {} of {}: <code>mqkv get</code> prints all of it.</p>\n",
                size(shown.len()),
                size(row.value_len),
            ),
            false => String::new(),
        };
        format!(
            "<dl class=\"card\">\n{properties}</dl>\n<h2>Value</h2>\n{note}\
             <pre tabindex=\"0\" role=\"region\" aria-label=\"Value\"><code>{}</code></pre>\n",
            text::escape_lines(shown),
        )
    }
}
