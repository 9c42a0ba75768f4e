//! Events of an exchange for the operator of a node, with their texts.

use std::fmt;
use std::sync::Arc;

use super::uplink::UplinkEvent;
use crate::broker::event::{Shown, Subject, shortened};
use crate::exchange::effects::{self, Cause, LinkEnd};
use crate::exchange::names::Name;
use crate::exchange::row::Conflict;
use crate::protocol::Key;

/// An event of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeEvent {
    /// A leaf has joined for the first time.
    Joined { leaf: Name },
    /// The link between a leaf and the root is established.
    Linked { leaf: Name },
    /// The connection of a link was lost.
    Lost { leaf: Name },
    /// This node has ended a link.
    Ended { leaf: Name, cause: Cause },
    /// The root has refused or ended the link of this leaf.
    EndedByRoot { leaf: Name, end: LinkEnd },
    /// The root has refused a leaf.
    Refused { leaf: Name, cause: Cause },
    /// A change of this leaf is larger than the root accepts: it waits, and all later ones do.
    TooLarge { leaf: Name, key: Key, bytes: usize, bytes_max: usize },
    /// A change of a leaf has lost.
    Conflict { id: u64, conflict: Conflict },
    /// A leaf has connected to the broker of the root.
    UplinkConnected { target: String },
    /// A leaf could not connect to the broker of the root, and tries again.
    UplinkFailed { target: String, reason: String },
    /// A leaf has lost the connection to the broker of the root, and connects again.
    UplinkLost { target: String, reason: String },
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
    /// A leaf does not have the records that the root has sent.
    DigestDiffers { leaf: Name },
    /// An operator has requested a resync.
    Resync {
        /// None: all leaves of a root, or the leaf itself.
        leaf: Option<String>,
        is_new_root: bool,
    },
}

/// Links end for these reasons although nothing has failed.
const REGULAR: [Cause; 4] = [Cause::RulesChanged, Cause::Replaced, Cause::Dropped, Cause::Resync];

impl From<effects::Event> for ExchangeEvent {
    fn from(event: effects::Event) -> Self {
        match event {
            effects::Event::Joined { leaf } => Self::Joined { leaf },
            effects::Event::Linked { leaf, .. } => Self::Linked { leaf },
            effects::Event::Ended { leaf, cause, .. } => Self::Ended { leaf, cause },
            effects::Event::EndedByRoot { leaf, end } => Self::EndedByRoot { leaf, end },
            effects::Event::Refused { leaf, cause, .. } => Self::Refused { leaf, cause },
            effects::Event::Conflict { id, conflict } => Self::Conflict { id, conflict },
            effects::Event::TooLarge { leaf, key, bytes, bytes_max } => {
                Self::TooLarge { leaf, key, bytes, bytes_max }
            }
            effects::Event::Diverged { leaf } => Self::DigestDiffers { leaf },
        }
    }
}

impl ExchangeEvent {
    /// Returns the event of an uplink to `target`.
    #[must_use]
    pub fn of_uplink(event: UplinkEvent, target: String) -> Self {
        match event {
            UplinkEvent::Connected => Self::UplinkConnected { target },
            UplinkEvent::Failed { error } => Self::UplinkFailed { target, reason: error },
            UplinkEvent::Lost { cause } => Self::UplinkLost { target, reason: cause },
        }
    }

    /// Whether the event reports a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            // Leaves are offline at times.
            Self::Joined { .. } | Self::Linked { .. } | Self::Lost { .. } | Self::Resync { .. } => false,
            Self::Ended { cause, .. } => !REGULAR.contains(cause),
            Self::EndedByRoot { end, .. } => REGULAR.iter().all(|cause| cause.as_str() != end.code),
            Self::Rules { outcome } => outcome.is_err(),
            Self::LeafReload { outcome } => *outcome != Ok(false),
            Self::Refused { .. }
            | Self::Conflict { .. }
            // It ends the failure that was reported before.
            | Self::UplinkConnected { .. }
            | Self::UplinkFailed { .. }
            | Self::UplinkLost { .. }
            | Self::TooLarge { .. }
            | Self::DigestDiffers { .. } => true,
        }
    }

    /// Returns what the event is about, if there may be any number of events about it.
    #[must_use]
    pub fn subject(&self) -> Option<Subject> {
        match self {
            Self::Joined { leaf }
            | Self::Linked { leaf }
            | Self::Lost { leaf }
            | Self::Ended { leaf, .. }
            | Self::EndedByRoot { leaf, .. }
            | Self::Refused { leaf, .. }
            | Self::TooLarge { leaf, .. }
            | Self::DigestDiffers { leaf } => Some(Subject::Client(Arc::from(leaf.as_str()))),
            Self::Conflict { .. } => Some(Subject::Other("conflicts of the exchange")),
            Self::UplinkConnected { .. } | Self::UplinkFailed { .. } | Self::UplinkLost { .. } => {
                Some(Subject::Other("connections to the root of the exchange"))
            }
            Self::Rules { .. } | Self::LeafReload { .. } | Self::Resync { .. } => None,
        }
    }

    /// The names of all kinds of events, in the order of [`ExchangeEvent::kind`].
    pub const NAMES: [&str; 13] = [
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

    /// Returns the index of the kind of event in [`ExchangeEvent::NAMES`].
    #[must_use]
    pub fn kind(&self) -> usize {
        match self {
            Self::Joined { .. } => 0,
            Self::Linked { .. } => 1,
            Self::Lost { .. } => 2,
            Self::Ended { .. } | Self::EndedByRoot { .. } => 3,
            Self::Refused { .. } => 4,
            Self::Conflict { .. } => 5,
            Self::UplinkConnected { .. } => 6,
            Self::UplinkFailed { .. } => 7,
            Self::UplinkLost { .. } => 8,
            Self::Rules { .. } | Self::LeafReload { .. } => 9,
            Self::DigestDiffers { .. } => 10,
            Self::TooLarge { .. } => 11,
            Self::Resync { .. } => 12,
        }
    }

    /// Returns the name of the kind of event in the JSON log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        Self::NAMES.get(self.kind()).copied().unwrap_or_default()
    }

    /// Returns the fields of the JSON log. Values from the network are not escaped.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let text = |name: &'static str, text: &dyn fmt::Display| (name, text.to_string());
        match self {
            Self::Joined { leaf }
            | Self::Linked { leaf }
            | Self::Lost { leaf }
            | Self::DigestDiffers { leaf } => vec![text("leaf", leaf)],
            Self::Ended { leaf, cause } | Self::Refused { leaf, cause } => {
                vec![text("leaf", leaf), text("reason", &cause.as_str())]
            }
            Self::EndedByRoot { leaf, end } => vec![text("leaf", leaf), ("reason", shortened(&end.code))],
            Self::Conflict { id, conflict } => vec![
                text("id", id),
                text("leaf", &conflict.leaf),
                ("key", shortened(&String::from_utf8_lossy(conflict.key.as_bytes()))),
                text("reason", &conflict.reason.as_str()),
                text("winner", &conflict.winner),
            ],
            Self::TooLarge { leaf, key, bytes, bytes_max } => vec![
                text("leaf", leaf),
                ("key", shortened(&String::from_utf8_lossy(key.as_bytes()))),
                text("bytes", bytes),
                text("bytes_max", bytes_max),
            ],
            Self::UplinkConnected { target } => vec![text("target", target)],
            Self::UplinkFailed { target, reason } | Self::UplinkLost { target, reason } => {
                vec![text("target", target), text("reason", reason)]
            }
            Self::Rules { outcome: Ok(count) } => vec![text("rules", count)],
            Self::Rules { outcome: Err(reason) } | Self::LeafReload { outcome: Err(reason) } => {
                vec![text("reason", reason)]
            }
            Self::LeafReload { outcome: Ok(is_changed) } => vec![text("changed", is_changed)],
            Self::Resync { leaf, is_new_root } => {
                let leaf = leaf.iter().map(|leaf| ("leaf", shortened(leaf)));
                leaf.chain([text("new_root", is_new_root)]).collect()
            }
        }
    }
}

impl fmt::Display for ExchangeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { leaf } => write!(f, "leaf {leaf} has joined the exchange"),
            Self::Linked { leaf } => write!(f, "leaf {leaf} is linked with the root"),
            Self::Lost { leaf } => write!(f, "leaf {leaf} is offline"),
            Self::Ended { leaf, cause } => {
                write!(f, "the link of leaf {leaf} was ended: {}", cause.text())
            }
            Self::EndedByRoot { leaf, end } => {
                write!(f, "the root has ended the link of leaf {leaf}: {}", Shown(&end.text))
            }
            Self::Refused { leaf, cause } => {
                write!(f, "leaf {leaf} was refused: {}", cause.text())?;
                match cause {
                    Cause::UnknownLeaf | Cause::TooManyOfIdentity => {
                        write!(f, ": mqkv exchange add-leaf {leaf}")
                    }
                    Cause::OtherStore | Cause::OtherPrincipal => {
                        write!(f, ": mqkv exchange add-leaf {leaf} --replace")
                    }
                    _ => Ok(()),
                }
            }
            Self::Conflict { id, conflict } => {
                let Conflict { key, leaf, reason, winner, owner, .. } = conflict;
                let key = String::from_utf8_lossy(key.as_bytes());
                let (key, reason) = (Shown(&key), reason.text());
                write!(f, "conflict {id}: the change of {key} by leaf {leaf} has lost: {reason}")?;
                match owner {
                    _ if *winner == 0 => Ok(()),
                    Some(owner) => write!(f, "; version {winner} of leaf {owner} stays in force"),
                    None => write!(f, "; version {winner} of the root stays in force"),
                }
            }
            Self::TooLarge { leaf, key, bytes, bytes_max } => {
                let text = effects::too_large_text(key, *bytes, *bytes_max);
                write!(f, "the changes of leaf {leaf} wait: {}", Shown(&text))
            }
            Self::UplinkConnected { target } => write!(f, "connected to the root of the exchange: {target}"),
            Self::UplinkFailed { reason, .. } => {
                write!(f, "cannot connect to the root of the exchange: {}", Shown(reason))
            }
            // The reason names the target.
            Self::UplinkLost { reason, .. } => {
                write!(f, "the root of the exchange is offline: {}", Shown(reason))
            }
            Self::Rules { outcome: Ok(count) } => write!(f, "rules of the exchange reloaded: {count}"),
            Self::Rules { outcome: Err(reason) } => {
                write!(f, "{reason}; the previous rules of the exchange stay in force")
            }
            Self::LeafReload { outcome: Ok(false) } => {
                write!(f, "nothing of the exchange to reload: a leaf gets its rules from the root")
            }
            Self::LeafReload { outcome: Ok(true) } => {
                write!(f, "the file of the exchange has changed: restart this leaf to apply it")
            }
            Self::LeafReload { outcome: Err(reason) } => {
                write!(f, "{reason}; this leaf goes on with the file of its start")
            }
            Self::DigestDiffers { leaf } => {
                write!(f, "leaf {leaf} does not have the records of the root: all are sent again")
            }
            Self::Resync { leaf: Some(leaf), is_new_root: false } => {
                write!(f, "an operator has requested a resync of leaf {}", Shown(leaf))
            }
            Self::Resync { leaf: None, is_new_root: false } => {
                write!(f, "an operator has requested a resync: all records are compared again")
            }
            Self::Resync { is_new_root: true, .. } => {
                write!(
                    f,
                    "an operator has requested a resync with a new root: the leaf joins the root that it connects to"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::frame::Reason;
    use crate::exchange::names::Mutex;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn conflict(winner: u64, owner: Option<&str>) -> ExchangeEvent {
        let conflict = Conflict {
            key: Key::new("line/2\n").unwrap(),
            leaf: name("press-7"),
            mutex: Mutex::NIL,
            reason: Reason::FirstLeafWins,
            lost: crate::exchange::row::LostContent::Deletion,
            winner,
            owner: owner.map(name),
            at_ms: 0,
        };
        ExchangeEvent::Conflict { id: 41, conflict }
    }

    #[test]
    fn a_conflict_is_reported_with_the_version_that_won() {
        assert_eq!(
            conflict(5790, Some("press-9")).to_string(),
            "conflict 41: the change of line/2\\n by leaf press-7 has lost: another leaf has changed the key before; version \
             5790 of leaf press-9 stays in force"
        );
        assert!(conflict(1, None).to_string().contains("; version 1 of the root stays in force"));
        assert!(!conflict(0, None).to_string().contains("version"));
        let fields = conflict(5790, None).fields();
        assert_eq!(fields[2], ("key", "line/2\n".to_owned()));
        assert_eq!(fields[3], ("reason", "first-leaf-wins".to_owned()));
    }

    #[test]
    fn a_refusal_states_what_an_operator_can_do() {
        let refused = ExchangeEvent::Refused { leaf: name("press-7"), cause: Cause::OtherStore };
        assert!(
            refused.is_failure() && refused.to_string().ends_with("mqkv exchange add-leaf press-7 --replace")
        );
        assert_eq!(refused.fields()[1], ("reason", "other-store".to_owned()));
    }

    #[test]
    fn every_kind_of_event_has_its_own_name() {
        let (target, reason) = (String::new(), String::new());
        let events = [
            ExchangeEvent::Joined { leaf: name("l") },
            ExchangeEvent::Linked { leaf: name("l") },
            ExchangeEvent::Lost { leaf: name("l") },
            ExchangeEvent::Ended { leaf: name("l"), cause: Cause::Gap },
            ExchangeEvent::Refused { leaf: name("l"), cause: Cause::Gap },
            conflict(1, None),
            ExchangeEvent::UplinkConnected { target: target.clone() },
            ExchangeEvent::UplinkFailed { target: target.clone(), reason: reason.clone() },
            ExchangeEvent::UplinkLost { target, reason },
            ExchangeEvent::Rules { outcome: Ok(1) },
            ExchangeEvent::DigestDiffers { leaf: name("l") },
            ExchangeEvent::TooLarge { leaf: name("l"), key: Key::new("k").unwrap(), bytes: 9, bytes_max: 8 },
            ExchangeEvent::Resync { leaf: None, is_new_root: false },
        ];
        assert_eq!(events.each_ref().map(ExchangeEvent::name), ExchangeEvent::NAMES);
    }

    #[test]
    fn a_leaf_that_is_asked_to_reload_reports_what_needs_a_restart() {
        let reload = |outcome| ExchangeEvent::LeafReload { outcome };
        assert!(!reload(Ok(false)).is_failure());
        assert!(reload(Ok(true)).is_failure() && reload(Ok(true)).to_string().contains("restart this leaf"));
        assert!(reload(Err("line 'a'".to_owned())).to_string().starts_with("line 'a'; this leaf goes on"));
    }

    #[test]
    fn a_leaf_that_goes_offline_is_no_failure() {
        let ended = |cause| ExchangeEvent::Ended { leaf: name("press-7"), cause };
        assert!(!ExchangeEvent::Lost { leaf: name("press-7") }.is_failure());
        assert!(!ended(Cause::RulesChanged).is_failure() && ended(Cause::Gap).is_failure());
        let by_root = |code: &str| {
            let end = LinkEnd { code: code.to_owned(), text: "why".to_owned() };
            ExchangeEvent::EndedByRoot { leaf: name("press-7"), end }
        };
        assert!(!by_root("rules-changed").is_failure() && by_root("gap").is_failure());
    }
}
