//! Tests of rows and their addresses.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::generators::{any_change_id, counter, key, name, serial, value};
use super::super::rules::tests::plant;
use super::*;

fn identity() -> impl Strategy<Value = Identity> {
    (name(), name(), any::<u64>()).prop_map(|(exchange, node, store)| Identity { exchange, node, store })
}

fn reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(vec![Reason::RootWins, Reason::FirstLeafWins, Reason::UnknownBase])
}

fn row() -> impl Strategy<Value = Row> {
    let value = || option::of(value());
    let state = prop::sample::select(vec![
        EntryState::Live,
        EntryState::Settled,
        EntryState::Lost,
        EntryState::Restored,
    ]);
    let kinds = [ResyncKind::Missed, ResyncKind::Restored, ResyncKind::NewRoot];
    let resync_kind = || prop::sample::select(kinds.to_vec());
    let record_kind = [RecordKind::Lasting, RecordKind::Expiring, RecordKind::Tombstone];
    let record_kind = prop::sample::select(record_kind.to_vec());
    let numbers = || (counter(), counter(), counter(), counter());
    let resync = option::of((counter(), resync_kind()).prop_map(|(horizon, kind)| Resync { horizon, kind }));
    let resync = (resync, option::of(resync_kind()));
    let kind = prop_oneof![
        counter().prop_map(|ver| DecisionKind::Accepted { ver }),
        reason().prop_map(DecisionKind::Refused)
    ];
    let lost =
        prop_oneof![value().prop_map(LostContent::of), Just(LostContent::Expired), Just(LostContent::Unsent)];
    let (ids, terms) = ((any::<u64>(), any::<u64>()), vec((counter(), any::<u64>()), 0..5));
    prop_oneof![
        (identity(), counter(), counter(), counter(), any::<bool>()).prop_map(
            |(identity, ver, purged, rules_ver, is_due)| {
                let (is_sweep_due, is_walk_due) = (is_due, !is_due);
                let (last_conflict, dropped_conflicts) = (ver / 2, ver / 3);
                Row::Root(RootRow {
                    identity,
                    ver,
                    purged,
                    rules_ver,
                    is_sweep_due,
                    is_walk_due,
                    last_conflict,
                    dropped_conflicts,
                })
            }
        ),
        Just(Row::Rules(plant())),
        terms.prop_map(|terms| Row::Terms(
            terms.into_iter().map(|(first, run)| Term { first, run }).collect()
        )),
        (counter(), any_change_id(), option::of(name()), record_kind)
            .prop_map(|(ver, change_id, owner, kind)| Row::Record(Record { ver, change_id, owner, kind })),
        (counter(), any_change_id(), counter(), any::<u32>())
            .prop_map(|(ver, change_id, until, epoch)| Row::Note(Note { ver, change_id, until, epoch })),
        (key(), serial(), (any_change_id(), any_change_id()), state, value(), counter()).prop_map(
            |(key, serial, (change_id, base), state, value, until)| {
                Row::Entry(Entry { key, serial, change_id, base, state, value, until })
            }
        ),
        (key(), counter(), kind).prop_map(|(key, at, kind)| Row::Decision(Decision { key, at, kind })),
        (option::of(any::<u64>()), value(), any::<u64>(), any_change_id(), numbers(), counter()).prop_map(
            |(store, principal, stream, change_id, (applied, pruned, cursor, accepted), refused)| {
                let principal = principal.unwrap_or_default();
                Row::Leaf(LeafRow {
                    store,
                    principal,
                    stream,
                    earlier_streams: vec![stream; usize::try_from(applied % 3).unwrap()],
                    applied,
                    change_id,
                    pruned,
                    cursor,
                    accepted,
                    refused,
                    is_resync_due: applied % 2 == 0,
                })
            }
        ),
        (key(), name(), any_change_id(), reason(), lost, counter(), option::of(name()), counter()).prop_map(
            |(key, leaf, change_id, reason, lost, winner, owner, at_ms)| {
                Row::Conflict(Conflict { key, leaf, change_id, reason, lost, winner, owner, at_ms })
            }
        ),
        (
            identity(),
            option::of(any::<u64>()),
            numbers(),
            ids,
            any_change_id(),
            any::<u32>(),
            resync,
            numbers()
        )
            .prop_map(
                |(
                    identity,
                    root,
                    (cursor, acked, last_seq, again_to),
                    ids,
                    change_id,
                    epoch,
                    (resync, due),
                    counts,
                )| {
                    let (made, accepted, refused, merged) = counts;
                    Row::LeafNode(LeafNodeRow {
                        identity,
                        root,
                        cursor,
                        last_ver: cursor,
                        term: ids.0,
                        acked,
                        acked_change_id: change_id,
                        stream: ids.1,
                        last_seq,
                        again_to,
                        rejoin_to: again_to / 2,
                        epoch,
                        resync,
                        due,
                        is_walk_due: cursor % 2 == 0,
                        counts: Counts { made, accepted, refused, merged },
                        last_conflict: made / 2,
                        dropped_conflicts: made / 3,
                    })
                }
            ),
    ]
}

proptest! {
    #[test]
    fn a_row_is_decoded_as_it_was_encoded(row in row()) {
        prop_assert_eq!(Row::decode(&row.encode()), Some(row));
    }

    #[test]
    fn a_corrupt_row_is_decoded_to_another_or_rejected(row in row(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = row.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Row::decode(&Bytes::from(bytes.clone()));
        bytes.truncate(at);
        prop_assert_eq!(Row::decode(&Bytes::from(bytes)), None);
    }

    #[test]
    fn an_address_is_decoded_as_it_was_encoded(key in key(), name in name(), number in any::<u64>()) {
        let ids = [
            RowId::Node, RowId::Rules, RowId::Terms, RowId::Key(key), RowId::Entry(number),
            RowId::Leaf(name.clone()), RowId::Decision(name, number), RowId::Conflict(number),
        ];
        for id in ids {
            prop_assert_eq!(RowId::decode(&id.encode()), Some(id));
        }
    }
}

#[test]
fn other_addresses_are_rejected() {
    for bytes in ["", "x", "k/", "o/1", "l/A", "v/12345678", "c/"] {
        assert_eq!(RowId::decode(&Bytes::from(bytes)), None, "{bytes}");
    }
}

#[test]
fn the_time_that_a_value_has_left_shrinks_to_nothing() {
    let content = Content { value: "v".into(), ttl_ms: Some(10) };
    let until = content.until(100);
    assert_eq!(Content::at(&content.value, until, 104).unwrap().ttl_ms, Some(6));
    assert_eq!(Content::at(&content.value, until, 110), None);
    let lasting = Content { value: "v".into(), ttl_ms: None };
    assert_eq!(Content::at(&lasting.value, lasting.until(100), u64::MAX), Some(lasting));
}
