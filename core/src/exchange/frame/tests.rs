//! Tests of frames of a link.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::fingerprint::ValueHash;
use super::super::generators::{any_change_id, counter, key, name, serial, value};
use super::super::rules::tests::plant;
use super::*;

fn content() -> impl Strategy<Value = Option<Content>> {
    let ttl_ms = option::of(1..=i64::MAX as u64);
    option::of((value(), ttl_ms).prop_map(|(value, ttl_ms)| Content { value, ttl_ms }))
}

fn record() -> impl Strategy<Value = RecordItem> {
    (key(), counter(), any_change_id(), option::of(name()), content())
        .prop_map(|(key, ver, change_id, owner, content)| RecordItem { key, ver, change_id, owner, content })
}

fn any_item() -> impl Strategy<Value = Item> {
    let reason = prop::sample::select(Reason::ALL.to_vec());
    prop_oneof![
        record().prop_map(Item::Record),
        (counter(), counter()).prop_map(|(seq, ver)| Item::Accepted { seq, ver }),
        (counter(), reason, option::of(record())).prop_map(|(seq, reason, record)| Item::Refused {
            seq,
            reason,
            record
        }),
    ]
}

fn proposed() -> impl Strategy<Value = Proposed> {
    let hash = || any::<[u8; 16]>().prop_map(ValueHash);
    let kind = prop::sample::select(vec![ValueKind::Lasting, ValueKind::Expiring]);
    prop_oneof![
        content().prop_map(|content| content.map_or(Proposed::Deletion, Proposed::Value)),
        hash().prop_map(Proposed::Expired),
        (hash(), kind).prop_map(|(hash, kind)| Proposed::Unsent(hash, kind)),
    ]
}

fn any_proposal() -> impl Strategy<Value = Proposal> {
    let flags = any::<[bool; 4]>().prop_map(|[is_lost, is_restored, is_again, is_base_absent]| Flags {
        is_lost,
        is_restored,
        is_again,
        is_base_absent,
    });
    (1..=i64::MAX as u64, key(), serial(), any_change_id(), flags, proposed()).prop_map(
        |(seq, key, serial, base, flags, content)| Proposal { seq, key, serial, base, flags, content },
    )
}

fn any_frame() -> impl Strategy<Value = LinkFrame> {
    let start = prop::sample::select(vec![Start::Resume, Start::Resync, Start::Restored]);
    let ids = || (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    prop_oneof![
        ((name(), name(), ".{0,40}"), ids(), (any::<u64>(), any::<u64>()), counter(), counter()).prop_map(
            |((exchange, leaf, software), (store, run, link, stream), (term, rules), acked, cursor)| {
                let version = VERSION;
                LinkFrame::Hello(Hello {
                    version,
                    exchange,
                    leaf,
                    store,
                    run,
                    link,
                    stream,
                    acked,
                    cursor,
                    last_ver: acked,
                    term,
                    rules,
                    software,
                    oldest_version: acked,
                    is_resync: acked % 2 == 0,
                    horizon: cursor,
                    last_seq: acked,
                    is_busy: cursor % 2 == 0,
                })
            }
        ),
        (ids(), any_change_id(), start, counter(), any::<bool>()).prop_map(
            |((link, root, ..), change_id, start, counter, has_rules)| {
                let rules = has_rules.then(plant);
                let (applied, pruned, from, horizon) = (counter, counter / 2, counter / 3, counter);
                LinkFrame::Welcome(Welcome {
                    link,
                    root,
                    applied,
                    change_id,
                    pruned,
                    start,
                    from,
                    horizon,
                    rules,
                    version: counter,
                })
            }
        ),
        (any::<u64>(), "[a-z-]{1,20}", ".{0,40}")
            .prop_map(|(link, code, text)| LinkFrame::Refused(Refused { link, code, text })),
        (any::<u64>(), counter(), vec(any_proposal(), 0..4))
            .prop_map(|(link, n, items)| LinkFrame::Changes(Changes { link, n, items })),
        (ids(), option::of(any::<u64>()), counter(), counter(), vec(any_item(), 0..4)).prop_map(
            |((link, term, ..), digest, n, to, items)| {
                LinkFrame::Records(Records { link, n, to, term, digest, items, purged: to / 2, last_ver: to })
            }
        ),
        (any::<u64>(), counter(), counter(), counter()).prop_map(|(link, n, cursor, acked)| {
            let (last_seq, is_busy) = (acked, n % 2 == 0);
            LinkFrame::Ack(Ack { link, n, cursor, acked, last_seq, is_busy })
        }),
    ]
}

proptest! {
    #[test]
    fn a_frame_survives_the_wire(frame in any_frame()) {
        prop_assert_eq!(LinkFrame::decode(&frame.encode()), Ok(frame));
    }

    #[test]
    fn elements_of_a_later_version_are_ignored(frame in any_frame()) {
        let Frame::Array(mut elements) = frame.to_frame() else { panic!() };
        elements.push(text("later"));
        let mut payload = BytesMut::new();
        Frame::Array(elements).encode(&mut payload);
        prop_assert_eq!(LinkFrame::decode(&payload.freeze()), Ok(frame));
    }

    #[test]
    fn a_frame_without_an_element_or_with_another_type_is_rejected(frame in any_frame(), at in any::<prop::sample::Index>()) {
        let Frame::Array(mut elements) = frame.to_frame() else { panic!() };
        let at = at.index(elements.len());
        let mut others = elements.clone();
        others[at] = Frame::Error("no".into());
        elements.truncate(at);
        for elements in [elements, others] {
            let mut payload = BytesMut::new();
            Frame::Array(elements).encode(&mut payload);
            prop_assert!(LinkFrame::decode(&payload.freeze()).is_err());
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(frame in any_frame(), cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut payload = frame.encode().to_vec();
        let at = cut.index(payload.len());
        payload[at] = byte;
        let payload = Bytes::from(payload);
        let _ = LinkFrame::decode(&payload);
        let truncated = payload.slice(..at);
        prop_assert!(LinkFrame::decode(&truncated).is_err());
    }
}

#[test]
fn a_frame_with_too_many_items_is_rejected() {
    let item = Item::Accepted { seq: 1, ver: 1 };
    let records = |count| Records {
        link: 1,
        n: 1,
        to: 1,
        term: 1,
        digest: None,
        items: vec![item.clone(); count],
        purged: 0,
        last_ver: 1,
    };
    assert!(LinkFrame::decode(&LinkFrame::Records(records(ITEMS_MAX)).encode()).is_ok());
    let rejected = LinkFrame::decode(&LinkFrame::Records(records(ITEMS_MAX + 1)).encode());
    assert_eq!(rejected, Err(LinkFrameError::Malformed(RECORDS)));
}

#[test]
fn garbage_is_rejected_with_its_cause() {
    let rejected = |payload: &'static str| LinkFrame::decode(&Bytes::from(payload)).unwrap_err().to_string();
    assert_eq!(rejected("x"), "malformed frame: no frame begins with 'x' (byte 0)");
    assert_eq!(rejected("*1\r\n+NEW\r\n"), "unknown frame");
    assert_eq!(rejected("*1\r\n$3\r\nACK\r\n"), "unknown frame");
    assert_eq!(rejected("*1\r\n+ACK\r\n"), "malformed ACK");
}

#[test]
fn a_value_without_any_time_left_is_rejected() {
    let content = |ttl_ms| Some(Content { value: "v".into(), ttl_ms: Some(ttl_ms) });
    let key = || Key::new("k").unwrap();
    let item = |ttl_ms| {
        let (ver, change_id, owner) = (1, ChangeId::NIL, None);
        Item::Record(RecordItem { key: key(), ver, change_id, owner, content: content(ttl_ms) })
    };
    let records = |ttl_ms| {
        let items = vec![item(ttl_ms)];
        let records = Records { link: 1, n: 1, to: 1, term: 1, digest: None, items, purged: 0, last_ver: 1 };
        LinkFrame::Records(records).encode()
    };
    assert!(LinkFrame::decode(&records(1)).is_ok());
    assert_eq!(LinkFrame::decode(&records(0)), Err(LinkFrameError::Malformed(RECORDS)));
}
