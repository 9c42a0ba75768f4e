//! Contexts at the prompt: their display, changes, and protection of unsaved state.

use std::fs;

use super::common::{CTRL_C, Place, Server, TAB, Terminal};

/// Starts two brokers with the contexts `lab` and `prod`; `prod` is read-only.
fn plant() -> (Place, [Server; 2]) {
    let place = Place::new();
    let servers = [Server::start(&place, &[]), Server::start(&place, &[])];
    let [lab, prod] = &servers;
    fs::create_dir_all(place.path(".config/mqkv")).unwrap();
    let text = format!(
        "default_context = 'lab'\n[context.lab]\nbroker = '{}'\n[context.prod]\nbroker = '{}'\nread_only = true\n\
         prompt_color = 'red'\ntimeout = '3s'\n",
        lab.url(),
        prod.url()
    );
    place.write(".config/mqkv/config.toml", text);
    (place, servers)
}

fn prompt(name: &str, server: &Server) -> String {
    format!("{name} 127.0.0.1:{}>", server.port())
}

#[test]
fn the_prompt_shows_the_context_and_changes_with_it() {
    let (place, [lab, prod]) = plant();
    let mut terminal = Terminal::start(place.command(&["shell"]));
    let screen = terminal.ends_with(&prompt("lab", &lab));
    assert!(screen.contains("\ncontext lab\n"), "{screen}");
    assert_eq!(terminal.color_of_last_row(), vt100::Color::Default);
    terminal.line("set k v");
    terminal.shows("stored k");
    terminal.line("\\c prod");
    terminal.ends_with(&prompt("prod", &prod));
    assert_eq!(terminal.color_of_last_row(), vt100::Color::Idx(1));
    terminal.shows("\ncontext prod, read-only\n");
    terminal.line("get k");
    terminal.shows("key not found: k");
    terminal.line("\\conninfo");
    terminal.wait_for("both lines", |screen| {
        screen.matches("context prod, read-only").count() == 2 && screen.contains("session open for")
    });
    // A reconnect uses the current context, not the context of the command line.
    terminal.line("\\c");
    terminal.wait_for("another connection", |screen| screen.matches("context prod, read-only").count() == 3);
    terminal.ends_with(&prompt("prod", &prod));
    // A URL replaces the context.
    terminal.line(&format!("\\c {}", lab.url()));
    terminal.ends_with(&format!("127.0.0.1:{}>", lab.port()));
    terminal.line("\\c prdo");
    terminal.shows("unknown context prdo");
    terminal.shows("hint: \\c prod\n");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_read_only_context_is_read_only_at_the_prompt_too() {
    let (place, [_lab, prod]) = plant();
    let terminal = Terminal::start(place.command(&["-x", "prod"]));
    terminal.ends_with(&prompt("prod", &prod));
    for line in ["set k v", "set k '-v'", "lock k", "raw DEL k"] {
        terminal.keys("\x0c");
        terminal.ends_with(&prompt("prod", &prod));
        terminal.line(line);
        terminal.shows("the context prod is read-only");
        terminal.shows("hint: --force-write");
    }
    terminal.line("set k '-v' --force-write");
    terminal.shows("stored k (2 bytes)");
    terminal.line("set k w --force-write");
    terminal.shows("stored k (1 byte)");
    terminal.line("get k");
    terminal.shows("get k\nw\n");
}

#[test]
fn names_of_contexts_are_completed() {
    let (place, [lab, _prod]) = plant();
    let terminal = Terminal::start(place.command(&[]));
    terminal.ends_with(&prompt("lab", &lab));
    terminal.keys(&format!("\\c pr{TAB}"));
    terminal.shows("> \\c prod");
    terminal.clear(&prompt("lab", &lab));
    terminal.keys(&format!("\\! mqkv get k -x pr{TAB}"));
    terminal.shows("get k -x prod");
}

#[test]
fn leaving_a_store_in_memory_needs_confirmation() {
    let (place, [lab, _prod]) = plant();
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    terminal.line("set k v");
    terminal.shows("stored k");
    terminal.line("\\c");
    terminal.shows("this store is in memory only: its keys would be lost");
    terminal.shows("hint: \\c!");
    terminal.line("\\c lab");
    terminal.shows("hint: \\c! lab");
    terminal.line("get k");
    terminal.shows("get k\nv\n");
    terminal.line("\\c! lab");
    terminal.ends_with(&prompt("lab", &lab));
}

/// Starts a server with the user `ann`, and a prompt on an embedded store.
fn with_user(place: &Place) -> (Server, Terminal) {
    place.write("password", "hunter2-and-more");
    place.run(&["serve", "user", "add", "users", "ann", "-q", "--password-file", "password"]);
    let server = Server::start(place, &["--users", "users"]);
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    (server, terminal)
}

#[test]
fn the_password_for_a_url_is_asked_for() {
    let place = Place::new();
    let (server, mut terminal) = with_user(&place);
    let url = format!("mqtt://ann@127.0.0.1:{}", server.port());
    terminal.line(&format!("\\c! {url}"));
    terminal.shows("password of ann:");
    terminal.secret("hunter1-and-less");
    terminal.shows("bad user name or password");
    terminal.shows("still using embedded");
    terminal.ends_with("embedded>");
    terminal.line(&format!("\\c! {url}"));
    terminal.wait_for("the question", |screen| screen.matches("password of ann:").count() == 2);
    terminal.keys(CTRL_C);
    terminal.shows("canceled; still using embedded");
    terminal.ends_with("embedded>");
    // After the cancelled question no key is lost.
    terminal.line("get nothing");
    terminal.shows("key not found: nothing");
    terminal.line(&format!("\\c! ann@127.0.0.1:{}", server.port()));
    terminal.wait_for("the question", |screen| screen.matches("password of ann:").count() == 3);
    terminal.secret("hunter2-and-more");
    terminal.ends_with(&format!("127.0.0.1:{}>", server.port()));
    terminal.line("set k v");
    let screen = terminal.shows("stored k");
    assert!(!screen.contains("hunter"), "{screen}");
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
    let history = fs::read_to_string(place.path(".local/state/mqkv/history")).unwrap();
    assert!(history.contains(&url) && !history.contains("hunter"), "{history}");
}

#[test]
fn the_password_for_a_url_is_taken_from_a_context() {
    let place = Place::new();
    let (server, terminal) = with_user(&place);
    let url = format!("mqtt://ann@127.0.0.1:{}", server.port());
    let added = place.run(&[
        "context",
        "add",
        "lab",
        "-b",
        &url,
        "--password-file",
        place.path("password").to_str().unwrap(),
    ]);
    assert!(added.ends_with("--- exit 0\n"), "{added}");
    terminal.line(&format!("\\c! {url}"));
    terminal.ends_with(&format!("127.0.0.1:{}>", server.port()));
    let screen = terminal.screen();
    assert!(!screen.contains("password of"), "{screen}");
}

#[test]
fn a_hint_at_the_prompt_names_what_works_there() {
    let place = Place::new();
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    for (line, hint) in [
        ("\\c! lab", "\\! mqkv context add lab -b URL"),
        ("\\c! wss://h:1:2", "\\c wss://HOST[:PORT]"),
        ("ttl k", "the protocol does not report a remaining time; see help ttl"),
        ("config show", "\\! mqkv config"),
        ("watches", "\\watches"),
    ] {
        terminal.keys("\x0c");
        terminal.wait_for("a clear screen", |screen| screen == "embedded>");
        terminal.line(line);
        terminal.shows(&format!("hint: {hint}\n"));
    }
}
