//! Fuzz target: any authorization file. An accepted one gives the same permissions each time, and one without rules none.
#![no_main]

use std::fs;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use mqkv::broker::{AccessControl, Permissions, Principal};
use mqkv::server::{Authorizer, authorization::ClientPermissions};

/// Topics and filters that the seeds name, and others.
const TOPICS: [&str; 6] = ["a", "clients/c/x", "clients/", "$SYS/x", "statestore/v1/x", "a/b/c/d"];
const FILTERS: [&str; 6] = ["#", "+/+", "clients/#", "clients/c/#", "$SYS/#", "a/+/c"];
const KEYS: [&[u8]; 5] = [b"a", b"line1/temp", b"c/x", b"\xFF", b"*"];

fuzz_target!(|data: &[u8]| {
    let memory = std::path::Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let path = parent.join(format!("mqkv-fuzz-authorization-{}", std::process::id()));
    fs::write(&path, data).unwrap();
    let Ok(authorizer) = Authorizer::load(&path) else { return };
    let before = decisions(&authorizer);
    assert_eq!(authorizer.is_empty(), authorizer.len() == 0);
    authorizer.reload().unwrap();
    assert_eq!(decisions(&authorizer), before);
    // Rules allow only: without any, nothing is allowed.
    assert!(!authorizer.is_empty() || !before.contains(&true));
});

fn decisions(authorizer: &Arc<Authorizer>) -> Vec<bool> {
    let attribute = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let certificate = Principal {
        user: None,
        attributes: [attribute("CN", "press 7"), attribute("O", "Werk")].into(),
        alternatives: [attribute("DNS", "press.example")].into(),
        issuer: [attribute("issuer.CN", "CA 1")].into(),
    };
    let user = Principal { user: Some("ann".into()), ..Principal::default() };
    let mut decisions = Vec::new();
    for principal in [Principal::default(), user, certificate] {
        for client_id in ["c", "press-7", "a/b", "+", "", "$SYS"] {
            let client_id: Arc<str> = client_id.into();
            let topics = Arc::clone(authorizer).permissions(&client_id, &principal);
            decisions.push(topics.may_connect());
            decisions.extend(
                TOPICS.iter().flat_map(|topic| [topics.may_publish(topic), topics.may_receive(topic)]),
            );
            decisions.extend(FILTERS.iter().map(|filter| topics.may_subscribe(filter)));
            let client = ClientPermissions::new(Arc::clone(authorizer), client_id, principal.clone());
            assert_eq!(client.may_connect(), topics.may_connect());
            let keys = client.key_permissions();
            decisions.extend(KEYS.iter().flat_map(|key| [keys.read.contains(key), keys.write.contains(key)]));
        }
    }
    decisions
}
