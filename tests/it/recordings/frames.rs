//! Frames of the links of an exchange.

use bytes::Bytes;
use mqkv::exchange::fingerprint::ValueHash;
use mqkv::exchange::frame::{
    Ack, Changes, Content, Flags, Hello, Item, LinkFrame, OLDEST_VERSION, Proposal, Proposed, Reason,
    RecordItem, Records, Refused, Start, VERSION, ValueKind, Welcome,
};
use mqkv::exchange::names::{ChangeId, Name, Serial};
use mqkv::exchange::rules::{Position, RuleSource, Rules, Text};
use mqkv::protocol::Key;

use super::{named_bytes, parse_named_bytes, recorded};

const LINK: u64 = 0x0123_4567_89AB_CDEF;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(text: &'static str) -> Key {
    Key::new(text).unwrap()
}

fn id(byte: u8) -> ChangeId {
    ChangeId::from_bytes(&[byte; 16]).unwrap()
}

fn rules() -> Rules {
    let text = |text: &str| Text { text: text.to_owned(), at: Position::default() };
    let rule = |keys: &str, change: &str, leaves: Option<&str>| RuleSource {
        at: Position::default(),
        keys: Some(vec![text(keys)]),
        change: Some(text(change)),
        leaves: leaves.map(|leaves| vec![text(leaves)]),
    };
    Rules::parse(&[rule("recipe/**", "root", None), rule("line/*", "leaves", Some("press-*"))]).unwrap()
}

fn hello() -> Hello {
    Hello {
        version: VERSION,
        exchange: name("plant"),
        leaf: name("press-7"),
        store: 11,
        run: 12,
        link: LINK,
        stream: 13,
        acked: 14,
        cursor: 15,
        last_ver: 16,
        term: 17,
        rules: 18,
        software: "mqkv 0.1.0".to_owned(),
        oldest_version: OLDEST_VERSION,
        is_resync: true,
        horizon: 19,
        last_seq: 20,
        is_busy: true,
    }
}

fn welcome(start: Start, rules: Option<Rules>) -> LinkFrame {
    let (applied, pruned, from, horizon) = (22, 23, 24, 25);
    LinkFrame::Welcome(Welcome {
        link: LINK,
        root: 21,
        applied,
        change_id: id(1),
        pruned,
        start,
        from,
        horizon,
        rules,
        version: VERSION,
    })
}

/// Returns all contents that a proposal can have.
fn changes() -> Vec<Proposal> {
    let value = |ttl_ms| Proposed::Value(Content { value: Bytes::from_static(b"21.5\r\n\xFF"), ttl_ms });
    let contents = [
        Proposed::Deletion,
        value(None),
        value(Some(30_000)),
        Proposed::Expired(ValueHash([2; 16])),
        Proposed::Unsent(ValueHash([3; 16]), ValueKind::Lasting),
        Proposed::Unsent(ValueHash([4; 16]), ValueKind::Expiring),
    ];
    let all = Flags { is_lost: true, is_restored: true, is_again: true, is_base_absent: true };
    let proposal = |(seq, content)| Proposal {
        seq,
        key: key("line/1"),
        serial: Serial { run: 26, counter: seq },
        base: id(5),
        flags: if seq == 1 { all } else { Flags::default() },
        content,
    };
    (1..).zip(contents).map(proposal).collect()
}

fn record(owner: Option<&str>, content: Option<Content>) -> RecordItem {
    RecordItem { key: key("line/2"), ver: 27, change_id: id(6), owner: owner.map(name), content }
}

/// Returns all items that records can have.
fn items() -> Vec<Item> {
    let content = |ttl_ms| Some(Content { value: Bytes::from_static(b"80"), ttl_ms });
    let refused = |reason| Item::Refused { seq: 28, reason, record: None };
    let mut items = vec![
        Item::Record(record(None, content(None))),
        Item::Record(record(Some("press-7"), content(Some(5_000)))),
        Item::Record(record(Some("press-7"), None)),
        Item::Accepted { seq: 29, ver: 30 },
        Item::Refused { seq: 31, reason: Reason::RootWins, record: Some(record(None, content(None))) },
    ];
    items.extend(Reason::ALL.map(refused));
    items
}

fn records(digest: Option<u64>, items: Vec<Item>) -> LinkFrame {
    LinkFrame::Records(Records {
        link: LINK,
        n: 32,
        to: 33,
        term: 34,
        digest,
        items,
        purged: 35,
        last_ver: 36,
    })
}

/// Returns frames of all kinds with their names in the recordings. A name stands for the same frame in all versions.
fn frames() -> Vec<(&'static str, LinkFrame)> {
    let (code, text) = ("unknown-leaf".to_owned(), "neither known nor admitted".to_owned());
    let ack = Ack { link: LINK, n: 37, cursor: 38, acked: 39, last_seq: 40, is_busy: false };
    vec![
        ("hello", LinkFrame::Hello(hello())),
        ("welcome", welcome(Start::Resume, None)),
        ("welcome-resync", welcome(Start::Resync, Some(rules()))),
        ("welcome-restored", welcome(Start::Restored, Some(Rules::default()))),
        ("refused", LinkFrame::Refused(Refused { link: LINK, code, text })),
        ("changes", LinkFrame::Changes(Changes { link: LINK, n: 41, items: changes() })),
        ("records", records(None, items())),
        ("records-idle", records(Some(42), Vec::new())),
        ("ack", LinkFrame::Ack(ack)),
    ]
}

fn encoded() -> String {
    let encoded: Vec<_> = frames().into_iter().map(|(name, frame)| (name, frame.encode())).collect();
    named_bytes(encoded.iter().map(|(name, bytes)| (*name, &bytes[..])))
}

/// Returns the recorded frames that this version cannot exchange with the one that has sent them: it decodes them to other frames, or
/// encodes them to other bytes. Frames of versions before `oldest` are refused, and so compared with nothing.
fn differences(recorded: &str, oldest: u64) -> Vec<&str> {
    let pairs = parse_named_bytes(recorded);
    let (_, hello) = pairs.iter().find(|(name, _)| *name == "hello").unwrap();
    let Ok(LinkFrame::Hello(Hello { version, oldest_version, .. })) =
        LinkFrame::decode(&hello.clone().into())
    else {
        return vec!["hello"];
    };
    if version < oldest {
        return Vec::new();
    }
    let differs = |(name, bytes): &(&str, Vec<u8>)| {
        let (_, frame) = frames().into_iter().find(|(known, _)| known == name).unwrap();
        let frame = match frame {
            LinkFrame::Hello(hello) => LinkFrame::Hello(Hello { version, oldest_version, ..hello }),
            LinkFrame::Welcome(welcome) => LinkFrame::Welcome(Welcome { version, ..welcome }),
            frame => frame,
        };
        frame.encode() != *bytes || LinkFrame::decode(&bytes.clone().into()) != Ok(frame)
    };
    pairs.iter().filter(|pair| differs(pair)).map(|(name, _)| *name).collect()
}

#[test]
fn frames_of_every_version_that_a_link_accepts_are_decoded_and_encoded_as_they_were() {
    let files = recorded("exchange-frames.txt", encoded);
    for file in &files {
        assert!(file.lines().count() >= 9, "{file}");
        // A node of that version must be able to read them: a change needs a new version of the frames.
        assert_eq!(differences(file, OLDEST_VERSION), Vec::<&str>::new());
    }
    assert_eq!(*files.last().unwrap(), encoded(), "a kind of frame is not recorded");
}

#[test]
fn a_frame_that_differs_from_a_recorded_one_is_found_unless_its_version_is_refused() {
    let recorded = encoded().replace(&hex::encode("80"), &hex::encode("81"));
    assert_eq!(differences(&recorded, OLDEST_VERSION), ["records"]);
    assert_eq!(differences(&recorded, OLDEST_VERSION + 1), Vec::<&str>::new());
}
