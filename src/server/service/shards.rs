//! The shards of a store, each with a service of its own. A store without a cluster has one.

use std::sync::Arc;

use super::application::Service;
use super::scan_token::ScanToken;
use super::shard_number::ShardNumber;
use super::statistics::ServiceStatistics;
use crate::protocol::{ConnectionId, Key, Request};
use crate::server::cluster::shard_of;
use crate::server::operations::metrics::Metrics;
use crate::store::{InvalidPattern, KeyView, KeyWalk};

/// The most slots that a walk for an operator looks at before it ends with a shard.
const SLOTS_PER_WALK_MAX: usize = 256 * 1024;

/// The services of all shards, in order.
#[derive(Clone, Debug)]
pub struct Shards(Arc<[Arc<Service>]>);

/// What a walk through the keys has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// The number of keys that match.
    pub seen: usize,
    /// Where the next walk goes on; `None` at the end.
    pub next: Option<u64>,
    /// Whether the pattern takes too long for a key.
    pub is_too_expensive: bool,
}

impl From<Arc<Service>> for Shards {
    fn from(service: Arc<Service>) -> Self {
        Self(Arc::new([service]))
    }
}

impl Shards {
    /// Makes a service for each of `shards`, at least one.
    pub fn new(shards: u32, service: impl Fn(ShardNumber) -> Arc<Service>) -> Self {
        let shards = shards.max(1);
        Self((0..shards).map(|shard| service(ShardNumber { shard, shards })).collect())
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Service>> {
        self.0.iter()
    }

    /// Returns the only shard of a store without a cluster.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "there is at least one shard")]
    pub fn first(&self) -> &Arc<Service> {
        &self.0[0]
    }

    /// Returns the service of a key.
    #[must_use]
    pub fn of(&self, key: &Key) -> &Arc<Service> {
        self.at(self.number_of(key))
    }

    /// Returns the service of the shard with this number, which is below their count.
    #[must_use]
    pub fn at(&self, shard: usize) -> &Arc<Service> {
        self.0.get(shard).unwrap_or_else(|| self.first())
    }

    fn number_of(&self, key: &Key) -> usize {
        // The conversions cannot fail.
        let shards = u32::try_from(self.0.len()).unwrap_or(1);
        usize::try_from(shard_of(key, shards)).unwrap_or_default()
    }

    /// Returns the number of the shard that answers a request. A malformed one is answered by the first shard.
    #[must_use]
    pub fn number_of_request(&self, payload: &bytes::Bytes) -> usize {
        if self.0.len() == 1 {
            return 0;
        }
        match Request::decode(payload, self.first().case) {
            Ok(Request::Scan { token, .. }) => {
                let token = token.as_deref().and_then(ScanToken::decode);
                let shard = token.and_then(|token| usize::try_from(token.shard).ok());
                shard.filter(|shard| *shard < self.0.len()).unwrap_or_default()
            }
            Ok(
                Request::Set { key, .. }
                | Request::Get { key }
                | Request::Del { key }
                | Request::VDel { key, .. }
                | Request::KeyNotify { key, .. },
            ) => self.number_of(&key),
            Err(_) => 0,
        }
    }

    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.first().metrics()
    }

    /// Returns the sums of all shards.
    #[must_use]
    pub fn statistics(&self) -> ServiceStatistics {
        let sum = self.iter().map(|service| service.statistics()).reduce(ServiceStatistics::plus);
        sum.unwrap_or_default()
    }

    /// Whether other instances of a cluster answer for all shards.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.iter().all(|service| service.is_following())
    }

    /// Calls `visit` for keys that match the filter, from the position `from` on, 0 at first: see [`KeyWalk::new`].
    ///
    /// # Errors
    /// The filter is not a valid pattern.
    pub async fn walk_keys(
        &self,
        filter: &str,
        from: u64,
        mut visit: impl FnMut(KeyView<'_>) + Send,
    ) -> Result<Walked, InvalidPattern> {
        let position = |shard: u32, slot: u32| u64::from(shard) << 32 | u64::from(slot);
        // The high half is the shard, the low half the slot in it.
        let [first, mut slot] = [from >> 32, from & u64::from(u32::MAX)].map(|half| half as u32);
        let mut walked = Walked::default();
        let mut slots = 0_usize;
        for (service, shard) in self.iter().zip(0_u32..).skip(usize::try_from(first).unwrap_or(usize::MAX)) {
            if slots >= SLOTS_PER_WALK_MAX {
                walked.next = Some(position(shard, 0));
                break;
            }
            let mut walk = KeyWalk::new(filter, slot)?;
            service.walk_keys(&mut walk, &mut visit).await;
            walked.seen = walked.seen.saturating_add(walk.seen());
            walked.is_too_expensive = walk.is_too_expensive();
            slots = slots.saturating_add(walk.seen());
            if let Some(next) = walk.next_slot() {
                walked.next = Some(position(shard, next));
                break;
            }
            slot = 0;
        }
        Ok(walked)
    }

    /// Calls `read` for a key, committed or not; returns `None` if it is absent.
    pub fn view_key<T>(&self, key: &Key, read: impl FnOnce(KeyView<'_>) -> T) -> Option<T> {
        self.of(key).view_key(key, read)
    }

    /// Returns for each of a few connections the number of keys that it watches.
    #[must_use]
    pub fn watches_of(&self, connections: &[Option<ConnectionId>]) -> Vec<usize> {
        let mut sums = vec![0_usize; connections.len()];
        for service in self.iter() {
            for (sum, watches) in sums.iter_mut().zip(service.watches_of(connections)) {
                *sum = sum.saturating_add(watches);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TestService, message, peer, set};
    use super::*;
    use crate::clock;
    use crate::protocol::Reply;

    const SHARDS: u32 = 3;

    /// Instances of three shards, which serve, with keys.
    fn filled(keys: usize) -> (Shards, Vec<TestService>) {
        let tests: Vec<_> =
            (0..SHARDS).map(|shard| TestService::of_shard(ShardNumber { shard, shards: SHARDS })).collect();
        let shards = Shards::new(SHARDS, |number| Arc::clone(&tests[number.shard as usize].service));
        for number in 0..keys {
            let request = set(&format!("k{number}"), "v");
            let test = &tests[shards.number_of_request(&message(&request).payload)];
            test.request(&request);
        }
        tests.iter().for_each(|test| {
            test.confirm();
            test.sent_messages.take();
        });
        (shards, tests)
    }

    #[test]
    fn a_scan_lists_the_keys_of_all_shards_once() {
        let (shards, tests) = filled(2_000);
        let (mut token, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let scan = message(&Request::Scan { pattern: "*".into(), token });
            let test = &tests[shards.number_of_request(&scan.payload)];
            let running =
                test.service.handle_external_request(&test.sent_messages, &peer(1), scan, clock::monotonic());
            running.into_iter().for_each(|mut scan| while !scan.advance(&test.sent_messages) {});
            test.confirm();
            let Some(Reply::Keys { keys, token: next }) = test.sent_messages.replies().pop() else {
                panic!()
            };
            found.extend(keys);
            pages += 1;
            token = next;
            if token.is_none() {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!((found.len(), pages), (2_000, SHARDS as usize));
    }

    #[tokio::test]
    async fn operators_see_the_keys_of_all_shards() {
        let (shards, _tests) = filled(300);
        let mut seen = 0;
        let walked = shards.walk_keys("k", 0, |_| seen += 1).await.unwrap();
        assert_eq!((seen, walked), (300, Walked { seen: 300, ..Walked::default() }));
        assert_eq!(shards.statistics().store.keys, 300);
        let of_each: Vec<_> = shards.iter().map(|service| service.statistics().store.keys).collect();
        assert!(of_each.iter().all(|keys| *keys > 50), "{of_each:?}");
        // A walk goes on in the shard that the position names.
        let mut seen = 0;
        shards.walk_keys("", u64::from(SHARDS - 1) << 32, |_| seen += 1).await.unwrap();
        assert_eq!(seen, of_each[SHARDS as usize - 1]);
        let key = Key::new("k7").unwrap();
        assert_eq!(shards.view_key(&key, |view| view.key().to_vec()), Some(b"k7".to_vec()));
    }

    #[test]
    fn malformed_requests_and_tokens_belong_to_the_first_shard() {
        let (shards, _tests) = filled(0);
        let token = ScanToken { shard: SHARDS, life: 0, position: "".into() }.encode();
        let scan = |token: Option<bytes::Bytes>| Request::Scan { pattern: "*".into(), token };
        for request in [scan(None), scan(Some("token".into())), scan(Some(token))] {
            assert_eq!(shards.number_of_request(&message(&request).payload), 0);
        }
        assert_eq!(shards.number_of_request(&"malformed".into()), 0);
    }
}
