//! Subscriptions: a table of the topic filters without wildcards, and a trie over the levels of the others.

use std::ops::ControlFlow;

use super::table::Table;
use crate::mqtt::filter;

/// Subscriptions by topic filter. `K` identifies the subscriber, `S` is what a match returns. Pure.
///
/// Filters must be valid (`filter::is_valid`), which also limits the depth of every recursion here.
#[derive(Debug)]
pub struct Subscriptions<K, S> {
    /// Filters without a wildcard: most messages match one of them, which one lookup finds, however many levels it has.
    exact: Table<Subscribers<K, S>>,
    /// Filters with a wildcard.
    root: Node<K, S>,
}

#[derive(Debug)]
struct Node<K, S> {
    /// The subscriber that is charged for the node; None for the root. It has a filter that ends at or below the node.
    payer: Option<K>,
    /// By the name of the next level.
    children: Table<Box<Node<K, S>>>,
    /// The next level is `+`.
    any: Option<Box<Node<K, S>>>,
    /// Subscriptions whose filter ends at this level.
    here: Subscribers<K, S>,
    /// Subscriptions whose filter ends with `#` below this level.
    below: Subscribers<K, S>,
}

impl<K, S> Default for Node<K, S> {
    fn default() -> Self {
        Self {
            payer: None,
            children: Table::default(),
            any: None,
            here: Subscribers::default(),
            below: Subscribers::default(),
        }
    }
}

impl<K, S> Default for Subscriptions<K, S> {
    fn default() -> Self {
        Self { exact: Table::default(), root: Node::default() }
    }
}

impl<K: Copy + Ord, S> Subscriptions<K, S> {
    /// Adds or replaces a subscription; returns whether it is new, and how many nodes the subscriber is charged for
    /// besides.
    pub fn insert(&mut self, filter: &str, key: K, subscription: S) -> (bool, usize) {
        if !filter::has_wildcard(filter) {
            let of_filter = self.exact.get_or_insert_with(filter, Subscribers::default);
            return (of_filter.is_some_and(|of_filter| of_filter.insert(key, subscription).is_none()), 0);
        }
        let mut created = 0_usize;
        let mut new = || {
            created = created.saturating_add(1);
            Box::new(Node { payer: Some(key), ..Node::default() })
        };
        let mut node = &mut self.root;
        for level in filter.split('/') {
            let next = match level {
                "#" => return (node.below.insert(key, subscription).is_none(), created),
                "+" => Some(node.any.get_or_insert_with(&mut new)),
                level => node.children.get_or_insert_with(level, &mut new),
            };
            // There always is one.
            let Some(next) = next else { return (false, created) };
            node = next;
        }
        (node.here.insert(key, subscription).is_none(), created)
    }

    /// Returns the subscription of a subscriber to this very filter.
    pub fn get(&self, filter: &str, key: K) -> Option<&S> {
        if !filter::has_wildcard(filter) {
            return self.exact.get(filter)?.get(&key);
        }
        let mut node = &self.root;
        for level in filter.split('/') {
            node = match level {
                "#" => return node.below.get(&key),
                "+" => node.any.as_deref()?,
                level => node.children.get(level)?,
            };
        }
        node.here.get(&key)
    }

    /// Removes a subscription; returns whether it existed. Calls `charged` for each node that a subscriber is charged for from
    /// now on (true), or no more (false): a node outlives the filter that it was created for if others share it.
    pub fn remove(&mut self, filter: &str, key: K, mut charged: impl FnMut(K, bool)) -> bool {
        if filter::has_wildcard(filter) {
            return self.root.remove(Some(filter), key, &mut charged).0;
        }
        let Some(of_filter) = self.exact.get_mut(filter) else { return false };
        let existed = of_filter.remove(&key).is_some();
        if of_filter.is_empty() {
            self.exact.remove(filter);
        }
        existed
    }

    /// Calls `found` for each subscription that matches a topic, until the `steps` are used up; then the next call goes on
    /// from there. A subscriber with several matching filters is found several times.
    ///
    /// A subscription that is there from the first call to the last one is found once.
    pub fn search<'a>(
        &'a self,
        topic: &str,
        search: &mut Search<K>,
        steps: &mut usize,
        mut found: impl FnMut(K, &'a S),
    ) {
        let from = std::mem::replace(search, Search::Complete);
        let mut walk =
            Walk { steps, path: Path { levels: [false; filter::LEVELS_MAX], len: 0 }, found: &mut found };
        let at = match from {
            Search::Complete => return,
            Search::Exact(after) => {
                let of_topic = self.exact.get(topic);
                match of_topic.map_or(ControlFlow::Continue(()), |of_topic| walk.visit(of_topic, after)) {
                    ControlFlow::Break(after) => {
                        *search = Search::Exact(after);
                        return;
                    }
                    ControlFlow::Continue(()) => None,
                }
            }
            Search::Trie(position) => Some(position),
        };
        if self.root.is_empty() {
            return;
        }
        let visited = if topic.starts_with('$') {
            // A wildcard at the start of a filter does not match such a topic (MQTT 5, 4.7.2).
            let (level, rest) = split_level(topic);
            walk.path.push(false);
            self.root.children.get(level).map_or(ControlFlow::Continue(()), |child| {
                child.search(rest, at.as_deref().map(|at| (at, 1)), &mut walk)
            })
        } else {
            self.root.search(Some(topic), at.as_deref().map(|at| (at, 0)), &mut walk)
        };
        if let ControlFlow::Break(position) = visited {
            *search = Search::Trie(Box::new(position));
        }
    }

    pub fn has_match(&self, topic: &str) -> bool {
        if self.exact.contains_key(topic) {
            return true;
        }
        if topic.starts_with('$') {
            let (level, rest) = split_level(topic);
            return self.root.children.get(level).is_some_and(|child| child.has_match(rest));
        }
        self.root.has_match(Some(topic))
    }
}

impl<K: Copy + Ord, S> Node<K, S> {
    fn has_match(&self, topic: Option<&str>) -> bool {
        let Some(topic) = topic else {
            return !self.below.is_empty() || !self.here.is_empty();
        };
        let (level, rest) = split_level(topic);
        let has_match = |child: &Self| child.has_match(rest);
        !self.below.is_empty()
            || self.children.get(level).is_some_and(|child| has_match(child))
            || self.any.as_deref().is_some_and(has_match)
    }

    /// Visits this node and those below it, from a position on if that is at or below this node: then with the depth of
    /// this node. Breaks with the position if there are no more steps.
    fn search<'a>(
        &'a self,
        topic: Option<&str>,
        from: Option<(&Position<K>, usize)>,
        walk: &mut Walk<'_, 'a, K, S>,
    ) -> ControlFlow<Position<K>> {
        let depth = walk.path.len;
        // The next branch on the way to the position; None at the position itself.
        let branch = from.and_then(|(position, depth)| position.path.get(depth));
        let at = from.map(|(position, _)| position).filter(|_| branch.is_none());
        if from.is_none() && !walk.step() {
            return ControlFlow::Break(walk.position(false, None));
        }
        if branch.is_none() && !at.is_some_and(|at| at.is_here) {
            let after = at.and_then(|at| at.after);
            if let ControlFlow::Break(after) = walk.visit(&self.below, after) {
                return ControlFlow::Break(walk.position(false, after));
            }
        }
        let Some(topic) = topic else {
            let after = at.filter(|at| at.is_here).and_then(|at| at.after);
            let visited = walk.visit(&self.here, after);
            return visited.map_break(|after| walk.position(true, after));
        };
        let (level, rest) = split_level(topic);
        let from = |is_any: bool| {
            from.map(|(at, depth)| (at, depth.saturating_add(1))).filter(|_| branch == Some(is_any))
        };
        if branch != Some(true)
            && let Some(child) = self.children.get(level)
        {
            walk.path.push(false);
            child.search(rest, from(false), walk)?;
            walk.path.len = depth;
        }
        if let Some(any) = &self.any {
            walk.path.push(true);
            any.search(rest, from(true), walk)?;
            walk.path.len = depth;
        }
        ControlFlow::Continue(())
    }

    /// Returns whether the subscription existed, and a subscriber at or below this node if it was looked for.
    fn remove(
        &mut self,
        filter: Option<&str>,
        key: K,
        charged: &mut dyn FnMut(K, bool),
    ) -> (bool, Option<K>) {
        let Some(filter) = filter else {
            return (self.here.remove(&key).is_some(), None);
        };
        if filter == "#" {
            return (self.below.remove(&key).is_some(), None);
        }
        let (level, rest) = split_level(filter);
        let child = if level == "+" {
            self.any.as_deref_mut()
        } else {
            self.children.get_mut(level).map(|child| &mut **child)
        };
        let Some(child) = child else {
            return (false, None);
        };
        let (removed, mut heir) = child.remove(rest, key, charged);
        if child.is_empty() {
            if let Some(payer) = child.payer {
                charged(payer, false);
            }
            if level == "+" {
                self.any = None;
            } else {
                self.children.remove(level);
            }
        } else if removed && child.payer == Some(key) {
            heir = heir.or_else(|| child.subscriber());
            child.payer = heir;
            charged(key, false);
            if let Some(heir) = heir {
                charged(heir, true);
            }
        }
        (removed, heir)
    }

    /// Returns a subscriber whose filter ends at or below this node.
    fn subscriber(&self) -> Option<K> {
        let mut node = self;
        loop {
            let own = node.here.0.first().or_else(|| node.below.0.first());
            if let Some((key, _)) = own {
                return Some(*key);
            }
            node = node.any.as_deref().or_else(|| node.children.any().map(|child| &**child))?;
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.any.is_none() && self.here.is_empty() && self.below.is_empty()
    }
}

fn split_level(topic: &str) -> (&str, Option<&str>) {
    // Levels are short: a loop over the bytes is faster than memchr, which is made for long texts.
    let end = topic.bytes().position(|byte| byte == b'/').unwrap_or(topic.len());
    let (level, rest) = topic.split_at_checked(end).unwrap_or((topic, ""));
    (level, rest.get(1..))
}

/// A search for the subscriptions that match a topic, in bounded parts: see [`Subscriptions::search`].
#[derive(Debug)]
pub enum Search<K> {
    /// Among the filters without a wildcard, after a subscriber.
    Exact(Option<K>),
    /// In the trie, from a position on.
    Trie(Box<Position<K>>),
    Complete,
}

impl<K> Default for Search<K> {
    fn default() -> Self {
        Self::Exact(None)
    }
}

impl<K> Search<K> {
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete)
    }
}

/// Where a search in the trie goes on.
#[derive(Debug)]
pub struct Position<K> {
    /// The node.
    path: Path,
    /// Whether the subscriptions below the node have been visited, and those that end there are next.
    is_here: bool,
    /// The last subscriber that was visited of those.
    after: Option<K>,
}

/// The way to a node: for each level, whether it is `+` or has the name of the level.
#[derive(Clone, Copy, Debug)]
struct Path {
    levels: [bool; filter::LEVELS_MAX],
    len: usize,
}

impl Path {
    fn push(&mut self, is_any: bool) {
        if let Some(level) = self.levels.get_mut(self.len) {
            *level = is_any;
        }
        self.len = self.len.saturating_add(1);
    }

    fn get(&self, index: usize) -> Option<bool> {
        self.levels.get(..self.len)?.get(index).copied()
    }
}

/// A walk through the trie.
struct Walk<'w, 'a, K, S> {
    steps: &'w mut usize,
    /// The way to the node that is visited.
    path: Path,
    found: &'w mut dyn FnMut(K, &'a S),
}

impl<'a, K: Copy + Ord, S> Walk<'_, 'a, K, S> {
    /// Returns where the walk is.
    fn position(&self, is_here: bool, after: Option<K>) -> Position<K> {
        Position { path: self.path, is_here, after }
    }

    /// Returns whether there is another step.
    fn step(&mut self) -> bool {
        let is_left = *self.steps > 0;
        *self.steps = self.steps.saturating_sub(1);
        is_left
    }

    /// Visits subscribers; breaks with the last one that was visited if there are no more steps.
    fn visit(&mut self, subscribers: &'a Subscribers<K, S>, after: Option<K>) -> ControlFlow<Option<K>> {
        let mut last = after;
        for (key, subscription) in subscribers.after(after) {
            if !self.step() {
                return ControlFlow::Break(last);
            }
            (self.found)(*key, subscription);
            last = Some(*key);
        }
        ControlFlow::Continue(())
    }
}

/// The subscribers of a filter, sorted. Nearly every filter has one, for which a map would take ten times the memory; and
/// a new session has the greatest number.
#[derive(Debug)]
struct Subscribers<K, S>(Vec<(K, S)>);

impl<K, S> Default for Subscribers<K, S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + Ord, S> Subscribers<K, S> {
    fn insert(&mut self, key: K, subscription: S) -> Option<S> {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(index) => self.0.get_mut(index).map(|(_, known)| std::mem::replace(known, subscription)),
            Err(index) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(index, (key, subscription));
                None
            }
        }
    }

    fn get(&self, key: &K) -> Option<&S> {
        let index = self.0.binary_search_by_key(key, |(key, _)| *key).ok()?;
        self.0.get(index).map(|(_, subscription)| subscription)
    }

    fn remove(&mut self, key: &K) -> Option<S> {
        let index = self.0.binary_search_by_key(key, |(key, _)| *key).ok()?;
        let (_, subscription) = self.0.remove(index);
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len().saturating_mul(2));
        }
        Some(subscription)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the subscribers after one, or all.
    fn after(&self, last: Option<K>) -> &[(K, S)] {
        let start = last.map_or(0, |last| self.0.partition_point(|(key, _)| *key <= last));
        self.0.get(start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::broker::session::entry::SessionId;

    /// Searches in parts of `steps` steps.
    fn search<S: Copy>(
        subscriptions: &Subscriptions<SessionId, S>,
        topic: &str,
        steps: usize,
    ) -> Vec<(u64, S)> {
        let (mut found, mut search) = (Vec::new(), Search::default());
        while !search.is_complete() {
            let before = found.len();
            let mut left = steps;
            subscriptions.search(topic, &mut search, &mut left, |session, of| found.push((session.0, *of)));
            assert!(found.len() - before <= steps);
        }
        found
    }

    fn matching(subscriptions: &Subscriptions<SessionId, ()>, topic: &str) -> Vec<u64> {
        let sorted = |steps| {
            let mut found: Vec<_> =
                search(subscriptions, topic, steps).into_iter().map(|(session, ())| session).collect();
            found.sort_unstable();
            found
        };
        let all = sorted(usize::MAX);
        for steps in 1..4 {
            assert_eq!(sorted(steps), all, "in parts of {steps} steps");
        }
        all
    }

    #[test]
    fn a_topic_matches_its_filters() {
        let mut subscriptions = Subscriptions::default();
        for (session, filter) in ["a/b", "a/+", "a/#", "#", "+/b", "$SYS/#", "b"].into_iter().enumerate() {
            assert!(subscriptions.insert(filter, SessionId(session as u64), ()).0);
        }
        assert_eq!(matching(&subscriptions, "a/b"), [0, 1, 2, 3, 4]);
        assert_eq!(matching(&subscriptions, "a"), [2, 3]);
        assert_eq!(matching(&subscriptions, "$SYS/b"), [5]);
        assert_eq!(matching(&subscriptions, "b"), [3, 6]);
    }

    #[test]
    fn the_same_filter_again_replaces_the_subscription() {
        let mut subscriptions = Subscriptions::default();
        assert!(subscriptions.insert("a", SessionId(1), 1).0);
        assert!(!subscriptions.insert("a", SessionId(1), 2).0);
        assert_eq!(search(&subscriptions, "a", 1), [(1, 2)]);
    }

    #[test]
    fn a_removed_subscription_leaves_no_node() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.insert("a/b/#", SessionId(1), ());
        subscriptions.insert("a/+", SessionId(1), ());
        assert!(!subscriptions.remove("a/b", SessionId(1), |_, _| ()));
        assert!(!subscriptions.remove("a/b/#", SessionId(2), |_, _| ()));
        assert!(subscriptions.remove("a/b/#", SessionId(1), |_, _| ()));
        assert!(subscriptions.remove("a/+", SessionId(1), |_, _| ()));
        subscriptions.insert("a/b", SessionId(1), ());
        assert!(subscriptions.remove("a/b", SessionId(1), |_, _| ()));
        assert!(subscriptions.root.is_empty() && subscriptions.exact.is_empty());
    }

    #[test]
    fn a_node_is_charged_to_the_subscriber_that_needed_it_first_and_then_to_one_that_shares_it() {
        let mut subscriptions = Subscriptions::default();
        let [ann, bob] = [1, 2].map(SessionId);
        assert_eq!(subscriptions.insert("a/+/c/d", ann, ()), (true, 4));
        assert_eq!(subscriptions.insert("a/+/c/e", bob, ()), (true, 1));
        assert_eq!(subscriptions.insert("a/+/c/d", bob, ()), (true, 0));
        let mut changes = Vec::new();
        assert!(
            subscriptions.remove("a/+/c/d", ann, |session, is_charged| changes.push((session, is_charged)))
        );
        let of = |change| changes.iter().filter(|of| **of == change).count();
        assert_eq!((of((ann, false)), of((bob, true)), changes.len()), (4, 4, 8));
    }

    proptest! {
        #[test]
        fn the_trie_finds_the_same_filters_as_matching_each(
            filters in proptest::collection::vec("([ab$]?|\\+)(/([ab]?|\\+)){0,3}(/#)?", 0..12),
            topic in "[ab$]?(/[ab]?){0,3}",
        ) {
            let filters: Vec<_> = filters.into_iter().filter(|filter| filter::is_valid(filter)).collect();
            let mut subscriptions = Subscriptions::default();
            for (session, filter) in filters.iter().enumerate() {
                subscriptions.insert(filter, SessionId(session as u64), ());
            }
            let expected: Vec<_> = (0u64..)
                .zip(&filters)
                .filter(|(_, filter)| filter::matches(filter, &topic))
                .map(|(session, _)| session)
                .collect();
            prop_assert_eq!(subscriptions.has_match(&topic), !expected.is_empty());
            prop_assert_eq!(matching(&subscriptions, &topic), expected);
        }

        #[test]
        fn a_removed_subscription_is_not_found_and_others_with_the_same_filter_are(
            changes in proptest::collection::vec(
                (any::<bool>(), proptest::sample::select(vec!["a", "a/b", "a/", "$a", "+", "a/+", "a/#"]), 0..3_u64),
                0..24,
            ),
            topic in proptest::sample::select(vec!["a", "a/b", "a/", "$a"]),
        ) {
            let (mut subscriptions, mut model) = (Subscriptions::default(), BTreeMap::new());
            let mut charges = BTreeMap::<SessionId, usize>::new();
            let mut charge = |session: SessionId, is_charged: bool| {
                let charge = charges.entry(session).or_default();
                *charge = if is_charged { *charge + 1 } else { *charge - 1 };
            };
            for (adds, filter, session) in changes {
                let id = SessionId(session);
                prop_assert_eq!(subscriptions.get(filter, id).is_some(), model.contains_key(&(session, filter)));
                if adds {
                    let is_new = model.insert((session, filter), ()).is_none();
                    let (inserted, created) = subscriptions.insert(filter, id, ());
                    prop_assert_eq!(inserted, is_new);
                    (0..created).for_each(|_| charge(id, true));
                } else {
                    let existed = model.remove(&(session, filter)).is_some();
                    prop_assert_eq!(subscriptions.remove(filter, id, &mut charge), existed);
                }
                let expected: Vec<_> = model
                    .keys()
                    .filter(|(_, filter)| filter::matches(filter, topic))
                    .map(|(session, _)| *session)
                    .collect();
                prop_assert_eq!(matching(&subscriptions, topic), expected);
            }
            for (session, filter) in model.keys() {
                subscriptions.remove(filter, SessionId(*session), &mut charge);
            }
            prop_assert!(charges.values().all(|charge| *charge == 0));
            prop_assert!(subscriptions.root.is_empty() && subscriptions.exact.is_empty());
        }
    }
}
