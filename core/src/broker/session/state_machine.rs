//! Session state machine: queued messages, messages in flight, packet ids, acknowledgements, retransmission.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use crate::broker::memory::Account;
use crate::broker::publication::Delivery;
use crate::broker::settings::Settings;
use crate::protocol::message::Qos;

/// The minimum time between two searches of a whole queue for expired messages.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// The capacity of a queue that is not charged: see [`Session::held_bytes`].
const FREE_CAPACITY: usize = 64;

/// The bytes of a place for a message in flight, with its control byte.
const IN_FLIGHT_BYTES: usize = size_of::<(u16, InFlight)>() + 1;

/// The limits of one session's messages, queued and in flight.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub messages_max: usize,
    /// As counted by [`Delivery::bytes`].
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
    /// Returns a quarter of the bytes: what one use of the queue may take without coming near the limit.
    #[must_use]
    pub fn quarter_bytes(self) -> usize {
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
        /// Whether it has been sent before, on an earlier connection.
        dup: bool,
        delivery: Delivery,
    },
    /// A PUBREL with this packet id, sent again on a new connection.
    Release(u16),
}

/// What a message in flight waits for.
#[derive(Debug)]
enum Stage {
    /// PUBACK or PUBREC.
    Published(Delivery),
    /// PUBCOMP.
    Released,
}

#[derive(Debug)]
struct InFlight {
    /// The order of sending, and of sending again (MQTT 5, 4.6).
    sequence: u64,
    /// Whether it was sent on the current connection.
    is_sent: bool,
    /// Whether the client no longer has the permission for it, so that it must not be sent again.
    is_revoked: bool,
    stage: Stage,
}

/// The messages of one session, to and from the client (MQTT 5, 4.1). Pure: time is an argument.
///
/// `handle_*` handles packets of the client, `enqueue` adds a message for it, `poll_outgoing` returns what to send next.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    queue: VecDeque<Delivery>,
    /// Messages that follow the retained ones of a new subscription: see [`Session::hold`].
    held: VecDeque<Delivery>,
    is_holding: bool,
    in_flight: HashMap<u16, InFlight>,
    /// Packet ids in flight that have not been sent on the current connection.
    resend: VecDeque<u16>,
    /// The number of messages that were sent on the current connection and are not acknowledged.
    outstanding: usize,
    /// The client's Receive Maximum.
    receive_maximum: usize,
    last_packet_id: u16,
    next_sequence: u64,
    /// Of all messages, queued and in flight.
    bytes: usize,
    /// Of all messages, as charged in the memory budget.
    held_bytes: usize,
    /// When the whole queue was last searched for expired messages.
    searched: Option<Instant>,
    /// Packet ids of QoS 2 messages from the client that wait for their PUBREL.
    incoming: HashSet<u16>,
}

impl Session {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            held: VecDeque::new(),
            is_holding: false,
            in_flight: HashMap::new(),
            resend: VecDeque::new(),
            outstanding: 0,
            receive_maximum: 0,
            last_packet_id: 0,
            next_sequence: 0,
            bytes: 0,
            held_bytes: 0,
            searched: None,
            incoming: HashSet::new(),
        }
    }

    /// Handles a new connection: messages in flight are sent again, in their order (MQTT 5, 4.4).
    pub fn handle_connect(&mut self, receive_maximum: u16) {
        self.release();
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
    /// [`Full`] if it would exceed a limit; then nothing is added.
    pub fn enqueue(&mut self, delivery: Delivery) -> Result<(), Full> {
        if !self.has_room(delivery.bytes()) {
            return Err(Full);
        }
        self.bytes = self.bytes.saturating_add(delivery.bytes());
        self.held_bytes = self.held_bytes.saturating_add(delivery.held_bytes());
        if self.is_holding {
            self.held.push_back(delivery)
        } else {
            self.queue.push_back(delivery)
        }
        Ok(())
    }

    /// Makes all messages that are added from now on wait until [`Session::release`], behind those that are added by
    /// [`Session::enqueue_retained`].
    ///
    /// The retained messages of a new subscription are added one after the other, while other clients publish. On each
    /// topic they are older than what is published meanwhile.
    pub fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Ends [`Session::hold`].
    pub fn release(&mut self) {
        self.is_holding = false;
        self.queue.append(&mut self.held);
    }

    /// Adds a retained message, before those that are held.
    ///
    /// # Errors
    ///
    /// [`Full`] if it would exceed a limit; then nothing is added.
    pub fn enqueue_retained(&mut self, delivery: Delivery) -> Result<(), Full> {
        let is_holding = std::mem::take(&mut self.is_holding);
        let added = self.enqueue(delivery);
        self.is_holding = is_holding;
        added
    }

    /// No longer counts a message that has left the queue or the flight.
    fn discharge(&mut self, delivery: &Delivery) {
        self.bytes = self.bytes.saturating_sub(delivery.bytes());
        self.held_bytes = self.held_bytes.saturating_sub(delivery.held_bytes());
    }

    /// Returns the bytes of all messages as charged in the memory budget.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        // Messages are charged with their places. An empty queue that was long keeps its places, because a client with
        // many requests in flight fills and empties it all the time.
        let beyond =
            |capacity: usize, size: usize| capacity.saturating_sub(FREE_CAPACITY).saturating_mul(size);
        [
            self.held_bytes,
            self.resend.capacity().saturating_mul(size_of::<u16>()),
            beyond(self.queue.capacity(), size_of::<Delivery>()),
            beyond(self.in_flight_places(), IN_FLIGHT_BYTES),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Whether there is an empty queue that was long.
    #[must_use]
    pub fn has_spare_memory(&self) -> bool {
        (self.queue.is_empty() && self.queue.capacity() > FREE_CAPACITY)
            || (self.in_flight.is_empty() && self.in_flight_places() > FREE_CAPACITY)
    }

    /// The capacity of the table falls with removals, although its memory stays.
    fn in_flight_places(&self) -> usize {
        self.in_flight.allocation_size() / IN_FLIGHT_BYTES
    }

    /// Releases the memory of empty queues.
    pub fn release_spare_memory(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        if self.in_flight.is_empty() {
            self.in_flight = HashMap::new();
        }
    }

    /// Returns the number of messages, queued and in flight, and their bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.messages(), self.bytes)
    }

    /// Whether every message has been sent on the current connection, though perhaps not acknowledged.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.queue.is_empty() && self.held.is_empty() && self.resend.is_empty()
    }

    /// Whether there are messages that have not been sent on the current connection.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || !self.resend.is_empty()
    }

    /// Whether the client should acknowledge messages before it is given more.
    #[must_use]
    pub fn is_backlogged(&self) -> bool {
        self.bytes > self.limits.quarter_bytes()
    }

    /// Returns what to send next, if the client's Receive Maximum permits it; drops expired messages.
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
                self.discharge(&delivery);
            }
            if is_expired {
                continue;
            }
            let packet_id = if is_tracked { Some(self.track(delivery.clone())) } else { None };
            return Some(Outgoing::Publish { packet_id, dup: false, delivery });
        }
    }

    /// Drops expired messages until there is room for `bytes`. No message is dropped that can still be delivered.
    pub fn make_room(&mut self, bytes: usize, now: Instant) {
        // The oldest messages have usually expired first, so a search of the whole queue is seldom needed.
        while !self.has_room(bytes)
            && let Some(expired) = self.queue.pop_front_if(|head| head.publication.is_expired(now))
        {
            self.discharge(&expired);
        }
        // A full queue without expired messages must not be searched for each new message.
        let is_recent = |at: Instant| now.saturating_duration_since(at) < SEARCH_INTERVAL;
        if !self.has_room(bytes) && !self.searched.is_some_and(is_recent) {
            self.searched = Some(now);
            self.drop_queued(|delivery| delivery.publication.is_expired(now));
        }
    }

    /// Drops the queued messages for which `is_dropped` returns true.
    pub fn drop_queued(&mut self, mut is_dropped: impl FnMut(&Delivery) -> bool) {
        let (mut bytes, mut held_bytes) = (0_usize, 0_usize);
        for queue in [&mut self.queue, &mut self.held] {
            queue.retain(|delivery| {
                let is_dropped = is_dropped(delivery);
                if is_dropped {
                    bytes = bytes.saturating_add(delivery.bytes());
                    held_bytes = held_bytes.saturating_add(delivery.held_bytes());
                }
                !is_dropped
            });
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.held_bytes = self.held_bytes.saturating_sub(held_bytes);
    }

    /// Charges another owner for the large messages: see [`Publication::share`].
    ///
    /// [`Publication::share`]: crate::broker::publication::Publication::share
    pub fn move_shares(&mut self, owner: &Arc<Account>) {
        let in_flight = self.in_flight.values_mut().filter_map(|message| match &mut message.stage {
            Stage::Published(delivery) => Some(delivery),
            Stage::Released => None,
        });
        for delivery in self.queue.iter_mut().chain(&mut self.held).chain(in_flight) {
            delivery.share = delivery.publication.share(owner);
        }
    }

    /// Removes the queued messages for which `is_taken` returns true, and returns them.
    pub fn take_queued(&mut self, is_taken: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut taken = Vec::new();
        self.drop_queued(|delivery| {
            let is_taken = is_taken(delivery);
            if is_taken {
                taken.push(delivery.clone());
            }
            is_taken
        });
        taken
    }

    /// Withdraws the messages in flight for which `is_revoked` returns true, and returns those of QoS 1.
    ///
    /// A message that was sent on the current connection stays in flight, because its acknowledgement may be on its way:
    /// see [`Session::take_revoked`].
    pub fn revoke_in_flight(
        &mut self,
        is_connected: bool,
        is_revoked: impl Fn(&Delivery) -> bool,
    ) -> Vec<Delivery> {
        let mut unsent = Vec::new();
        for (packet_id, message) in &mut self.in_flight {
            if let Stage::Published(delivery) = &message.stage {
                message.is_revoked = is_revoked(delivery);
                if message.is_revoked && !(is_connected && message.is_sent) {
                    unsent.push((message.sequence, *packet_id));
                }
            }
        }
        self.withdraw(unsent)
    }

    /// Withdraws the messages in flight that [`Session::revoke_in_flight`] has left because they had been sent on a
    /// connection that has ended since; returns those of QoS 1.
    pub fn take_revoked(&mut self) -> Vec<Delivery> {
        let revoked = self.in_flight.iter().filter(|(_, message)| message.is_revoked);
        let revoked = revoked.map(|(packet_id, message)| (message.sequence, *packet_id)).collect();
        self.withdraw(revoked)
    }

    /// Removes messages of QoS 1 from the messages in flight and returns them, in the order of sending.
    ///
    /// A client that has received a message of QoS 2 keeps its packet id until the PUBREL, and would take another message
    /// with this id for the same one. So the PUBREL is sent at once; no other session may get the message (MQTT 5, 4.8.2).
    fn withdraw(&mut self, mut messages: Vec<(u64, u16)>) -> Vec<Delivery> {
        messages.sort_unstable();
        let mut withdrawn = Vec::new();
        for (_, packet_id) in messages {
            let Some(message) = self.in_flight.get_mut(&packet_id) else { continue };
            message.is_revoked = false;
            let Stage::Published(delivery) = &message.stage else { continue };
            let delivery = delivery.clone();
            if delivery.qos == Qos::ExactlyOnce {
                message.stage = Stage::Released;
                self.discharge(&delivery);
            } else {
                self.complete(packet_id);
                withdrawn.push(delivery);
            }
        }
        withdrawn
    }

    /// Ends the session; returns its unacknowledged messages, which may be many.
    ///
    /// Messages that were sent at QoS 2 are not among them: no other session may get these (MQTT 5, 4.8.2).
    pub fn end(&mut self) -> VecDeque<Delivery> {
        self.release();
        let mut in_flight: Vec<_> = self.in_flight.drain().map(|(_, message)| message).collect();
        in_flight.sort_unstable_by_key(|message| message.sequence);
        (self.bytes, self.held_bytes) = (0, 0);
        let sent = in_flight.into_iter().filter_map(|message| match message.stage {
            Stage::Published(delivery) if delivery.qos == Qos::AtLeastOnce => Some(delivery),
            Stage::Published(_) | Stage::Released => None,
        });
        let mut unacknowledged: VecDeque<_> = sent.collect();
        unacknowledged.append(&mut self.queue);
        unacknowledged
    }

    /// Whether there is room for a message of `bytes`.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.messages() < self.limits.messages_max
            && self.bytes.saturating_add(bytes) <= self.limits.bytes_max
    }

    fn messages(&self) -> usize {
        self.queue.len().saturating_add(self.held.len()).saturating_add(self.in_flight.len())
    }

    /// Handles a PUBACK.
    pub fn handle_puback(&mut self, packet_id: u16) {
        let is_qos_1 = |message: &InFlight| match &message.stage {
            Stage::Published(delivery) => delivery.qos == Qos::AtLeastOnce,
            Stage::Released => false,
        };
        if let Entry::Occupied(message) = self.in_flight.entry(packet_id)
            && is_qos_1(message.get())
        {
            let message = message.remove();
            self.note_completed(message);
        }
    }

    /// Handles a PUBREC; returns whether the packet id is known, so that a PUBREL with success follows.
    ///
    /// A PUBREC with an error ends the exchange (MQTT 5, 4.3.3): then it returns false too.
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
                let Stage::Published(delivery) = std::mem::replace(&mut message.stage, Stage::Released)
                else {
                    return true;
                };
                self.discharge(&delivery);
                true
            }
            Stage::Published(_) => false,
            Stage::Released => true,
        }
    }

    /// Handles a PUBCOMP.
    pub fn handle_pubcomp(&mut self, packet_id: u16) {
        if self.in_flight.get(&packet_id).is_some_and(|message| matches!(message.stage, Stage::Released)) {
            self.complete(packet_id);
        }
    }

    /// Ends the delivery of a message that was polled, but cannot be sent to this client.
    pub fn abandon(&mut self, packet_id: u16) {
        self.complete(packet_id);
    }

    /// Handles a QoS 2 PUBLISH; returns false if it is a retransmission, which must not be published again.
    pub fn handle_incoming(&mut self, packet_id: u16) -> bool {
        self.incoming.insert(packet_id)
    }

    /// Handles a PUBREL; returns whether the packet id is known.
    pub fn handle_pubrel(&mut self, packet_id: u16) -> bool {
        self.incoming.remove(&packet_id)
    }

    /// Returns the number of QoS 2 messages from the client that wait for their PUBREL.
    #[must_use]
    pub fn incoming(&self) -> usize {
        self.incoming.len()
    }

    fn poll_resend(&mut self) -> Option<Outgoing> {
        while self.outstanding < self.receive_maximum {
            let packet_id = self.resend.pop_front()?;
            // It may have been acknowledged meanwhile.
            if let Some(message) = self.in_flight.get_mut(&packet_id) {
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

    /// Gives a message a packet id.
    fn track(&mut self, delivery: Delivery) -> u16 {
        let sequence = self.next_sequence;
        // 64 bits do not overflow: each step is a message that was sent.
        self.next_sequence = sequence.wrapping_add(1);
        self.outstanding = self.outstanding.saturating_add(1);
        let message =
            InFlight { sequence, is_sent: true, is_revoked: false, stage: Stage::Published(delivery) };
        // The loop ends: fewer messages are in flight than the Receive Maximum, which is less than the number of ids.
        loop {
            // 0 is no packet id (MQTT 5, 2.2.1).
            self.last_packet_id = self.last_packet_id.checked_add(1).unwrap_or(1);
            if let Entry::Vacant(place) = self.in_flight.entry(self.last_packet_id) {
                place.insert(message);
                return self.last_packet_id;
            }
        }
    }

    /// Removes a message whose exchange has ended.
    fn complete(&mut self, packet_id: u16) {
        if let Some(message) = self.in_flight.remove(&packet_id) {
            self.note_completed(message);
        }
    }

    fn note_completed(&mut self, message: InFlight) {
        if message.is_sent {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        if let Stage::Published(delivery) = message.stage {
            self.discharge(&delivery);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::broker::publication::{GroupId, Publication};
    use crate::protocol::message::Message;

    const LIMITS: Limits = Limits { messages_max: 10, bytes_max: 10_000 };

    fn session(receive_maximum: u16) -> Session {
        let mut session = Session::new(LIMITS);
        session.handle_connect(receive_maximum);
        session
    }

    fn delivery(topic: &str, qos: Qos, expiry_s: Option<u32>) -> Delivery {
        let message = Message { topic: topic.to_owned().into(), qos, expiry_s, ..Message::default() };
        let publication = Arc::new(Publication::new(message, crate::clock::monotonic()));
        Delivery { publication, qos, retain: false, subscription_ids: Vec::new(), group: None, share: None }
    }

    fn enqueue(session: &mut Session, topics: &[&str], qos: Qos) {
        for topic in topics {
            session.enqueue(delivery(topic, qos, None)).unwrap();
        }
    }

    /// Returns what can be sent now, as `topic#id`, `!` for a duplicate, `release#id`.
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
    fn held_messages_follow_the_retained_ones_and_count_for_the_limits() {
        let mut session = session(10);
        enqueue(&mut session, &["before"], Qos::AtMostOnce);
        session.hold();
        enqueue(&mut session, &["live"], Qos::AtMostOnce);
        session.enqueue_retained(delivery("retained", Qos::AtMostOnce, None)).unwrap();
        enqueue(&mut session, &["live", "live"], Qos::AtMostOnce);
        assert!(session.size().0 == 5 && !session.is_sent());
        assert_eq!(poll_all(&mut session), ["before#0", "retained#0"]);
        assert!(session.size().0 == 3 && !session.is_sent());
        session.drop_queued(|_| true);
        assert_eq!(session.size(), (0, 0));
        enqueue(&mut session, &["live"], Qos::AtMostOnce);
        session.handle_connect(10);
        assert_eq!(poll_all(&mut session), ["live#0"], "a new connection ends it");
    }

    #[test]
    fn qos_0_needs_no_packet_id_and_no_room() {
        let mut session = session(1);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        enqueue(&mut session, &["b", "c"], Qos::AtMostOnce);
        assert_eq!(poll_all(&mut session), ["a#1", "b#0", "c#0"]);
        assert_eq!(session.size(), (1, delivery("a", Qos::AtLeastOnce, None).publication.bytes));
    }

    #[test]
    fn unacknowledged_messages_are_sent_again_in_order_before_new_ones() {
        let mut session = session(10);
        enqueue(&mut session, &["a", "b", "c"], Qos::AtLeastOnce);
        poll_all(&mut session);
        session.handle_puback(2);
        enqueue(&mut session, &["d"], Qos::AtLeastOnce);
        session.handle_connect(10);
        assert_eq!(poll_all(&mut session), ["a#1!", "c#3!", "d#4"]);
    }

    #[test]
    fn retransmission_respects_a_smaller_receive_maximum() {
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
    fn a_retransmitted_qos_2_message_is_known_until_its_release() {
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
        assert_eq!(session.size(), (1, delivery.bytes()));
        session.handle_puback(1);
        assert_eq!(session.size(), (0, 0));
    }

    #[test]
    fn an_expired_message_does_not_delay_others_while_the_client_acknowledges_nothing() {
        let mut session = session(1);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        session.enqueue(delivery("old", Qos::AtLeastOnce, Some(0))).unwrap();
        enqueue(&mut session, &["b"], Qos::AtMostOnce);
        assert_eq!(poll_all(&mut session), ["b#0"]);
    }

    #[test]
    fn a_full_queue_is_searched_for_expired_messages_once_a_second() {
        let start = crate::clock::monotonic();
        let mut session = Session::new(Limits { messages_max: 2, ..LIMITS });
        for (topic, expiry_s) in [("a", None), ("b", Some(5))] {
            session.enqueue(delivery(topic, Qos::AtLeastOnce, expiry_s)).unwrap();
        }
        for (at_ms, has_room) in [(4_500, false), (5_400, false), (5_600, true)] {
            session.make_room(1, start + Duration::from_millis(at_ms));
            assert_eq!(session.has_room(1), has_room, "at {at_ms} ms");
        }
    }

    #[test]
    fn a_message_of_qos_2_counts_until_its_pubcomp_or_a_pubrec_with_an_error() {
        let mut session = session(1);
        enqueue(&mut session, &["a", "b", "c"], Qos::ExactlyOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        assert!(session.handle_pubrec(1, true) && session.handle_pubrec(1, true), "the PUBREC is repeated");
        assert!(poll_all(&mut session).is_empty());
        assert_eq!(session.size().0, 3);
        session.handle_pubcomp(1);
        assert_eq!(poll_all(&mut session), ["b#2"]);
        assert!(!session.handle_pubrec(2, false));
        assert_eq!(poll_all(&mut session), ["c#3"]);
        assert_eq!(session.size(), (1, delivery("c", Qos::ExactlyOnce, None).bytes()));
    }

    #[test]
    fn acknowledgements_of_another_qos_change_nothing() {
        let mut session = session(2);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        enqueue(&mut session, &["b"], Qos::ExactlyOnce);
        assert_eq!(poll_all(&mut session), ["a#1", "b#2"]);
        let size = session.size();
        assert!(!session.handle_pubrec(1, true) && !session.handle_pubrec(1, false));
        session.handle_pubcomp(1);
        session.handle_puback(2);
        assert_eq!(session.size(), size);
        assert!(session.handle_pubrec(2, true));
        session.handle_puback(2);
        session.handle_connect(2);
        assert_eq!(poll_all(&mut session), ["a#1!", "release#2"]);
    }

    #[test]
    fn a_message_that_is_acknowledged_before_it_is_sent_again_does_not_count_for_the_receive_maximum() {
        let mut session = session(3);
        enqueue(&mut session, &["a", "b", "c"], Qos::AtLeastOnce);
        poll_all(&mut session);
        session.handle_connect(1);
        assert_eq!(poll_all(&mut session), ["a#1!"]);
        session.handle_puback(2);
        assert!(poll_all(&mut session).is_empty());
        session.handle_puback(1);
        assert_eq!(poll_all(&mut session), ["c#3!"]);
    }

    #[test]
    fn no_new_message_is_sent_before_those_that_are_sent_again() {
        let mut session = session(2);
        enqueue(&mut session, &["a", "b"], Qos::AtLeastOnce);
        poll_all(&mut session);
        session.handle_connect(1);
        assert!(!session.is_sent());
        enqueue(&mut session, &["c"], Qos::AtMostOnce);
        assert_eq!(poll_all(&mut session), ["a#1!"]);
        session.handle_puback(1);
        assert_eq!(poll_all(&mut session), ["b#2!", "c#0"]);
        assert!(session.is_sent(), "also without its acknowledgement");
        enqueue(&mut session, &["d"], Qos::AtMostOnce);
        assert!(!session.is_sent());
    }

    #[test]
    fn messages_are_sent_again_in_the_order_of_sending_whatever_their_packet_ids() {
        let mut session = session(3);
        session.last_packet_id = u16::MAX - 1;
        enqueue(&mut session, &["a", "b", "c"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["a#65535", "b#1", "c#2"]);
        session.handle_connect(3);
        assert_eq!(poll_all(&mut session), ["a#65535!", "b#1!", "c#2!"]);
    }

    #[test]
    fn an_abandoned_message_makes_room_and_does_not_count_for_the_receive_maximum() {
        let mut session = session(1);
        enqueue(&mut session, &["a", "b"], Qos::ExactlyOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        session.abandon(1);
        assert_eq!(poll_all(&mut session), ["b#2"]);
        assert_eq!(session.size(), (1, delivery("b", Qos::ExactlyOnce, None).bytes()));
    }

    #[test]
    fn a_session_is_backlogged_with_more_than_a_quarter_of_its_bytes() {
        let one = delivery("a", Qos::AtLeastOnce, None);
        let mut session = Session::new(Limits { messages_max: 10, bytes_max: one.bytes() * 4 });
        session.enqueue(one.clone()).unwrap();
        assert!(!session.is_backlogged());
        session.enqueue(one).unwrap();
        assert!(session.is_backlogged());
    }

    #[test]
    fn unacknowledged_messages_outlive_the_session_unless_they_were_sent_at_qos_2() {
        let mut session = session(4);
        session.last_packet_id = u16::MAX - 1;
        let group = Some(GroupId(0));
        for (topic, qos, group) in [
            ("a", Qos::AtLeastOnce, group),
            ("b", Qos::AtLeastOnce, group),
            ("c", Qos::ExactlyOnce, group),
            ("own", Qos::AtLeastOnce, None),
            ("d", Qos::ExactlyOnce, group),
            ("own", Qos::AtLeastOnce, None),
        ] {
            session.enqueue(Delivery { group, ..delivery(topic, qos, None) }).unwrap();
        }
        poll_all(&mut session);
        let left = session.end();
        let topics: Vec<_> = left.iter().map(|delivery| &*delivery.publication.message.topic).collect();
        assert_eq!(topics, ["a", "b", "own", "d", "own"]);
    }

    #[test]
    fn expired_messages_anywhere_in_the_queue_make_room_for_new_ones() {
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
            session.make_room(delivery.bytes(), later(at_s));
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
    fn the_number_of_messages_is_limited_including_those_in_flight() {
        let mut session = session(1);
        enqueue(&mut session, &["a"; 10], Qos::AtLeastOnce);
        assert_eq!(session.enqueue(delivery("a", Qos::AtLeastOnce, None)), Err(Full));
        assert_eq!(poll_all(&mut session), ["a#1"]);
        assert_eq!(session.enqueue(delivery("a", Qos::AtLeastOnce, None)), Err(Full));
        session.handle_puback(1);
        assert_eq!(session.enqueue(delivery("a", Qos::AtLeastOnce, None)), Ok(()));
    }

    #[test]
    fn the_bytes_of_messages_are_limited_until_they_are_acknowledged() {
        let one = delivery("a", Qos::AtLeastOnce, None);
        let bytes_max = one.bytes();
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
    fn a_revoked_message_in_flight_is_not_sent_again() {
        let mut session = session(10);
        enqueue(&mut session, &["a", "b"], Qos::AtLeastOnce);
        enqueue(&mut session, &["a", "b"], Qos::ExactlyOnce);
        assert_eq!(poll_all(&mut session), ["a#1", "b#2", "a#3", "b#4"]);
        let is_a = |delivery: &Delivery| delivery.publication.message.topic == "a";
        let bytes = session.size().1 / 4;
        assert!(session.revoke_in_flight(true, is_a).is_empty(), "it was sent on this connection");
        assert_eq!(session.size().0, 4);
        let withdrawn = session.take_revoked();
        assert_eq!(withdrawn.len(), 1);
        assert!(is_a(&withdrawn[0]) && withdrawn[0].qos == Qos::AtLeastOnce);
        session.handle_connect(10);
        assert_eq!(poll_all(&mut session), ["b#2!", "release#3", "b#4!"]);
        assert_eq!(session.size(), (3, 2 * bytes));
        session.handle_pubcomp(3);
        assert!(session.revoke_in_flight(false, |_| true).len() == 1);
        session.handle_connect(10);
        assert_eq!((poll_all(&mut session), session.size()), (vec!["release#4".to_owned()], (1, 0)));
    }

    #[test]
    fn a_message_in_flight_that_is_permitted_again_is_sent_again() {
        let mut session = session(10);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        session.revoke_in_flight(true, |_| true);
        session.revoke_in_flight(true, |_| false);
        assert!(session.take_revoked().is_empty());
        session.handle_connect(10);
        assert_eq!(poll_all(&mut session), ["a#1!"]);
    }

    #[test]
    fn packet_ids_skip_those_in_flight_and_are_never_zero() {
        let mut session = session(10);
        enqueue(&mut session, &["a"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["a#1"]);
        session.last_packet_id = u16::MAX;
        enqueue(&mut session, &["b"], Qos::AtLeastOnce);
        assert_eq!(poll_all(&mut session), ["b#2"]);
    }
}
