//! Packets of a connection whose session was taken over, and messages that were deferred.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::BytesMut;

use super::*;
use crate::broker::handle::{Application, Hooks, Verdict};
use crate::broker::settings::Settings;
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
