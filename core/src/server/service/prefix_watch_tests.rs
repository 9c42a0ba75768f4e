//! Watches of prefixes, as the broker's clients and those of another broker ask for them.

use std::sync::Arc;

use tempfile::TempDir;

use super::tests::{TestService, del, key, message, peer, set, watch};
use crate::broker::{Peer, Principal};
use crate::clock;
use crate::protocol::message::{DETAILS, PREFIX, TIME_TO_LIVE};
use crate::protocol::{ErrorReply, Message, Reply, Request, topic};
use crate::server::authorization::{Authorizer, ClientPermissions};

fn of_prefix(request: &Request) -> Message {
    let mut message = message(request);
    message.user_properties.push(PREFIX, "true");
    message
}

/// Returns the replies since the last call, and whether each is about a prefix.
fn answers(test: &TestService) -> Vec<(Reply, bool)> {
    let responses = test.sent_messages.take().into_iter().filter(|(to, _)| to.is_none());
    let answer = |message: Message| {
        (Reply::decode(&message.payload).unwrap(), message.user_property(PREFIX) == Some("true"))
    };
    responses.map(|(_, message)| answer(message)).collect()
}

/// Returns the topics of the notifications since the last call.
fn notified(test: &TestService) -> Vec<String> {
    let sent = test.sent_messages.take().into_iter().filter(|(to, _)| to.is_some());
    sent.map(|(_, message)| message.topic.into_owned()).collect()
}

fn topics(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| topic::notify("client", &key(name)).unwrap()).collect()
}

#[test]
fn a_client_is_notified_of_all_keys_with_a_prefix_until_it_disconnects() {
    for test in TestService::answering_at_once() {
        test.send(of_prefix(&watch("k/*")));
        assert_eq!(answers(&test), [(Reply::Done, true)]);
        // A watch of one of the keys does not double its notifications.
        test.request(&watch("k/1"));
        for request in [set("k/1", "v"), set("k/2", "v"), del("k/1"), set("k", "v")] {
            test.request(&request);
        }
        assert_eq!(notified(&test), topics(&["k/1", "k/2", "k/1"]));
        test.send(of_prefix(&Request::KeyNotify { key: key("k/*"), stop: true }));
        test.send(of_prefix(&Request::KeyNotify { key: key("k/*"), stop: true }));
        assert_eq!(answers(&test), [(Reply::Done, true), (Reply::Count(0), true)]);
        test.send(of_prefix(&watch("*")));
        test.service.disconnect(&peer(1));
        test.request(&set("k/2", "v"));
        assert_eq!(notified(&test), topics(&[]));
        assert_eq!(test.service.statistics().store.watches, 0);
    }
}

#[test]
fn notifications_of_a_prefix_have_the_details_that_the_watch_asks_for() {
    for test in TestService::answering_at_once() {
        for has_details in [false, true] {
            let mut request = of_prefix(&watch("*"));
            if has_details {
                request.user_properties.push(DETAILS, "true");
            }
            test.send(request);
            test.sent_messages.take();
            test.request(&set("k", "v"));
            let (_, notification) = test.sent_messages.take().pop().unwrap();
            assert_eq!(notification.user_property(TIME_TO_LIVE), has_details.then_some("none"));
        }
    }
}

#[test]
fn a_pattern_that_is_no_prefix_is_refused() {
    for test in TestService::answering_at_once() {
        test.send(of_prefix(&watch("k")));
        assert_eq!(answers(&test), [(Reply::Error(ErrorReply::SyntaxError), false)]);
    }
}

#[test]
fn each_key_is_authorized_by_the_rules_in_force_when_it_changes() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("rules");
    let rules = |pattern: &str| {
        let text = format!(
            "rules:\n- principals: {{clientIds: [client]}}\n  brokerResources:\n  - {{method: Publish, topics: [\"#\"]}}\n  \
             stateStoreResources:\n  - {{method: Read, keyType: Pattern, keys: [\"{pattern}\"]}}\n"
        );
        std::fs::write(&path, text).unwrap();
    };
    for test in TestService::answering_at_once() {
        rules("k/a*");
        let authorizer = Authorizer::load(&path).unwrap();
        let permissions =
            ClientPermissions::new(Arc::clone(&authorizer), "client".into(), Principal::default());
        let reader = Peer { permissions: Some(Arc::new(permissions)), ..peer(1) };
        test.send_from(&reader, of_prefix(&watch("k/*")));
        assert_eq!(answers(&test), [(Reply::Done, true)]);
        let changed = || {
            ["k/a1", "k/b1"].iter().for_each(|name| drop(test.send_from(&peer(2), message(&set(name, "v")))));
            notified(&test)
        };
        assert_eq!(changed(), topics(&["k/a1"]));
        rules("k/b*");
        authorizer.reload().unwrap();
        test.service.revoke_watches();
        assert_eq!(changed(), topics(&["k/b1"]));
        test.service.disconnect(&reader);
        assert_eq!((changed(), test.service.watched_connections()), (Vec::new(), 0));
    }
}

#[test]
fn for_a_client_of_another_broker_the_extension_is_unknown() {
    for test in TestService::answering_at_once() {
        let request = of_prefix(&watch("k/*"));
        test.service.handle_external_request(&test.sent_messages, &peer(1), request, clock::monotonic());
        test.confirm();
        assert_eq!(answers(&test), [(Reply::Done, false)]);
        test.request(&set("k/1", "v"));
        test.request(&set("k/*", "v"));
        assert_eq!(notified(&test), topics(&["k/*"]));
    }
}
