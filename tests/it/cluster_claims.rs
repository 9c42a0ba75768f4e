//! Clients that write while the owner of a cluster is killed again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use mqkv::client::{Client, Error, SetOptions, Settings, Target};
use mqkv::clock::monotonic;
use mqkv::protocol::{Condition, Key, Timestamp, Value};
use tokio::runtime::Builder;

use super::common::Place;
use super::common::cluster::{Instance, ServedCluster};
use super::common::etcd::EtcdCluster;
use super::mosquitto::mosquitto;
use crate::a_watchdog::bounded;

const CLIENTS: usize = 6;
const RUN: Duration = Duration::from_secs(15);
/// The time in which an owner works.
const OWNED_FOR: Duration = Duration::from_secs(1);

/// A claim that was acknowledged: its number, the client's own value, and the version.
type Claim = (u64, String, Timestamp);

/// Claims numbers, each with SET NX: a client tries the next one whatever becomes of an attempt, and returns its acknowledged ones.
fn claim(port: u16, client: usize, is_over: Arc<AtomicBool>) -> JoinHandle<Vec<Claim>> {
    spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut claims, mut number, mut connection) = (Vec::new(), 0, None);
            while !is_over.load(Ordering::Relaxed) {
                let connected = match connection.take() {
                    Some(connected) => connected,
                    None => match connect(port, &format!("c{client}")).await {
                        Ok(connected) => connected,
                        Err(_) => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            continue;
                        }
                    },
                };
                let value = format!("c{client}/{number}");
                let options = SetOptions { condition: Some(Condition::Absent), ..SetOptions::default() };
                let key = key(number);
                match connected.set(&key, &Value::from(value.clone()), options).await {
                    Ok(outcome) => {
                        if outcome.applied {
                            claims.push((number, value, outcome.version.unwrap()));
                        }
                        number += 1;
                        connection = Some(connected);
                    }
                    // Whether it was applied is unknown: the number is left to the others.
                    Err(Error::Lost { .. } | Error::Timeout { .. } | Error::NoStore { .. }) => number += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
            claims
        })
    })
}

fn key(number: u64) -> Key {
    Key::new(format!("claim/{number:06}")).unwrap()
}

async fn connect(port: u16, client_id: &str) -> Result<Client, Error> {
    let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
    let settings = Settings::new(target, client_id.to_owned());
    Client::connect(Settings { request_timeout: Duration::from_secs(8), ..settings }).await
}

/// Runs clients while `replace_owner` is called again and again, and checks what they have got.
fn check_claims(port: u16, mut replace_owner: impl FnMut()) {
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS).map(|client| claim(port, client, Arc::clone(&is_over))).collect();
    let begun = monotonic();
    let mut kills = 0;
    while monotonic() - begun < RUN {
        sleep(OWNED_FOR);
        replace_owner();
        kills += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut claims: Vec<Claim> =
        clients.into_iter().flat_map(|client| bounded(|| client.join()).unwrap()).collect();
    claims.sort();
    assert!(kills > 2 && claims.len() > 20, "{kills} kills, {} claims", claims.len());
    let twice: Vec<_> = claims.windows(2).filter(|pair| pair[0].0 == pair[1].0).collect();
    assert!(twice.is_empty(), "numbers that two clients have got: {twice:?}");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = connect(port, "reader").await.unwrap();
        for (number, value, version) in &claims {
            let found = client.get(&key(*number)).await.unwrap();
            let found = found.unwrap_or_else(|| panic!("{number} of {value} is lost"));
            assert_eq!(String::from_utf8_lossy(&found.value), *value, "{number}");
            assert_eq!(found.version.as_ref(), Some(version), "{number}");
        }
        client.close().await;
    });
}

/// Kills the owner, starts it again as a standby, and waits for the other one.
fn kill_owner(instances: &mut [Option<Instance>; 2], owner: &mut usize, start: impl Fn(&str) -> Instance) {
    if let Some(instance) = instances[*owner].take() {
        instance.kill();
    }
    let next = 1 - *owner;
    instances[next].as_ref().unwrap().log_line_with("is the owner now");
    instances[*owner] = Some(start(["a", "b"][*owner]));
    *owner = next;
}

#[test]
#[ignore = "needs Debian's etcd-server"]
fn while_owners_are_killed_nothing_acknowledged_is_lost_or_applied_twice() {
    let cluster = ServedCluster::new(1, &[]);
    let mut instances = [Some(cluster.start_owner("a")), Some(cluster.start_standby("b"))];
    let mut owner = 0;
    check_claims(cluster.port(), || kill_owner(&mut instances, &mut owner, |name| cluster.start(name)));
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn behind_mosquitto_nothing_acknowledged_is_lost_or_applied_twice_while_owners_are_killed() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let etcd = EtcdCluster::start(&place, 1);
    let start = |name: &str| Instance::start_store(&place, &etcd, name, &url);
    let mut instances = [Some(start("a")), None];
    instances[0].as_ref().unwrap().log_line_with("is the owner now");
    instances[1] = Some(start("b"));
    instances[1].as_ref().unwrap().log_line_with("serving ");
    let mut owner = 0;
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    check_claims(port, || kill_owner(&mut instances, &mut owner, start));
}
