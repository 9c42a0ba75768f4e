//! Certificate and key files: the accepted formats, and the errors of all others.

use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::{Place, Server, StreamedProcess, make_fifo, open_fifo};

const PASSWORD: &str = "not-a-secret";

/// Starts a server that requires client certificates and writes `me.pem` with its key in all formats.
fn served() -> (Place, Server) {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["localhost"]);
    ca.issue(&place, "other", &["other"]);
    ca.issue_for(&place, "me", include_str!("keys/pkcs8.pem"));
    ca.issue_for(&place, "curve", include_str!("keys/sec1_pkcs8.pem"));
    place.write("pkcs8", include_str!("keys/pkcs8.pem"));
    place.write("pkcs1", include_str!("keys/pkcs1.pem"));
    place.write("encrypted", include_str!("keys/encrypted.pem"));
    place.write("old", include_str!("keys/old.pem"));
    place.write("sec1", include_str!("keys/sec1.pem"));
    place.write("password", format!("{PASSWORD}\n"));
    place.write("wrong", "another");
    // As editors of other systems save them.
    let marked = |text: &str| format!("\u{FEFF}{}", text.replace('\n', "\r\n"));
    place.write("marked.pem", marked(&std::fs::read_to_string(place.path("me.pem")).unwrap()));
    place.write("marked.key", marked(include_str!("keys/encrypted.pem")));
    place.write("marked", marked(&format!("{PASSWORD}\n")));
    place.write("wide", "-----BEGIN".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    place.write("empty", "");
    place.write("words", "no certificate at all\n");
    let der = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, "MIIBkTCB+w==").unwrap();
    place.write("der", der);
    std::fs::create_dir(place.path("folder")).unwrap();
    let options = ["-q", "--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem"];
    let server = Server::start(&place, &options);
    (place, server)
}

fn get_with(place: &Place, server: &Server, options: &str) -> String {
    let line = format!("get k -n localhost -p {} {options}", server.port());
    place.run(&line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn a_private_key_is_read_in_each_format() {
    let (place, server) = served();
    for options in [
        "-C me.pem -K pkcs8",
        "-C me.pem -K pkcs1",
        "-C me.pem -K encrypted -P password",
        "-C marked.pem -K marked.key -P marked",
        // A password for an unencrypted key is ignored.
        "-C me.pem -K pkcs8 -P password",
        "-C curve.pem -K sec1",
        "--certfile other.pem --keyfile other.key",
    ] {
        assert_eq!(
            get_with(&place, &server, &format!("-T ca.pem {options}")),
            "--- stderr\nerror: key not found: k\n--- exit 1\n",
            "{options}"
        );
    }
}

#[test]
fn an_invalid_file_is_reported_with_its_name() {
    let (place, server) = served();
    for (options, message, hint) in [
        ("-T empty", "empty is empty", ""),
        ("-T words", "words contains no certificate", ""),
        (
            "-T wide",
            "wide is encoded in UTF-16LE; UTF-8 is required",
            "convert it: iconv -f UTF-16LE -t UTF-8",
        ),
        (
            "-T pkcs8",
            "pkcs8 contains a key instead of a certificate",
            "check whether the certificate file and the key file are swapped",
        ),
        ("-T der", "der is in DER format; PEM is required", "openssl x509 -inform der -in der -out der.pem"),
        (
            "-T ca.pem -C pkcs8 -K me.pem",
            "pkcs8 contains a key instead of a certificate",
            "check whether the certificate file and the key file are swapped",
        ),
        (
            "-T ca.pem -C me.pem -K me.pem",
            "me.pem contains a certificate instead of a key",
            "check whether the certificate file and the key file are swapped",
        ),
        ("-T ca.pem -C me.pem -K words", "words contains no key", ""),
        (
            "-T ca.pem -C me.pem -K der",
            "der is in DER format; PEM is required",
            "openssl pkey -inform der -in der -out der.pem",
        ),
        (
            "-T ca.pem -C me.pem -K other.key",
            "other.key contains a key that does not match the certificate",
            "",
        ),
        (
            "-T ca.pem -C me.pem -K encrypted",
            "encrypted contains an encrypted key",
            "-P with a file that contains the password of the key",
        ),
        (
            "-T ca.pem -C me.pem -K encrypted -P wrong",
            "encrypted contains a key that the password does not decrypt",
            "check the password file of -P",
        ),
        (
            "-T ca.pem -C me.pem -K old -P password",
            "old contains a key with traditional encryption; PKCS#8 is required",
            "openssl pkcs8 -topk8 -in old -out old.pkcs8",
        ),
        ("-T ca.pem -C me.pem -K encrypted -P empty", "empty contains no password", ""),
    ] {
        let hint = if hint.is_empty() { String::new() } else { format!("hint: {hint}\n") };
        let expected = format!("--- stderr\nerror: {message}\n{hint}--- exit 78\n");
        assert_eq!(get_with(&place, &server, options), expected, "{options}");
    }
}

#[test]
fn an_unreadable_file_exits_with_74() {
    let (place, server) = served();
    for (options, file, cause) in [
        ("-T nowhere", "nowhere", "No such file or directory (os error 2)"),
        ("-T folder", "folder", "Is a directory (os error 21)"),
        ("-T ca.pem -C nowhere -K pkcs8", "nowhere", "No such file or directory (os error 2)"),
        ("-T ca.pem -C me.pem -K folder", "folder", "Is a directory (os error 21)"),
    ] {
        let expected = format!("--- stderr\nerror: cannot read {file}: {cause}\n--- exit 74\n");
        assert_eq!(get_with(&place, &server, options), expected, "{options}");
    }
}

#[test]
fn an_endless_file_is_reported_as_too_long() {
    let (place, server) = served();
    for options in ["-T /dev/zero", "-T ca.pem -C me.pem -K /dev/zero"] {
        assert_eq!(
            get_with(&place, &server, &format!("{options} --connect-timeout 1m")),
            "--- stderr\nerror: /dev/zero is larger than 16 MiB\n--- exit 78\n"
        );
    }
    for (options, expected) in [
        ("--authz", "/dev/zero: larger than 16 MiB\n--- exit 78\n"),
        ("--users", "cannot read /dev/zero: file too large\n--- exit 74\n"),
    ] {
        let shown = place.run(&["serve", "--listen", "127.0.0.1:0", options, "/dev/zero"]);
        assert_eq!(shown, format!("--- stderr\nerror: {expected}"), "{options}");
    }
}

#[test]
fn a_silent_pipe_can_be_interrupted_and_is_bounded_by_the_connect_timeout() {
    let place = Place::new();
    make_fifo(&place.path("fifo"));
    let message = "cannot read the files of the connection within 100ms";
    for line in ["get k -T fifo", "watch k -C fifo -K fifo", "lock k -T fifo -- true"] {
        let words: Vec<_> = line.split(' ').collect();
        let options = ["-n", "localhost", "--connect-timeout", "100ms"];
        assert_eq!(
            place.run_bounded(&[&words[..1], &options, &words[1..]].concat()),
            format!("--- stderr\nerror: {message}\nhint: mqkv config show --origin\n--- exit 74\n"),
            "{line}"
        );
    }
    for line in [
        "serve --tls-cert fifo --tls-key fifo",
        "serve --users fifo",
        "serve --authz fifo",
        "watch k -n h -T fifo --connect-timeout 1h",
    ] {
        // One for each: a process that another test starts may keep the write end of the last one open for a moment.
        let place = Place::new();
        make_fifo(&place.path("fifo"));
        let mut command = place.command(&line.split(' ').collect::<Vec<_>>());
        let server = StreamedProcess::start(&mut command);
        let pipe = open_fifo(&place.path("fifo"));
        server.signal(Signal::SIGTERM);
        assert_eq!(server.end().2, Some(143), "{line}");
        drop(pipe);
    }
}

#[test]
fn no_file_is_opened_before_it_is_used() {
    let place = Place::new();
    let shown = place.run(&["decode", "hlc", "1:2:n", "-T", "nowhere", "-n", "localhost"]);
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
}

#[test]
fn a_server_does_not_start_with_invalid_files() {
    let (place, _server) = served();
    for (options, expected) in [
        (
            "--tls-cert me.pem --tls-key other.key",
            "error: other.key contains a key that does not match the certificate\n--- exit 78\n",
        ),
        (
            "--tls-cert nowhere --tls-key pkcs8",
            "error: cannot read nowhere: No such file or directory (os error 2)\n--- exit 74\n",
        ),
        (
            "--tls-cert me.pem --tls-key encrypted",
            "error: encrypted contains an encrypted key\nhint: openssl pkey -in encrypted -out encrypted.plain\n--- exit 78\n",
        ),
        ("--tls-cert me.pem --tls-key pkcs8 --client-ca empty", "error: empty is empty\n--- exit 78\n"),
    ] {
        let line = format!("serve --listen 127.0.0.1:0 {options}");
        let shown = place.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(shown, format!("--- stderr\n{expected}"), "{options}");
    }
    for options in ["--tls-cert me.pem", "--tls-key pkcs8", "--client-ca ca.pem"] {
        let line = format!("serve --listen 127.0.0.1:0 {options}");
        let shown = place.run(&line.split_whitespace().collect::<Vec<_>>());
        assert!(shown.ends_with("--- exit 2\n"), "{shown}");
    }
}
