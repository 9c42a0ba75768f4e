//! `serve --config`: options from a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use super::common::{LoggedServer, Place, StreamedProcess};

#[test]
fn options_of_a_file_take_effect() {
    let place = Place::new();
    fs::create_dir(place.path("etc")).unwrap();
    place.write(
        "etc/mqkv.toml",
        "listen = ['mqtt://127.0.0.1:0', 'ws://127.0.0.1:0/store']\ndata = '../state'\nkeys_max = 1\n",
    );
    let server = LoggedServer::start(&place, &["--config", "etc/mqkv.toml"]);
    assert!(
        server
            .ready()
            .starts_with("listening on mqtt://127.0.0.1:PORT and ws://127.0.0.1:PORT/store, persistent in ")
    );
    assert!(place.path("state/lock").exists());
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    let refused = place.run_at(&url, &["set", "l", "v"]);
    assert!(refused.ends_with("--- exit 76\n"), "{refused}");
}

#[test]
fn a_file_that_others_can_change_gets_a_warning_that_names_it() {
    let place = Place::new();
    place.write("mqkv.toml", "listen = '127.0.0.1:0'\nauthz = 'rules'\n");
    place.write("rules", "rules: []\n");
    place.write("config.toml", "[context.c]\nbroker = 'mqtt://127.0.0.1:1'\n");
    for name in ["mqkv.toml", "rules", "config.toml"] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    let warning =
        |name: &str| format!("warning: other users can change {name} (mode 0666): chmod go-w {name}");
    let server = StreamedProcess::start(&mut place.command(&["serve", "-v", "--config", "mqkv.toml"]));
    let lines = std::iter::from_fn(|| Some(server.log_line()));
    let log: Vec<_> = lines.take_while(|line| !line.starts_with("listening on ")).collect();
    for name in ["mqkv.toml", "rules"] {
        assert!(log.iter().any(|line| line.ends_with(&warning(name))), "{log:?}");
    }
    let get = |options: &[&str]| {
        place.run(&[&["get", "k", "--config", "config.toml", "-x", "c"], options].concat())
    };
    assert!(get(&[]).starts_with(&format!("--- stderr\n{}\nerror: ", warning("config.toml"))));
    assert!(get(&["-q"]).starts_with("--- stderr\nerror: "));
}

#[test]
fn an_option_of_the_command_line_takes_precedence() {
    let place = Place::new();
    place.write("mqkv.toml", "listen = 'mqtt://192.0.2.1:1'\nkeys_max = 1\n");
    let server =
        LoggedServer::start(&place, &["--config", "mqkv.toml", "--keys-max", "2", "--listen", "127.0.0.1:0"]);
    assert_eq!(server.ready(), "listening on 127.0.0.1:PORT, in memory");
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    for key in ["k", "l"] {
        assert_eq!(place.run_at(&url, &["set", key, "v"]), "--- exit 0\n");
    }
}

#[test]
fn options_of_file_and_command_line_are_checked_together() {
    let place = Place::new();
    place.write("mqkv.toml", "persist = 'custom'\n");
    assert_eq!(
        place.run(&["serve", "--config", "mqkv.toml"]),
        "--- stderr\nerror: --data DIR is missing\n  with the options of mqkv.toml\n\
         hint: mqkv serve --data DIR --config FILE --persist WHAT\nhint: mqkv serve --help\n--- exit 2\n"
    );
}

#[test]
fn an_invalid_file_is_reported_with_its_line() {
    let place = Place::new();
    place.write("mqkv.toml", "\nmemory-max = '1G'\n");
    assert_eq!(
        place.run(&["serve", "--config", "mqkv.toml"]),
        "--- stderr\nerror: mqkv.toml:2: unknown option memory-max\nhint: memory_max\n--- exit 78\n"
    );
    let missing = place.run(&["serve", "--config", "none.toml"]);
    assert_eq!(
        missing,
        "--- stderr\nerror: cannot read none.toml: No such file or directory (os error 2)\n--- exit 74\n"
    );
}

#[test]
fn sighup_never_ends_a_server_with_a_file() {
    let place = Place::new();
    place.write("mqkv.toml", "listen = '127.0.0.1:0'\nlog = 'text'\n");
    let server = LoggedServer::start(&place, &["--config", "mqkv.toml"]);
    server.signal(Signal::SIGHUP);
    // Answered after the signal, because the signal was pending before the request was sent.
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    server.signal(Signal::SIGTERM);
    server.log_line_with("stopping");
}

#[test]
fn the_file_of_the_package_is_valid() {
    let place = Place::new();
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/mqkv.toml")).unwrap();
    let security = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/SECURITY.md")).unwrap();
    let (heading, _) = text.split_once("\" in /usr/share/doc/mqkv/SECURITY.md").unwrap();
    let heading = &heading[heading.rfind('"').unwrap() + 1..];
    assert!(security.contains(&format!("\n## {heading}\n")), "SECURITY.md has no section {heading}");
    let state = place.path("state").display().to_string();
    let text = text.replace("/var/lib/mqkv", &state);
    // Each line that is commented out is an option too.
    let options = text.replace("\n#", "\n").replace("\n ", "\n# ");
    place.write("default.toml", text);
    let server = LoggedServer::start(&place, &["--config", "default.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(server.ready(), format!("listening on 127.0.0.1:PORT, persistent in {state}"));
    place.write("all.toml", options);
    // All keys and values are valid: what is missing is the first file that they name.
    let all = place.run(&["serve", "--config", "all.toml"]);
    assert!(all.contains("error: cannot read users: No such file"), "{all}");
}
