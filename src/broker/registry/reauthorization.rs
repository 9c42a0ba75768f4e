//! What the rules let a session keep: they may be others than when it subscribed, or left its will.

use std::sync::Arc;

use super::Registry;
use super::filter;
use crate::broker::packet::Will;
use crate::broker::session_entry::{SessionEntry, SessionState};
use crate::protocol::message::Message;
use crate::server::event::Event;

impl Registry {
    /// All sessions there are.
    #[must_use]
    pub fn seats(&self) -> Vec<Arc<SessionEntry>> {
        self.seats.values().cloned().collect()
    }

    /// Has a session get what its client may have and nothing else: a subscription that is not allowed brings nothing
    /// until it is allowed again, and what waits on a topic that is not allowed goes to others of its group, or away.
    ///
    /// `is_own` says of a client id and a filter or topic that it is that client's own, whatever the rules say.
    pub fn judge(&mut self, seat: &Arc<SessionEntry>, is_own: impl Fn(&str, &str) -> bool) {
        let mut desk = seat.desk();
        let pass = desk.pass.clone();
        let may = |is_allowed: bool, topic: &str| is_allowed || is_own(&seat.client_id, topic);
        for (filter, options) in &desk.filters {
            let plain = filter::shared(filter).unwrap_or(filter);
            if may(pass.as_ref().is_none_or(|pass| pass.may_subscribe(plain)), plain) {
                self.insert_subscription(seat, filter, *options);
            } else if self.remove_subscription(filter, seat.id) {
                self.tell_of_refusal(seat, "keep its subscription to", filter);
            }
        }
        let may_hear = |topic: &str| may(pass.as_ref().is_none_or(|pass| pass.may_hear(topic)), topic);
        let taken = desk.session.take_queued(|delivery| !may_hear(&delivery.publication.message.topic));
        drop(desk);
        self.share(taken, seat);
    }

    /// A will that is due, if its client may still publish it.
    pub(super) fn judge_will(
        &mut self,
        seat: &SessionEntry,
        desk: &SessionState,
        will: Will,
    ) -> Option<Message> {
        let Will { message, .. } = will;
        if desk.pass.as_ref().is_none_or(|pass| pass.may_publish(&message.topic)) {
            return Some(message);
        }
        self.tell_of_refusal(seat, "have its will published to", &message.topic);
        None
    }

    fn tell_of_refusal(&mut self, seat: &SessionEntry, what: &'static str, topic: &str) {
        let (client_id, topic) = (Arc::clone(&seat.client_id), topic.to_owned());
        self.events.push(Event::NotAuthorized { client_id, what, topic });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::broker::packet::{RetainHandling, SubscriptionRequest};
    use crate::broker::registry::Arrival;
    use crate::broker::subscriptions::Options;
    use crate::clock;
    use crate::protocol::ConnectionId;
    use crate::protocol::message::Qos;
    use crate::server::authorization::{Authorizer, Permissions};
    use crate::server::identity::Principal;
    use crate::server::settings::Settings;

    const RULES: &str = "rules:
- {principals: {usernames: [ann]}, brokerResources: [{method: Connect}]}
- principals: {attributes: [{CN: press}]}
  brokerResources: [{method: Subscribe, topics: [t]}]
";

    #[test]
    fn a_user_who_comes_back_without_the_certificate_has_not_what_it_allowed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules");
        fs::write(&path, RULES).unwrap();
        let authorizer = Authorizer::load(&path).unwrap();
        let mut registry = Registry::new(&Settings::default());
        let attach = |registry: &mut Registry, connection, has_certificate: bool| {
            let attributes = has_certificate.then(|| ("CN".to_owned(), "press".to_owned()));
            let attributes = attributes.into_iter().collect();
            let principal = Principal { user: Some("ann".into()), attributes, ..Principal::default() };
            let pass = Permissions::new(Arc::clone(&authorizer), "a".into(), principal.clone());
            let arrival = Arrival {
                connection: ConnectionId(connection),
                client_id: "a".into(),
                principal,
                pass: Some(Arc::new(pass)),
                clean_start: false,
                receive_maximum: 10,
                will: None,
                expiry_s: 10,
            };
            let attached = registry.attach(arrival).unwrap();
            if attached.is_to_be_judged {
                registry.judge(&attached.seat, |_, _| false);
            }
            attached.session_present
        };
        let options =
            Options { qos: Qos::AtLeastOnce, no_local: false, retain_as_published: false, identifier: None };
        let request = |filter: &str| SubscriptionRequest {
            filter: filter.to_owned(),
            options,
            retain_handling: RetainHandling::Never,
        };
        attach(&mut registry, 1, true);
        let requests = vec![request("t"), request("$share/g/t")];
        registry.subscribe(ConnectionId(1), requests, clock::monotonic(), &mut Vec::new());
        let brings = |registry: &mut Registry, connection, has_certificate| {
            assert!(attach(registry, connection, has_certificate), "the session goes on");
            registry.has_subscribers("t")
        };
        assert!(brings(&mut registry, 2, true));
        assert!(!brings(&mut registry, 3, false));
        assert_eq!(registry.take_events().len(), 2);
        assert!(!brings(&mut registry, 4, false));
        assert!(registry.take_events().is_empty(), "what is known is not told again");
        assert!(brings(&mut registry, 5, true));
        assert_eq!(registry.census().subscriptions, 2);
    }
}
