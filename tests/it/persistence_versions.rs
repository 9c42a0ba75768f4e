//! `serve --data`: versions after a kill, when the clock of a client was ahead.

use mqkv::clock::wall_ms;
use mqkv::protocol::{Key, Request, Timestamp, topic};

use super::common::wire::{self, Publish};
use super::common::{Place, RawClient, Server};

/// Sets a key with a timestamp that is ahead of the clock, and returns the version in milliseconds.
fn set(client: &mut RawClient, packet_id: u16, key: &str, ahead_ms: u64) -> u64 {
    let key = Key::new(key.to_owned()).unwrap();
    let request = Request::Set { key, value: "v".into(), condition: None, ttl_ms: None };
    let timestamp = Timestamp::of_store(wall_ms() + ahead_ms, 0).to_string();
    let publish = Publish {
        topic: topic::REQUEST.to_owned(),
        packet_id,
        response_topic: "answers".to_owned(),
        correlation: packet_id.to_be_bytes().to_vec(),
        user_properties: vec![("__ts".to_owned(), timestamp)],
        payload: request.encode().to_vec(),
    };
    client.send(&publish.encode());
    loop {
        let packet = client.receive().unwrap();
        if packet.name() != "PUBLISH" {
            continue;
        }
        let response = Publish::decode(&packet);
        client.send(&wire::puback(response.packet_id, 0));
        assert_eq!(response.payload, b"+OK\r\n");
        let version = response.user_properties.iter().find(|(name, _)| name == "__ts").unwrap();
        return version.1.split(':').next().unwrap().parse().unwrap();
    }
}

fn client(server: &Server, id: &str) -> RawClient {
    let mut client = RawClient::connect(server.port());
    client.send(&wire::connect(id));
    client.send(&wire::subscribe(1, "answers"));
    client
}

#[test]
fn after_a_kill_a_client_that_was_ahead_has_raised_the_versions_of_no_other_key() {
    for persist in ["all", "custom"] {
        let place = Place::new();
        let options = ["--data", "kept", "--persist", persist];
        let mut server = Server::start(&place, &options);
        let before = set(&mut client(&server, "ahead"), 7, "ahead", 58_000);
        assert!(before > wall_ms() + 50_000, "{before}");
        server.kill();
        server.start_again(&place, &options);
        let mut client = client(&server, "right");
        let other = set(&mut client, 8, "other", 0);
        assert!(other <= wall_ms() + 10_000, "{other} is ahead of {}", wall_ms());
        let after = set(&mut client, 9, "ahead", 0);
        assert!(after >= before, "{after} after {before}");
    }
}
