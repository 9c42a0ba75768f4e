//! Records of a cluster in etcd: keys and values.

use bytes::Bytes;
use mqkv::ledger::ResponseRecord;
use mqkv::ledger::etcd::codec::{
    DecodedResponses, EncodedResponses, Reception, decode_presence, decode_request, decode_row, decode_run,
    encode_row, presence,
};
use mqkv::ledger::etcd::layout::Place;
use mqkv::ledger::etcd::{Head, Layout, MemberState, Meta, Owner, encode_request, encode_run};
use mqkv::protocol::reply::Outcome;
use mqkv::protocol::{Key, Timestamp};
use mqkv::store::{Now, StoredValue, Version};

use super::{named_bytes, parse_named_bytes, recorded};

const NOW: Now = Now { wall_ms: 1_795_542_120_412, monotonic_ms: 5_000 };
const CLOCK_MS: u64 = 70_000;
const META: Meta = Meta { hash_key: [7; 32] };
pub const VERSION: Version = Version { ms: 1_795_542_120_412, counter: 3 };

/// A record in etcd, as the program has it.
#[derive(Debug, PartialEq)]
enum Item {
    Meta(Meta),
    Head(Head),
    Member { run: u64 },
    Clock(MemberState),
    Request { epoch: u64 },
    Row(Version, StoredValue),
    Registration,
    Responses(DecodedResponses),
}

fn layout() -> Layout {
    Layout::new("default")
}

fn head() -> Head {
    Head {
        owner: None,
        epoch: 2,
        seq: 9,
        greatest: VERSION,
        wall_ms: NOW.wall_ms,
        clock_ms: CLOCK_MS,
        puts: 1,
        deletions: 0,
        attempt: 4,
    }
}

fn stored(value: &'static [u8], fence: Option<Timestamp>, deadline_ms: Option<u64>) -> StoredValue {
    StoredValue { value: Bytes::from_static(value), fence, deadline_ms, persist: true }
}

/// Returns keys with what they hold.
pub fn rows() -> Vec<(Key, StoredValue)> {
    let fence = Some(Timestamp::of_store(VERSION.ms, 1));
    let row = |key: &'static [u8], stored| (Key::new(key).unwrap(), stored);
    vec![
        row(b"fenced", stored(b"f", fence, None)),
        row(b"line1/temp", stored(b"21.5", None, None)),
        row(b"expiring", stored(b"e", None, Some(NOW.monotonic_ms + 3_000_000_000_000))),
        row(b"\xFF\x00bytes", stored(b"\x00\xFF", None, None)),
        row(b"empty", stored(b"", None, None)),
    ]
}

fn responses() -> Vec<ResponseRecord> {
    let response = |outcome, payload: &'static [u8], version| ResponseRecord {
        client_id: "client".into(),
        fingerprint: 0x0123_4567_89AB_CDEF,
        payload: Bytes::from_static(payload),
        version,
        outcome,
        until_ms: NOW.monotonic_ms + 60_000,
    };
    vec![
        response(Outcome::Ok, b"+OK\r\n", Some(VERSION)),
        response(Outcome::No, b":-1\r\n", None),
        response(Outcome::Refused, b"-ERR syntax error\r\n", None),
    ]
}

fn decoded_responses() -> DecodedResponses {
    DecodedResponses { until_ms: CLOCK_MS + 60_000, responses: responses() }
}

/// Returns records of all kinds, each with its key, its value and what it stands for. A key has the same in all versions.
fn records() -> Vec<(Bytes, Bytes, Item)> {
    let (layout, head) = (layout(), head());
    let owned = Head { owner: Some(Owner { instance: "node1".to_owned(), run: 8 }), ..head.clone() };
    let clock = MemberState { wall_ms: NOW.wall_ms, off_ms: -31_000, reads_at: 12 };
    let mut encoded = EncodedResponses::default();
    responses().iter().for_each(|response| encoded.push(response, NOW, CLOCK_MS));
    let encoded = EncodedResponses::default().encode_with(&encoded);
    let key = Key::new("line1/temp").unwrap();
    // The head of another cluster, so that there is one with an owner.
    let other = Layout::new("owned").head();
    let mut records = vec![
        (layout.meta(), META.encode(), Item::Meta(META)),
        (layout.head(), head.encode(), Item::Head(head)),
        (other, owned.encode(), Item::Head(owned)),
        (layout.member("node1"), encode_run(8), Item::Member { run: 8 }),
        (layout.clock("node1"), clock.encode(), Item::Clock(clock)),
        (layout.request(), encode_request(2), Item::Request { epoch: 2 }),
        (layout.registration(&key, "client"), presence(), Item::Registration),
        (layout.responses(9), encoded, Item::Responses(decoded_responses())),
    ];
    for (key, stored) in rows() {
        let encoded = encode_row(&key, VERSION, &stored, NOW, CLOCK_MS).unwrap();
        // A deadline is rounded up.
        let deadline_ms = stored.deadline_ms.map(|at| at + 1);
        records.push((layout.row(&key), encoded, Item::Row(VERSION, StoredValue { deadline_ms, ..stored })));
    }
    records
}

/// Decodes a record as an instance does: by what its key stands for.
fn decode(key: &[u8], value: &[u8]) -> Item {
    let read = Reception::Read { clock_ms: CLOCK_MS };
    let places = [layout(), Layout::new("owned")].map(|layout| layout.place(key));
    match places.into_iter().flatten().next() {
        None if key == layout().meta() => Item::Meta(Meta::decode(value).unwrap()),
        None => panic!("unknown key"),
        Some(Place::Head) => Item::Head(Head::decode(value).unwrap()),
        Some(Place::Member(_)) => Item::Member { run: decode_run(value) },
        Some(Place::Clock(_)) => Item::Clock(MemberState::decode(value).unwrap()),
        Some(Place::Request) => Item::Request { epoch: decode_request(value).unwrap() },
        Some(Place::Row(key)) => {
            let (version, stored) = decode_row(&key, value, read, NOW).unwrap();
            Item::Row(version, stored)
        }
        Some(Place::Registration { .. }) => {
            decode_presence(value).unwrap();
            Item::Registration
        }
        Some(Place::Responses { .. }) => Item::Responses(EncodedResponses::decode(value, read, NOW).unwrap()),
    }
}

/// Returns a key with its value in one line.
fn encoded() -> String {
    let records: Vec<_> =
        records().into_iter().map(|(key, value, _)| (key.escape_ascii().to_string(), value)).collect();
    named_bytes(records.iter().map(|(key, value)| (key.as_str(), &value[..])))
}

/// Returns the keys and values of each version that this version has too.
pub fn recorded_pairs() -> Vec<Vec<(Bytes, Bytes)>> {
    let known = records();
    let pairs = |file: &String| {
        let pairs = parse_named_bytes(file).into_iter().map(|(name, value)| {
            let (key, ..) = known.iter().find(|(key, ..)| key.escape_ascii().to_string() == name).unwrap();
            (key.clone(), value.into())
        });
        pairs.collect::<Vec<_>>()
    };
    recorded("etcd.txt", encoded).iter().map(pairs).collect()
}

#[test]
fn records_of_every_version_in_etcd_are_found_by_their_keys_and_decoded() {
    for pairs in recorded_pairs() {
        assert!(pairs.len() >= 13, "{}", pairs.len());
        for (key, value) in pairs {
            let (.., expected) = records().into_iter().find(|(known, ..)| *known == key).unwrap();
            assert_eq!(decode(&key, &value), expected, "{}", key.escape_ascii());
        }
    }
}
