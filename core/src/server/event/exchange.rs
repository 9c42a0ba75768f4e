//! Events of an exchange for the operator of a node, with their rows.

use std::sync::Arc;

use super::row::{Row, Subject, failure, note};
use super::shown::{Shown, shortened};
use crate::exchange::effects::{self, Cause, Event as LinkEvent};
use crate::exchange::names::Name;
use crate::exchange::row::Conflict;

/// An event of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEvent {
    /// An event of a link.
    Link(LinkEvent),
    /// The connection of a link was lost.
    Lost { leaf: Name },
    /// An event of the connection of a leaf with the broker of the root.
    Uplink { target: String, event: UplinkEvent },
    /// The rules of a root have been reloaded.
    Rules {
        /// The number of rules, or why the earlier rules stay in force.
        outcome: Result<usize, String>,
    },
    /// A leaf was asked to reload its file. Its rules are the root's, and the rest takes effect with a start.
    LeafReload {
        /// Whether the file has changed since the start, or why it is not valid.
        outcome: Result<bool, String>,
    },
    /// An operator has requested a resync.
    Resync {
        /// None: all leaves of a root, or the leaf itself.
        leaf: Option<String>,
        is_new_root: bool,
    },
}

/// An event of an uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UplinkEvent {
    /// The root has accepted a frame. Reported once until a loss or failure is.
    Connected,
    /// A connection could not be established, or the root refused a frame. An error that persists is reported once.
    Failed { error: String },
    /// An established connection was lost.
    Lost { cause: String },
}

/// The names of all kinds of events, for counters.
pub const EXCHANGE_EVENTS: [&str; 13] = [
    "exchange-joined",
    "exchange-linked",
    "exchange-lost",
    "exchange-ended",
    "exchange-refused",
    "exchange-conflict",
    "exchange-uplink-connected",
    "exchange-uplink-failed",
    "exchange-uplink-lost",
    "exchange-rules",
    "exchange-digest",
    "exchange-too-large",
    "exchange-resync",
];

/// Links end for these reasons although nothing has failed.
const REGULAR: [Cause; 4] = [Cause::RulesChanged, Cause::Replaced, Cause::Dropped, Cause::Resync];

pub(super) fn row(event: &ExchangeEvent) -> Row<'_> {
    match event {
        ExchangeEvent::Link(event) => of_link(event),
        // Leaves are offline at times.
        ExchangeEvent::Lost { leaf } => {
            of_leaf(note("exchange-lost"), leaf).line(move |out| write!(out, "leaf {leaf} is offline"))
        }
        ExchangeEvent::Uplink { target, event } => {
            of_uplink(target, event).about(Subject::Other("connections to the root of the exchange"))
        }
        ExchangeEvent::Rules { outcome: Ok(count) } => note("exchange-rules")
            .display("rules", count)
            .line(move |out| write!(out, "rules of the exchange reloaded: {count}")),
        ExchangeEvent::Rules { outcome: Err(reason) } => failure("exchange-rules")
            .text("reason", reason)
            .line_of(reason, "the previous rules of the exchange stay in force"),
        ExchangeEvent::LeafReload { outcome: Ok(is_changed) } => note("exchange-rules")
            .failure_if(*is_changed)
            .display("changed", is_changed)
            .words(match is_changed {
                false => "nothing of the exchange to reload: a leaf gets its rules from the root",
                true => "the file of the exchange has changed: restart this leaf to apply it",
            }),
        ExchangeEvent::LeafReload { outcome: Err(reason) } => failure("exchange-rules")
            .text("reason", reason)
            .line_of(reason, "this leaf goes on with the file of its start"),
        ExchangeEvent::Resync { leaf, is_new_root } => {
            let row = note("exchange-resync");
            let row = leaf.iter().fold(row, |row, leaf| row.shown("leaf", leaf));
            row.display("new_root", is_new_root).line(move |out| match (leaf, is_new_root) {
                (Some(leaf), false) => {
                    write!(out, "an operator has requested a resync of leaf {}", Shown(leaf))
                }
                (None, false) => {
                    out.write_str("an operator has requested a resync: all records are compared again")
                }
                (_, true) => out.write_str(
                    "an operator has requested a resync with a new root: the leaf joins the root that it connects to",
                ),
            })
        }
    }
}

fn of_link(event: &LinkEvent) -> Row<'_> {
    match event {
        LinkEvent::Joined { leaf } => of_leaf(note("exchange-joined"), leaf)
            .line(move |out| write!(out, "leaf {leaf} has joined the exchange")),
        LinkEvent::Linked { leaf, .. } => of_leaf(note("exchange-linked"), leaf)
            .line(move |out| write!(out, "leaf {leaf} is linked with the root")),
        LinkEvent::Ended { leaf, cause, .. } => of_leaf(note("exchange-ended"), leaf)
            .failure_if(!REGULAR.contains(cause))
            .text("reason", cause.as_str())
            .line(move |out| write!(out, "the link of leaf {leaf} was ended: {}", cause.text())),
        LinkEvent::EndedByRoot { leaf, end } => of_leaf(note("exchange-ended"), leaf)
            .failure_if(REGULAR.iter().all(|cause| cause.as_str() != end.code))
            .shown("reason", &end.code)
            .line(move |out| write!(out, "the root has ended the link of leaf {leaf}: {}", Shown(&end.text))),
        LinkEvent::Refused { leaf, cause, .. } => {
            let row = of_leaf(failure("exchange-refused"), leaf).text("reason", cause.as_str());
            row.line(move |out| {
                write!(out, "leaf {leaf} was refused: {}", cause.text())?;
                match cause {
                    Cause::UnknownLeaf | Cause::TooManyOfIdentity => {
                        write!(out, ": mqkv exchange add-leaf {leaf}")
                    }
                    Cause::OtherStore | Cause::OtherPrincipal => {
                        write!(out, ": mqkv exchange add-leaf {leaf} --replace")
                    }
                    _ => Ok(()),
                }
            })
        }
        LinkEvent::Diverged { leaf } => of_leaf(failure("exchange-digest"), leaf).line(move |out| {
            write!(out, "leaf {leaf} does not have the records of the root: all are sent again")
        }),
        LinkEvent::TooLarge { leaf, key, bytes, bytes_max } => of_leaf(failure("exchange-too-large"), leaf)
            .display("key", shortened(&String::from_utf8_lossy(key.as_bytes())))
            .display("bytes", bytes)
            .display("bytes_max", bytes_max)
            .line(move |out| {
                let text = effects::too_large_text(key, *bytes, *bytes_max);
                write!(out, "the changes of leaf {leaf} wait: {}", Shown(&text))
            }),
        LinkEvent::Conflict { id, conflict } => of_conflict(*id, conflict),
    }
}

fn of_leaf<'a>(row: Row<'a>, leaf: &'a Name) -> Row<'a> {
    row.about(Subject::Client(Arc::from(leaf.as_str()))).text("leaf", leaf.as_str())
}

fn of_conflict(id: u64, conflict: &Conflict) -> Row<'_> {
    let Conflict { key, leaf, reason, winner, owner, .. } = conflict;
    let key = String::from_utf8_lossy(key.as_bytes());
    failure("exchange-conflict")
        .about(Subject::Other("conflicts of the exchange"))
        .display("id", id)
        .text("leaf", leaf.as_str())
        .display("key", shortened(&key))
        .text("reason", reason.as_str())
        .display("winner", winner)
        .line(move |out| {
            let (key, reason) = (Shown(&key), reason.text());
            write!(out, "conflict {id}: the change of {key} by leaf {leaf} has lost: {reason}")?;
            match owner {
                _ if *winner == 0 => Ok(()),
                Some(owner) => write!(out, "; version {winner} of leaf {owner} stays in force"),
                None => write!(out, "; version {winner} of the root stays in force"),
            }
        })
}

fn of_uplink<'a>(target: &'a str, event: &'a UplinkEvent) -> Row<'a> {
    match event {
        // It is logged where failures are: it ends the one that was reported before.
        UplinkEvent::Connected => failure("exchange-uplink-connected")
            .text("target", target)
            .line(move |out| write!(out, "connected to the root of the exchange: {target}")),
        UplinkEvent::Failed { error } => failure("exchange-uplink-failed")
            .text("target", target)
            .text("reason", error)
            .line_with("cannot connect to the root of the exchange", error),
        // The cause names the target.
        UplinkEvent::Lost { cause } => failure("exchange-uplink-lost")
            .text("target", target)
            .text("reason", cause)
            .line_with("the root of the exchange is offline", cause),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Value;
    use super::*;
    use crate::exchange::effects::LinkEnd;
    use crate::exchange::frame::Reason;
    use crate::exchange::names::ChangeId;
    use crate::protocol::Key;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn conflict(winner: u64, owner: Option<&str>) -> ExchangeEvent {
        let conflict = Conflict {
            key: Key::new("line/2\n").unwrap(),
            leaf: name("press-7"),
            change_id: ChangeId::NIL,
            reason: Reason::FirstLeafWins,
            lost: crate::exchange::row::LostContent::Deletion,
            winner,
            owner: owner.map(name),
            at_ms: 0,
        };
        ExchangeEvent::Link(LinkEvent::Conflict { id: 41, conflict })
    }

    #[test]
    fn a_conflict_is_reported_with_the_version_that_won() {
        let text = |winner, owner| row(&conflict(winner, owner)).to_string();
        assert_eq!(
            text(5790, Some("press-9")),
            "conflict 41: the change of line/2\\n by leaf press-7 has lost: another leaf has changed the key before; version \
             5790 of leaf press-9 stays in force"
        );
        assert!(text(1, None).contains("; version 1 of the root stays in force"));
        assert!(!text(0, None).contains("version"));
        let event = conflict(5790, None);
        let fields = row(&event).fields;
        assert_eq!(fields[2], ("key", Value::Text("line/2\n".into())));
        assert_eq!(fields[3], ("reason", Value::Text("first-leaf-wins".into())));
    }

    #[test]
    fn a_refusal_states_what_an_operator_can_do() {
        let event = LinkEvent::Refused { leaf: name("press-7"), link: 1, cause: Cause::OtherStore };
        let refused = of_link(&event);
        assert!(
            refused.is_failure && refused.to_string().ends_with("mqkv exchange add-leaf press-7 --replace")
        );
        assert_eq!(refused.fields[1], ("reason", Value::Text("other-store".into())));
    }

    #[test]
    fn every_kind_of_event_has_its_own_name() {
        let (leaf, link, cause) = (name("l"), 1, Cause::Gap);
        let links = [
            LinkEvent::Joined { leaf: leaf.clone() },
            LinkEvent::Linked { leaf: leaf.clone(), link },
            LinkEvent::Ended { leaf: leaf.clone(), link, cause },
            LinkEvent::Refused { leaf: leaf.clone(), link, cause },
            LinkEvent::Diverged { leaf: leaf.clone() },
            LinkEvent::TooLarge { leaf: leaf.clone(), key: Key::new("k").unwrap(), bytes: 9, bytes_max: 8 },
        ];
        let uplinks = [
            UplinkEvent::Connected,
            UplinkEvent::Failed { error: String::new() },
            UplinkEvent::Lost { cause: String::new() },
        ];
        let others = [
            conflict(1, None),
            ExchangeEvent::Lost { leaf },
            ExchangeEvent::Rules { outcome: Ok(1) },
            ExchangeEvent::Resync { leaf: None, is_new_root: false },
        ];
        let links = links.map(ExchangeEvent::Link);
        let uplinks = uplinks.map(|event| ExchangeEvent::Uplink { target: String::new(), event });
        let events = links.iter().chain(&uplinks).chain(&others);
        let mut names: Vec<_> = events.map(|event| row(event).name).collect();
        names.sort_unstable();
        let mut expected = EXCHANGE_EVENTS;
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_leaf_that_is_asked_to_reload_reports_what_needs_a_restart() {
        let reload = |outcome| {
            let event = ExchangeEvent::LeafReload { outcome };
            let row = row(&event);
            (row.is_failure, row.to_string())
        };
        assert!(!reload(Ok(false)).0);
        let (is_failure, text) = reload(Ok(true));
        assert!(is_failure && text.contains("restart this leaf"));
        assert!(reload(Err("line 'a'".to_owned())).1.starts_with("line 'a'; this leaf goes on"));
    }

    #[test]
    fn a_leaf_that_goes_offline_is_no_failure() {
        let leaf = || name("press-7");
        let ended = |cause| of_link(&LinkEvent::Ended { leaf: leaf(), link: 1, cause }).is_failure;
        assert!(!row(&ExchangeEvent::Lost { leaf: leaf() }).is_failure);
        assert!(!ended(Cause::RulesChanged) && ended(Cause::Gap));
        let by_root = |code: &str| {
            let end = LinkEnd { code: code.to_owned(), text: "why".to_owned() };
            of_link(&LinkEvent::EndedByRoot { leaf: leaf(), end }).is_failure
        };
        assert!(!by_root("rules-changed") && by_root("gap"));
    }
}
