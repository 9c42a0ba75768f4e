//! Packets of a connection whose session was taken over, and messages that were deferred.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::BytesMut;

use super::*;
use crate::broker::handle::{Application, FILTERS_PER_STEP_MAX, Hooks, Verdict};
use crate::broker::settings::Settings;
use crate::broker::wire::deferred_packets::LISTED_BYTES;
use crate::mqtt::Decoded;
use crate::mqtt::packet::Publish;
use crate::protocol::message::Message;

fn accept(broker: &Broker) -> PacketHandler {
    let mut connect = BytesMut::from(&b"\x10\x13\0\x04MQTT\x05\0\0\0\x05\x11\0\0\x0e\x10\0\x01a"[..]);
    let connect = match decode::decode_first(&mut connect, 1_000).unwrap() {
        Decoded::Packet(Incoming::Connect(connect)) => *connect,
        other => panic!("{other:?}"),
    };
    let info = ConnectionInfo::anonymous("memory");
    let mut handler = PacketHandler::accept(broker, connect, ClientIdentity::default(), &info).unwrap();
    handler.output.clear();
    handler
}

/// Otherwise the client would rely on a message that was not published, or reuse a packet id of another message.
#[test]
fn a_connection_whose_session_was_taken_over_acknowledges_no_qos_2_packet() {
    let broker = Broker::new(Settings::default(), Hooks::new(Arc::new(())));
    let mut taken_over = accept(&broker);
    let mut successor = accept(&broker);
    let publish = || {
        let message = Message { topic: "t".into(), qos: Qos::ExactlyOnce, ..Message::default() };
        Incoming::Publish(Publish { packet_id: 1, topic_alias: None, message })
    };
    for packet in [publish, || Incoming::PubRel(1)] {
        taken_over.answer(packet(), false, clock::monotonic()).unwrap();
        assert!(taken_over.output.is_empty());
        successor.answer(packet(), false, clock::monotonic()).unwrap();
        assert!(!successor.output.is_empty());
    }
}

/// Routes no message, and counts them.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Application for Counting {
    fn handle_publish(&self, _: &Broker, _: &Peer, _: Message, _: Instant) -> Verdict {
        self.0.fetch_add(1, Ordering::Relaxed);
        Verdict::Consumed
    }

    fn handle_disconnect(&self, _: &Broker, _: &Peer) {}
}

#[test]
fn a_message_that_has_expired_while_it_was_deferred_is_acknowledged_and_not_handled() {
    let counting = Arc::new(Counting::default());
    let broker = Broker::new(Settings::default(), Hooks::new(Arc::<Counting>::clone(&counting)));
    let mut handler = accept(&broker);
    for (has_expired, count) in [(true, 0), (false, 1)] {
        let message = Message { topic: "t".into(), qos: Qos::AtLeastOnce, ..Message::default() };
        let publish = Publish { packet_id: 1, topic_alias: None, message };
        handler.answer(Incoming::Publish(publish), has_expired, clock::monotonic()).unwrap();
        assert_eq!(&handler.output.split()[..], b"\x40\x02\0\x01");
        assert_eq!(counting.0.load(Ordering::Relaxed), count);
    }
}

#[test]
fn a_connection_with_much_input_leaves_the_thread_to_others_after_some_packets() {
    const COUNT: usize = 5 * PACKETS_PER_TURN_MAX + 1;
    for is_lost in [false, true] {
        let counting = Arc::new(Counting::default());
        let broker = Broker::new(Settings::default(), Hooks::new(Arc::<Counting>::clone(&counting)));
        let mut handler = accept(&broker);
        let mut input = BytesMut::from(&b"\x32\x07\0\x01t\0\x01\0x".repeat(COUNT)[..]);
        let (mut before, mut turns) = (0, 1);
        loop {
            if is_lost {
                assert!(handler.handle_final_input(&mut input).unwrap());
            } else {
                handler.handle_input(&mut input).unwrap();
            }
            let handled = counting.0.load(Ordering::Relaxed);
            assert!(handled - before <= PACKETS_PER_TURN_MAX, "{}", handled - before);
            before = handled;
            if !handler.ends_turn() {
                break;
            }
            turns += 1;
        }
        assert_eq!((before, turns, input.len()), (COUNT, 6, 0));
    }
}

/// A SUBSCRIBE and an UNSUBSCRIBE with the same 100 topic filters.
fn packets_with_filters() -> [Vec<u8>; 2] {
    let filters = |options: &[u8]| -> Vec<u8> {
        (100..200).flat_map(|number| [b"\0\x05f/", number.to_string().as_bytes(), options].concat()).collect()
    };
    [(0x82, filters(&[0])), (0xA2, filters(&[]))].map(|(first, filters)| {
        let len = 3 + filters.len();
        [
            &[first, u8::try_from(len % 128 + 128).unwrap(), u8::try_from(len / 128).unwrap(), 0, 7, 0],
            &*filters,
        ]
        .concat()
    })
}

#[test]
fn a_packet_with_many_filters_leaves_the_thread_to_others_after_some_of_them() {
    let broker = Broker::new(Settings::default(), Hooks::new(Arc::new(())));
    let mut handler = accept(&broker);
    for packet in packets_with_filters() {
        let mut input = BytesMut::from(&packet[..]);
        let (mut before, mut steps) = (handler.entry.lock().filters.len(), 0);
        loop {
            handler.handle_input(&mut input).unwrap();
            let after = handler.entry.lock().filters.len();
            assert!((1..=FILTERS_PER_STEP_MAX).contains(&before.abs_diff(after)), "{before} {after}");
            before = after;
            steps += 1;
            if !handler.is_unfinished() {
                break;
            }
            assert!(handler.output.is_empty(), "answered before the end");
            assert!(handler.held_bytes() > 100 * LISTED_BYTES, "not charged");
        }
        assert_eq!(steps, 100_usize.div_ceil(FILTERS_PER_STEP_MAX));
        assert_eq!(handler.output.split().len(), 5 + 100, "a reason code for each");
    }
    assert_eq!(handler.entry.lock().filters.len(), 0);
}

#[tokio::test]
async fn a_packet_with_many_filters_is_completed_although_the_connection_is_lost() {
    let broker = Broker::new(Settings::default(), Hooks::new(Arc::new(())));
    let mut handler = accept(&broker);
    for (packet, expected) in packets_with_filters().into_iter().zip([100, 0]) {
        let mut input = BytesMut::from(&packet[..]);
        loop {
            assert!(handler.handle_final_input(&mut input).unwrap());
            if !handler.is_unfinished() {
                break;
            }
            handler.complete_packet().await;
        }
        assert_eq!(handler.entry.lock().filters.len(), expected);
    }
}
