//! Operator requests: what a node answers to them.

use crate::exchange::Exchange;
use crate::exchange::effects::{Effects, Values};
use crate::exchange::leaf::Leaf;
use crate::exchange::names::Name;
use crate::exchange::root::{LEAVES_MAX, Root};
use crate::exchange::row::{Conflict, LostContent};
use crate::protocol::exchange::{
    Answer, Command, ConflictPage, ConflictReport, IDS_MAX, Lost, Origin, Refusal,
};

/// The most conflicts that one request looks at, because other requests wait meanwhile.
const CONFLICTS_PER_PAGE_MAX: usize = 500;
/// The most leaves that one step looks at, for the same reason.
pub const LEAVES_PER_STEP_MAX: usize = 64;
/// The bytes after which a page of conflicts ends.
const PAGE_BYTES_MAX: usize = 256 * 1024;

/// Answers a request. The answer to one that changes the node may be sent when its effects are committed. The status of a
/// root has at most [`LEAVES_PER_STEP_MAX`] leaves: with so many, the caller appends the others, portion by portion.
pub fn execute(
    exchange: &mut Exchange,
    command: Command,
    now_ms: u64,
    values: &dyn Values,
) -> (Answer, Effects) {
    let answer = match command {
        Command::Status { leaf } => match exchange {
            Exchange::Root(root) => root_status(root, leaf.as_deref(), now_ms),
            Exchange::Leaf(own) => own_status(own, leaf.as_deref()),
        },
        Command::Key { key } => Answer::Key(exchange.key_report(&key)),
        Command::Conflicts { leaf, since, max } => {
            Answer::Conflicts(page(exchange, leaf.as_deref(), since, max, values))
        }
        Command::Value { id } => {
            let conflict = exchange.conflicts().get(id);
            conflict.map_or(Answer::NotFound, |conflict| {
                Answer::Value(conflict.lost.value().cloned().ok_or_else(|| lost(&conflict.lost)))
            })
        }
        Command::Clear { ids } => return clear(exchange, ids),
        Command::AddLeaf { name, is_replaced } => return add_leaf(exchange, &name, is_replaced),
        Command::DropLeaf { name } => return drop_leaf(exchange, &name),
        Command::Resync { name, is_new_root } => return resync(exchange, name.as_deref(), is_new_root),
        // The service wakes the uplink.
        Command::Reconnect => match exchange {
            Exchange::Leaf(leaf) => Answer::Done { count: (!leaf.has_link()).into() },
            Exchange::Root(_) => Answer::Refused(Refusal::LeafOnly),
        },
    };
    (answer, Effects::default())
}

/// Returns a conflict as operators see it; `won` is the content of its key now.
#[must_use]
pub fn conflict_report(id: u64, conflict: &Conflict, won: Option<Lost>) -> ConflictReport {
    ConflictReport {
        id,
        at_ms: conflict.at_ms,
        key: conflict.key.clone(),
        leaf: conflict.leaf.as_str().to_owned(),
        reason: conflict.reason.as_str().to_owned(),
        lost: lost(&conflict.lost),
        winner: conflict.winner,
        owner: match &conflict.owner {
            _ if conflict.winner == 0 => Origin::Unknown,
            Some(leaf) => Origin::Leaf(leaf.as_str().to_owned()),
            None => Origin::Root,
        },
        won,
    }
}

fn lost(lost: &LostContent) -> Lost {
    match lost {
        LostContent::Deletion => Lost::Deletion,
        LostContent::Expired => Lost::Expired,
        LostContent::Unsent => Lost::Unsent,
        LostContent::Value(value) => Lost::of(Some(value)),
    }
}

fn root_status(root: &Root, leaf: Option<&str>, now_ms: u64) -> Answer {
    let report = match leaf {
        None => Some(root.report_after(None, LEAVES_PER_STEP_MAX, now_ms)),
        Some(leaf) => Name::new(leaf).ok().and_then(|leaf| root.report_of(&leaf, now_ms)),
    };
    report.map_or(Answer::NotFound, Answer::Root)
}

fn own_status(leaf: &Leaf, name: Option<&str>) -> Answer {
    let is_other = name.is_some_and(|name| name != leaf.row().identity.node.as_str());
    if is_other { Answer::NotFound } else { Answer::Leaf(leaf.report()) }
}

/// Returns the conflicts after an id, within the bounds of one request.
fn page(exchange: &Exchange, leaf: Option<&str>, since: u64, max: u64, values: &dyn Values) -> ConflictPage {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut page = ConflictPage { conflicts: Vec::new(), last: since, is_complete: true };
    let mut bytes = 0_usize;
    for (looked_at, (id, conflict)) in exchange.conflicts().since(since).enumerate() {
        let is_full = page.conflicts.len() >= max || bytes >= PAGE_BYTES_MAX;
        if is_full || looked_at >= CONFLICTS_PER_PAGE_MAX {
            page.is_complete = false;
            break;
        }
        page.last = id;
        if leaf.is_none_or(|leaf| leaf == conflict.leaf.as_str()) {
            /// The rest of a conflict, generously.
            const REST_BYTES: usize = 256;
            let parts =
                [conflict.key.as_bytes().len(), Lost::START_BYTES_MAX, Lost::START_BYTES_MAX, REST_BYTES];
            bytes = parts.into_iter().fold(bytes, usize::saturating_add);
            page.conflicts.push(conflict_report(id, conflict, won(exchange, conflict, values)));
        }
    }
    page
}

/// Returns the content that won, if the node still shows it.
fn won(exchange: &Exchange, conflict: &Conflict, values: &dyn Values) -> Option<Lost> {
    let ver = match exchange {
        Exchange::Root(root) => root.record(&conflict.key).map(|record| record.ver),
        Exchange::Leaf(leaf) if leaf.pending(&conflict.key).is_some() => None,
        Exchange::Leaf(leaf) => leaf.note(&conflict.key).map(|note| note.ver),
    };
    ver.filter(|ver| *ver == conflict.winner)?;
    Some(Lost::of(values.content(&conflict.key).map(|content| content.value).as_ref()))
}

fn clear(exchange: &mut Exchange, ids: Option<Vec<u64>>) -> (Answer, Effects) {
    let ids = ids.unwrap_or_else(|| exchange.conflicts().since(0).map(|(id, _)| id).take(IDS_MAX).collect());
    let (mut effects, mut cleared) = (Effects::default(), 0_u64);
    for id in ids.into_iter().take(IDS_MAX) {
        let more = exchange.clear_conflict(id);
        cleared = cleared.saturating_add(u64::from(!more.rows.is_empty()));
        append(&mut effects, more);
    }
    let answer = if cleared == 0 { Answer::NotFound } else { Answer::Done { count: cleared } };
    (answer, effects)
}

/// Appends a later step, so that both are one commit.
fn append(effects: &mut Effects, more: Effects) {
    effects.step = effects.step.max(more.step);
    effects.rows.extend(more.rows);
    effects.values.extend(more.values);
    effects.events.extend(more.events);
}

fn add_leaf(exchange: &mut Exchange, name: &str, is_replaced: bool) -> (Answer, Effects) {
    let Exchange::Root(root) = exchange else { return refused(Refusal::RootOnly) };
    let Ok(name) = Name::new(name) else { return refused(Refusal::InvalidName) };
    let is_known = root.has_leaf(&name);
    if !is_known && root.leaf_count() >= LEAVES_MAX {
        return refused(Refusal::TooManyLeaves);
    }
    let effects = root.add_leaf(&name, is_replaced);
    (Answer::Done { count: (!is_known || is_replaced).into() }, effects)
}

fn drop_leaf(exchange: &mut Exchange, name: &str) -> (Answer, Effects) {
    let Exchange::Root(root) = exchange else { return refused(Refusal::RootOnly) };
    match Name::new(name).ok().filter(|name| root.has_leaf(name)) {
        Some(name) => (Answer::Done { count: 1 }, root.drop_leaf(&name)),
        None => (Answer::NotFound, Effects::default()),
    }
}

fn resync(exchange: &mut Exchange, name: Option<&str>, is_new_root: bool) -> (Answer, Effects) {
    let root = match exchange {
        Exchange::Leaf(leaf) if name.is_none_or(|name| name == leaf.row().identity.node.as_str()) => {
            return (Answer::Done { count: 1 }, leaf.resync(is_new_root));
        }
        Exchange::Leaf(_) => return refused(Refusal::RootOnly),
        Exchange::Root(_) if is_new_root => return refused(Refusal::LeafOnly),
        Exchange::Root(root) => root,
    };
    let leaves: Vec<_> =
        root.leaf_names().filter(|leaf| name.is_none_or(|name| name == leaf.as_str())).collect();
    let mut effects = Effects::default();
    for leaf in &leaves {
        append(&mut effects, root.resync(leaf));
    }
    let is_unknown = name.is_some() && leaves.is_empty();
    (if is_unknown { Answer::NotFound } else { Answer::Done { count: leaves.len() as u64 } }, effects)
}

fn refused(refusal: Refusal) -> (Answer, Effects) {
    (Answer::Refused(refusal), Effects::default())
}

#[cfg(test)]
mod tests;
