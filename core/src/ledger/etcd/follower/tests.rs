//! Tests of followers: pages, gaps, corrupt records.

use super::*;
use crate::ledger::etcd::action::Answer;
use crate::ledger::etcd::codec::encode_row;
use crate::protocol::Key;
use crate::store::{StoredValue, Version};

const NOW: Now = Now { wall_ms: 1_000, monotonic_ms: 100 };

struct Testbed {
    follower: Follower,
    ids: Ids,
}

fn layout() -> Layout {
    Layout::new("c")
}

fn key(name: &str) -> Key {
    Key::new(name.to_owned()).unwrap()
}

fn row(name: &str) -> Bytes {
    let stored = StoredValue { value: "v".into(), fence: None, deadline_ms: None, persist: true };
    encode_row(&key(name), Version::default(), &stored, NOW, 0).unwrap()
}

fn pair(key: Bytes, value: Bytes) -> Pair {
    Pair { key, value, mod_revision: 7 }
}

fn head(seq: u64, puts: u32, deletions: u32) -> Bytes {
    Head { seq, puts, deletions, ..Head::default() }.encode()
}

impl Testbed {
    fn new() -> Self {
        Self { follower: Follower::new(layout()), ids: Ids::default() }
    }

    /// A follower that has read the head `seq` 5, at revision 20, and is about to read the pages.
    fn reading() -> Self {
        let mut testbed = Self::new();
        let read = testbed.read();
        assert_eq!((read.revision, read.from), (None, layout().head()));
        let events = testbed.page(20, vec![pair(layout().head(), head(5, 0, 0))], 0);
        assert_eq!(events, [FollowerEvent::Reset]);
        testbed
    }

    /// The same when it follows.
    fn following() -> Self {
        let mut testbed = Self::reading();
        testbed.read();
        testbed.page(25, vec![pair(layout().head(), head(5, 0, 0))], 0);
        assert!(matches!(testbed.poll(), Some(ActionKind::Watch(range)) if range.revision == 21));
        testbed
    }

    fn poll(&mut self) -> Option<ActionKind> {
        self.follower.poll_action(NOW, &mut self.ids).map(|action| action.kind)
    }

    fn read(&mut self) -> RangeRead {
        let Some(ActionKind::Read(read)) = self.poll() else { panic!("no read is due") };
        read
    }

    fn page(&mut self, revision: u64, pairs: Vec<Pair>, more: u64) -> Vec<FollowerEvent> {
        self.follower.handle_answer(Ok(Answer::Read(RangeAnswer { revision, pairs, more })), NOW)
    }

    fn receive(&mut self, revision: u64, changes: &[(Bytes, Option<Bytes>)]) -> Vec<FollowerEvent> {
        let event = |(key, value): &(Bytes, Option<Bytes>)| WatchEvent {
            key: key.clone(),
            value: value.clone(),
            mod_revision: revision,
        };
        let batch = WatchBatch { revision, events: changes.iter().map(event).collect() };
        self.follower.handle_watch(Ok(batch), NOW)
    }
}

#[test]
fn the_state_is_read_in_pages_at_the_revision_of_its_head() {
    let mut testbed = Testbed::reading();
    let first = testbed.read();
    assert_eq!((first.revision, first.from), (Some(20), layout().state().0));
    let events = testbed.page(25, vec![pair(layout().row(&key("a")), row("a"))], 1);
    assert!(matches!(&events[..], [FollowerEvent::Record(_)]));
    let second = testbed.read();
    assert_eq!(
        (second.revision, &second.from[..]),
        (Some(20), &[&layout().row(&key("a"))[..], &[0]].concat()[..])
    );
    testbed.page(25, vec![pair(layout().row(&key("b")), row("b"))], 0);
    assert!(testbed.follower.is_following());
    assert!(matches!(testbed.poll(), Some(ActionKind::Watch(range)) if range.revision == 21));
}

#[test]
fn a_complete_commit_is_applied() {
    let mut testbed = Testbed::following();
    let (a, b) = (layout().row(&key("a")), layout().row(&key("b")));
    let events = testbed
        .receive(30, &[(layout().head(), Some(head(6, 1, 1))), (a, Some(row("a"))), (b.clone(), None)]);
    assert!(matches!(&events[..], [FollowerEvent::Record(_), FollowerEvent::Record(_)]));
    let deletion = testbed.receive(32, &[(b, None)]);
    assert!(matches!(&deletion[..], [FollowerEvent::Record(_)]), "etcd has no space for a head");
    assert_eq!(testbed.receive(32, &[(layout().head(), Some(head(9, 0, 0)))]), [], "it was received before");
}

#[test]
fn lost_changes_are_noticed_and_the_state_is_read_again() {
    let a = layout().row(&key("a"));
    let h = layout().head();
    let lost: [&[(Bytes, Option<Bytes>)]; 6] = [
        &[(h.clone(), Some(head(7, 0, 0)))],
        &[(h.clone(), Some(head(5, 0, 0)))],
        &[(h.clone(), Some(head(6, 1, 0)))],
        &[(h.clone(), Some(head(6, 0, 1)))],
        &[(a.clone(), Some(row("a")))],
        &[(h.clone(), None)],
    ];
    for changes in lost {
        let mut testbed = Testbed::following();
        assert_eq!(testbed.receive(30, changes), [FollowerEvent::Gap], "{changes:?}");
        assert!(matches!(testbed.poll(), Some(ActionKind::CancelWatch(_))));
        assert_eq!(testbed.read().revision, None);
    }
    let more = &[(h, Some(head(6, 0, 0))), (a, Some(row("a")))];
    assert_eq!(Testbed::following().receive(30, more), [FollowerEvent::Gap]);
}

#[test]
fn a_corrupt_record_is_named_and_the_state_is_not_followed() {
    let wrong = layout().row(&key("a"));
    let mut testbed = Testbed::new();
    testbed.read();
    let events = testbed.page(20, vec![pair(wrong.clone(), row("b"))], 0);
    assert_eq!(events, [FollowerEvent::Reset, FollowerEvent::Corrupt { key: wrong.clone() }]);
    assert!(!testbed.follower.is_following());
    assert_eq!(testbed.follower.next_deadline(), Some(NOW.monotonic_ms + CORRUPT_PAUSE_MS));

    let mut testbed = Testbed::following();
    let changes = [(layout().head(), Some(head(6, 1, 0))), (wrong.clone(), Some("?".into()))];
    assert_eq!(testbed.receive(30, &changes), [FollowerEvent::Corrupt { key: wrong }]);
    assert!(!testbed.follower.is_following());
}

#[test]
fn a_compaction_that_overtakes_a_read_or_a_watch_begins_it_again() {
    let mut testbed = Testbed::new();
    testbed.read();
    testbed.page(20, vec![pair(layout().row(&key("a")), row("a"))], 1);
    testbed.read();
    testbed.follower.handle_answer(Err(EtcdError::Compacted { revision: 22 }), NOW);
    assert_eq!(testbed.read().revision, None);

    let mut testbed = Testbed::following();
    testbed.follower.handle_watch(Err(EtcdError::Compacted { revision: 22 }), NOW);
    assert_eq!(testbed.read().revision, None);
}

#[test]
fn a_watch_that_ends_goes_on_after_what_was_received() {
    let mut testbed = Testbed::following();
    testbed.receive(40, &[]);
    testbed.follower.handle_watch(Err(EtcdError::Unknown { reason: String::new() }), NOW);
    assert!(matches!(testbed.poll(), Some(ActionKind::Watch(range)) if range.revision == 41));
}
