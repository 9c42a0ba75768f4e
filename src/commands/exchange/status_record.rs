//! Records of `exchange status` (pure).

use serde::Serialize;

use super::record::{no_leaf, shown};
use crate::protocol::exchange::{LeafReport, LeafState, OwnReport, RootReport};
use crate::render::cut::cut;
use crate::render::duration::rough;
use crate::render::json::Json;
use crate::render::table::{properties, table};
use crate::render::{Format, Record, Rendered, Style, Widths, counted, negative};

/// The widest name of a leaf in the table, so that a line of it has at most 80 columns.
const NAME_COLUMNS_MAX: usize = 24;

/// The state of a root.
#[derive(Debug)]
pub struct RootStatus {
    pub report: RootReport,
    /// Whether only one leaf was asked for.
    pub is_one_leaf: bool,
    /// The fewest leaves that must be synchronized.
    pub leaves_min: u64,
}

/// The state of a leaf itself.
#[derive(Debug)]
pub struct LeafStatus(pub OwnReport);

/// There is no leaf of this name.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-status")]
pub struct NoLeaf {
    #[serde(rename = "leaf")]
    pub name: String,
    pub found: bool,
}

impl Record for NoLeaf {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        no_leaf(&self.name, style)
    }
}

impl RootStatus {
    /// Returns whether all leaves are synchronized, and enough have joined.
    #[must_use]
    pub fn is_synchronized(&self) -> bool {
        self.report.is_synchronized() && self.present() >= self.leaves_min
    }

    /// Returns the number of leaves that have ever been linked.
    fn present(&self) -> u64 {
        let leaves = self.report.leaves.iter().filter(|leaf| leaf.state != LeafState::Expected);
        leaves.count() as u64
    }

    /// Returns why the root is not synchronized; empty if it is.
    fn unfinished(&self) -> String {
        /// More would not fit a line.
        const NAMES_MAX: usize = 3;
        let Self { report, leaves_min, .. } = self;
        let is_unfinished = |leaf: &&LeafReport| leaf.state != LeafState::Synchronized;
        let names: Vec<_> =
            report.leaves.iter().filter(is_unfinished).map(|leaf| shown(&leaf.name)).collect();
        let more = match names.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        match names.get(..NAMES_MAX).unwrap_or(&names) {
            [] if self.present() < *leaves_min => {
                format!("not synchronized: {} of {leaves_min} required leaves joined", self.present())
            }
            [] => String::new(),
            names => format!("not synchronized: {}{more}", names.join(", ")),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "op", rename = "exchange-status")]
struct RootObject<'a> {
    role: &'static str,
    exchange: &'a str,
    synchronized: bool,
    ver: u64,
    records: u64,
    tombstones: u64,
    conflicts: u64,
    conflicts_dropped: u64,
    leaves: Vec<LeafObject<'a>>,
}

#[derive(Serialize)]
struct LeafObject<'a> {
    leaf: &'a str,
    state: &'static str,
    behind: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<u64>,
    conflicts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_ms: Option<u64>,
    accepted: u64,
    refused: u64,
}

impl<'a> From<&'a LeafReport> for LeafObject<'a> {
    fn from(leaf: &'a LeafReport) -> Self {
        let LeafReport { name, state, behind, pending, conflicts, heard_ms, accepted, refused } = leaf;
        Self {
            leaf: name,
            state: state.as_str(),
            behind: *behind,
            pending: *pending,
            conflicts: *conflicts,
            heard_ms: *heard_ms,
            accepted: *accepted,
            refused: *refused,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "op", rename = "exchange-status")]
struct OwnObject<'a> {
    role: &'static str,
    exchange: &'a str,
    leaf: &'a str,
    state: &'static str,
    synchronized: bool,
    received: u64,
    outbox: u64,
    outbox_bytes: u64,
    made: u64,
    accepted: u64,
    refused: u64,
    merged: u64,
    conflicts: u64,
    conflicts_dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'a str>,
}

impl Record for RootStatus {
    fn json(&self, json: &Json<'_>) -> Rendered {
        let RootReport { exchange, ver, records, tombstones, conflicts, dropped, leaves } = &self.report;
        json.data(&RootObject {
            role: "root",
            exchange,
            synchronized: self.is_synchronized(),
            ver: *ver,
            records: *records,
            tombstones: *tombstones,
            conflicts: *conflicts,
            conflicts_dropped: *dropped,
            leaves: leaves.iter().map(LeafObject::from).collect(),
        })
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let stdout = match style.format {
            Format::Text => root(&self.report, self.is_one_leaf),
            _ => self.report.leaves.iter().map(leaf_line).collect(),
        };
        with_no(stdout, &self.unfinished(), style)
    }
}

impl Record for LeafStatus {
    fn json(&self, json: &Json<'_>) -> Rendered {
        let Self(report) = self;
        json.data(&OwnObject {
            role: "leaf",
            exchange: &report.exchange,
            leaf: &report.name,
            state: report.state.as_str(),
            synchronized: report.is_synchronized,
            received: report.received,
            outbox: report.outbox,
            outbox_bytes: report.outbox_bytes,
            made: report.made,
            accepted: report.accepted,
            refused: report.refused,
            merged: report.merged,
            conflicts: report.conflicts,
            conflicts_dropped: report.dropped,
            ended: report.ended.as_deref(),
        })
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let Self(report) = self;
        let reason = match report.is_synchronized {
            true => String::new(),
            false => format!("not synchronized: {}", shown(&report.name)),
        };
        with_no(own(report), &reason, style)
    }
}

/// Adds the reason of a negative answer.
fn with_no(stdout: String, reason: &str, style: &Style) -> Rendered {
    let no = if reason.is_empty() { Rendered::default() } else { negative(reason, style) };
    Rendered { stdout: stdout.into(), ..no }
}

fn root(report: &RootReport, is_one_leaf: bool) -> String {
    let RootReport { exchange, ver, records, dropped, leaves, .. } = report;
    let count = counted(leaves.len(), "leaf");
    let head = format!("root of {}: {}, ver {ver}", shown(exchange), counted(records, "record"));
    let mut out = if is_one_leaf { format!("{head}\n") } else { format!("{head}, {count}\n") };
    if *dropped > 0 {
        let dropped = counted(dropped, "conflict");
        out.push_str(&format!("{dropped} made room for newer ones\n"));
    }
    if !leaves.is_empty() {
        out.push_str(&table_of(leaves));
    }
    out
}

/// Returns the table of the leaves: two columns of words, the others of numbers, which are aligned to the right.
fn table_of(leaves: &[LeafReport]) -> String {
    const WORDS: usize = 2;
    let mut rows =
        vec![["LEAF", "STATE", "BEHIND", "PENDING", "CONFLICTS", "HEARD"].map(str::to_owned).to_vec()];
    rows.extend(leaves.iter().map(|leaf| {
        [
            cut(&[(shown(&leaf.name), None)], NAME_COLUMNS_MAX, false),
            leaf.state.as_str().to_owned(),
            leaf.behind.to_string(),
            leaf.pending.map_or_else(|| "?".to_owned(), |count| count.to_string()),
            leaf.conflicts.to_string(),
            heard(leaf),
        ]
        .to_vec()
    }));
    table(&rows, WORDS)
}

/// Returns when a leaf was last heard.
fn heard(leaf: &LeafReport) -> String {
    match leaf.heard_ms {
        _ if leaf.is_linked() => "now".to_owned(),
        Some(ms) => format!("{} ago", rough(ms)),
        None if leaf.state == LeafState::Expected => "never".to_owned(),
        // Not since the root has started.
        None => "-".to_owned(),
    }
}

fn leaf_line(leaf: &LeafReport) -> String {
    let optional = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}\n",
        shown(&leaf.name),
        leaf.state.as_str(),
        leaf.behind,
        optional(leaf.pending),
        leaf.conflicts,
        optional(leaf.heard_ms),
    )
}

fn own(report: &OwnReport) -> String {
    let OwnReport { made, accepted, refused, merged, .. } = report;
    let head = format!("leaf {} of {}\n", shown(&report.name), shown(&report.exchange));
    let dropped = match report.dropped {
        0 => String::new(),
        dropped => format!("; {dropped} more made room for them"),
    };
    // The rest of the reason is what to do.
    let ended = report.ended.as_deref().map(|ended| shown(ended).replacen("; ", ";\n           ", 1));
    let mut rows = vec![("state", report.state.as_str().to_owned())];
    rows.extend(ended.map(|ended| ("reason", ended)));
    rows.extend([
        ("received", format!("ver {} of the root", report.received)),
        ("outbox", format!("{}, {}", counted(report.outbox, "change"), counted(report.outbox_bytes, "byte"))),
        ("changes", format!("{made} made, {accepted} accepted, {refused} refused, {merged} merged")),
        ("conflicts", format!("{}{dropped}", report.conflicts)),
    ]);
    head + &properties(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::OwnState;
    use crate::render::cut::width_of;
    use crate::render::shown as formatted;

    const STYLE: Style = Style::PLAIN;

    fn leaf(name: &str, state: LeafState) -> LeafReport {
        let is_linked = state != LeafState::Offline;
        LeafReport {
            name: name.to_owned(),
            state,
            behind: if is_linked { 0 } else { 318 },
            pending: is_linked.then_some(0),
            conflicts: 2,
            heard_ms: Some(3 * 86_400_000 + 5),
            accepted: 7,
            refused: 2,
        }
    }

    fn root_report(leaves: Vec<LeafReport>) -> RootStatus {
        let report = RootReport {
            exchange: "plant".to_owned(),
            ver: 5813,
            records: 1204,
            tombstones: 3,
            conflicts: 2,
            dropped: 0,
            leaves,
        };
        RootStatus { is_one_leaf: false, leaves_min: 0, report }
    }

    #[test]
    fn the_status_of_a_root_is_a_table() {
        let leaves = vec![leaf("press-7", LeafState::Synchronized), leaf("press-9", LeafState::Offline)];
        let (stdout, stderr) = formatted(&root_report(leaves), &STYLE);
        assert_eq!(
            stdout,
            "root of plant: 1204 records, ver 5813, 2 leaves\n\
             LEAF     STATE         BEHIND  PENDING  CONFLICTS  HEARD\n\
             press-7  synchronized       0        0          2  now\n\
             press-9  offline          318        ?          2  3 d ago\n"
        );
        assert_eq!(stderr, "error: not synchronized: press-9\n");
    }

    #[test]
    fn a_line_of_the_table_has_at_most_80_columns() {
        let mut wide = leaf(&"n".repeat(64), LeafState::Synchronized);
        (wide.behind, wide.conflicts) = (123_456_789_012, 10_000);
        let (stdout, _) = formatted(&root_report(vec![wide]), &STYLE);
        assert!(stdout.lines().all(|line| width_of(line) <= 80), "{stdout}");
    }

    #[test]
    fn a_leaf_in_a_pipe_is_a_line_with_tabs() {
        let leaves = vec![leaf("press-9", LeafState::Offline)];
        let (stdout, _) = formatted(&root_report(leaves), &Style::LINES);
        assert_eq!(stdout, "press-9\toffline\t318\t?\t2\t259200005\n");
    }

    #[test]
    fn leaves_beyond_three_are_counted() {
        let leaves = ["a", "b", "c", "d", "e"].map(|name| leaf(name, LeafState::Linked)).to_vec();
        let (_, stderr) = formatted(&root_report(leaves), &STYLE);
        assert_eq!(stderr, "error: not synchronized: a, b, c and 2 more\n");
    }

    #[test]
    fn the_status_of_a_leaf_has_one_property_per_line() {
        let report = OwnReport {
            exchange: "plant".to_owned(),
            name: "press-7".to_owned(),
            state: OwnState::Linked,
            is_synchronized: false,
            received: 5813,
            outbox: 1,
            outbox_bytes: 200,
            made: 9,
            accepted: 5,
            refused: 2,
            merged: 1,
            conflicts: 2,
            dropped: 0,
            ended: None,
        };
        let refused = OwnReport {
            state: OwnState::Offline,
            ended: Some("the leaf is not known; at the root: mqkv exchange add-leaf press-7".to_owned()),
            ..report.clone()
        };
        let (stdout, _) = formatted(&LeafStatus(refused), &STYLE);
        let state = "state:     offline\n\
                     reason:    the leaf is not known;\n           at the root: mqkv exchange add-leaf press-7\n\
                     received:  ";
        assert!(stdout.contains(state), "{stdout}");
        let (stdout, stderr) = formatted(&LeafStatus(report), &STYLE);
        assert_eq!(
            stdout,
            "leaf press-7 of plant\n\
             state:     linked\n\
             received:  ver 5813 of the root\n\
             outbox:    1 change, 200 bytes\n\
             changes:   9 made, 5 accepted, 2 refused, 1 merged\n\
             conflicts: 2\n"
        );
        assert_eq!(stderr, "error: not synchronized: press-7\n");
    }
}
