//! A state store built from the SDK: its command executor responds to requests, its telemetry sender publishes
//! notifications.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use azure_iot_operations_protocol::{rpc_command::executor, telemetry::sender};
use tokio::task::JoinHandle;

use crate::SdkClient;

const REQUESTS: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
const NOTIFICATIONS: &str =
    "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/{client}/command/notify/{key}";

/// The SDK serializes bytes as `application/octet-stream`.
type Payload = Vec<u8>;
type Executor = executor::Executor<Payload, Payload>;
type Request = executor::Request<Payload, Payload>;

/// A store that runs in the background until it is dropped.
pub struct Responder {
    running: JoinHandle<()>,
}

impl Responder {
    /// Starts a store behind the broker of this client.
    pub fn start(client: &SdkClient) -> Self {
        let options = executor::OptionsBuilder::default()
            .request_topic_pattern(REQUESTS)
            .command_name("invoke")
            .build()
            .unwrap();
        let executor = Executor::new(client.context.clone(), client.mqtt.clone(), options).unwrap();
        let options = sender::OptionsBuilder::default().topic_pattern(NOTIFICATIONS).build().unwrap();
        let sender = sender::Sender::new(client.context.clone(), client.mqtt.clone(), options).unwrap();
        Self { running: tokio::spawn(serve(executor, sender)) }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.running.abort();
    }
}

#[derive(Default)]
struct Map {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    deadlines: BTreeMap<Vec<u8>, Instant>,
    fences: BTreeMap<Vec<u8>, HybridLogicalClock>,
    watchers: BTreeSet<(Vec<u8>, String)>,
}

/// A changed key and its new value, `None` if it was deleted.
type Change<'a> = (&'a [u8], Option<&'a [u8]>);

async fn serve(mut executor: Executor, sender: sender::Sender<Payload>) {
    let mut map = Map::default();
    while let Some(request) = executor.recv().await {
        let request = request.unwrap();
        let words = words(&request.payload);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (payload, change) = map.decide(&words, &request);
        let response = executor::ResponseBuilder::default().payload(payload).unwrap().build().unwrap();
        request.complete(response).await.unwrap();
        if let Some((key, value)) = change {
            map.notify(&sender, key, value).await;
        }
    }
}

impl Map {
    fn decide<'a>(&mut self, words: &[&'a [u8]], request: &Request) -> (Payload, Option<Change<'a>>) {
        let unchanged = |payload: &[u8]| (payload.to_vec(), None);
        // Expired keys are removed at the next request, without a notification.
        self.deadlines.retain(|key, deadline| {
            let lives = *deadline > Instant::now();
            if !lives {
                self.values.remove(key);
                self.fences.remove(key);
            }
            lives
        });
        match words {
            [b"GET", key] => {
                unchanged(&self.values.get(*key).map_or(b"$-1\r\n".to_vec(), |value| bulk(value)))
            }
            [b"KEYNOTIFY", key] => {
                self.watchers.insert((key.to_vec(), request.invoker_id.clone().unwrap()));
                unchanged(b"+OK\r\n")
            }
            [b"KEYNOTIFY", key, b"STOP"] => {
                let was_watched = self.watchers.remove(&(key.to_vec(), request.invoker_id.clone().unwrap()));
                unchanged(if was_watched { b"+OK\r\n" } else { b":0\r\n" })
            }
            [b"SET", key, ..] | [b"DEL", key] | [b"VDEL", key, _] => match self.check_fence(key, request) {
                Err(text) => unchanged(format!("-ERR {text}\r\n").as_bytes()),
                Ok(()) => self.change(words),
            },
            _ => unchanged(b"-ERR unknown command\r\n"),
        }
    }

    fn change<'a>(&mut self, words: &[&'a [u8]]) -> (Payload, Option<Change<'a>>) {
        let unchanged = |payload: &[u8]| (payload.to_vec(), None);
        let held = |key: &[u8]| self.values.get(key).map(Vec::as_slice);
        match words {
            [b"SET", key, _, b"NX", ..] if held(key).is_some() => unchanged(b":-1\r\n"),
            [b"SET", key, value, b"NEX", ..] if held(key).is_some_and(|held| held != *value) => {
                unchanged(b":-1\r\n")
            }
            [b"SET", key, value, options @ ..] => {
                let Ok(deadline) = deadline(options) else { return unchanged(b"-ERR syntax error\r\n") };
                self.deadlines.remove(*key);
                self.deadlines.extend(deadline.map(|deadline| (key.to_vec(), deadline)));
                self.values.insert(key.to_vec(), value.to_vec());
                (b"+OK\r\n".to_vec(), Some((key, Some(value))))
            }
            [b"DEL" | b"VDEL", key, ..] if held(key).is_none() => unchanged(b":0\r\n"),
            [b"VDEL", key, value] if held(key) != Some(value) => unchanged(b":-1\r\n"),
            [b"DEL" | b"VDEL", key, ..] => {
                self.values.remove(*key);
                self.fences.remove(*key);
                self.deadlines.remove(*key);
                (b":1\r\n".to_vec(), Some((key, None)))
            }
            _ => unchanged(b"-ERR syntax error\r\n"),
        }
    }

    /// Checks the fencing token, which the SDK passes on as a user property and parses as a timestamp.
    fn check_fence(&mut self, key: &[u8], request: &Request) -> Result<(), &'static str> {
        let token = request.custom_user_data.iter().find(|(name, _)| name == "__ft");
        let token: Option<HybridLogicalClock> = token.map(|(_, text)| text.parse().unwrap());
        match (self.fences.get(key), token) {
            (Some(_), None) => Err("a fencing token is required for this request"),
            (_, None) => Ok(()),
            (Some(held), Some(token)) if crate::order(&token, held).is_lt() => Err(
                "the request fencing token is a lower version than the fencing token protecting the resource",
            ),
            (_, Some(token)) => {
                self.fences.insert(key.to_vec(), token);
                Ok(())
            }
        }
    }

    async fn notify(&self, sender: &sender::Sender<Payload>, key: &[u8], value: Option<&[u8]>) {
        let payload = match value {
            Some(value) => {
                [b"*4\r\n$6\r\nNOTIFY\r\n$3\r\nSET\r\n$5\r\nVALUE\r\n".as_slice(), &bulk(value)].concat()
            }
            None => b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n".to_vec(),
        };
        for (_, client_id) in self.watchers.iter().filter(|(watched, _)| watched == key) {
            let tokens = [("client", hex(client_id.as_bytes())), ("key", hex(key))];
            let tokens = HashMap::from(tokens.map(|(name, hex)| (name.to_owned(), hex)));
            let message = sender::MessageBuilder::default()
                .payload(payload.clone())
                .unwrap()
                .topic_tokens(tokens)
                .build()
                .unwrap();
            sender.send(message).await.unwrap();
        }
    }
}

/// Parses the options after the value: when the key expires, `None` for never.
fn deadline(options: &[&[u8]]) -> Result<Option<Instant>, ()> {
    match options {
        [] | [b"NX" | b"NEX"] => Ok(None),
        [b"PX", ms] | [b"NX" | b"NEX", b"PX", ms] => {
            let ms = std::str::from_utf8(ms).ok().and_then(|ms| ms.parse().ok()).ok_or(())?;
            Ok(Some(Instant::now() + Duration::from_millis(ms)))
        }
        _ => Err(()),
    }
}

fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Decodes an array of bulk strings.
fn words(payload: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = payload;
    let mut length = |sign: u8| {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
        assert_eq!(rest[0], sign);
        let number: usize = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
        rest = &rest[end + 2..];
        let mut word = Vec::new();
        if sign == b'$' {
            word = rest[..number].to_vec();
            assert_eq!(&rest[number..number + 2], b"\r\n");
            rest = &rest[number + 2..];
        }
        (number, word)
    };
    let (count, _) = length(b'*');
    let words = (0..count).map(|_| length(b'$').1).collect();
    assert!(rest.is_empty(), "bytes after the array");
    words
}
