//! The clients behind an external broker, which reports neither that they connect nor that they disconnect (pure).

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::broker::Peer;
use crate::protocol::ConnectionId;

/// The most clients that are known. Above it, the one without a request for longest among a few is forgotten.
pub const CLIENTS_MAX: usize = 16_384;
/// Above this number, clients that watch keys are forgotten, too.
pub const WATCHERS_MAX: usize = 4 * CLIENTS_MAX;
/// After this time without a request, a client that watches no keys is forgotten. Whatever it has sent is acknowledged by then.
pub const IDLE_MS_MAX: u64 = 60_000;
/// How many of a client's last requests may be delivered again: more than SDKs have in flight.
const REDELIVERED_MAX: u64 = 1_024;
/// How many clients are looked at for idle ones with each new client.
const EXAMINED_MAX: usize = 8;

/// The clients that have sent requests.
#[derive(Debug, Default)]
pub struct Clients {
    known: HashMap<Arc<str>, Client>,
    /// All clients, in the order in which they are looked at. A client that was forgotten meanwhile has another connection.
    rotation: VecDeque<(Arc<str>, ConnectionId)>,
    /// Number of the last request of any client.
    last: u64,
}

#[derive(Debug)]
struct Client {
    peer: Peer,
    last_request_ms: u64,
    /// Number of its last request among those of all clients.
    last: u64,
}

impl Clients {
    /// Handles a request. Returns its client, and the clients that are forgotten now. `connect` makes a client that is not known,
    /// `is_watching` returns whether a client watches keys.
    pub fn handle_request(
        &mut self,
        client_id: &str,
        now_ms: u64,
        connect: impl FnOnce(Arc<str>) -> Peer,
        is_watching: impl Fn(&Peer) -> bool,
    ) -> (Peer, Vec<Peer>) {
        self.last = self.last.saturating_add(1);
        if let Some(client) = self.known.get_mut(client_id) {
            client.handle_request(now_ms, self.last);
            return (client.peer.clone(), Vec::new());
        }
        let forgotten = self.make_room(now_ms, is_watching);
        let client_id: Arc<str> = client_id.into();
        let mut client = Client { peer: connect(Arc::clone(&client_id)), last_request_ms: now_ms, last: 0 };
        client.handle_request(now_ms, self.last);
        let peer = client.peer.clone();
        self.rotation.push_back((Arc::clone(&client_id), peer.connection));
        self.known.insert(client_id, client);
        (peer, forgotten)
    }

    /// Whether a client has sent a request after the one with this number.
    #[must_use]
    pub fn has_request_since(&self, client_id: &str, since: u64) -> bool {
        self.known.get(client_id).is_some_and(|client| client.last > since)
    }

    /// Returns the connection of a client, if it has sent a request and is not forgotten.
    #[must_use]
    pub fn connection_of(&self, client_id: &str) -> Option<ConnectionId> {
        self.known.get(client_id).map(|client| client.peer.connection)
    }

    /// Returns the number of the last request of any client.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Forgets idle clients among a few and, if there are too many, the one of these without a request for longest.
    fn make_room(&mut self, now_ms: u64, is_watching: impl Fn(&Peer) -> bool) -> Vec<Peer> {
        let (mut forgotten, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..EXAMINED_MAX.min(self.rotation.len()) {
            let Some((id, connection)) = self.rotation.pop_front() else { break };
            let is_same = |client: &&Client| client.peer.connection == connection;
            let Some(client) = self.known.get(&id).filter(is_same) else { continue };
            let watches = is_watching(&client.peer);
            if !watches && now_ms.saturating_sub(client.last_request_ms) >= IDLE_MS_MAX {
                forgotten.extend(self.forget(&id));
            } else {
                kept.push(((watches, client.last_request_ms), id, connection));
            }
        }
        let rank = |at: &usize| kept.get(*at).map(|(rank, ..)| *rank);
        if let Some(first) = (0..kept.len()).min_by_key(rank)
            && let Some((watches, _)) = rank(&first)
            && self.known.len() >= if watches { WATCHERS_MAX } else { CLIENTS_MAX }
        {
            let (_, id, _) = kept.swap_remove(first);
            forgotten.extend(self.forget(&id));
        }
        self.rotation.extend(kept.into_iter().map(|(_, id, connection)| (id, connection)));
        forgotten
    }

    /// Forgets a client. Its broker has acknowledged all its requests.
    fn forget(&mut self, client_id: &str) -> Option<Peer> {
        let peer = self.known.remove(client_id)?.peer;
        Some(Peer { confirmed: peer.message_number, ..peer })
    }
}

impl Client {
    fn handle_request(&mut self, now_ms: u64, number: u64) {
        (self.last_request_ms, self.last) = (now_ms, number);
        let peer = &mut self.peer;
        peer.message_number = peer.message_number.saturating_add(1);
        peer.confirmed = peer.message_number.saturating_sub(REDELIVERED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{Principal, SessionPhase};

    fn connect(number: u64) -> impl FnOnce(Arc<str>) -> Peer {
        move |client_id| Peer {
            connection: ConnectionId(number),
            owner: Arc::clone(&client_id),
            client_id,
            principal: Principal::default(),
            identity: [].into(),
            permissions: None,
            session: SessionPhase::Resumed,
            message_number: 0,
            confirmed: 0,
            handle: None,
        }
    }

    fn request(clients: &mut Clients, id: &str, now_ms: u64, number: u64) -> (Peer, Vec<String>) {
        let is_watching = |peer: &Peer| peer.client_id.starts_with("watch");
        let (peer, forgotten) = clients.handle_request(id, now_ms, connect(number), is_watching);
        (peer, forgotten.iter().map(|peer| peer.client_id.to_string()).collect())
    }

    #[test]
    fn the_requests_of_a_client_are_of_one_connection_and_numbered() {
        let mut clients = Clients::default();
        let (first, _) = request(&mut clients, "a", 0, 1);
        let (other, _) = request(&mut clients, "b", 0, 2);
        let (second, _) = request(&mut clients, "a", 1, 3);
        assert_eq!((first.connection, first.message_number), (ConnectionId(1), 1));
        assert_eq!((second.connection, second.message_number), (ConnectionId(1), 2));
        assert_eq!((other.connection, other.message_number), (ConnectionId(2), 1));
        for _ in 0..REDELIVERED_MAX {
            request(&mut clients, "a", 1, 4);
        }
        assert_eq!(request(&mut clients, "a", 1, 4).0.confirmed, 3);
    }

    #[test]
    fn a_client_is_known_to_have_sent_a_request_since_an_earlier_one() {
        let mut clients = Clients::default();
        request(&mut clients, "a", 0, 1);
        let since = clients.last();
        request(&mut clients, "b", 0, 2);
        assert!(!clients.has_request_since("a", since));
        request(&mut clients, "a", 0, 3);
        assert!(clients.has_request_since("a", since));
        assert!(!clients.has_request_since("unknown", since));
        assert_eq!(
            (clients.connection_of("a"), clients.connection_of("unknown")),
            (Some(ConnectionId(1)), None)
        );
    }

    #[test]
    fn idle_clients_are_forgotten_unless_they_watch_and_the_number_of_clients_is_bounded() {
        let mut clients = Clients::default();
        request(&mut clients, "idle", 0, 1);
        request(&mut clients, "watch", 0, 2);
        request(&mut clients, "new", IDLE_MS_MAX - 1, 3);
        assert_eq!(request(&mut clients, "newer", IDLE_MS_MAX, 4).1, ["idle"]);
        for number in 0..2 * CLIENTS_MAX as u64 {
            let (_, forgotten) = request(&mut clients, &format!("c{number}"), IDLE_MS_MAX, number + 5);
            assert!(!forgotten.contains(&"watch".to_owned()));
            assert!(
                clients.known.len() <= CLIENTS_MAX + 1
                    && clients.rotation.len() <= CLIENTS_MAX + EXAMINED_MAX
            );
        }
        for number in 0..2 * WATCHERS_MAX as u64 {
            request(&mut clients, &format!("watch{number}"), IDLE_MS_MAX, 10 * WATCHERS_MAX as u64 + number);
            assert!(clients.known.len() <= WATCHERS_MAX + EXAMINED_MAX);
        }
    }
}
