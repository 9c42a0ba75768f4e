//! Records of `exchange` for terminals and pipes.

use super::cut::{cut, cut_front, width_of};
use super::escape::{escape, escape_lines};
use super::message::negative;
use super::table::table;
use super::{Rendered, Style, time};
use crate::commands::encoding::to_hex;
use crate::commands::output::{ExchangeRecord, present};
use crate::protocol::Key;
use crate::protocol::exchange::{
    ConflictReport, KeyReport, LeafReport, LeafState, Lost, Origin, OwnReport, RootReport, RuleReport,
};

/// The widest name of a leaf in the table, so that a line of it has at most 80 columns.
const NAME_COLUMNS_MAX: usize = 24;
/// The widest line of a conflict on a terminal.
const CONFLICT_COLUMNS_MAX: usize = 80;
/// The widest value of a conflict on a terminal.
const VALUE_COLUMNS_MAX: usize = 12;
/// Keys, names and values of a conflict are not cut to less.
const PART_COLUMNS_MIN: usize = 4;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Formats a record for a terminal.
#[must_use]
pub fn text(record: &ExchangeRecord, style: &Style) -> Rendered {
    match record {
        ExchangeRecord::Root { is_one_leaf, leaves_min, report } => {
            with_no(root(report, *is_one_leaf), &unfinished(report, *leaves_min), style)
        }
        ExchangeRecord::Leaf(report) => with_no(own(report), &own_unfinished(report), style),
        ExchangeRecord::Key { key, report } => Rendered::stdout(key_text(key, report)),
        ExchangeRecord::Conflict { conflict, now_ms } => {
            Rendered::stdout(conflict_text(conflict, *now_ms, style))
        }
        ExchangeRecord::Value { value: Ok(value), .. } => {
            Rendered::stdout(format!("{}\n", escape_lines(value)))
        }
        ExchangeRecord::Cleared { count } => {
            confirmation(&format!("cleared {}", counted(*count, "conflict")), style)
        }
        ExchangeRecord::LeafAdded { name, is_known: false } => {
            confirmation(&format!("{} may join", shown(name)), style)
        }
        ExchangeRecord::LeafAdded { name, is_known: true } => {
            confirmation(&format!("{} is known already", shown(name)), style)
        }
        ExchangeRecord::LeafDropped { name, is_known: true } => {
            confirmation(&format!("dropped {}", shown(name)), style)
        }
        ExchangeRecord::Resync { is_new_root: true, .. } => {
            confirmation("the leaf joins the root that it reaches next, and offers its keys", style)
        }
        ExchangeRecord::Resync { name, count: Some(count), .. } => {
            let leaves = match (name, count) {
                (None, 0) => return confirmation("there is no leaf", style),
                // The root may have one leaf, or the broker is a leaf.
                (None, 1) => String::new(),
                (None, count) => format!(": {}", counted(*count, "leaf")),
                (Some(name), _) => format!(": {}", shown(name)),
            };
            confirmation(&format!("all records are sent again{leaves}"), style)
        }
        ExchangeRecord::Reconnect { is_needed: true } => confirmation("the leaf connects now", style),
        ExchangeRecord::Reconnect { is_needed: false } => confirmation("the leaf is connected", style),
        other => lines(other, style),
    }
}

/// Formats a record for a pipe: data only, with tabs between the columns.
#[must_use]
pub fn lines(record: &ExchangeRecord, style: &Style) -> Rendered {
    match record {
        ExchangeRecord::Root { report, leaves_min, .. } => {
            with_no(report.leaves.iter().map(leaf_line).collect(), &unfinished(report, *leaves_min), style)
        }
        ExchangeRecord::Leaf(report) => with_no(own(report), &own_unfinished(report), style),
        ExchangeRecord::Key { key, report } => Rendered::stdout(key_text(key, report)),
        ExchangeRecord::Conflict { conflict, .. } => Rendered::stdout(conflict_line(conflict)),
        ExchangeRecord::NoLeaf { name }
        | ExchangeRecord::LeafDropped { name, is_known: false }
        | ExchangeRecord::Resync { name: Some(name), count: None, .. } => {
            negative(&format!("leaf not found: {}", shown(name)), style)
        }
        ExchangeRecord::NoConflict { id } => negative(&format!("conflict not found: {id}"), style),
        ExchangeRecord::Value { id, value: Err(lost) } => {
            let why = match lost {
                Lost::Expired => format!("the value of conflict {id} had expired when it reached the root"),
                Lost::Unsent => {
                    format!("the value of conflict {id} was too large for the root, only the leaf has it")
                }
                Lost::Deletion | Lost::Value { .. } => format!("the change of conflict {id} was a deletion"),
            };
            negative(&format!("no value: {why}"), style)
        }
        // A value is formatted in `raw`.
        ExchangeRecord::Value { .. }
        | ExchangeRecord::Cleared { .. }
        | ExchangeRecord::LeafAdded { .. }
        | ExchangeRecord::LeafDropped { .. }
        | ExchangeRecord::Reconnect { .. }
        | ExchangeRecord::Resync { .. } => Rendered::default(),
    }
}

fn confirmation(text: &str, style: &Style) -> Rendered {
    if style.quiet { Rendered::default() } else { Rendered::stdout(format!("{text}\n")) }
}

/// Adds the reason of a negative answer.
fn with_no(stdout: String, reason: &str, style: &Style) -> Rendered {
    let no = if reason.is_empty() { Rendered::default() } else { negative(reason, style) };
    Rendered { stdout: stdout.into(), ..no }
}

fn unfinished(report: &RootReport, leaves_min: u64) -> String {
    /// More would not fit a line.
    const NAMES_MAX: usize = 3;
    let is_unfinished = |leaf: &&LeafReport| leaf.state != LeafState::Synchronised;
    let names: Vec<_> = report.leaves.iter().filter(is_unfinished).map(|leaf| shown(&leaf.name)).collect();
    let more = match names.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match names.get(..NAMES_MAX).unwrap_or(&names) {
        [] if present(report) < leaves_min => {
            format!("not synchronised: {} of {leaves_min} required leaves joined", present(report))
        }
        [] => String::new(),
        names => format!("not synchronised: {}{more}", names.join(", ")),
    }
}

fn own_unfinished(report: &OwnReport) -> String {
    if report.is_synchronised {
        return String::new();
    }
    format!("not synchronised: {}", shown(&report.name))
}

fn root(report: &RootReport, is_one_leaf: bool) -> String {
    let RootReport { exchange, ver, records, dropped, leaves, .. } = report;
    let count = counted(u64::try_from(leaves.len()).unwrap_or(u64::MAX), "leaf");
    let head = format!("root of {}: {}, ver {ver}", shown(exchange), counted(*records, "record"));
    let mut out = if is_one_leaf { format!("{head}\n") } else { format!("{head}, {count}\n") };
    if *dropped > 0 {
        let dropped = counted(*dropped, "conflict");
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
        vec![["LEAF", "STATE", "BEHIND", "UNJUDGED", "CONFLICTS", "HEARD"].map(str::to_owned).to_vec()];
    rows.extend(leaves.iter().map(|leaf| {
        [
            cut(&[(shown(&leaf.name), None)], NAME_COLUMNS_MAX, false),
            leaf.state.as_str().to_owned(),
            leaf.behind.to_string(),
            leaf.unjudged.map_or_else(|| "?".to_owned(), |count| count.to_string()),
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

/// Returns a duration in its greatest unit.
fn rough(ms: u64) -> String {
    let units = [(DAY_MS, "d"), (60 * 60 * 1_000, "h"), (60 * 1_000, "min")];
    let (unit, name) = units.into_iter().find(|(unit, _)| ms >= *unit).unwrap_or((1_000, "s"));
    format!("{} {name}", ms.checked_div(unit).unwrap_or(0))
}

fn leaf_line(leaf: &LeafReport) -> String {
    let optional = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}\n",
        shown(&leaf.name),
        leaf.state.as_str(),
        leaf.behind,
        optional(leaf.unjudged),
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
        ("cursor", format!("ver {} of the root", report.cursor)),
        ("outbox", format!("{}, {}", counted(report.outbox, "change"), counted(report.outbox_bytes, "byte"))),
        ("changes", format!("{made} made, {accepted} accepted, {refused} refused, {merged} merged")),
        ("conflicts", format!("{}{dropped}", report.conflicts)),
    ]);
    head + &properties(&rows)
}

fn key_text(key: &Key, report: &KeyReport) -> String {
    let mut rows = vec![("key", escape(key.as_bytes())), ("state", report.state.as_str().to_owned())];
    match &report.rule {
        None => rows.push(("rule", "none: the key takes no part".to_owned())),
        Some(RuleReport { number, keys, is_for_leaves, leaves }) => {
            rows.push(("rule", format!("{number}: {}", patterns(keys))));
            rows.push(("change", if *is_for_leaves { "leaves" } else { "root" }.to_owned()));
            rows.push(("leaves", leaves.as_deref().map_or_else(|| "all".to_owned(), patterns)));
        }
    }
    if report.ver > 0 {
        rows.push(("ver", report.ver.to_string()));
    }
    rows.extend(report.change_id.map(|change_id| ("change id", to_hex(&change_id))));
    match &report.owner {
        Origin::Unknown => {}
        owner => rows.push(("by", origin(owner))),
    }
    rows.extend(report.pending.map(|change_id| ("pending", to_hex(&change_id))));
    properties(&rows)
}

/// Formats one property per line.
fn properties(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{:11}{value}\n", format!("{name}:"))).collect()
}

/// Formats a conflict as one line, in which keys, names and values are cut alike where they are too long; hardly if
/// `verbose`.
fn conflict_text(conflict: &ConflictReport, now_ms: u64, style: &Style) -> String {
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

fn conflict_line(conflict: &ConflictReport) -> String {
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
            let is_cut = u64::try_from(start.len()).is_ok_and(|len| len < *size);
            let more = if is_cut { "…" } else { "" };
            // An empty value would look like a missing column.
            if start.is_empty() { "\"\"".to_owned() } else { format!("{}{more}", escape(start)) }
        }
    }
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Unknown => "?".to_owned(),
        Origin::Root => "the root".to_owned(),
        Origin::Leaf(name) => shown(name),
    }
}

fn patterns(patterns: &[String]) -> String {
    patterns.iter().map(|pattern| shown(pattern)).collect::<Vec<_>>().join(", ")
}

fn counted(count: u64, name: &str) -> String {
    match (count, name) {
        (1, name) => format!("1 {name}"),
        (count, "leaf") => format!("{count} leaves"),
        (count, name) => format!("{count} {name}s"),
    }
}

fn shown(text: &str) -> String {
    escape(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::{KeyState, OwnState};

    const STYLE: Style = Style::PLAIN;

    fn leaf(name: &str, state: LeafState) -> LeafReport {
        let is_linked = state != LeafState::Offline;
        LeafReport {
            name: name.to_owned(),
            state,
            behind: if is_linked { 0 } else { 318 },
            unjudged: is_linked.then_some(0),
            conflicts: 2,
            heard_ms: Some(3 * DAY_MS + 5),
            accepted: 7,
            refused: 2,
        }
    }

    fn root_report(leaves: Vec<LeafReport>) -> ExchangeRecord {
        let report = RootReport {
            exchange: "plant".to_owned(),
            ver: 5813,
            records: 1204,
            tombstones: 3,
            conflicts: 2,
            dropped: 0,
            leaves,
        };
        ExchangeRecord::Root { is_one_leaf: false, leaves_min: 0, report }
    }

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
        conflict_text(&conflict, now_ms, &STYLE)
    }

    #[test]
    fn the_status_of_a_root_is_a_table() {
        let leaves = vec![leaf("press-7", LeafState::Synchronised), leaf("press-9", LeafState::Offline)];
        let rendered = text(&root_report(leaves), &STYLE);
        assert_eq!(
            rendered.stdout,
            "root of plant: 1204 records, ver 5813, 2 leaves\n\
             LEAF     STATE         BEHIND  UNJUDGED  CONFLICTS  HEARD\n\
             press-7  synchronised       0         0          2  now\n\
             press-9  offline          318         ?          2  3 d ago\n"
        );
        assert_eq!(rendered.stderr, "error: not synchronised: press-9\n");
    }

    #[test]
    fn a_line_of_the_table_has_at_most_80_columns() {
        let mut wide = leaf(&"n".repeat(64), LeafState::Synchronised);
        (wide.behind, wide.conflicts) = (123_456_789_012, 10_000);
        let rendered = text(&root_report(vec![wide]), &STYLE);
        let text = str::from_utf8(&rendered.stdout).unwrap();
        assert!(text.lines().all(|line| width_of(line) <= 80), "{text}");
    }

    #[test]
    fn a_leaf_in_a_pipe_is_a_line_with_tabs() {
        let leaves = vec![leaf("press-9", LeafState::Offline)];
        let rendered = lines(&root_report(leaves), &STYLE);
        assert_eq!(rendered.stdout, "press-9\toffline\t318\t?\t2\t259200005\n");
    }

    #[test]
    fn leaves_beyond_three_are_counted() {
        let leaves = ["a", "b", "c", "d", "e"].map(|name| leaf(name, LeafState::Linked)).to_vec();
        let rendered = text(&root_report(leaves), &STYLE);
        assert_eq!(rendered.stderr, "error: not synchronised: a, b, c and 2 more\n");
    }

    #[test]
    fn the_status_of_a_leaf_has_one_property_per_line() {
        let report = OwnReport {
            exchange: "plant".to_owned(),
            name: "press-7".to_owned(),
            state: OwnState::Linked,
            is_synchronised: false,
            cursor: 5813,
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
        let rendered = text(&ExchangeRecord::Leaf(refused), &STYLE);
        let shown = str::from_utf8(&rendered.stdout).unwrap();
        let state = "state:     offline\n\
                     reason:    the leaf is not known;\n           at the root: mqkv exchange add-leaf press-7\n\
                     cursor:    ";
        assert!(shown.contains(state), "{shown}");
        let rendered = text(&ExchangeRecord::Leaf(report), &STYLE);
        assert_eq!(
            rendered.stdout,
            "leaf press-7 of plant\n\
             state:     linked\n\
             cursor:    ver 5813 of the root\n\
             outbox:    1 change, 200 bytes\n\
             changes:   9 made, 5 accepted, 2 refused, 1 merged\n\
             conflicts: 2\n"
        );
        assert_eq!(rendered.stderr, "error: not synchronised: press-7\n");
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
        let line = conflict_text(&conflict, conflict.at_ms, &Style { verbose: true, ..STYLE });
        assert!(line.contains(&"l".repeat(64)) && line.ends_with(" (first leaf wins)\n"), "{line}");
        // What has room is not cut.
        let line = conflict_of(|it| {
            it.key = Key::new("line/2/press/setpoint/upper").unwrap();
            (it.leaf, it.owner) = ("p7".to_owned(), Origin::Leaf("p9".to_owned()));
        });
        assert!(line.contains("  line/2/press/setpoint/upper  80 of p7 lost"), "{line}");
    }

    #[test]
    fn a_resync_is_confirmed_for_its_leaves() {
        let resync = |name: Option<&str>, count, is_new_root| {
            let name = name.map(str::to_owned);
            let rendered = text(&ExchangeRecord::Resync { name, count, is_new_root }, &STYLE);
            str::from_utf8(&rendered.stdout).unwrap().to_owned() + &rendered.stderr
        };
        let again = "all records are sent again";
        assert_eq!(resync(None, Some(2), false), format!("{again}: 2 leaves\n"));
        assert_eq!(resync(None, Some(1), false), format!("{again}\n"));
        assert_eq!(resync(None, Some(0), false), "there is no leaf\n");
        assert_eq!(resync(Some("mill"), Some(1), false), format!("{again}: mill\n"));
        assert_eq!(resync(Some("mill"), None, false), "error: leaf not found: mill\n");
        let joins = "the leaf joins the root that it reaches next, and offers its keys\n";
        assert_eq!(resync(None, Some(1), true), joins);
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
        let line = conflict_text(&conflict, conflict.at_ms + DAY_MS, &STYLE);
        assert!(line.starts_with("41  2025-11-20  line/2"), "{line}");
        assert_eq!(
            conflict_line(&conflict),
            "41\t2025-11-20T20:13:59.958Z\tline/2/setpoint\tpress-7\tfirst-leaf-wins\t5790\tpress-9\t80\n"
        );
    }

    #[test]
    fn a_key_is_shown_with_its_rule() {
        let report = KeyReport {
            state: KeyState::Captured,
            rule: Some(RuleReport {
                number: 2,
                keys: vec!["line/*".to_owned(), "state/*".to_owned()],
                is_for_leaves: true,
                leaves: None,
            }),
            ver: 5,
            change_id: Some([1; 16]),
            owner: Origin::Root,
            pending: None,
        };
        let key = Key::new("line/2").unwrap();
        let rendered = text(&ExchangeRecord::Key { key: key.clone(), report: report.clone() }, &STYLE);
        assert_eq!(
            rendered.stdout,
            "key:       line/2\nstate:     captured\nrule:      2: line/*, state/*\nchange:    leaves\n\
             leaves:    all\nver:       5\nchange id: 01010101010101010101010101010101\nby:        the root\n"
        );
        let local = KeyReport {
            state: KeyState::Local,
            rule: None,
            ver: 0,
            change_id: None,
            owner: Origin::Unknown,
            ..report
        };
        let rendered = text(&ExchangeRecord::Key { key, report: local }, &STYLE);
        assert_eq!(
            rendered.stdout,
            "key:       line/2\nstate:     local\nrule:      none: the key takes no part\n"
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
