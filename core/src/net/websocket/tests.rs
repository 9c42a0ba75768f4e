//! Client and server against each other, and each against hand-written bytes.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use bytes::BytesMut;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};

use super::frame_limit::{FrameLimit, PART_BYTES_MAX};
use super::server::{HEAD_BYTES_MAX, UNANSWERED_BYTES_MAX};
use super::*;

/// Long enough for a busy machine; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(10);
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const UPGRADE: &str =
    "Host: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
const MQTT: &str = "Sec-WebSocket-Protocol: other, mqtt\r\n";

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("timed out")
}

/// Allows requests for the host `h`, except from `evil.example`.
fn not_evil(origin: &str, host: Option<&str>) -> bool {
    origin != "http://evil.example" && host == Some("h")
}

/// Returns a client's frame with a masking key of zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | u8::try_from(len).unwrap()),
        len => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// Returns the server's result for a client's bytes, and its response.
async fn answered(request: &str, path: Option<&str>) -> (Result<WebSocket<DuplexStream>, String>, String) {
    let (mut client, server) = duplex(64 * 1024);
    client.write_all(request.as_bytes()).await.unwrap();
    let accepted = in_time(accept(server, path, not_evil, 1_000_000)).await;
    let mut answer = vec![0; 64 * 1024];
    let accepted = match accepted {
        Ok(stream) => Ok(stream),
        Err((reason, stream)) => {
            drop(stream);
            Err(reason)
        }
    };
    let len = client.read(&mut answer).await.unwrap();
    (accepted, String::from_utf8(answer[..len].to_vec()).unwrap())
}

/// Returns a server's WebSocket after the handshake, and the client's raw end.
async fn accepted(bytes_max: u32) -> (WebSocket<DuplexStream>, DuplexStream) {
    let (mut client, server) = duplex(64 * 1024);
    client.write_all(format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{KEY}{MQTT}\r\n").as_bytes()).await.unwrap();
    let server =
        in_time(accept(server, None, not_evil, bytes_max)).await.map_err(|(reason, _)| reason).unwrap();
    let mut answer = vec![0; 4096];
    let len = client.read(&mut answer).await.unwrap();
    assert!(answer[..len].starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"));
    (server, client)
}

async fn pair(room: usize) -> (WebSocket<DuplexStream>, WebSocket<DuplexStream>) {
    let (client, server) = duplex(room);
    let connecting = connect(client, "::1", 80, "/mqtt", 1_000_000);
    let (client, server) =
        in_time(async { tokio::join!(connecting, accept(server, Some("/mqtt"), not_evil, 1_000_000)) }).await;
    let Ok(client) = client else { panic!("no client") };
    (client, server.map_err(|(reason, _)| reason).unwrap())
}

#[tokio::test]
async fn bytes_pass_both_ways_regardless_of_message_boundaries() {
    let (mut client, mut server) = pair(1000).await;
    let bytes: Vec<u8> =
        (0..300_000u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
    let writing = async {
        client.write_all(&bytes).await.unwrap();
        client.flush().await.unwrap();
        client.shutdown().await.unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.unwrap();
        back
    };
    let reading = async {
        let mut received = vec![0; bytes.len()];
        server.read_exact(&mut received).await.unwrap();
        server.write_all(b"back").await.unwrap();
        server.flush().await.unwrap();
        assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
        server.shutdown().await.unwrap();
        received
    };
    let (back, received) = in_time(async { tokio::join!(writing, reading) }).await;
    assert_eq!(back, b"back");
    assert!(received == bytes);
}

#[tokio::test]
async fn a_writer_blocks_while_the_reader_does_not_read() {
    let (mut client, _server) = pair(1000).await;
    let mut taken = 0;
    let writing = async {
        loop {
            taken += client.write(&[0; 10_000]).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        () = writing => {}
        // The writer has run until it blocked: nothing else runs.
        () = tokio::task::yield_now() => {}
    }
    assert!(taken <= 20_000, "{taken}");
}

#[tokio::test]
async fn a_ping_is_answered_and_an_empty_message_is_not_the_end() {
    let (mut server, mut client) = accepted(1000).await;
    let bytes = [
        masked(0x82, b""),
        masked(0x89, b"hi"),
        masked(0x8A, b""),
        masked(0x02, b"a"),
        masked(0x89, b"x"),
        masked(0x80, b"b"),
    ];
    client.write_all(&bytes.concat()).await.unwrap();
    let mut received = [0; 2];
    in_time(server.read_exact(&mut received)).await.unwrap();
    assert_eq!(&received, b"ab");
    let mut pongs = [0; 7];
    in_time(client.read_exact(&mut pongs)).await.unwrap();
    assert_eq!(&pongs, b"\x8A\x02hi\x8A\x01x");
}

#[tokio::test]
async fn a_protocol_violation_is_an_error_and_closes_with_its_code() {
    let too_long = masked(0x82, &[0; 200]);
    let long_text = masked(0x81, &[b'x'; PART_BYTES_MAX + 1]);
    let nested = [masked(0x02, b"a"), masked(0x82, b"b")].concat();
    for (bytes, words, code) in [
        (masked(0x81, b"text"), "WebSocket: text message", 1003u16),
        (masked(0x81, b"\xFF"), "WebSocket: text message that is not UTF-8", 1007),
        (too_long, "WebSocket: Message too long: 200 > 100", 1009),
        (long_text, "WebSocket: Message too long: 16385 > 100", 1009),
        (b"\x82\x01a".to_vec(), "WebSocket: Received an unmasked frame from client", 1002),
        (masked(0xC2, b"a"), "WebSocket: Reserved bits are non-zero", 1002),
        (masked(0x80, b"a"), "WebSocket: Continue frame but nothing to continue", 1002),
        (nested, "WebSocket: Continue frame but nothing to continue", 1002),
        (b"\x82\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0".to_vec(), "WebSocket: ", 1009),
    ] {
        let (mut server, mut client) = accepted(100).await;
        client.write_all(&bytes).await.unwrap();
        let error = in_time(server.read_to_end(&mut Vec::new())).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{words}");
        assert!(error.to_string().starts_with(words), "{error}");
        in_time(server.shutdown()).await.unwrap();
        let mut frame = Vec::new();
        in_time(client.read_to_end(&mut frame)).await.unwrap();
        let [high, low] = code.to_be_bytes();
        assert_eq!(frame, [0x88, 2, high, low], "{words}");
    }
}

/// The head of a frame as a client writes it, with a mask that changes nothing.
fn long_header(len: u64) -> Vec<u8> {
    [&[0x82, 0xFF][..], &len.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn a_first_frame_longer_than_a_connect_is_an_error_at_once() {
    let (mut server, mut client) = accepted(u32::MAX).await;
    client.write_all(&long_header(UNANSWERED_BYTES_MAX + 1)).await.unwrap();
    let error = in_time(server.read(&mut [0; 10])).await.unwrap_err();
    let text = "WebSocket: Message too long for a CONNECT: 2097153 > 2097152";
    assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidData, text));
    in_time(server.shutdown()).await.unwrap();
    let mut frame = Vec::new();
    in_time(client.read_to_end(&mut frame)).await.unwrap();
    assert_eq!(frame, b"\x88\x02\x03\xF1");
}

/// The frames of the client's stream, each with its header.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let [_, second, ..] = bytes {
        let len = match second & 0x7F {
            126 => 8 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
            short => 6 + usize::from(short),
        };
        let (frame, rest) = bytes.split_at(len);
        frames.push(frame);
        bytes = rest;
    }
    frames
}

#[tokio::test]
async fn long_and_fragmented_frames_are_delivered_as_short_messages_however_they_are_split() {
    let long: Vec<u8> = (0..70_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let sent = [
        masked(0x82, b"a"),
        masked(0x89, b"ping"),
        [long_header(70_000), long.clone()].concat(),
        masked(0x02, b"b"),
        masked(0x8A, b""),
        masked(0x00, b""),
        masked(0x80, &[7; 200]),
    ]
    .concat();
    let part = |range: std::ops::Range<usize>| masked(0x82, &long[range]);
    let mut expected = vec![masked(0x82, b"a"), masked(0x89, b"ping")];
    expected.extend((0..70_000).step_by(PART_BYTES_MAX).map(|at| part(at..70_000.min(at + PART_BYTES_MAX))));
    expected.extend([masked(0x82, b"b"), masked(0x8A, b""), masked(0x82, b""), masked(0x82, &[7; 200])]);
    for (room, held) in [(1, 0), (3, 3), (100_000, 9)] {
        let (mut client, server) = duplex(room);
        let mut limited = FrameLimit::new(server, BytesMut::from(&sent[..held]), 70_000, 100_000);
        let rest = sent[held..].to_vec();
        let writing = tokio::spawn(async move { client.write_all(&rest).await.unwrap() });
        let mut received = Vec::new();
        in_time(limited.read_to_end(&mut received)).await.unwrap();
        assert!(frames(&received) == expected, "{room}, {held}");
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn the_bytes_of_a_frame_arrive_before_its_end_and_unmasked() {
    let (mut server, mut client) = accepted(1_000_000).await;
    client.write_all(b"\x82\xFF\0\0\0\0\0\x0F\x42\x40\x01\x02\x03\x04").await.unwrap();
    let writing = async {
        for _ in 0..5_000 {
            client.write_all(&[1, 2, 3, 4]).await.unwrap();
        }
    };
    let mut received = vec![7; PART_BYTES_MAX];
    in_time(async { tokio::join!(writing, server.read_exact(&mut received)) }).await.1.unwrap();
    assert!(received.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn frames_beyond_a_connect_are_read_after_the_first_answer() {
    let room = usize::try_from(UNANSWERED_BYTES_MAX).unwrap();
    // One frame over the limit after a short one, and many frames that are over the limit together.
    for frames in [vec![3, room + 1], vec![room / 3; 4]] {
        let (mut server, client) = accepted(u32::MAX).await;
        let (mut from_server, mut to_server) = tokio::io::split(client);
        let total: usize = frames.iter().sum();
        let before: usize = total - frames[frames.len() - 1];
        let writing = tokio::spawn(async move {
            for len in frames {
                to_server.write_all(&long_header(len as u64)).await.unwrap();
                to_server.write_all(&vec![b'x'; len]).await.unwrap();
            }
            to_server
        });
        let mut received = vec![0; total];
        in_time(server.read_exact(&mut received[..before])).await.unwrap();
        let many_yields = async {
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            read = server.read(&mut received[before..]) => panic!("{read:?} was delivered"),
            () = many_yields => {}
        }
        server.write_all(b"welcome").await.unwrap();
        in_time(server.read_exact(&mut received[before..])).await.unwrap();
        assert!(received.iter().all(|byte| *byte == b'x'));
        let mut answer = [0; 9];
        in_time(from_server.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"\x82\x07welcome");
        in_time(writing).await.unwrap();
    }
}

#[tokio::test]
async fn a_close_is_answered_and_ends_the_stream() {
    let (mut server, mut client) = accepted(100).await;
    client.write_all(&masked(0x88, &1000u16.to_be_bytes())).await.unwrap();
    assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap(), 0);
    in_time(server.shutdown()).await.unwrap();
    let mut frame = Vec::new();
    in_time(client.read_to_end(&mut frame)).await.unwrap();
    assert_eq!(frame, [0x88, 2, 0x03, 0xE8]);
    let (mut server, client) = accepted(100).await;
    drop(client);
    assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap(), 0);
}

#[tokio::test]
async fn an_abnormal_close_is_an_error_for_reads_and_writes() {
    let (mut server, mut client) = accepted(1000).await;
    client.write_all(&masked(0x88, b"\x03\xF0go\x1b away")).await.unwrap();
    let text = "WebSocket closed by the other side with code 1008: go\\u{1b} away";
    for _ in 0..2 {
        assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap_err().to_string(), text);
        assert_eq!(in_time(server.write(b"a")).await.unwrap_err().to_string(), text);
    }
    let (mut server, mut client) = accepted(1000).await;
    client.write_all(&masked(0x88, b"")).await.unwrap();
    assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap(), 0);
    assert_eq!(in_time(server.write(b"a")).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn bytes_received_with_the_request_are_not_lost() {
    let request = format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}{MQTT}\r\n");
    let (mut client, server) = duplex(4096);
    client.write_all(&[request.into_bytes(), masked(0x82, b"early")].concat()).await.unwrap();
    let mut server =
        in_time(accept(server, None, not_evil, 100)).await.map_err(|(reason, _)| reason).unwrap();
    let mut received = [0; 5];
    in_time(server.read_exact(&mut received)).await.unwrap();
    assert_eq!(&received, b"early");
}

#[tokio::test]
async fn a_request_that_is_no_web_socket_gets_an_http_error() {
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    for (request, status, reason) in [
        (format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}{MQTT}\r\n"), "404 Not Found", "no WebSocket at path /"),
        (
            format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{KEY}\r\n"),
            "400 Bad Request",
            "subprotocol mqtt not offered",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{KEY}Sec-WebSocket-Protocol: mqttv3.1\r\n\r\n"),
            "400 Bad Request",
            "subprotocol mqtt not offered",
        ),
        (
            "GET /mqtt HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "426 Upgrade Required",
            "HTTP request without an upgrade to a WebSocket",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{}{KEY}{MQTT}\r\n", UPGRADE.replace("13", "8")),
            "426 Upgrade Required",
            "WebSocket version is not 13",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{MQTT}\r\n"),
            "400 Bad Request",
            "malformed WebSocket request: ",
        ),
        ("POST /mqtt HTTP/1.1\r\n\r\n".to_owned(), "405 Method Not Allowed", "HTTP method is not GET"),
        (
            "GET /mqtt HTTP/1.0\r\n\r\n".to_owned(),
            "505 HTTP Version Not Supported",
            "HTTP version is older than 1.1",
        ),
        ("GET /mqtt FTP\r\n\r\n".to_owned(), "400 Bad Request", "malformed HTTP request"),
        (long, "431 Request Header Fields Too Large", "HTTP request is too long"),
        (many, "431 Request Header Fields Too Large", "HTTP request has too many headers"),
    ] {
        let (accepted, answer) = answered(&request, Some("/mqtt")).await;
        let error = accepted.unwrap_err();
        assert!(error.starts_with(reason), "{error}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{reason}: {answer}");
        assert!(answer.ends_with("MQTT over WebSockets, subprotocol mqtt\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_request_with_any_foreign_origin_is_refused() {
    for (origins, is_accepted) in [
        ("", true),
        ("Origin: http://good.example\r\n", true),
        ("Origin: http://evil.example\r\n", false),
        ("Origin: http://good.example\r\nORIGIN: http://evil.example\r\n", false),
    ] {
        let request = format!("GET /mqtt HTTP/1.1\r\n{origins}{UPGRADE}{KEY}{MQTT}\r\n");
        let (accepted, answer) = answered(&request, None).await;
        assert_eq!(accepted.is_ok(), is_accepted, "{origins}");
        let status = if is_accepted { "HTTP/1.1 101 " } else { "HTTP/1.1 403 Forbidden\r\n" };
        assert!(answer.starts_with(status), "{origins}: {answer}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_speak_http_gets_no_response() {
    for (bytes, reason) in [
        ("\x10\x0C\0\x04MQTT", "MQTT without a WebSocket"),
        ("\x16\x03\x01", "TLS on a listener without TLS"),
        ("\0\0", "client does not speak HTTP"),
    ] {
        let (accepted, answer) = answered(bytes, None).await;
        assert_eq!(accepted.unwrap_err(), reason);
        assert_eq!(answer, "");
    }
}

/// Returns the client's error for a server's response.
async fn refused(answer: &'static [u8]) -> HandshakeError {
    let (client, mut server) = duplex(4096);
    let serving = async move {
        let len = server.read(&mut [0; 4096]).await.unwrap();
        assert!(len > 0);
        server.write_all(answer).await.unwrap();
    };
    let connecting = connect(client, "h", 80, "/mqtt", 1000);
    match in_time(async { tokio::join!(connecting, serving) }).await.0 {
        Ok(_) => panic!("connected"),
        Err(failure) => failure,
    }
}

#[tokio::test]
async fn a_client_distinguishes_the_causes_of_a_failed_handshake() {
    let cause = |error| match error {
        HandshakeError::WebSocket(cause) => cause,
        HandshakeError::Io(error) => panic!("{error}"),
    };
    assert_eq!(cause(refused(b"HTTP/1.1 404 Not Found\r\n\r\n").await), WebSocketError::Status(404));
    assert_eq!(cause(refused(b"\x20\x03\0\x84\0").await), WebSocketError::NotHttp);
    assert!(matches!(refused(b"").await, HandshakeError::Io(_)));
    let (client, mut server) = duplex(4096);
    let serving = async move {
        let mut request = vec![0; 4096];
        let len = server.read(&mut request).await.unwrap();
        let Ok(Some((_, request))) = Request::try_parse(&request[..len]) else { panic!("no request") };
        assert_eq!(request.headers().get("Sec-WebSocket-Protocol").unwrap(), "mqtt");
        let mut answer = Vec::new();
        write_response(&mut answer, &create_response(&request).unwrap()).unwrap();
        server.write_all(&answer).await.unwrap();
        server
    };
    let connecting = connect(client, "h", 80, "/mqtt", 1000);
    let (connected, _server) = in_time(async { tokio::join!(connecting, serving) }).await;
    let Err(error) = connected else { panic!("connected") };
    assert_eq!(cause(error), WebSocketError::NoSubprotocol);
}
