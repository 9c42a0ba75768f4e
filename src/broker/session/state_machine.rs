//! What waits for one client and what is under way to it: queue, packet ids, acknowledgements, resending.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};

use crate::broker::publication::Delivery;
use crate::broker::settings::Settings;
use crate::protocol::message::Qos;

/// How often a whole queue is searched for what has expired in it, at most.
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

/// The bounds of one session's queue, messages under way included.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages.
    pub messages_max: usize,
    /// Bytes, as charged by `Publication::bytes`.
    pub bytes_max: usize,
}

impl From<&Settings> for Limits {
    fn from(settings: &Settings) -> Self {
        Self {
            messages_max: settings.session_queue_messages_max,
            bytes_max: settings.session_queue_bytes_max,
        }
    }
}

impl Limits {
    /// How much one thing may take so that the bound is not near: a quarter of the bytes.
    #[must_use]
    pub fn share(self) -> usize {
        self.bytes_max / 4
    }
}

/// There is no room for another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What to send next.
#[derive(Debug)]
pub enum Outgoing {
    /// A PUBLISH.
    Publish {
        /// None for QoS 0.
        packet_id: Option<u16>,
        /// Whether it was sent before, on an earlier connection.
        dup: bool,
        /// What is sent.
        delivery: Delivery,
    },
    /// A PUBREL, sent again on a new connection.
    Release(u16),
}

/// What a message under way waits for.
#[derive(Debug)]
enum Stage {
    /// PUBACK or PUBREC.
    Published(Delivery),
    /// PUBCOMP.
    Released,
}

#[derive(Debug)]
struct InFlight {
    /// The order of sending, which is also the order of sending again (MQTT 5, 4.6).
    sequence: u64,
    /// Whether it was sent on the present connection.
    is_sent: bool,
    stage: Stage,
}

/// One session's messages, in and out (MQTT 5, 4.1). Pure: time comes as an argument.
///
/// `handle_*` takes what the client sent, `enqueue` what is for it, `poll_outgoing` says what to send next.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    queue: VecDeque<Delivery>,
    in_flight: HashMap<u16, InFlight>,
    /// Packet ids under way that the present connection has not seen yet.
    resend: VecDeque<u16>,
    /// How many are sent and not acknowledged on the present connection.
    outstanding: usize,
    /// The client's Receive Maximum.
    receive_maximum: usize,
    last_packet_id: u16,
    next_sequence: u64,
    bytes: usize,
    /// When the whole queue was searched for what has expired, last.
    searched: Option<Instant>,
    /// Packet ids of QoS 2 messages that came in and wait for their PUBREL.
    incoming: HashSet<u16>,
}

impl Session {
    /// Begins with nothing waiting.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            in_flight: HashMap::new(),
            resend: VecDeque::new(),
            outstanding: 0,
            receive_maximum: 0,
            last_packet_id: 0,
            next_sequence: 0,
            bytes: 0,
            searched: None,
            incoming: HashSet::new(),
        }
    }

    /// A connection begins: whatever is under way will be sent again, in its order.
    pub fn handle_connect(&mut self, receive_maximum: u16) {
        self.receive_maximum = usize::from(receive_maximum);
        self.outstanding = 0;
        let mut order: Vec<(u64, u16)> =
            self.in_flight.iter().map(|(packet_id, message)| (message.sequence, *packet_id)).collect();
        order.sort_unstable();
        self.resend = order.into_iter().map(|(_, packet_id)| packet_id).collect();
        for message in self.in_flight.values_mut() {
            message.is_sent = false;
        }
    }

    /// Adds a message for the client.
    ///
    /// # Errors
    ///
    /// [`Full`] when it would exceed a limit; then nothing is added.
    pub fn enqueue(&mut self, delivery: Delivery) -> Result<(), Full> {
        if !self.has_room(delivery.publication.bytes) {
            return Err(Full);
        }
        self.bytes = self.bytes.saturating_add(delivery.publication.bytes);
        self.queue.push_back(delivery);
        Ok(())
    }

    /// How many messages wait or are under way, and what they are charged for in bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.queue.len().saturating_add(self.in_flight.len()), self.bytes)
    }

    /// Whether everything there is for the client has been sent, though perhaps not acknowledged.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.queue.is_empty() && self.resend.is_empty()
    }

    /// Whether so much waits that the client should acknowledge some of it before it is given more.
    #[must_use]
    pub fn is_backlogged(&self) -> bool {
        self.bytes > self.limits.share()
    }

    /// What to send next, if the client's Receive Maximum leaves room; expired messages are left out.
    pub fn poll_outgoing(&mut self, now: Instant) -> Option<Outgoing> {
        if let Some(again) = self.poll_resend() {
            return Some(again);
        }
        if !self.resend.is_empty() {
            return None;
        }
        loop {
            let head = self.queue.front()?;
            let is_expired = head.publication.is_expired(now);
            let is_tracked = head.qos > Qos::AtMostOnce;
            if !is_expired && is_tracked && self.outstanding >= self.receive_maximum {
                return None;
            }
            let delivery = self.queue.pop_front()?;
            if is_expired || !is_tracked {
                self.bytes = self.bytes.saturating_sub(delivery.publication.bytes);
            }
            if is_expired {
                continue;
            }
            let packet_id = if is_tracked { Some(self.track(delivery.clone())) } else { None };
            return Some(Outgoing::Publish { packet_id, dup: false, delivery });
        }
    }

    /// Makes room for so many bytes, if it takes that, by dropping what has expired: nothing that can still be delivered
    /// is to be lost for its sake.
    pub fn make_room(&mut self, bytes: usize, now: Instant) {
        // The oldest have mostly expired first, and then nobody looks at the others each time.
        while !self.has_room(bytes)
            && let Some(expired) = self.queue.pop_front_if(|head| head.publication.is_expired(now))
        {
            self.bytes = self.bytes.saturating_sub(expired.publication.bytes);
        }
        let is_early = |at: Instant| now.saturating_duration_since(at) < SEARCH_PAUSE;
        if !self.has_room(bytes) && !self.searched.is_some_and(is_early) {
            self.searched = Some(now);
            self.drop_queued(|delivery| delivery.publication.is_expired(now));
        }
    }

    /// Drops what has not been sent and `goes`.
    pub fn drop_queued(&mut self, mut goes: impl FnMut(&Delivery) -> bool) {
        self.queue.retain(|delivery| {
            let goes = goes(delivery);
            if goes {
                self.bytes = self.bytes.saturating_sub(delivery.publication.bytes);
            }
            !goes
        });
    }

    /// The same, and returns it.
    pub fn take_queued(&mut self, goes: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut taken = Vec::new();
        self.drop_queued(|delivery| {
            let goes = goes(delivery);
            if goes {
                taken.push(delivery.clone());
            }
            goes
        });
        taken
    }

    /// The session is over: what it was given as one of a group and never acknowledged. Not what was sent at QoS 2,
    /// which nobody else may get (MQTT 5, 4.8.2).
    pub fn end(&mut self) -> Vec<Delivery> {
        let mut in_flight: Vec<_> = self.in_flight.drain().map(|(_, message)| message).collect();
        in_flight.sort_unstable_by_key(|message| message.sequence);
        let unacknowledged = in_flight.into_iter().filter_map(|message| match message.stage {
            Stage::Published(delivery) if delivery.qos == Qos::AtLeastOnce => Some(delivery),
            Stage::Published(_) | Stage::Released => None,
        });
        unacknowledged.chain(self.queue.drain(..)).filter(|delivery| delivery.group.is_some()).collect()
    }

    /// Whether there is room for so many bytes more.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let messages = self.queue.len().saturating_add(self.in_flight.len());
        messages < self.limits.messages_max && self.bytes.saturating_add(bytes) <= self.limits.bytes_max
    }

    /// PUBACK: the message has arrived.
    pub fn handle_puback(&mut self, packet_id: u16) {
        let is_qos_1 = |message: &InFlight| match &message.stage {
            Stage::Published(delivery) => delivery.qos == Qos::AtLeastOnce,
            Stage::Released => false,
        };
        if self.in_flight.get(&packet_id).is_some_and(is_qos_1) {
            self.complete(packet_id);
        }
    }

    /// PUBREC: true if a PUBREL must follow, false if the packet id is unknown or the client refused.
    pub fn handle_pubrec(&mut self, packet_id: u16, is_accepted: bool) -> bool {
        let Some(message) = self.in_flight.get_mut(&packet_id) else {
            return false;
        };
        match &message.stage {
            Stage::Published(delivery) if delivery.qos == Qos::ExactlyOnce => {
                if !is_accepted {
                    self.complete(packet_id);
                    return false;
                }
                self.bytes = self.bytes.saturating_sub(delivery.publication.bytes);
                message.stage = Stage::Released;
                true
            }
            Stage::Published(_) => false,
            Stage::Released => true,
        }
    }

    /// PUBCOMP: the exchange is over.
    pub fn handle_pubcomp(&mut self, packet_id: u16) {
        if self.in_flight.get(&packet_id).is_some_and(|message| matches!(message.stage, Stage::Released)) {
            self.complete(packet_id);
        }
    }

    /// Ends the delivery of a message that was polled, but cannot be sent to this client.
    pub fn abandon(&mut self, packet_id: u16) {
        self.complete(packet_id);
    }

    /// A QoS 2 PUBLISH comes in: false if it is a repetition, which must not be published again.
    pub fn handle_incoming(&mut self, packet_id: u16) -> bool {
        self.incoming.insert(packet_id)
    }

    /// PUBREL: false if no such message came in.
    pub fn handle_pubrel(&mut self, packet_id: u16) -> bool {
        self.incoming.remove(&packet_id)
    }

    /// How many QoS 2 messages came in and wait for their PUBREL.
    #[must_use]
    pub fn incoming(&self) -> usize {
        self.incoming.len()
    }

    fn poll_resend(&mut self) -> Option<Outgoing> {
        while self.outstanding < self.receive_maximum {
            let packet_id = self.resend.pop_front()?;
            if let Some(message) = self.in_flight.get_mut(&packet_id)
                && !message.is_sent
            {
                message.is_sent = true;
                self.outstanding = self.outstanding.saturating_add(1);
                return Some(match &message.stage {
                    Stage::Published(delivery) => {
                        let delivery = delivery.clone();
                        Outgoing::Publish { packet_id: Some(packet_id), dup: true, delivery }
                    }
                    Stage::Released => Outgoing::Release(packet_id),
                });
            }
        }
        None
    }

    fn track(&mut self, delivery: Delivery) -> u16 {
        // Ends: fewer messages are under way than the Receive Maximum, which is less than there are ids.
        loop {
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if !self.in_flight.contains_key(&self.last_packet_id) {
                break;
            }
        }
        let sequence = self.next_sequence;
        self.next_sequence = sequence.saturating_add(1);
        self.outstanding = self.outstanding.saturating_add(1);
        let message = InFlight { sequence, is_sent: true, stage: Stage::Published(delivery) };
        self.in_flight.insert(self.last_packet_id, message);
        self.last_packet_id
    }

    fn complete(&mut self, packet_id: u16) {
        let Some(message) = self.in_flight.remove(&packet_id) else {
            return;
        };
        if message.is_sent {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        if let Stage::Published(delivery) = message.stage {
            self.bytes = self.bytes.saturating_sub(delivery.publication.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::broker::publication::Publication;
    use crate::protocol::message::Message;

    const LIMITS: Limits = Limits { messages_max: 10, bytes_max: 10_000 };

    fn session(receive_maximum: u16) -> Session {
        let mut session = Session::new(LIMITS);
        session.handle_connect(receive_maximum);
        session
    }

    fn delivery(topic: &str, qos: Qos, expiry_s: Option<u32>) -> Delivery {
        let message = Message { topic: topic.to_owned(), qos, expiry_s, ..Message::default() };
        let publication = Arc::new(Publication::new(message, crate::clock::monotonic()));
        Delivery { publication, qos, retain: false, subscription_ids: Vec::new(), group: None }
    }

    fn enqueue(session: &mut Session, topics: &[&str], qos: Qos) {
        for topic in topics {
            session.enqueue(delivery(topic, qos, None)).unwrap();
        }
    }

    /// All that can be sent now, as `topic#id`, `!` for a duplicate, `release#id`.
    fn poll_all(session: &mut Session) -> Vec<String> {
        let now = crate::clock::monotonic();
        std::iter::from_fn(|| session.poll_outgoing(now))
            .map(|outgoing| match outgoing {
                Outgoing::Publish { packet_id, dup, delivery } => {
                    let topic = &delivery.publication.message.topic;
                    format!("{topic}#{}{}", packet_id.unwrap_or(0), if dup { "!" } else { "" })
                }
                Outgoing::Release(packet_id) => format!("release#{packet_id}"),
            })
            .collect()
    }

    #[test]
    fn no_more_is_sent_than_the_receive_maximum_allows() {
        let mut session = session(2);
        enqueue(&mut session, &["a", "b", "c"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["a#1", "b#2"]);
        session.handle_puback(7);
        assert!(poll_all(&mut session).is_empty());
        session.handle_puback(1);
        assert_eq!(poll_all(&mut session), ["c#3"]);
    }

    #[test]
    fn qos_0_needs_no_packet_id_and_no_room() {
        let mut session = session(1);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        enqueue(&mut session, &["b", "c"], Qos::AtMostOnce);
        assert_eq!(poll_all(&mut session), ["a#1", "b#0", "c#0"]);
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again_in_order_before_anything_new() {
        let mut session = session(10);
        enqueue(&mut session, &["a", "b", "c"], Qos::AtLeastOnce);
        poll_all(&mut session);
        session.handle_puback(2);
        enqueue(&mut session, &["d"], Qos::AtLeastOnce);
        session.handle_connect(10);
        assert_eq!(poll_all(&mut session), ["a#1!", "c#3!", "d#4"]);
    }

    #[test]
    fn sending_again_respects_a_smaller_receive_maximum() {
        let mut session = session(10);
        enqueue(&mut session, &["a", "b", "c"], Qos::AtLeastOnce);
        poll_all(&mut session);
        session.handle_connect(1);
        assert_eq!(poll_all(&mut session), ["a#1!"]);
        session.handle_puback(1);
        assert_eq!(poll_all(&mut session), ["b#2!"]);
    }

    #[test]
    fn qos_2_is_released_and_completed() {
        let mut session = session(1);
        enqueue(&mut session, &["a", "b"], Qos::ExactlyOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        session.handle_puback(1);
        session.handle_pubcomp(1);
        assert!(session.handle_pubrec(1, true));
        assert!(poll_all(&mut session).is_empty());
        session.handle_connect(1);
        assert_eq!(poll_all(&mut session), ["release#1"]);
        session.handle_pubcomp(1);
        assert_eq!(poll_all(&mut session), ["b#2"]);
        assert!(!session.handle_pubrec(2, false));
        assert!(!session.handle_pubrec(9, true));
        assert_eq!(session.bytes, 0);
    }

    #[test]
    fn a_repeated_qos_2_message_is_known_until_its_release() {
        let mut session = session(1);
        assert!(session.handle_incoming(5));
        assert!(!session.handle_incoming(5));
        assert!(session.handle_pubrel(5));
        assert!(!session.handle_pubrel(5));
        assert!(session.handle_incoming(5));
    }

    #[test]
    fn expired_messages_are_not_sent() {
        let mut session = session(1);
        session.enqueue(delivery("old", Qos::AtLeastOnce, Some(1))).unwrap();
        session.enqueue(delivery("new", Qos::AtLeastOnce, None)).unwrap();
        let later = crate::clock::monotonic() + Duration::from_secs(5);
        let Some(Outgoing::Publish { delivery, .. }) = session.poll_outgoing(later) else {
            panic!("nothing to send")
        };
        assert_eq!(delivery.publication.message.topic, "new");
    }

    #[test]
    fn what_has_expired_gives_way_to_what_has_not_wherever_it_stands() {
        let start = crate::clock::monotonic();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut session = Session::new(Limits { messages_max: 3, ..LIMITS });
        for (topic, expiry_s) in [("a", Some(1)), ("b", None), ("c", Some(5))] {
            session.enqueue(delivery(topic, Qos::AtLeastOnce, expiry_s)).unwrap();
        }
        for (at_s, topic, expected) in
            [(0, "d", Err(Full)), (2, "e", Ok(())), (3, "f", Err(Full)), (9, "g", Ok(()))]
        {
            let delivery = delivery(topic, Qos::AtLeastOnce, None);
            session.make_room(delivery.publication.bytes, later(at_s));
            assert_eq!(session.enqueue(delivery), expected, "{topic}");
        }
        session.handle_connect(10);
        assert_eq!(poll_all(&mut session), ["b#1", "e#2", "g#3"]);
        for packet_id in 1..=3 {
            session.handle_puback(packet_id);
        }
        assert_eq!(session.size(), (0, 0));
    }

    #[test]
    fn the_queue_is_bounded_in_messages_with_those_under_way() {
        let mut session = session(1);
        enqueue(&mut session, &["a"; 10], Qos::AtLeastOnce);
        assert_eq!(session.enqueue(delivery("a", Qos::AtLeastOnce, None)), Err(Full));
        assert_eq!(poll_all(&mut session), ["a#1"]);
        assert_eq!(session.enqueue(delivery("a", Qos::AtLeastOnce, None)), Err(Full));
        session.handle_puback(1);
        assert_eq!(session.enqueue(delivery("a", Qos::AtLeastOnce, None)), Ok(()));
    }

    #[test]
    fn the_queue_is_bounded_in_bytes_and_they_come_back() {
        let one = delivery("a", Qos::AtLeastOnce, None);
        let bytes_max = one.publication.bytes;
        let mut session = Session::new(Limits { messages_max: 10, bytes_max });
        session.handle_connect(1);
        session.enqueue(one.clone()).unwrap();
        assert_eq!(session.enqueue(one.clone()), Err(Full));
        poll_all(&mut session);
        assert_eq!(session.enqueue(one.clone()), Err(Full));
        session.handle_puback(1);
        assert_eq!(session.enqueue(one), Ok(()));
    }

    #[test]
    fn packet_ids_skip_those_under_way_and_never_are_zero() {
        let mut session = session(10);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        session.last_packet_id = u16::MAX;
        enqueue(&mut session, &["b"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["b#2"]);
    }
}
