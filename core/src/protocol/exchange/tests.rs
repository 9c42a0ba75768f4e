//! Tests of operator requests and their answers.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::strategies::{bytes, frame, key, line, mutated};
use super::refusal::REFUSALS;
use super::topic::{COMMAND, PREFIX, Topic, conflicts, down, up};
use super::*;
use crate::protocol::frame::Frame;
use bytes::{Bytes, BytesMut};

/// Counters on the wire are signed.
const NUMBER_MAX: u64 = i64::MAX as u64;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..5_u64, 0..=NUMBER_MAX]
}

fn command() -> impl Strategy<Value = Command> {
    let name = || "[a-zé.-]{0,8}";
    prop_oneof![
        option::of(name()).prop_map(|leaf| Command::Status { leaf }),
        key().prop_map(|key| Command::Key { key }),
        (option::of(name()), number(), number()).prop_map(|(leaf, since, max)| Command::Conflicts {
            leaf,
            since,
            max
        }),
        number().prop_map(|id| Command::Value { id }),
        option::of(vec(number(), 0..5)).prop_map(|ids| Command::Clear { ids }),
        (name(), any::<bool>()).prop_map(|(name, is_replaced)| Command::AddLeaf { name, is_replaced }),
        name().prop_map(|name| Command::DropLeaf { name }),
        (option::of(name()), any::<bool>())
            .prop_map(|(name, is_new_root)| Command::Resync { name, is_new_root }),
        Just(Command::Reconnect),
    ]
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![without_value(), (bytes(40), number()).prop_map(|(start, size)| Lost::Value { start, size })]
}

fn without_value() -> impl Strategy<Value = Lost> {
    prop::sample::select(vec![Lost::Deletion, Lost::Expired, Lost::Unsent])
}

fn origin() -> impl Strategy<Value = Origin> {
    prop_oneof![Just(Origin::Unknown), Just(Origin::Root), "[a-z]{0,5}".prop_map(Origin::Leaf)]
}

fn leaf() -> impl Strategy<Value = LeafReport> {
    let states = [
        LeafState::Expected,
        LeafState::Offline,
        LeafState::Blocked,
        LeafState::Linked,
        LeafState::Synchronized,
    ];
    let state = prop::sample::select(states.to_vec());
    ("[a-z]{1,5}", state, number(), option::of(number()), number(), option::of(number()), number()).prop_map(
        |(name, state, behind, pending, conflicts, heard_ms, accepted)| LeafReport {
            name,
            state,
            behind,
            pending,
            conflicts,
            heard_ms,
            accepted,
            refused: behind,
        },
    )
}

fn own() -> impl Strategy<Value = OwnReport> {
    let states = [OwnState::Offline, OwnState::Blocked, OwnState::Resync, OwnState::Linked];
    let state = prop::sample::select(states.to_vec());
    ("[a-z]{1,5}", state, prop::array::uniform9(number())).prop_map(|(name, state, counters)| {
        let [received, outbox, outbox_bytes, made, accepted, refused, merged, conflicts, dropped] = counters;
        OwnReport {
            exchange: name.clone(),
            name,
            state,
            is_synchronized: received % 2 == 0,
            received,
            outbox,
            outbox_bytes,
            made,
            accepted,
            refused,
            merged,
            conflicts,
            dropped,
            ended: (dropped > 2).then(|| "reason".to_owned()),
        }
    })
}

fn key_report() -> impl Strategy<Value = KeyReport> {
    use KeyState::{Absent, Local, Proposed, Replicating, Synchronized};
    let state = prop::sample::select(vec![Local, Absent, Synchronized, Proposed, Replicating]);
    let patterns = || vec("[a-z*]{0,5}", 0..3);
    let rule = (number(), patterns(), any::<bool>(), option::of(patterns()))
        .prop_map(|(number, keys, is_for_leaves, leaves)| RuleReport { number, keys, is_for_leaves, leaves });
    let change_id = || option::of(any::<[u8; 16]>());
    (state, option::of(rule), number(), change_id(), origin(), change_id()).prop_map(
        |(state, rule, ver, change_id, owner, pending)| KeyReport {
            state,
            rule,
            ver,
            change_id,
            owner,
            pending,
        },
    )
}

fn conflict() -> impl Strategy<Value = ConflictReport> {
    (number(), number(), key(), "[a-z]{1,5}", "[a-z]{0,5}", lost(), number(), origin(), option::of(lost()))
        .prop_map(|(id, at_ms, key, leaf, reason, lost, winner, owner, won)| ConflictReport {
            id,
            at_ms,
            key,
            leaf,
            reason,
            lost,
            winner,
            owner,
            won,
        })
}

fn answer() -> impl Strategy<Value = Answer> {
    let root = ("[a-z]{1,5}", prop::array::uniform5(number()), vec(leaf(), 0..3)).prop_map(
        |(exchange, [ver, records, tombstones, conflicts, dropped], leaves)| RootReport {
            exchange,
            ver,
            records,
            tombstones,
            conflicts,
            dropped,
            leaves,
        },
    );
    let page = (vec(conflict(), 0..3), number(), any::<bool>())
        .prop_map(|(conflicts, last, is_complete)| ConflictPage { conflicts, last, is_complete });
    prop_oneof![
        root.prop_map(Answer::Root),
        own().prop_map(Answer::Leaf),
        key_report().prop_map(Answer::Key),
        page.prop_map(Answer::Conflicts),
        bytes(40).prop_map(|value| Answer::Value(Ok(value))),
        without_value().prop_map(|lost| Answer::Value(Err(lost))),
        number().prop_map(|count| Answer::Done { count }),
        Just(Answer::NotFound),
        Just(Answer::Refused(Refusal::NoExchange)),
        line().prop_map(|text| Answer::Refused(Refusal::parse(&text))),
    ]
}

fn encoded_frame(frame: &Frame) -> Bytes {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out.freeze()
}

/// Returns the payload with one more element.
fn extended(payload: &Bytes) -> Option<Bytes> {
    let Ok(Frame::Array(mut elements)) = Frame::decode(payload) else { return None };
    elements.push(Frame::Array(vec![Frame::Null]));
    Some(encoded_frame(&Frame::Array(elements)))
}

proptest! {
    #[test]
    fn an_encoded_command_decodes_to_itself(command in command()) {
        let payload = command.encode();
        let later = extended(&payload).unwrap();
        prop_assert_eq!(Command::decode(&payload), Some(command.clone()));
        prop_assert_eq!(Command::decode(&later), Some(command));
    }

    #[test]
    fn an_encoded_answer_decodes_to_itself(answer in answer()) {
        let payload = answer.encode();
        if let Some(later) = extended(&payload) {
            prop_assert_eq!(Answer::decode(&later), Ok(answer.clone()));
        }
        prop_assert_eq!(Answer::decode(&payload), Ok(answer));
    }

    #[test]
    fn an_encoded_conflict_decodes_to_itself(conflict in conflict()) {
        prop_assert_eq!(ConflictReport::decode(&conflict.encode()), Some(conflict));
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(
        payload in prop_oneof![
            bytes(64),
            frame().prop_map(|frame| encoded_frame(&frame)),
            mutated(command().prop_map(|command| command.encode())),
            mutated(answer().prop_map(|answer| answer.encode())),
        ],
    ) {
        if let Some(command) = Command::decode(&payload) {
            prop_assert_eq!(Command::decode(&command.encode()), Some(command));
        }
        if let Ok(answer) = Answer::decode(&payload) {
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        let _ = ConflictReport::decode(&payload);
    }
}

#[test]
fn every_refusal_has_a_text_that_is_parsed() {
    for (refusal, text) in REFUSALS {
        assert_eq!((Refusal::parse(text), refusal.text()), (refusal.clone(), text));
    }
    assert_eq!(Refusal::parse("of a later version").text(), "of a later version");
}

#[test]
fn topics_are_parsed_as_they_are_built() {
    let (exchange, leaf) = ("plant", "press-7");
    assert_eq!(up(exchange, leaf), "mqkv/exchange/v1/plant/up/press-7");
    assert_eq!(Topic::parse(&up(exchange, leaf)), Some(Topic::Up { exchange, leaf }));
    assert_eq!(Topic::parse(&down(exchange, leaf)), Some(Topic::Down { exchange, leaf }));
    assert_eq!(Topic::parse(&conflicts(exchange)), Some(Topic::Conflicts { exchange }));
    assert_eq!(Topic::parse(COMMAND), Some(Topic::Command));
    for other in ["", PREFIX, "mqkv/exchange/v1/plant/up", "mqkv/exchange/v1/plant/up/a/b", "a/command"] {
        assert_eq!(Topic::parse(other), None, "{other}");
    }
}

#[test]
fn a_command_has_at_most_a_thousand_ids() {
    let clear = |count: usize| Command::Clear { ids: Some(vec![1; count]) };
    assert!(Command::decode(&clear(IDS_MAX).encode()).is_some());
    assert!(Command::decode(&clear(IDS_MAX + 1).encode()).is_none());
}

#[test]
fn the_start_of_a_long_value_is_reported_with_its_size() {
    let value = Bytes::from(vec![7; 1_000]);
    let Lost::Value { start, size } = Lost::of(Some(&value)) else { panic!() };
    assert_eq!((start.len(), size), (Lost::START_BYTES_MAX, 1_000));
    assert_eq!(Lost::of(None), Lost::Deletion);
}
