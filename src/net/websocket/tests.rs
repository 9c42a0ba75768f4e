//! Both sides of a WebSocket against each other, and each against bytes written by hand.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;

/// Long enough for a busy machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const UPGRADE: &str =
    "Host: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
const MQTT: &str = "Sec-WebSocket-Protocol: other, mqtt\r\n";

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("nothing happens")
}

/// Lets in pages that ask for this host, and are not evil.
fn not_evil(origin: &str, host: Option<&str>) -> bool {
    origin != "http://evil.example" && host == Some("h")
}

/// A frame as a client writes it, with a mask that changes nothing.
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

/// What the server's side makes of the bytes of a client, and what it answers until it closes.
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

/// A server's side that has shaken hands, and the raw end of its client.
async fn begun(bytes_max: u32) -> (WebSocket<DuplexStream>, DuplexStream) {
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
async fn bytes_go_both_ways_and_messages_have_no_meaning() {
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
        let mut heard = vec![0; bytes.len()];
        server.read_exact(&mut heard).await.unwrap();
        server.write_all(b"back").await.unwrap();
        server.flush().await.unwrap();
        assert_eq!(server.read(&mut [0; 10]).await.unwrap(), 0);
        server.shutdown().await.unwrap();
        heard
    };
    let (back, heard) = in_time(async { tokio::join!(writing, reading) }).await;
    assert_eq!(back, b"back");
    assert!(heard == bytes);
}

#[tokio::test]
async fn whoever_does_not_read_holds_up_who_writes() {
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
        // Whatever can be taken has been taken by then: nothing else runs.
        () = tokio::task::yield_now() => {}
    }
    assert!(taken <= 20_000, "{taken}");
}

#[tokio::test]
async fn a_ping_is_answered_and_an_empty_message_is_not_the_end() {
    let (mut server, mut client) = begun(1000).await;
    let bytes = [
        masked(0x82, b""),
        masked(0x89, b"hi"),
        masked(0x8A, b""),
        masked(0x02, b"a"),
        masked(0x89, b"x"),
        masked(0x80, b"b"),
    ];
    client.write_all(&bytes.concat()).await.unwrap();
    let mut heard = [0; 2];
    in_time(server.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"ab");
    let mut pongs = [0; 7];
    in_time(client.read_exact(&mut pongs)).await.unwrap();
    assert_eq!(&pongs, b"\x8A\x02hi\x8A\x01x");
}

#[tokio::test]
async fn what_breaks_the_rules_is_told_and_closed_with_its_code() {
    let too_long = masked(0x82, &[0; 200]);
    let parts = [masked(0x02, &[0; 60]), masked(0x00, &[0; 60])].concat();
    for (bytes, words, code) in [
        (masked(0x81, b"text"), "text in a WebSocket, where MQTT is binary", 1003u16),
        (masked(0x81, b"\xFF"), "text in a WebSocket, and it is not UTF-8", 1007),
        (too_long, "WebSocket: Message too long: 200 > 100", 1009),
        (parts, "WebSocket: Message too long: 120 > 100", 1009),
        (b"\x82\x01a".to_vec(), "WebSocket: Received an unmasked frame from client", 1002),
        (masked(0xC2, b"a"), "WebSocket: Reserved bits are non-zero", 1002),
        (masked(0x80, b"a"), "WebSocket: Continue frame but nothing to continue", 1002),
        (b"\x82\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0".to_vec(), "WebSocket: ", 1009),
    ] {
        let (mut server, mut client) = begun(100).await;
        client.write_all(&bytes).await.unwrap();
        let error = in_time(server.read(&mut [0; 10])).await.unwrap_err();
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
fn long_head(len: u64) -> Vec<u8> {
    [&[0x82, 0xFF][..], &len.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn a_stranger_who_announces_more_than_a_connect_is_told_at_once() {
    let (mut server, mut client) = begun(u32::MAX).await;
    client.write_all(&long_head(UNANSWERED_BYTES_MAX + 1)).await.unwrap();
    let error = in_time(server.read(&mut [0; 10])).await.unwrap_err();
    let words = "WebSocket: Message too long for a CONNECT: 2097153 > 2097152";
    assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidData, words));
    in_time(server.shutdown()).await.unwrap();
    let mut frame = Vec::new();
    in_time(client.read_to_end(&mut frame)).await.unwrap();
    assert_eq!(frame, b"\x88\x02\x03\xF1");
}

#[tokio::test]
async fn frames_come_through_the_gate_as_they_are_however_they_are_cut() {
    let long = [long_head(70_000), vec![7; 70_000]].concat();
    let frames = [masked(0x82, b"a"), masked(0x89, b""), masked(0x82, &[7; 200]), long].concat();
    for (room, held) in [(1, 0), (3, 3), (100_000, 9)] {
        let (mut client, server) = duplex(room);
        let mut gate = FrameLimit::shut(server, BytesMut::from(&frames[..held]), 100_000);
        let rest = frames[held..].to_vec();
        let writing = tokio::spawn(async move { client.write_all(&rest).await.unwrap() });
        let mut heard = Vec::new();
        in_time(gate.read_to_end(&mut heard)).await.unwrap();
        assert!(heard == frames, "{room}, {held}");
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn what_a_stranger_says_beyond_a_connect_waits_for_the_answer_and_is_not_lost() {
    let room = usize::try_from(UNANSWERED_BYTES_MAX).unwrap();
    // In one frame behind the first, and in more of them than there is room for.
    for frames in [vec![3, room + 1], vec![room / 3; 4]] {
        let (mut server, client) = begun(u32::MAX).await;
        let (mut from_server, mut to_server) = tokio::io::split(client);
        let total: usize = frames.iter().sum();
        let before: usize = total - frames[frames.len() - 1];
        let writing = tokio::spawn(async move {
            for len in frames {
                to_server.write_all(&long_head(len as u64)).await.unwrap();
                to_server.write_all(&vec![b'x'; len]).await.unwrap();
            }
            to_server
        });
        let mut heard = vec![0; total];
        in_time(server.read_exact(&mut heard[..before])).await.unwrap();
        let many_turns = async {
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            read = server.read(&mut heard[before..]) => panic!("{read:?} came through"),
            () = many_turns => {}
        }
        server.write_all(b"come in").await.unwrap();
        in_time(server.read_exact(&mut heard[before..])).await.unwrap();
        assert!(heard.iter().all(|byte| *byte == b'x'));
        let mut answer = [0; 9];
        in_time(from_server.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"\x82\x07come in");
        in_time(writing).await.unwrap();
    }
}

#[tokio::test]
async fn a_close_is_answered_and_is_the_end() {
    let (mut server, mut client) = begun(100).await;
    client.write_all(&masked(0x88, &1000u16.to_be_bytes())).await.unwrap();
    assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap(), 0);
    in_time(server.shutdown()).await.unwrap();
    let mut frame = Vec::new();
    in_time(client.read_to_end(&mut frame)).await.unwrap();
    assert_eq!(frame, [0x88, 2, 0x03, 0xE8]);
    let (mut server, client) = begun(100).await;
    drop(client);
    assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap(), 0);
}

#[tokio::test]
async fn a_close_for_a_reason_is_told_to_who_reads_and_to_who_writes() {
    let (mut server, mut client) = begun(1000).await;
    client.write_all(&masked(0x88, b"\x03\xF0go\x1b away")).await.unwrap();
    let words = "the other side closed the WebSocket with code 1008: go\\u{1b} away";
    for _ in 0..2 {
        assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap_err().to_string(), words);
        assert_eq!(in_time(server.write(b"a")).await.unwrap_err().to_string(), words);
    }
    let (mut server, mut client) = begun(1000).await;
    client.write_all(&masked(0x88, b"")).await.unwrap();
    assert_eq!(in_time(server.read(&mut [0; 10])).await.unwrap(), 0);
    assert_eq!(in_time(server.write(b"a")).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn bytes_behind_the_request_are_not_lost() {
    let request = format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}{MQTT}\r\n");
    let (mut client, server) = duplex(4096);
    client.write_all(&[request.into_bytes(), masked(0x82, b"early")].concat()).await.unwrap();
    let mut server =
        in_time(accept(server, None, not_evil, 100)).await.map_err(|(reason, _)| reason).unwrap();
    let mut heard = [0; 5];
    in_time(server.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"early");
}

#[tokio::test]
async fn a_request_for_something_else_is_answered_and_told() {
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    for (request, status, reason) in [
        (
            format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}{MQTT}\r\n"),
            "404 Not Found",
            "it asked for a WebSocket at /, where none is",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{KEY}\r\n"),
            "400 Bad Request",
            "it asked for no mqtt subprotocol",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{KEY}Sec-WebSocket-Protocol: mqttv3.1\r\n\r\n"),
            "400 Bad Request",
            "it asked for no mqtt subprotocol",
        ),
        (
            "GET /mqtt HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "426 Upgrade Required",
            "it asked over HTTP for something else than a WebSocket",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{}{KEY}{MQTT}\r\n", UPGRADE.replace("13", "8")),
            "426 Upgrade Required",
            "it asked for another version of WebSockets than 13",
        ),
        (
            format!("GET /mqtt HTTP/1.1\r\n{UPGRADE}{MQTT}\r\n"),
            "400 Bad Request",
            "its request for a WebSocket is broken: ",
        ),
        (
            "POST /mqtt HTTP/1.1\r\n\r\n".to_owned(),
            "405 Method Not Allowed",
            "it asked for no WebSocket, by another method than GET",
        ),
        (
            "GET /mqtt HTTP/1.0\r\n\r\n".to_owned(),
            "505 HTTP Version Not Supported",
            "it speaks an old version of HTTP",
        ),
        ("GET /mqtt FTP\r\n\r\n".to_owned(), "400 Bad Request", "its HTTP request makes no sense"),
        (long, "431 Request Header Fields Too Large", "its HTTP request is too long"),
        (many, "431 Request Header Fields Too Large", "its HTTP request has too many headers"),
    ] {
        let (accepted, answer) = answered(&request, Some("/mqtt")).await;
        let told = accepted.unwrap_err();
        assert!(told.starts_with(reason), "{told}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{reason}: {answer}");
        assert!(answer.ends_with("This is MQTT 5 over WebSockets, with the subprotocol mqtt.\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_page_that_may_not_come_is_refused_whatever_else_it_says() {
    for (origins, is_let_in) in [
        ("", true),
        ("Origin: http://good.example\r\n", true),
        ("Origin: http://evil.example\r\n", false),
        ("Origin: http://good.example\r\nORIGIN: http://evil.example\r\n", false),
    ] {
        let request = format!("GET /mqtt HTTP/1.1\r\n{origins}{UPGRADE}{KEY}{MQTT}\r\n");
        let (accepted, answer) = answered(&request, None).await;
        assert_eq!(accepted.is_ok(), is_let_in, "{origins}");
        let status = if is_let_in { "HTTP/1.1 101 " } else { "HTTP/1.1 403 Forbidden\r\n" };
        assert!(answer.starts_with(status), "{origins}: {answer}");
    }
}

#[tokio::test]
async fn whoever_speaks_no_http_gets_no_answer() {
    for (bytes, reason) in [
        ("\x10\x0C\0\x04MQTT", "it speaks MQTT without a WebSocket"),
        ("\x16\x03\x01", "it speaks TLS, and is not spoken to in it"),
        ("\0\0", "it does not speak HTTP"),
    ] {
        let (accepted, answer) = answered(bytes, None).await;
        assert_eq!(accepted.unwrap_err(), reason);
        assert_eq!(answer, "");
    }
}

/// What the client's side makes of these bytes.
async fn refused(answer: &'static [u8]) -> Failure {
    let (client, mut server) = duplex(4096);
    let serving = async move {
        let len = server.read(&mut [0; 4096]).await.unwrap();
        assert!(len > 0);
        server.write_all(answer).await.unwrap();
    };
    let connecting = connect(client, "h", 80, "/mqtt", 1000);
    match in_time(async { tokio::join!(connecting, serving) }).await.0 {
        Ok(_) => panic!("it has connected"),
        Err(failure) => failure,
    }
}

#[tokio::test]
async fn a_client_tells_apart_what_is_no_web_socket() {
    use WebSocketError as Trouble;
    let trouble = |failure| match failure {
        Failure::Trouble(trouble) => trouble,
        Failure::Io(error) => panic!("{error}"),
    };
    assert_eq!(trouble(refused(b"HTTP/1.1 404 Not Found\r\n\r\n").await), Trouble::Status(404));
    assert_eq!(trouble(refused(b"\x20\x03\0\x84\0").await), Trouble::NotHttp);
    assert!(matches!(refused(b"").await, Failure::Io(_)));
    let (client, mut server) = duplex(4096);
    let serving = async move {
        let mut request = vec![0; 4096];
        let len = server.read(&mut request).await.unwrap();
        let Ok(Some((_, request))) = Request::try_parse(&request[..len]) else { panic!("no request") };
        let mut answer = Vec::new();
        write_response(&mut answer, &create_response(&request).unwrap()).unwrap();
        server.write_all(&answer).await.unwrap();
        server
    };
    let connecting = connect(client, "h", 80, "/mqtt", 1000);
    let (connected, _server) = in_time(async { tokio::join!(connecting, serving) }).await;
    let Err(failure) = connected else { panic!("it has connected") };
    assert_eq!(trouble(failure), Trouble::NoSubprotocol);
}
