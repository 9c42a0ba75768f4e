//! Re-authorization: applies changed rules to sessions that exist already.

use std::sync::Arc;
use std::time::Instant;

use super::{DueWill, Registry};
use crate::broker::event::Event;
use crate::broker::publication::Delivery;
use crate::broker::session::entry::{SessionEntry, SessionState};
use crate::mqtt::filter;
use crate::mqtt::packet::{RetainHandling, SubscriptionOptions, Will};

impl Registry {
    /// Applies the client's permissions to its session.
    ///
    /// A subscription without permission brings no messages until it is permitted again. Queued messages without
    /// permission go to other members of their group, or are discarded; so do messages in flight, but one that was sent
    /// on the current connection only when it would be sent again. `is_own` returns whether a topic or topic
    /// filter is the client's own (client id, topic), so that no permission is needed.
    pub fn reauthorize(
        &mut self,
        entry: &Arc<SessionEntry>,
        now: Instant,
        is_own: impl Fn(&str, &str) -> bool,
    ) {
        let (filters, permissions, is_connected) = {
            let mut state = entry.lock();
            // Nothing else changes them under the registry's write lock.
            (std::mem::take(&mut state.filters), state.permissions.clone(), state.handle.is_some())
        };
        let may = |is_allowed: bool, topic: &str| is_allowed || is_own(&entry.client_id, topic);
        let mut node_bytes = 0_usize;
        for (filter, options) in &filters {
            // In the rules, a shared subscription is one to its topic filter.
            let plain = filter::shared(filter).unwrap_or(filter);
            if may(permissions.as_ref().is_none_or(|permissions| permissions.may_subscribe(plain)), plain) {
                let bytes = self.restore_subscription(entry, filter, *options, is_connected);
                node_bytes = node_bytes.saturating_add(bytes);
            } else if self.remove_subscription(filter, entry.id) {
                self.revocations = self.revocations.wrapping_add(1);
                let principal = entry.lock().principal.describe();
                self.report_refusal(entry, principal, "keep its subscription to", filter);
            }
        }
        let mut state = entry.lock();
        state.filters = filters;
        state.charge_filters(node_bytes, 0);
        let may_receive = |topic: &str| {
            may(permissions.as_ref().is_none_or(|permissions| permissions.may_receive(topic)), topic)
        };
        let is_revoked = |delivery: &Delivery| !may_receive(&delivery.publication.message.topic);
        let mut taken = state.session.revoke_in_flight(is_connected, is_revoked);
        taken.extend(state.session.take_queued(is_revoked));
        state.update_charge();
        drop(state);
        self.redistribute(taken, entry.id, now);
    }

    /// Adds a subscription to the routing tables if it is not there; returns the bytes that its session must be charged for.
    fn restore_subscription(
        &mut self,
        entry: &Arc<SessionEntry>,
        filter: &str,
        options: SubscriptionOptions,
        is_connected: bool,
    ) -> usize {
        if !filter::is_shared(filter) && self.subscriptions.get(filter, entry.id).is_some() {
            return 0;
        }
        self.insert_subscription(entry, filter, options, RetainHandling::Never, is_connected).1
    }

    /// Returns the message of a will, if its client still has the permission to publish it.
    pub(super) fn authorized_will(
        &mut self,
        entry: &SessionEntry,
        state: &SessionState,
        will: Will,
    ) -> Option<DueWill> {
        let Will { message, .. } = will;
        if state.permissions.as_ref().is_none_or(|permissions| permissions.may_publish(&message.topic)) {
            return Some(DueWill { message, owner: Arc::clone(state.owner()) });
        }
        self.report_refusal(entry, state.principal.describe(), "have its will published to", &message.topic);
        None
    }

    fn report_refusal(
        &mut self,
        entry: &SessionEntry,
        principal: Option<String>,
        what: &'static str,
        topic: &str,
    ) {
        let (client_id, topic) = (Arc::clone(&entry.client_id), topic.to_owned());
        self.events.push(Event::NotAuthorized { client_id, principal, what, topic });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::permissions::Permissions;
    use crate::broker::publication::Publication;
    use crate::broker::routing::registry::tests::{request, statistics, subscribe, subscribe_to};
    use crate::broker::session::entry::SessionRequest;
    use crate::broker::session::state_machine::Outgoing;
    use crate::broker::settings::Settings;
    use crate::clock;
    use crate::mqtt::packet::SubscriptionRequest;
    use crate::protocol::ConnectionId;
    use crate::protocol::message::{Message, Qos};

    /// Permits messages in both directions, or none.
    #[derive(Debug)]
    struct Permitted(bool);

    impl Permissions for Permitted {
        fn may_connect(&self) -> bool {
            true
        }

        fn may_publish(&self, _: &str) -> bool {
            self.0
        }

        fn may_subscribe(&self, _: &str) -> bool {
            self.0
        }

        fn may_receive(&self, _: &str) -> bool {
            self.0
        }

        fn generation(&self) -> u64 {
            0
        }

        fn refresh(&self) {}
    }

    /// Routes a message at QoS 1 and returns the number of its receivers.
    fn route(registry: &Registry, topic: &str, now: Instant) -> usize {
        let message = Message { topic: topic.to_owned().into(), qos: Qos::AtLeastOnce, ..Message::default() };
        registry.route(None, None, &Arc::new(Publication::new(message, now)), now, &mut Vec::new())
    }

    #[test]
    fn queued_messages_without_permission_go_to_other_members_or_are_dropped_but_not_the_clients_own() {
        let now = clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        let attach = |registry: &mut Registry, connection, client_id: &str, is_permitted| {
            let permissions = Some(Arc::new(Permitted(is_permitted)) as Arc<dyn Permissions>);
            let request = SessionRequest { permissions, ..request(connection, client_id, 10, None) };
            registry.attach_known(request, now).unwrap().entry
        };
        attach(&mut registry, 1, "a", true);
        for filter in ["t", "own/t", "$share/g/u"] {
            subscribe_to(&mut registry, 1, filter, now);
        }
        for topic in ["t", "own/t", "u"] {
            assert_eq!(route(&registry, topic, now), 1);
        }
        attach(&mut registry, 2, "b", true);
        subscribe_to(&mut registry, 2, "$share/g/u", now);
        let entry = attach(&mut registry, 3, "a", false);
        registry.reauthorize(&entry, now, |client_id, topic| client_id == "a" && topic.starts_with("own/"));
        assert_eq!((route(&registry, "t", now), route(&registry, "own/t", now)), (0, 1));
        let queued = |connection| {
            let (entry, _) = &registry.connections[&ConnectionId(connection)];
            let topics = std::iter::from_fn(|| entry.poll_outgoing(ConnectionId(connection), now, false));
            let topic = |(outgoing, _)| match outgoing {
                Outgoing::Publish { delivery, .. } => delivery.publication.message.topic.to_string(),
                Outgoing::Release(_) => panic!("a PUBREL"),
            };
            topics.map(topic).collect::<Vec<_>>()
        };
        assert_eq!((queued(3), queued(2)), (vec!["own/t".to_owned(); 2], vec!["u".to_owned()]));
    }

    #[test]
    fn a_will_that_its_client_may_no_longer_publish_is_not_published() {
        let now = clock::monotonic();
        for (is_permitted, count) in [(true, 1), (false, 0)] {
            let mut registry = Registry::new(&Settings::default());
            let permissions = Some(Arc::new(Permitted(is_permitted)) as Arc<dyn Permissions>);
            let request = SessionRequest { permissions, ..request(1, "a", 10, Some(0)) };
            registry.attach_known(request, now).unwrap();
            let will = registry.detach(ConnectionId(1), true, None, now);
            assert_eq!(will.into_iter().count(), count);
            assert_eq!(registry.take_events().len(), 1 - count);
        }
    }

    #[test]
    fn the_subscriptions_of_a_client_without_rules_are_checked_when_it_reconnects_under_rules() {
        let now = clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        let mut needs_reauthorization = |connection, permissions| {
            let request = SessionRequest { permissions, ..request(connection, "a", 10, None) };
            registry.attach_known(request, now).unwrap().needs_reauthorization
        };
        let rules = || Some(Arc::new(Permitted(true)) as Arc<dyn Permissions>);
        for (connection, permissions, expected) in
            [(1, None, false), (2, None, false), (3, rules(), true), (4, rules(), false), (5, None, true)]
        {
            assert_eq!(needs_reauthorization(connection, permissions), expected, "{connection}");
        }
    }

    #[test]
    fn a_user_that_reconnects_without_its_certificate_loses_the_permissions_of_the_certificate() {
        let now = clock::monotonic();
        let mut registry = Registry::new(&Settings::default());
        let attach = |registry: &mut Registry, connection, has_certificate: bool| {
            let mut request = SessionRequest {
                permissions: Some(Arc::new(Permitted(has_certificate))),
                ..request(connection, "a", 10, None)
            };
            request.principal.user = Some("ann".into());
            if has_certificate {
                request.principal.attributes = [("CN".to_owned(), "press".to_owned())].into();
            }
            let attached = registry.attach_known(request, now).unwrap();
            if attached.needs_reauthorization {
                registry.reauthorize(&attached.entry, now, |_, _| false);
            }
            attached.is_resumed
        };
        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            identifier: None,
        };
        let subscription = |filter: &str| SubscriptionRequest {
            filter: filter.to_owned(),
            options,
            retain_handling: RetainHandling::Never,
        };
        attach(&mut registry, 1, true);
        let requests = vec![subscription("t"), subscription("$share/g/t")];
        subscribe(&mut registry, 1, requests, now);
        let has_subscribers = |registry: &mut Registry, connection, has_certificate| {
            assert!(attach(registry, connection, has_certificate), "the session is resumed");
            registry.has_subscribers("t")
        };
        assert!(has_subscribers(&mut registry, 2, true));
        assert!(!has_subscribers(&mut registry, 3, false));
        assert_eq!(registry.take_events().len(), 2);
        assert!(!has_subscribers(&mut registry, 4, false));
        assert!(registry.take_events().is_empty(), "a known refusal is not reported again");
        assert!(has_subscribers(&mut registry, 5, true));
        assert_eq!(statistics(&registry).subscriptions, 2);
    }
}
