//! The clients behind an external broker, which reports neither that they connect nor that they disconnect (pure).

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::broker::Peer;
use crate::protocol::ConnectionId;

/// The most clients that are known. Above it, the ones that are quiet for longest among a few are forgotten with their watches.
pub const CLIENTS_MAX: usize = 16_384;
/// After this time without a request, a client is forgotten with its watches.
pub const IDLE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
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
    heard_ms: u64,
    /// Number of its last request among those of all clients.
    last: u64,
}

impl Clients {
    /// Handles a request. Returns its client, and the clients that are forgotten now. `connect` makes a client that is not known.
    pub fn hear(
        &mut self,
        client_id: &str,
        now_ms: u64,
        connect: impl FnOnce(Arc<str>) -> Peer,
    ) -> (Peer, Vec<Peer>) {
        self.last = self.last.saturating_add(1);
        if let Some(client) = self.known.get_mut(client_id) {
            client.hear(now_ms, self.last);
            return (client.peer.clone(), Vec::new());
        }
        let forgotten = self.make_room(now_ms);
        let client_id: Arc<str> = client_id.into();
        let mut client = Client { peer: connect(Arc::clone(&client_id)), heard_ms: now_ms, last: 0 };
        client.hear(now_ms, self.last);
        let peer = client.peer.clone();
        self.rotation.push_back((Arc::clone(&client_id), peer.connection));
        self.known.insert(client_id, client);
        (peer, forgotten)
    }

    /// Forgets a client that is gone, unless it has sent a request after the one with this number.
    pub fn forget(&mut self, client_id: &str, since: u64) -> Option<Peer> {
        self.known.get(client_id).filter(|client| client.last <= since)?;
        self.known.remove(client_id).map(|client| client.peer)
    }

    /// Returns the number of the last request of any client.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Forgets idle clients among a few and, if there are too many, the one of these that is quiet for longest.
    fn make_room(&mut self, now_ms: u64) -> Vec<Peer> {
        let (mut forgotten, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..EXAMINED_MAX.min(self.rotation.len()) {
            let Some((id, connection)) = self.rotation.pop_front() else { break };
            let is_same = |client: &&Client| client.peer.connection == connection;
            let Some(client) = self.known.get(&id).filter(is_same) else { continue };
            if now_ms.saturating_sub(client.heard_ms) >= IDLE_MS_MAX {
                forgotten.extend(self.known.remove(&id).map(|client| client.peer));
            } else {
                kept.push((client.heard_ms, id, connection));
            }
        }
        if self.known.len() >= CLIENTS_MAX
            && let Some(quietest) =
                (0..kept.len()).min_by_key(|at| kept.get(*at).map(|(heard_ms, ..)| *heard_ms))
        {
            let (_, id, _) = kept.swap_remove(quietest);
            forgotten.extend(self.known.remove(&id).map(|client| client.peer));
        }
        self.rotation.extend(kept.into_iter().map(|(_, id, connection)| (id, connection)));
        forgotten
    }
}

impl Client {
    fn hear(&mut self, now_ms: u64, number: u64) {
        (self.heard_ms, self.last) = (now_ms, number);
        let peer = &mut self.peer;
        peer.message_number = peer.message_number.saturating_add(1);
        peer.confirmed = peer.message_number.saturating_sub(REDELIVERED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Principal;

    fn connect(number: u64) -> impl FnOnce(Arc<str>) -> Peer {
        move |client_id| Peer {
            connection: ConnectionId(number),
            owner: Arc::clone(&client_id),
            client_id,
            principal: Principal::default(),
            permissions: None,
            message_number: 0,
            confirmed: 0,
            handle: None,
        }
    }

    #[test]
    fn the_requests_of_a_client_are_of_one_connection_and_numbered() {
        let mut clients = Clients::default();
        let (first, _) = clients.hear("a", 0, connect(1));
        let (other, _) = clients.hear("b", 0, connect(2));
        let (second, _) = clients.hear("a", 1, connect(3));
        assert_eq!((first.connection, first.message_number), (ConnectionId(1), 1));
        assert_eq!((second.connection, second.message_number), (ConnectionId(1), 2));
        assert_eq!((other.connection, other.message_number), (ConnectionId(2), 1));
        for _ in 0..REDELIVERED_MAX {
            clients.hear("a", 1, connect(4));
        }
        assert_eq!(clients.hear("a", 1, connect(4)).0.confirmed, 3);
    }

    #[test]
    fn a_client_that_has_sent_a_request_since_is_not_forgotten() {
        let mut clients = Clients::default();
        clients.hear("a", 0, connect(1));
        let since = clients.last();
        clients.hear("b", 0, connect(2));
        clients.hear("a", 0, connect(3));
        assert!(clients.forget("a", since).is_none());
        assert_eq!(clients.forget("a", clients.last()).map(|peer| peer.connection), Some(ConnectionId(1)));
        assert!(clients.forget("a", clients.last()).is_none());
        let (again, _) = clients.hear("a", 0, connect(4));
        assert_eq!((again.connection, again.message_number), (ConnectionId(4), 1));
    }

    #[test]
    fn idle_clients_are_forgotten_and_the_number_of_clients_is_bounded() {
        let mut clients = Clients::default();
        clients.hear("idle", 0, connect(1));
        clients.hear("new", IDLE_MS_MAX - 1, connect(2));
        let (_, forgotten) = clients.hear("newer", IDLE_MS_MAX, connect(3));
        assert_eq!(forgotten.iter().map(|peer| &*peer.client_id).collect::<Vec<_>>(), ["idle"]);
        for number in 0..2 * CLIENTS_MAX as u64 {
            clients.hear(&format!("c{number}"), IDLE_MS_MAX + number, connect(number + 4));
            assert!(
                clients.known.len() <= CLIENTS_MAX && clients.rotation.len() <= CLIENTS_MAX + EXAMINED_MAX
            );
        }
    }
}
