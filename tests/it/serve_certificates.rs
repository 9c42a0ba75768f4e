//! `mqkv serve`: renewed certificates, keys and CAs, without a signal and on SIGHUP.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::{LoggedServer, Place, Server, StreamedProcess, make_fifo, open_fifo};

const TLS: [&str; 4] = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
const RULES: &str = "rules:\n- principals: {clientIds: [c]}\n  brokerResources: [{method: Connect}]\n";
const AGAIN: &str = "certificates reloaded: the server's, CN=rcgen self signed cert, expires in 89 days";

/// Creates a CA and a server certificate of 127.0.0.1.
fn place() -> (Place, Ca) {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    (place, ca)
}

fn serve(place: &Place, options: &[&str]) -> LoggedServer {
    LoggedServer::start(place, &[&TLS[..], options].concat())
}

fn url(server: &LoggedServer, scheme: &str, number: usize) -> String {
    format!("{scheme}://127.0.0.1:{}", server.port(number))
}

/// Gets a missing key with these options and returns the output.
fn get(place: &Place, url: &str, options: &str) -> String {
    let words: Vec<_> = ["get", "none", "-b", url].into_iter().chain(options.split_whitespace()).collect();
    place.run(&words)
}

#[test]
fn renewed_files_are_used_by_all_listeners_without_a_signal_and_connections_continue() {
    let (place, _) = place();
    let server = serve(&place, &["--listen", "mqtts://127.0.0.1:0", "--listen", "wss://127.0.0.1:0"]);
    let urls = [url(&server, "mqtts", 0), url(&server, "wss", 1)];
    let watches = urls.each_ref().map(|url| {
        let watch = StreamedProcess::start(&mut place.command(&["watch", "k", "-b", url, "-T", "ca.pem"]));
        assert!(watch.line().contains("\tk"), "the watch reports the missing key");
        watch
    });
    let new_ca = Ca::new(&place, "new.pem");
    new_ca.issue_for_days(&place, "server", &["127.0.0.1"], 89);
    assert_eq!(server.log_line_with("certificates reloaded"), AGAIN);
    for url in &urls {
        assert_eq!(get(&place, url, "-T new.pem"), "--- stderr\nerror: key not found: none\n--- exit 1\n");
        let shown = get(&place, url, "-T ca.pem");
        assert!(shown.contains("is from an unknown CA") && shown.ends_with("--- exit 69\n"), "{shown}");
    }
    place.run(&["set", "k", "v", "-b", &urls[0], "-T", "new.pem"]);
    for watch in watches {
        assert!(watch.line().ends_with("\tk\tv"), "the existing connection continues");
    }
}

#[test]
fn a_pair_that_is_half_renewed_is_not_used_and_is_reported_once() {
    /// Several intervals between two looks at the files.
    const A_WHILE: Duration = Duration::from_millis(3500);
    let (place, ca) = place();
    let server = serve(&place, &["--listen", "mqtts://127.0.0.1:0"]);
    ca.issue_for_days(&place, "next", &["127.0.0.1"], 89);
    fs::rename(place.path("next.pem"), place.path("server.pem")).unwrap();
    assert_eq!(
        server.log_line_with("certificates"),
        "server.key contains a key that does not match the certificate; the previous certificates stay in force"
    );
    let shown = get(&place, &url(&server, "mqtts", 0), "-T ca.pem");
    assert_eq!(shown, "--- stderr\nerror: key not found: none\n--- exit 1\n");
    sleep(A_WHILE);
    fs::rename(place.path("next.key"), place.path("server.key")).unwrap();
    assert_eq!(server.log_line_with("certificates"), AGAIN, "nothing was reported twice");
}

#[test]
fn a_secret_that_kubernetes_mounts_is_noticed_when_it_is_renewed() {
    let (place, ca) = place();
    let mount = |name: &str| place.path("mount").join(name);
    fs::create_dir_all(mount("..1")).unwrap();
    fs::create_dir(mount("..2")).unwrap();
    ca.issue(&place, "mount/..1/tls", &["127.0.0.1"]);
    ca.issue_for_days(&place, "mount/..2/tls", &["127.0.0.1"], 89);
    symlink("..1", mount("..data")).unwrap();
    for name in ["tls.pem", "tls.key"] {
        symlink(format!("..data/{name}"), mount(name)).unwrap();
    }
    let options =
        ["--tls-cert", "mount/tls.pem", "--tls-key", "mount/tls.key", "--listen", "mqtts://127.0.0.1:0"];
    let server = LoggedServer::start(&place, &options);
    symlink("..2", mount("..new")).unwrap();
    fs::rename(mount("..new"), mount("..data")).unwrap();
    assert_eq!(server.log_line_with("certificates reloaded"), AGAIN);
    let shown = get(&place, &url(&server, "mqtts", 0), "-T ca.pem");
    assert_eq!(shown, "--- stderr\nerror: key not found: none\n--- exit 1\n");
}

#[test]
fn a_reconnect_uses_the_files_of_the_client_that_were_renewed_meanwhile() {
    let (place, ca) = place();
    ca.issue(&place, "me", &["me"]);
    fs::copy(place.path("ca.pem"), place.path("trusted.pem")).unwrap();
    let options = |client_ca| [&TLS[..], &["-q", "--client-ca", client_ca]].concat();
    let mut server = Server::start(&place, &options("ca.pem"));
    let files = ["-T", "trusted.pem", "-C", "me.pem", "-K", "me.key"];
    let url = format!("mqtts://127.0.0.1:{}", server.port());
    let words = [&["watch", "k", "-b", &url, "--connect-timeout", "1s"], &files[..]].concat();
    let watch = StreamedProcess::start(&mut place.command(&words));
    assert!(watch.line().contains("\tk"), "the watch reports the missing key");
    server.kill();
    let new = Ca::new(&place, "new.pem");
    new.issue(&place, "server", &["127.0.0.1"]);
    new.issue(&place, "me", &["me"]);
    fs::copy(place.path("new.pem"), place.path("trusted.pem")).unwrap();
    server.start_again(&place, &options("new.pem"));
    let shown = place.run(&[&["set", "k", "v", "-b", &url], &files[..]].concat());
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    assert!(watch.line().contains("GAP\t"));
    assert!(watch.line().ends_with("\tk\tv"));
}

#[test]
fn a_hangup_reports_files_that_have_not_changed_too() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue_for_days(&place, "server", &["127.0.0.1"], 89);
    let server = serve(&place, &["--listen", "mqtts://127.0.0.1:0"]);
    server.signal(Signal::SIGHUP);
    assert_eq!(server.log_line_with("certificates"), AGAIN);
}

#[test]
fn an_invalid_file_changes_no_listener_and_is_reported_as_at_the_start() {
    let (place, _) = place();
    Ca::new(&place, "clients.pem");
    let listeners = [
        ["--listen", "mqtts://127.0.0.1:0?client-cert=none"],
        ["--listen", "mqtts://127.0.0.1:0?client-cert=optional"],
    ];
    let server = serve(&place, &[&listeners.concat()[..], &["--client-ca", "clients.pem"]].concat());
    let new_ca = Ca::new(&place, "new.pem");
    new_ca.issue_for_days(&place, "other", &["127.0.0.1"], 89);
    let renewed = ["other.pem", "other.key"].map(|name| fs::read(place.path(name)).unwrap());
    let [clients, old_key] = ["clients.pem", "server.key"].map(|name| fs::read(place.path(name)).unwrap());
    let encrypted = include_bytes!("keys/encrypted.pem");
    for (file, bytes, message) in [
        ("server.pem", Some(&b""[..]), "server.pem is empty"),
        ("server.pem", Some(b"junk"), "server.pem contains no certificate"),
        ("server.pem", None, "cannot read server.pem: No such file or directory (os error 2)"),
        ("server.key", Some(&old_key), "server.key contains a key that does not match the certificate"),
        (
            "server.key",
            Some(encrypted),
            "server.key contains an encrypted key (try: openssl pkey -in server.key -out server.key.plain)",
        ),
        ("clients.pem", Some(b"\n"), "clients.pem is empty"),
    ] {
        // All other files are valid and new.
        place.write("server.pem", &renewed[0]);
        place.write("server.key", &renewed[1]);
        match bytes {
            Some(bytes) => place.write(file, bytes),
            None => fs::remove_file(place.path(file)).unwrap(),
        }
        server.signal(Signal::SIGHUP);
        // Without the signal, the files may have been read before all of them were written.
        while server.log_line_with("in force")
            != format!("{message}; the previous certificates stay in force")
        {}
        for listener in 0..2 {
            assert_eq!(
                get(&place, &url(&server, "mqtts", listener), "-T ca.pem"),
                "--- stderr\nerror: key not found: none\n--- exit 1\n",
                "{message}"
            );
        }
    }
    place.write("clients.pem", clients);
    server.signal(Signal::SIGHUP);
    assert_eq!(server.log_line_with("certificates reloaded"), AGAIN);
    for listener in 0..2 {
        assert_eq!(
            get(&place, &url(&server, "mqtts", listener), "-T new.pem"),
            "--- stderr\nerror: key not found: none\n--- exit 1\n"
        );
    }
}

#[test]
fn new_client_cas_apply_to_new_connections_only() {
    let (place, ca) = place();
    let own = Ca::new(&place, "clients.pem");
    own.issue(&place, "me", &["me"]);
    let server = serve(&place, &["--client-ca", "clients.pem", "--listen", "mqtts://127.0.0.1:0"]);
    let url = url(&server, "mqtts", 0);
    let (me, it) = ("-T ca.pem -C me.pem -K me.key", "-T ca.pem -C it.pem -K it.key");
    ca.issue(&place, "it", &["it"]);
    let watch: Vec<_> = ["watch", "k", "-b", &url].into_iter().chain(me.split(' ')).collect();
    let watch = StreamedProcess::start(&mut place.command(&watch));
    assert!(watch.line().contains("\tk"), "the watch reports the missing key");
    assert_eq!(get(&place, &url, me), "--- stderr\nerror: key not found: none\n--- exit 1\n");
    assert!(get(&place, &url, it).contains("rejected the client certificate: unknown CA"));
    place.write("clients.pem", fs::read(place.path("ca.pem")).unwrap());
    server.log_line_with("certificates reloaded");
    assert!(get(&place, &url, me).contains("rejected the client certificate: unknown CA"));
    assert_eq!(get(&place, &url, it), "--- stderr\nerror: key not found: none\n--- exit 1\n");
    let set: Vec<_> = ["set", "k", "v", "-b", &url].into_iter().chain(it.split(' ')).collect();
    place.run(&set);
    assert!(watch.line().ends_with("\tk\tv"), "an existing connection continues");
}

#[test]
fn rules_and_certificates_are_reloaded_independently() {
    let (place, ca) = place();
    place.write("rules", RULES);
    let server = serve(&place, &["--authz", "rules", "--listen", "mqtts://127.0.0.1:0"]);
    let wait_for = |ends: [&str; 2]| {
        let mut missing = ends.to_vec();
        while !missing.is_empty() {
            let line = server.log_line();
            missing.retain(|end| !line.ends_with(end));
        }
    };
    ca.issue_for_days(&place, "server", &["127.0.0.1"], 89);
    place.write("rules", "");
    server.signal(Signal::SIGHUP);
    wait_for(["; the previous rules stay in force", AGAIN]);
    place.write("rules", RULES);
    place.write("server.key", "");
    server.signal(Signal::SIGHUP);
    wait_for(["rules reloaded: 1", "server.key is empty; the previous certificates stay in force"]);
}

#[test]
fn a_pipe_in_the_place_of_a_file_blocks_neither_clients_nor_rules_nor_the_shutdown() {
    let (place, _) = place();
    place.write("rules", RULES);
    let words = ["serve", "-v", "--authz", "rules", "--listen", "127.0.0.1:0", "--port-file", "port"];
    let server = StreamedProcess::start(&mut place.command(&[&words[..], &TLS].concat()));
    let log_line_with = |what: &str| while !server.error_line().contains(what) {};
    log_line_with("listening on ");
    fs::remove_file(place.path("server.key")).unwrap();
    make_fifo(&place.path("server.key"));
    for _ in 0..2 {
        server.signal(Signal::SIGHUP);
        log_line_with("rules reloaded: 1");
    }
    // That of an earlier signal may have been logged before the rules.
    server.signal(Signal::SIGHUP);
    log_line_with("cannot read server.key: not a regular file; the previous certificates stay in force");
    let port = fs::read_to_string(place.path("port")).unwrap();
    let shown = get(&place, &format!("mqtts://127.0.0.1:{}", port.trim()), "-T ca.pem");
    assert!(
        shown.ends_with("--- exit 77\n"),
        "the client is authenticated; the rules reject its request: {shown}"
    );
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().2, Some(0));
}

#[test]
fn an_expired_certificate_causes_a_warning_at_the_start_and_at_a_reload() {
    let (place, ca) = place();
    ca.issue_between(&place, "server", &["127.0.0.1"], [2020, 2021]);
    let words = [&["serve", "--log", "json", "--listen", "127.0.0.1:0"][..], &TLS].concat();
    let server = StreamedProcess::start(&mut place.command(&words));
    // Without the signal, the files may have been read once more.
    let logged = |name: &str| loop {
        let line = server.error_line();
        if line.starts_with(&format!("{{\"v\":1,\"event\":\"{name}\",")) {
            break line.split_once("Z\",").unwrap().1.to_owned();
        }
    };
    let expired = r#""reason":"server.pem contains a certificate that has expired","message":"server.pem contains a certificate that has expired: no client will trust it"}"#;
    assert_eq!(logged("out-of-time"), expired);
    logged("ready");
    ca.issue_between(&place, "server", &["127.0.0.1"], [4000, 4096]);
    server.signal(Signal::SIGHUP);
    logged("certificates");
    assert_eq!(logged("out-of-time"), expired.replace("has expired", "is not valid yet"));
    ca.issue_for_days(&place, "server", &["127.0.0.1"], 89);
    fs::set_permissions(place.path("server.key"), Permissions::from_mode(0o644)).unwrap();
    server.signal(Signal::SIGHUP);
    let warning = r#""message":"server.key contains a secret, and other users can access it (mode 0644): chmod 600 server.key"}"#;
    assert_eq!(logged("warning"), warning);
    assert_eq!(
        logged("certificates"),
        format!("\"subject\":\"CN=rcgen self signed cert\",\"days_left\":89,\"message\":\"{AGAIN}\"}}")
    );
    place.write("server.pem", "");
    server.signal(Signal::SIGHUP);
    logged("warning");
    let failed = r#""reason":"server.pem is empty","message":"server.pem is empty; the previous certificates stay in force"}"#;
    assert_eq!(logged("certificates"), failed);
}

#[test]
fn a_certificate_that_expires_within_a_week_is_reported_at_the_start_and_when_it_is_read() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue_for_days(&place, "server", &["127.0.0.1"], 3);
    let words = [&["serve", "--listen", "127.0.0.1:0"][..], &TLS].concat();
    let server = StreamedProcess::start(&mut place.command(&words));
    assert_eq!(server.log_line(), "server.pem contains a certificate that expires in 3 days: renew it");
    assert!(server.log_line().starts_with("listening on "));
    ca.issue_for_days(&place, "server", &["127.0.0.1"], 1);
    while server.log_line() != "server.pem contains a certificate that expires in 1 day: renew it" {}
}

#[test]
fn a_hangup_during_the_start_is_handled_after_it() {
    let (place, ca) = place();
    make_fifo(&place.path("seed"));
    let options = ["serve", "-v", "--listen", "127.0.0.1:0", "--seed", "seed"];
    let server = StreamedProcess::start(&mut place.command(&[&options[..], &TLS].concat()));
    let pipe = open_fifo(&place.path("seed"));
    server.signal(Signal::SIGHUP);
    ca.issue_for_days(&place, "server", &["127.0.0.1"], 89);
    drop(pipe);
    while !server.log_line().starts_with("listening on ") {}
    assert_eq!(server.log_line(), AGAIN);
}

#[test]
fn a_hangup_shuts_a_server_without_reloadable_files_down() {
    let place = Place::new();
    let server = StreamedProcess::start(&mut place.command(&["serve", "-v", "--listen", "127.0.0.1:0"]));
    while !server.log_line().starts_with("listening on ") {}
    server.signal(Signal::SIGHUP);
    let (_, words, code) = server.end();
    assert_eq!((words.len(), code), (1, Some(0)));
    assert!(words[0].ends_with("Z  stopping: answering pending requests"), "{words:?}");
}

#[test]
fn a_hangup_goes_to_the_command_of_exec_even_with_certificates() {
    let (place, _) = place();
    // The signal goes to the process group, and the shell may report that it ended `sleep`: the test ignores its
    // messages.
    let script = "trap 'exit 9' HUP; echo ready; while :; do sleep 0.02; done";
    let exec = ["--exec", "--", "/bin/sh", "-c", script];
    let words = [&["serve"], &TLS[..], &exec].concat();
    let server = StreamedProcess::start(&mut place.command(&words));
    assert_eq!(server.line(), "ready");
    server.signal(Signal::SIGHUP);
    assert_eq!(server.end().2, Some(9));
}
