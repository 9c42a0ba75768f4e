//! The node of an exchange: its numbers, the leaves of a root, the last conflicts.

use std::time::Duration;

use super::parts::{cards, live, number_of, share};
use super::query::{LEAVES, Query};
use super::selection::{Rank, Selection};
use super::table::{Column, List, selected};
use super::{keys, text};
use crate::clock;
use crate::exchange::conflict_log::CONFLICTS_MAX;
use crate::exchange::leaf::{OUTBOX_BYTES_MAX, OUTBOX_ENTRIES_MAX};
use crate::exchange::root::{LEAVES_MAX, TOMBSTONES_MAX};
use crate::exchange::row::{Conflict, LostContent};
use crate::protocol::exchange::{LeafReport, LeafState, OwnReport, OwnState, RootReport};
use crate::server::operations::monitor::ServerMonitor;
use crate::server::service::NodeReport;

/// The most conflicts on the page.
const CONFLICTS_SHOWN_MAX: usize = 20;
/// The most bytes of the root's reason for the end of a link.
const ENDED_BYTES_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafColumn {
    Name,
    State,
    Behind,
    Pending,
    Conflicts,
    Accepted,
    Refused,
    Heard,
}

const COLUMNS: &[Column<LeafColumn>] = &[
    Column { name: "name", title: "Leaf", column: LeafColumn::Name, is_number: false },
    Column { name: "state", title: "State", column: LeafColumn::State, is_number: false },
    Column { name: "behind", title: "Behind", column: LeafColumn::Behind, is_number: true },
    Column { name: "pending", title: "Pending", column: LeafColumn::Pending, is_number: true },
    Column { name: "conflicts", title: "Conflicts", column: LeafColumn::Conflicts, is_number: true },
    Column { name: "accepted", title: "Accepted", column: LeafColumn::Accepted, is_number: true },
    Column { name: "refused", title: "Refused", column: LeafColumn::Refused, is_number: true },
    Column { name: "heard", title: "Heard", column: LeafColumn::Heard, is_number: true },
];

/// Returns the section; `None` if the store takes part in no exchange.
pub async fn html(monitor: &ServerMonitor, query: &Query) -> Option<String> {
    let mut html = match monitor.service.exchange_report().await? {
        NodeReport::Root(root) => {
            [live("exchange-now", &root_cards(&root)), leaves(&root.leaves, query)].concat()
        }
        NodeReport::Leaf(own) => live("exchange-now", &own_cards(&own)),
    };
    let conflicts = monitor.service.latest_conflicts(CONFLICTS_SHOWN_MAX);
    html.push_str("<h3 id=\"conflicts\">Last conflicts</h3>\n");
    html.push_str(&live("conflicts-now", &conflict_table(&conflicts)));
    Some(html)
}

fn of(number: u64, max: usize) -> String {
    format!("{} of {}", text::count(number), text::count(number_of(max)))
}

fn code(name: &str) -> String {
    format!("<code>{}</code>", text::escape(name.as_bytes()))
}

fn root_cards(root: &RootReport) -> String {
    let linked = root.leaves.iter().filter(|leaf| leaf.is_linked()).count();
    let leaves = number_of(root.leaves.len());
    cards(vec![
        (
            "Node",
            vec![
                ("Role", "root".to_owned()),
                ("Exchange", code(&root.exchange)),
                ("Version", text::count(root.ver)),
            ],
        ),
        (
            "Records",
            vec![("Keys", text::count(root.records)), ("Deletions", of(root.tombstones, TOMBSTONES_MAX))],
        ),
        ("Leaves", vec![("Linked", text::count(number_of(linked))), ("All", of(leaves, LEAVES_MAX))]),
        ("Conflicts", conflict_rows(root.conflicts, root.dropped)),
    ])
}

fn own_cards(own: &OwnReport) -> String {
    let class = match own.state {
        OwnState::Linked | OwnState::Resync => "good",
        OwnState::Offline | OwnState::Blocked => "bad",
    };
    let ended = own.ended.as_ref().map_or_else(String::new, |ended| {
        let ended = text::shortened(ended.as_bytes(), ended.len(), ENDED_BYTES_MAX);
        format!("<p class=\"{class}\">The last link has ended: {ended}</p>\n")
    });
    let cards = cards(vec![
        (
            "Node",
            vec![
                ("Role", "leaf".to_owned()),
                ("Leaf", code(&own.name)),
                ("Exchange", code(&own.exchange)),
                ("State", format!("<span class=\"{class}\">{}</span>", own.state.as_str())),
                ("Version", text::count(own.received)),
            ],
        ),
        (
            "Outbox",
            vec![
                ("Changes", of(own.outbox, OUTBOX_ENTRIES_MAX)),
                ("Memory", share(own.outbox_bytes, number_of(OUTBOX_BYTES_MAX))),
            ],
        ),
        (
            "Changes",
            vec![
                ("Made", text::count(own.made)),
                ("Accepted", text::count(own.accepted)),
                ("Refused", text::count(own.refused)),
                ("Merged", text::count(own.merged)),
            ],
        ),
        ("Conflicts", conflict_rows(own.conflicts, own.dropped)),
    ]);
    [cards, ended].concat()
}

fn conflict_rows(conflicts: u64, dropped: u64) -> Vec<(&'static str, String)> {
    vec![("Stored", of(conflicts, CONFLICTS_MAX)), ("Dropped", text::count(dropped))]
}

fn leaves(leaves: &[LeafReport], query: &Query) -> String {
    let list = List::new(query, (LEAVES, "leaves"), COLUMNS, LeafColumn::Name);
    let filter = query.get(LEAVES.filter);
    let mut selection = Selection::new(selected(list.skip()), list.order.is_descending);
    for leaf in leaves.iter().filter(|leaf| leaf.name.contains(filter)) {
        selection.offer(rank(list.order.column, leaf), || leaf);
    }
    let all = selection.offered();
    let rows = selection.into_rows(list.skip());
    let contents = [
        list.head("Leaves"),
        rows.iter().map(|leaf| leaf_row(leaf)).collect(),
        list.foot(rows.len(), all, None),
    ];
    let form = list.form("Filter leaves", "part of a name");
    format!("<h3 id=\"leaves\">Leaves</h3>\n{form}{}", live("leaves-list", &contents.concat()))
}

fn rank(column: LeafColumn, leaf: &LeafReport) -> Option<Rank<&[u8]>> {
    match column {
        LeafColumn::Name => Some(Rank::Text(leaf.name.as_bytes())),
        LeafColumn::State => Some(Rank::Text(leaf.state.as_str().as_bytes())),
        LeafColumn::Behind => Some(Rank::Number(leaf.behind)),
        LeafColumn::Pending => leaf.pending.map(Rank::Number),
        LeafColumn::Conflicts => Some(Rank::Number(leaf.conflicts)),
        LeafColumn::Accepted => Some(Rank::Number(leaf.accepted)),
        LeafColumn::Refused => Some(Rank::Number(leaf.refused)),
        LeafColumn::Heard => leaf.heard_ms.map(Rank::Number),
    }
}

fn leaf_row(leaf: &LeafReport) -> String {
    let class = if leaf.is_linked() { "" } else { " class=\"away\"" };
    let unknown = || "<span class=\"dim\">?</span>".to_owned();
    let heard = match leaf.heard_ms {
        _ if leaf.is_linked() => "now".to_owned(),
        Some(ms) => format!("{} ago", text::duration(Duration::from_millis(ms))),
        // Not since the root has started.
        None => "<span class=\"dim\">-</span>".to_owned(),
    };
    let numbers: String = [
        text::count(leaf.behind),
        leaf.pending.map_or_else(unknown, text::count),
        text::count(leaf.conflicts),
        text::count(leaf.accepted),
        text::count(leaf.refused),
        heard,
    ]
    .iter()
    .map(|number| format!("<td class=\"n\">{number}</td>"))
    .collect();
    let state = match leaf.state {
        LeafState::Blocked => "<span class=\"bad\">blocked</span>",
        state => state.as_str(),
    };
    format!("<tr{class}><th scope=\"row\">{}</th><td>{state}</td>{numbers}</tr>\n", code(&leaf.name))
}

fn conflict_table(conflicts: &[(u64, Conflict)]) -> String {
    if conflicts.is_empty() {
        return "<p class=\"dim\">There are no conflicts.</p>\n".to_owned();
    }
    let now_ms = clock::wall_ms();
    let rows: String = conflicts.iter().map(|(id, conflict)| conflict_row(*id, conflict, now_ms)).collect();
    let heading = |(title, is_number): (&str, bool)| {
        let class = if is_number { " class=\"n\"" } else { "" };
        format!("<th scope=\"col\"{class}>{title}</th>")
    };
    let headings: String = [
        ("Key", false),
        ("Id", true),
        ("Leaf", false),
        ("Lost", true),
        ("Reason", false),
        ("Winner", false),
        ("Time", true),
    ]
    .map(heading)
    .concat();
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table of conflicts\"><table>\n\
         <caption class=\"hidden\">Last conflicts</caption>\n\
         <thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n\
         <p class=\"pages\"><span>All conflicts: <code>mqkv exchange conflicts</code>; \
         the bytes that lost: <code>mqkv exchange value ID</code></span></p>\n"
    )
}

fn conflict_row(id: u64, conflict: &Conflict, now_ms: u64) -> String {
    let Conflict { key, leaf, reason, lost, winner, owner, at_ms, .. } = conflict;
    let key = key.as_bytes();
    let lost = match lost {
        LostContent::Deletion => "deletion".to_owned(),
        LostContent::Expired => "expired value".to_owned(),
        LostContent::Unsent => "value at the leaf".to_owned(),
        LostContent::Value(value) => keys::size(value.len()),
    };
    let winner = match owner {
        _ if *winner == 0 => "<span class=\"dim\">–</span>".to_owned(),
        Some(leaf) => format!("version {} of {}", text::count(*winner), code(leaf.as_str())),
        None => format!("version {} of the root", text::count(*winner)),
    };
    let age = text::duration(Duration::from_millis(now_ms.saturating_sub(*at_ms)));
    format!(
        "<tr><th scope=\"row\">{}</th><td class=\"n\">{id}</td><td>{}</td><td class=\"n\">{lost}</td><td>{}</td>\
         <td>{winner}</td><td class=\"n\">{}</td></tr>\n",
        keys::link(key, key.len()),
        code(leaf.as_str()),
        reason.as_str().replace('-', " "),
        text::time(*at_ms, &format!("{age} ago")),
    )
}
