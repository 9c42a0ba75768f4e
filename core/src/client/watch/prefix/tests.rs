//! Tests of watches of a prefix, with a store that notifies of it and one that watches single keys.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::tests::{delete, events, found, key, now, of_key, set};
use super::*;
use crate::client::watch::{WatchEvent, notified_key};
use crate::protocol::Message;

fn prefix() -> KeyPrefix {
    KeyPrefix::new("k").unwrap()
}

/// Returns a watch of at most 20 keys that has sent its registration.
fn asking() -> Watch {
    let mut watch = Watch::of_prefix(prefix(), 20);
    ask(&mut watch);
    watch
}

fn ask(watch: &mut Watch) {
    watch.handle_connected();
    assert_eq!(watch.poll_action(), Some(WatchAction::Subscribe));
    watch.handle_subscribed();
    assert_eq!(watch.poll_action(), Some(WatchAction::Register(Registration::Prefix(prefix()))));
    assert_eq!((watch.poll_action(), watch.poll_discovery()), (None, None));
}

/// Returns a watch of a store that notifies of the prefix, after the first listing with these keys.
fn notified(names: &[&str]) -> Watch {
    let mut watch = asking();
    watch.handle_prefix_registered(now());
    assert_eq!(watch.poll_discovery(), Some(Discovery::Notified));
    assert_eq!(list(&mut watch, names), []);
    watch
}

/// Returns a watch of a store that watches single keys, whose keys are registered and have the value 1.
fn listed(names: &[&str]) -> Watch {
    let mut watch = asking();
    watch.handle_prefix_refused(now());
    assert_eq!(watch.poll_discovery(), Some(Discovery::Listed));
    list(&mut watch, names);
    for name in names {
        register(&mut watch, name);
        watch.handle_read(&key(name), found("1", 1), now());
    }
    watch
}

fn register(watch: &mut Watch, name: &str) {
    assert_eq!(watch.poll_action(), Some(WatchAction::Register(of_key(name))));
    watch.handle_registered(&key(name));
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key(name))));
}

/// Passes a list of keys to the watch, and returns the keys that it no longer watches.
fn list(watch: &mut Watch, names: &[&str]) -> Vec<Key> {
    watch.handle_listing(names.iter().map(|name| key(name)).collect())
}

/// Passes a notification to the watch if it is for it.
fn hand(watch: &mut Watch, message: &Message) {
    let key = notified_key(message, "me").unwrap();
    if watch.covers(&key) {
        watch.handle_notification(&key, message);
    }
}

#[test]
fn a_notified_watch_reads_the_listed_keys_and_reports_all_changes_also_of_others() {
    let mut watch = notified(&["k1", "k2"]);
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key("k1"))));
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key("k2"))));
    watch.handle_read(&key("k1"), found("1", 1), now());
    for message in
        [set("k1", "2", 2), set("k3", "3", 3), delete("k3", 3), set("k3", "4", 4), set("other", "5", 5)]
    {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k2"), found("1", 1), now());
    assert_eq!(
        events(&mut watch),
        ["CURRENT 1@1", "SET 2@2", "SET 3@3", "DELETE @3", "SET 4@4", "CURRENT 1@1"]
    );
    assert_eq!((watch.poll_action(), watch.poll_discovery()), (None, None), "nothing is polled");
}

#[test]
fn changes_between_the_registration_and_the_first_listing_are_reported_once() {
    let mut watch = asking();
    watch.handle_prefix_registered(now());
    // The first one exists before and was changed, the second one is new, the third one was deleted.
    for message in [set("k1", "2", 2), set("k2", "3", 3), delete("k3", 1)] {
        hand(&mut watch, &message);
    }
    list(&mut watch, &["k1", "k2"]);
    assert_eq!(watch.poll_action(), None, "their values are known");
    assert_eq!(events(&mut watch), ["SET 2@2", "SET 3@3"]);
}

#[test]
fn after_a_loss_all_keys_are_read_and_listed_again() {
    let mut watch = notified(&["k1"]);
    watch.poll_action();
    watch.handle_read(&key("k1"), found("1", 1), now());
    watch.handle_lost(1_000, "gone");
    assert!(!watch.covers(&key("k2")));
    ask(&mut watch);
    watch.handle_prefix_registered(now());
    assert_eq!(watch.poll_discovery(), Some(Discovery::Notified));
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key("k1"))));
    hand(&mut watch, &set("k3", "5", 5));
    list(&mut watch, &["k1", "k2", "k3"]);
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key("k2"))));
    watch.handle_read(&key("k1"), None, now());
    watch.handle_read(&key("k2"), found("4", 4), now());
    assert_eq!(
        events(&mut watch),
        ["CURRENT 1@1", "LOST 1000 gone", "GAP 1000-5000", "SET 5@5", "RESYNC absent", "SET 4@4"]
    );
}

#[test]
fn a_loss_is_a_gap_also_without_keys() {
    for is_notified_again in [true, false] {
        let mut watch = notified(&[]);
        watch.handle_lost(1_000, "gone");
        ask(&mut watch);
        match is_notified_again {
            true => watch.handle_prefix_registered(now()),
            false => watch.handle_prefix_refused(now()),
        }
        assert_eq!(events(&mut watch), ["LOST 1000 gone", "GAP 1000-5000"]);
    }
}

#[test]
fn the_way_to_find_keys_is_that_of_the_connection() {
    let mut watch = listed(&["k1"]);
    events(&mut watch);
    assert!(!watch.covers(&key("k2")));
    watch.handle_lost(1_000, "gone");
    ask(&mut watch);
    watch.handle_prefix_registered(now());
    assert_eq!((watch.poll_action(), watch.poll_action()), (Some(WatchAction::Read(key("k1"))), None));
    assert!(watch.covers(&key("k2")));
    assert_eq!(watch.registrations(), [Registration::Prefix(prefix())]);
    watch.handle_lost(2_000, "gone");
    ask(&mut watch);
    watch.handle_prefix_refused(now());
    register(&mut watch, "k1");
    assert_eq!(watch.registrations(), [of_key("k1")]);
}

#[test]
fn deleted_keys_do_not_accumulate() {
    let mut watch = notified(&[]);
    for number in 0..1_000 {
        let name = format!("k{number}");
        hand(&mut watch, &set(&name, "1", number + 1));
        hand(&mut watch, &delete(&name, number + 1));
        assert!(watch.keys.len() <= 20 && watch.order.len() == watch.keys.len());
    }
    assert_eq!(events(&mut watch).len(), 2_000);
    assert_eq!(watch.poll_discovery(), None);
}

#[test]
fn changes_after_a_held_back_deletion_are_reported_however_many_keys_were_deleted() {
    let mut watch = notified(&["k"]);
    for number in 0..DELETIONS_MIN as u64 {
        hand(&mut watch, &set("k1", "1", number + 1));
        hand(&mut watch, &delete("k1", number + 1));
    }
    events(&mut watch);
    for message in [delete("k", 3), set("k", "4", 4), delete("k", 4), set("k", "5", 5)] {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k"), found("3", 3), now());
    assert_eq!(events(&mut watch), ["CURRENT 3@3", "DELETE @3", "SET 4@4", "DELETE @4", "SET 5@5"]);
}

#[test]
fn more_keys_than_the_watch_may_have_are_reported_to_its_owner() {
    let mut watch = notified(&[]);
    for number in 0..20 {
        hand(&mut watch, &set(&format!("k{number}"), "1", 1));
    }
    assert_eq!(watch.poll_discovery(), None);
    hand(&mut watch, &set("k20", "1", 1));
    assert_eq!(watch.poll_discovery(), Some(Discovery::TooMany));
    assert_eq!(events(&mut watch).len(), 20);
}

#[test]
fn the_first_value_of_a_key_that_a_later_listing_finds_is_a_change() {
    let mut watch = listed(&["k"]);
    assert_eq!(list(&mut watch, &["k", "knew"]), []);
    register(&mut watch, "knew");
    hand(&mut watch, &set("knew", "3", 3));
    watch.handle_read(&key("knew"), found("2", 2), now());
    assert_eq!(events(&mut watch), ["CURRENT 1@1", "SET 2@2", "SET 3@3"]);
    assert_eq!(list(&mut watch, &["k", "knew"]), []);
    assert_eq!(watch.poll_action(), None, "a key that is watched is not registered again");
}

#[test]
fn a_listed_key_that_is_gone_when_it_is_read_is_not_reported_until_it_is_set() {
    let mut watch = listed(&["k"]);
    list(&mut watch, &["knew"]);
    register(&mut watch, "knew");
    watch.handle_read(&key("knew"), None, now());
    hand(&mut watch, &set("knew", "3", 3));
    assert_eq!(events(&mut watch), ["CURRENT 1@1", "SET 3@3"]);
}

#[test]
fn a_key_that_is_listed_while_the_connection_is_lost_is_registered_with_the_next_one() {
    let mut watch = listed(&["k"]);
    watch.handle_lost(4_000, "reset");
    list(&mut watch, &["k", "knew"]);
    assert_eq!(watch.poll_action(), None);
    ask(&mut watch);
    watch.handle_prefix_refused(now());
    assert_eq!(watch.poll_action(), Some(WatchAction::Register(of_key("k"))));
    assert_eq!(watch.poll_action(), Some(WatchAction::Register(of_key("knew"))));
}

#[test]
fn a_key_is_watched_until_it_has_been_deleted_for_many_listings() {
    let mut watch = listed(&["k"]);
    for _ in 0..2 * UNLISTED_MAX {
        assert_eq!(list(&mut watch, &[]), [], "it exists: the listing is older than the value");
    }
    hand(&mut watch, &delete("k", 1));
    list(&mut watch, &["k"]);
    for _ in 1..UNLISTED_MAX {
        assert_eq!(list(&mut watch, &[]), []);
    }
    assert_eq!(list(&mut watch, &[]), [key("k")]);
    assert!(!watch.contains(&key("k")));
    assert_eq!(list(&mut watch, &["k"]), []);
    assert_eq!(watch.poll_action(), Some(WatchAction::Register(of_key("k"))));
}

/// The next action of the simulated store, network or user.
#[derive(Clone, Copy, Debug)]
enum Act {
    Set(usize),
    Delete(usize),
    /// The next message to the client arrives.
    Deliver,
    /// The owner of the watch lists the keys, as every few seconds.
    List,
    /// The connection is lost. Whether the store at the next one notifies of prefixes.
    Lose(bool),
    /// The store starts anew, empty, with versions from this one on, and the connection is lost.
    Restart(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..NAMES.len()).prop_map(Act::Set),
        5 => (0..NAMES.len()).prop_map(Act::Delete),
        16 => Just(Act::Deliver),
        2 => Just(Act::List),
        1 => any::<bool>().prop_map(Act::Lose),
        1 => (0..40u64).prop_map(Act::Restart),
    ];
    proptest::collection::vec(act, 0..200)
}

const NAMES: [&str; 3] = ["k1", "k2", "k3"];

/// A message to the client.
enum Parcel {
    Registered(Registration),
    Refused,
    Read(Key, Option<u64>),
    Listing(Vec<Key>),
    Message(Message),
}

/// A store with its connection to a client.
#[derive(Default)]
struct Simulated {
    has_extension: bool,
    state: BTreeMap<&'static str, u64>,
    registered: BTreeSet<String>,
    /// Whether all keys are notified.
    is_registered: bool,
    /// Whether the watch has asked for listings on this connection.
    is_listing: bool,
    wire: Vec<Parcel>,
    clock: u64,
    life: u64,
}

impl Simulated {
    fn notify(&mut self, name: &str, message: Message) {
        if self.is_registered || self.registered.contains(name) {
            self.wire.push(Parcel::Message(message));
        }
    }

    fn list(&mut self) {
        if self.is_listing {
            self.wire.push(Parcel::Listing(self.state.keys().map(|name| key(name)).collect()));
        }
    }

    fn act(&mut self, act: Act, watch: &mut Watch) {
        match act {
            Act::Set(number) => {
                self.clock += 1;
                // Two lives have no version in common.
                let (name, version) = (NAMES[number], self.clock * 100 + self.life);
                self.state.insert(name, version);
                self.notify(name, set(name, "v", version));
            }
            Act::Delete(number) => {
                if let Some(version) = self.state.remove(NAMES[number]) {
                    self.notify(NAMES[number], delete(NAMES[number], version));
                }
            }
            Act::List => self.list(),
            Act::Lose(_) | Act::Restart(_) => {
                match act {
                    Act::Restart(first) => {
                        (self.clock, self.life) = (first, self.life + 1);
                        self.state.clear();
                    }
                    Act::Lose(has_extension) => self.has_extension = has_extension,
                    _ => {}
                }
                self.wire.clear();
                self.registered.clear();
                (self.is_registered, self.is_listing) = (false, false);
                watch.handle_lost(1, "gone");
                watch.handle_connected();
            }
            Act::Deliver if self.wire.is_empty() => {}
            Act::Deliver => match self.wire.remove(0) {
                Parcel::Registered(Registration::Key(key)) => watch.handle_registered(&key),
                Parcel::Registered(Registration::Prefix(_)) => watch.handle_prefix_registered(now()),
                Parcel::Refused => watch.handle_prefix_refused(now()),
                Parcel::Read(key, state) => {
                    watch.handle_read(&key, state.and_then(|ms| found("v", ms)), now());
                }
                Parcel::Listing(keys) => drop(watch.handle_listing(keys)),
                Parcel::Message(message) => hand(watch, &message),
            },
        }
        self.serve(watch);
    }

    fn serve(&mut self, watch: &mut Watch) {
        while let Some(action) = watch.poll_action() {
            match action {
                WatchAction::Subscribe => watch.handle_subscribed(),
                WatchAction::Register(Registration::Prefix(_)) if !self.has_extension => {
                    self.wire.push(Parcel::Refused);
                }
                WatchAction::Register(registration) => {
                    match &registration {
                        Registration::Prefix(_) => self.is_registered = true,
                        Registration::Key(key) => {
                            self.registered.insert(String::from_utf8(key.as_bytes().to_vec()).unwrap());
                        }
                    }
                    self.wire.push(Parcel::Registered(registration));
                }
                WatchAction::Read(key) => {
                    let name = std::str::from_utf8(key.as_bytes()).unwrap();
                    let state = self.state.get(name).copied();
                    self.wire.push(Parcel::Read(key, state));
                }
            }
        }
        if watch.poll_discovery().is_some() {
            self.is_listing = true;
            self.list();
        }
    }
}

proptest! {
    /// Keys are created, changed and deleted at any time between registration, listing, reads and losses of the connection.
    #[test]
    fn the_last_reported_state_of_each_key_is_the_state_of_the_store(has_extension: bool, acts in acts()) {
        let mut watch = Watch::of_prefix(prefix(), 100);
        let mut store = Simulated { has_extension, ..Simulated::default() };
        watch.handle_connected();
        store.serve(&mut watch);
        // At the end all pending messages arrive. Without the extension another listing finds the last new keys.
        let deliver = || std::iter::repeat_n(Act::Deliver, 600);

        acts.into_iter().chain(deliver()).for_each(|act| store.act(act, &mut watch));
        if !store.has_extension {
            std::iter::once(Act::List).chain(deliver()).for_each(|act| store.act(act, &mut watch));
        }
        let mut reported = BTreeMap::new();
        while let Some(event) = watch.poll_event() {
            let (key, version) = match event {
                WatchEvent::Lost { .. } | WatchEvent::Gap { .. } => continue,
                WatchEvent::Current { key, found } | WatchEvent::Resync { key, found } => {
                    (key, found.and_then(|found| found.version))
                }
                WatchEvent::Set { key, version, .. } => (key, version),
                WatchEvent::Delete { key, .. } => (key, None),
                WatchEvent::Skipped { cause, .. } => return Err(TestCaseError::fail(cause)),
            };
            reported.insert(key, version.map(|version| version.ms));
        }
        let reported: BTreeMap<Key, u64> =
            reported.into_iter().filter_map(|(key, version)| Some((key, version?))).collect();
        let state: BTreeMap<Key, u64> =
            store.state.iter().map(|(name, version)| (key(name), *version)).collect();
        prop_assert_eq!(reported, state);
    }
}
