//! Records of `exchange conflicts` and `exchange value` (pure).

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::record::{By, origin, shown};
use crate::protocol::Key;
use crate::protocol::exchange::{ConflictReport, Lost};
use crate::render::cut::{cut, cut_front, width_of};
use crate::render::duration::rfc3339;
use crate::render::escape::{escape, escape_lines};
use crate::render::json::{self, Json};
use crate::render::{Format, Record, Rendered, Style, Widths, negative, time};

/// The widest line of a conflict on a terminal.
const CONFLICT_COLUMNS_MAX: usize = 80;
/// The widest value of a conflict on a terminal.
const VALUE_COLUMNS_MAX: usize = 12;
/// Keys, names and values of a conflict are not cut to less.
const PART_COLUMNS_MIN: usize = 4;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-conflict")]
pub struct Conflict {
    #[serde(flatten, serialize_with = "members")]
    pub conflict: ConflictReport,
    /// Milliseconds since the Unix epoch.
    #[serde(skip)]
    pub now_ms: u64,
}

/// There is no conflict of this number.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-conflict")]
pub struct NoConflict {
    pub id: u64,
    pub found: bool,
}

/// The result of `value`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-value")]
pub struct LostValue {
    pub id: u64,
    #[serde(rename = "deletion")]
    pub is_deletion: bool,
    /// The bytes that lost, or what lost without any.
    #[serde(flatten, serialize_with = "value_or_reason")]
    pub value: Result<Bytes, Lost>,
}

fn members<S: Serializer>(conflict: &ConflictReport, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        id: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        time: Option<String>,
        #[serde(flatten, serialize_with = "json::key")]
        key: &'a Key,
        leaf: &'a str,
        reason: &'a str,
        lost: Content<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        winner: Option<u64>,
        #[serde(flatten)]
        by: Option<By<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        won: Option<Content<'a>>,
    }
    let ConflictReport { id, at_ms, key, leaf, reason, lost, winner, owner, won } = conflict;
    let members = Members {
        id: *id,
        time: rfc3339(*at_ms),
        key,
        leaf,
        reason,
        lost: lost.into(),
        winner: Some(*winner).filter(|ver| *ver > 0),
        by: By::of(owner),
        won: won.as_ref().map(Content::from),
    };
    members.serialize(serializer)
}

/// A content as an object.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Deletion {
        deletion: bool,
    },
    Expired {
        expired: bool,
    },
    Unsent {
        unsent: bool,
    },
    Value {
        size: u64,
        #[serde(flatten, serialize_with = "json::value")]
        value: &'a Bytes,
    },
    /// A value that is cut.
    Start {
        size: u64,
        #[serde(flatten, serialize_with = "json::start")]
        start: &'a Bytes,
    },
    /// A value that is hidden.
    Hidden {
        size: u64,
    },
}

impl<'a> From<&'a Lost> for Content<'a> {
    fn from(content: &'a Lost) -> Self {
        match content {
            Lost::Deletion => Self::Deletion { deletion: true },
            Lost::Expired => Self::Expired { expired: true },
            Lost::Unsent => Self::Unsent { unsent: true },
            Lost::Value { start, size } if start.len() as u64 == *size => {
                Self::Value { size: *size, value: start }
            }
            Lost::Value { start, size } if start.is_empty() => Self::Hidden { size: *size },
            Lost::Value { start, size } => Self::Start { size: *size, start },
        }
    }
}

fn value_or_reason<S: Serializer>(value: &Result<Bytes, Lost>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Ok(value) => json::value(value, serializer),
        Err(lost @ (Lost::Expired | Lost::Unsent)) => Content::from(lost).serialize(serializer),
        Err(Lost::Deletion | Lost::Value { .. }) => serializer.serialize_none(),
    }
}

impl Record for Conflict {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(match style.format {
            Format::Text => text(&self.conflict, self.now_ms, style),
            _ => line(&self.conflict),
        })
    }
}

impl Record for NoConflict {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        negative(&format!("conflict not found: {}", self.id), style)
    }
}

impl Record for LostValue {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let id = self.id;
        let why = match &self.value {
            Ok(value) if style.format == Format::Text => {
                return Rendered::stdout(format!("{}\n", escape_lines(value)));
            }
            Ok(value) => return Rendered::stdout(value.clone()),
            Err(Lost::Expired) => format!("the value of conflict {id} had expired when it reached the root"),
            Err(Lost::Unsent) => {
                format!("the value of conflict {id} was too large for the root, only the leaf has it")
            }
            Err(Lost::Deletion | Lost::Value { .. }) => format!("the change of conflict {id} was a deletion"),
        };
        negative(&format!("no value: {why}"), style)
    }

    fn bytes(&self) -> Option<&Bytes> {
        self.value.as_ref().ok()
    }
}

/// Formats a conflict as one line, in which keys, names and values are cut alike where they are too long; hardly if
/// `verbose`.
fn text(conflict: &ConflictReport, now_ms: u64, style: &Style) -> String {
    let ConflictReport { id, at_ms, key, leaf, reason, lost, winner, owner, won } = conflict;
    // The usual reasons follow from who has won.
    let is_usual = matches!(reason.as_str(), "root-wins" | "first-leaf-wins") && !style.verbose;
    let reason = if is_usual { String::new() } else { format!(" ({})", shown(reason).replace('-', " ")) };
    let (when, key) = (when(*at_ms, now_ms, style), escape(key.as_bytes()));
    let line = |columns: usize| {
        let name = |name: String| cut(&[(name, None)], columns, false);
        let value =
            |content: &Lost| cut(&[(content_text(content), None)], columns.min(VALUE_COLUMNS_MAX), false);
        let won = match won {
            _ if *winner == 0 => String::new(),
            Some(won) => format!(" to {} of {}, ver {winner}", value(won), name(origin(owner))),
            None => format!(" to ver {winner} of {}", name(origin(owner))),
        };
        let (key, lost, leaf) = (cut_front(&key, columns), value(lost), name(shown(leaf)));
        format!("{id}  {when}  {key}  {lost} of {leaf} lost{won}{reason}")
    };
    let mut lines = (PART_COLUMNS_MIN..=CONFLICT_COLUMNS_MAX).rev().map(line);
    let fitting = lines.find(|line| style.verbose || width_of(line) <= CONFLICT_COLUMNS_MAX);
    fitting.unwrap_or_else(|| line(PART_COLUMNS_MIN)) + "\n"
}

/// Returns the time of day, or the date of an event that is over a day old.
fn when(at_ms: u64, now_ms: u64, style: &Style) -> String {
    const TIME: usize = "20:13:59".len();
    const DATE: usize = "2025-11-20".len();
    let text = if now_ms.abs_diff(at_ms) < DAY_MS {
        time::of_stream(at_ms, true, style).get(..TIME).map(str::to_owned)
    } else {
        time::in_utc(at_ms).get(..DATE).map(str::to_owned)
    };
    text.unwrap_or_default()
}

fn line(conflict: &ConflictReport) -> String {
    let ConflictReport { id, at_ms, key, leaf, reason, lost, winner, owner, .. } = conflict;
    let columns = [
        id.to_string(),
        time::in_utc(*at_ms),
        escape(key.as_bytes()),
        shown(leaf),
        shown(reason),
        winner.to_string(),
        origin(owner),
        content_text(lost),
    ];
    columns.join("\t") + "\n"
}

fn content_text(content: &Lost) -> String {
    match content {
        Lost::Deletion => "deletion".to_owned(),
        Lost::Expired => "expired value".to_owned(),
        Lost::Unsent => "value at the leaf".to_owned(),
        Lost::Value { start, size } => {
            let more = if (start.len() as u64) < *size { "…" } else { "" };
            // An empty value would look like a missing column.
            if start.is_empty() { "\"\"".to_owned() } else { format!("{}{more}", escape(start)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::Origin;

    const STYLE: Style = Style::PLAIN;

    fn conflict() -> ConflictReport {
        let value = |text: &'static str| Lost::of(Some(&text.into()));
        ConflictReport {
            id: 41,
            at_ms: 1_763_669_639_958,
            key: Key::new("line/2/setpoint").unwrap(),
            leaf: "press-7".to_owned(),
            reason: "first-leaf-wins".to_owned(),
            lost: value("80"),
            winner: 5790,
            owner: Origin::Leaf("press-9".to_owned()),
            won: Some(value("75")),
        }
    }

    fn conflict_of(change: impl FnOnce(&mut ConflictReport)) -> String {
        let mut conflict = conflict();
        change(&mut conflict);
        let now_ms = conflict.at_ms;
        text(&conflict, now_ms, &STYLE)
    }

    #[test]
    fn a_conflict_is_a_line_of_80_columns() {
        let line = conflict_of(|_| {});
        assert_eq!(line, "41  20:13:59  line/2/setpoint  80 of press-7 lost to 75 of press-9, ver 5790\n");
        let line = conflict_of(|it| {
            (it.key, it.lost) = (Key::new("k").unwrap(), Lost::of(Some(&"long value\n with more".into())));
        });
        assert!(line.contains("  long value\\… of"), "{line}");
        assert!(conflict_of(|it| it.key = Key::new(vec![b'k'; 99]).unwrap()).contains("  …kkkk"));
    }

    #[test]
    fn long_parts_of_a_conflict_are_cut_alike() {
        let long = |it: &mut ConflictReport| {
            it.id = 10_000;
            it.key = Key::new(vec![b'k'; 99]).unwrap();
            (it.leaf, it.owner) = ("l".repeat(64), Origin::Leaf("o".repeat(64)));
            (it.lost, it.won) = (Lost::of(Some(&"日".repeat(99).into())), Some(Lost::Deletion));
        };
        let line = conflict_of(long);
        let expected = "10000  20:13:59  …kkkkk  日日… of lllll… lost to delet… of ooooo…, ver 5790\n";
        assert_eq!(line, expected);
        let line = conflict_of(|it| {
            long(it);
            it.reason = "restored".to_owned();
        });
        assert!(line.ends_with(" (restored)\n") && width_of(line.trim_end()) <= 80, "{line}");
        let mut conflict = conflict();
        long(&mut conflict);
        let line = text(&conflict, conflict.at_ms, &Style { verbose: true, ..STYLE });
        assert!(line.contains(&"l".repeat(64)) && line.ends_with(" (first leaf wins)\n"), "{line}");
        // What has room is not cut.
        let line = conflict_of(|it| {
            it.key = Key::new("line/2/press/setpoint/upper").unwrap();
            (it.leaf, it.owner) = ("p7".to_owned(), Origin::Leaf("p9".to_owned()));
        });
        assert!(line.contains("  line/2/press/setpoint/upper  80 of p7 lost"), "{line}");
    }

    #[test]
    fn a_conflict_has_its_reason_if_that_is_unusual() {
        assert!(
            conflict_of(|it| (it.lost, it.won) = (Lost::Deletion, None))
                .ends_with("  deletion of press-7 lost to ver 5790 of press-9\n")
        );
        assert!(
            conflict_of(|it| (it.winner, it.reason) = (0, "unknown-base".to_owned()))
                .ends_with("  80 of press-7 lost (unknown base)\n")
        );
        assert!(conflict_of(|it| it.owner = Origin::Root).ends_with("lost to 75 of the root, ver 5790\n"));
    }

    #[test]
    fn a_conflict_of_another_day_has_its_date() {
        let conflict = conflict();
        let line = text(&conflict, conflict.at_ms + DAY_MS, &STYLE);
        assert!(line.starts_with("41  2025-11-20  line/2"), "{line}");
        assert_eq!(
            super::line(&conflict),
            "41\t2025-11-20T20:13:59.958Z\tline/2/setpoint\tpress-7\tfirst-leaf-wins\t5790\tpress-9\t80\n"
        );
    }

    #[test]
    fn texts_of_other_nodes_cannot_control_the_terminal() {
        let hostile = "\x1b[2J\n".to_owned();
        let line = conflict_of(|it| (it.leaf, it.reason) = (hostile.clone(), hostile));
        assert!(
            line.contains("\\x1B[2J\\x0A") && line.ends_with('\n') && line.lines().count() == 1,
            "{line}"
        );
    }
}
