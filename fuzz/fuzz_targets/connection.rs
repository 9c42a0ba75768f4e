//! Fuzz target: any bytes from one client. The server neither panics nor sends malformed packets, and serves the next
//! client.
#![no_main]

use std::cell::LazyCell;
use std::time::Duration;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mqkv::server::{Settings, StoreServer, StoreSettings};
use rumqttc::mqttbytes::Error;
use rumqttc::mqttbytes::v5::Packet;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

#[expect(dead_code, reason = "the tests of the binary use the rest")]
#[path = "../../tests/it/common/wire.rs"]
mod wire;

use wire::Publish;

const REQUEST_TOPIC: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
/// Longer than the server waits for anything but a client.
const TIMEOUT: Duration = Duration::from_secs(5);

thread_local! {
    static RUNTIME: LazyCell<Runtime> = LazyCell::new(|| Builder::new_current_thread().enable_all().build().unwrap());
}

// The first byte is how many bytes are written at once.
fuzz_target!(|data: &[u8]| {
    let Some((chunk, data)) = data.split_first() else { return };
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let server = StoreServer::start(Settings::default(), StoreSettings::default()).await.unwrap();
            let sent = timeout(TIMEOUT, send(&server, data, usize::from(*chunk) + 1))
                .await
                .expect("the server closes");
            // The crate has no MQTT 3.1.1.
            if data.get(2..9).is_some_and(|header| header.ends_with(b"MQTT\x05")) {
                check_packets(&sent);
            }
            timeout(TIMEOUT, check_next_client(&server)).await.expect("the next client is served");
            server.shutdown().await;
        });
    });
});

/// Sends bytes, closes, and returns what the server has sent.
async fn send(server: &StoreServer, data: &[u8], chunk: usize) -> Vec<u8> {
    let (mut reader, mut writer) = split(server.pipe());
    let mut received = Vec::new();
    let write = async {
        for bytes in data.chunks(chunk) {
            // The server may have closed the connection.
            if writer.write_all(bytes).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = writer.shutdown().await;
    };
    let _ = tokio::join!(write, reader.read_to_end(&mut received));
    received
}

fn check_packets(bytes: &[u8]) {
    let mut bytes = BytesMut::from(bytes);
    loop {
        match Packet::read(&mut bytes, None) {
            Ok(_) => {}
            Err(Error::InsufficientBytes(_)) => return,
            Err(error) => panic!("{error}: {}", bytes.escape_ascii()),
        }
    }
}

/// Another client sets a key and gets it.
async fn check_next_client(server: &StoreServer) {
    const RESPONSE_TOPIC: &str = "clients/next-client/response";
    const KEY: &str = "a key of the next client";
    let request = |packet_id, payload: String| {
        let timestamp = ("__ts".to_owned(), "001700000000000:00000:next".to_owned());
        Publish {
            topic: REQUEST_TOPIC.to_owned(),
            packet_id,
            response_topic: RESPONSE_TOPIC.to_owned(),
            correlation: vec![1],
            user_properties: vec![timestamp],
            payload: payload.into_bytes(),
        }
        .encode()
    };
    let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{KEY}\r\n$2\r\nok\r\n", KEY.len());
    let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{KEY}\r\n", KEY.len());
    let mut stream = server.pipe();
    let subscribe = wire::subscribe(1, RESPONSE_TOPIC);
    let bytes = [wire::connect("next-client"), subscribe, request(2, set), request(3, get)].concat();
    stream.write_all(&bytes).await.unwrap();
    let mut received = BytesMut::new();
    while !received.windows(8).any(|bytes| bytes == b"$2\r\nok\r\n") {
        let len = stream.read_buf(&mut received).await.unwrap();
        assert!(len > 0, "the next client is disconnected: {}", received.escape_ascii());
    }
}
