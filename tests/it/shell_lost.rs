//! The prompt when it loses its broker, a lock, its terminal or its process.

use std::fs;

use nix::sys::signal::Signal;

use super::common::{CTRL_C, CTRL_D, Place, Server, Terminal, wait_until};

fn at(place: &Place, server: &Server) -> Terminal {
    let terminal = Terminal::start(place.command(&["-b", &server.url()]));
    terminal.ends_with(&format!("127.0.0.1:{}>", server.port()));
    terminal
}

/// Returns the offline seconds in the last prompt of a screen.
fn offline(screen: &str) -> Option<u32> {
    screen.rsplit_once("(offline ")?.1.split_once("s)")?.0.parse().ok()
}

fn holder(place: &Place, server: &Server, key: &str) -> String {
    place.run(&["holder", key, "-b", &server.url()])
}

#[test]
fn the_prompt_survives_a_restart_of_the_broker() {
    let place = Place::new();
    let mut server = Server::start(&place, &["--data", "state"]);
    let terminal = at(&place, &server);
    terminal.line("set k before");
    terminal.shows("stored k");
    terminal.line("watch k");
    terminal.shows("CURRENT  k  before");
    terminal.keys("get nothi");
    terminal.shows("> get nothi");
    server.kill();
    terminal.shows("connection lost");
    // The prompt keeps the name of the broker, the line being edited stays, and the seconds are counted.
    let row = format!("127.0.0.1:{} [1 watch] (offline ", server.port());
    terminal.wait_for("the offline status", |screen| {
        screen.lines().last().is_some_and(|last| last.starts_with(&row) && last.ends_with("s)> get nothi"))
    });
    assert_eq!(terminal.screen().matches("get nothi").count(), 1, "{}", terminal.screen());
    let since = offline(&terminal.screen());
    terminal.wait_for("the seconds to pass", |screen| offline(screen) > since);
    server.start_again(&place, &["--data", "state"]);
    terminal.shows("connected again after");
    terminal.shows("GAP");
    terminal.ends_with(&format!("127.0.0.1:{} [1 watch]> get nothi", server.port()));
    place.run(&["set", "k", "after", "-b", &server.url()]);
    terminal.shows("SET      k  after");
    terminal.keys("ng\r");
    terminal.shows("key not found: nothing");
}

#[test]
fn a_line_that_waits_for_the_connection_reports_it_and_can_be_cancelled() {
    let place = Place::new();
    let mut server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    let broker = format!("127.0.0.1:{}", server.port());
    terminal.line("lock deploy");
    terminal.shows("[1 lock]>");
    server.kill();
    terminal.shows("(offline ");
    for line in ["get k", "unlock deploy"] {
        terminal.keys("\x0c");
        // In the first row, the next change of the prompt moves it down.
        terminal.wait_for("a clear screen", |screen| screen.trim_start().starts_with(&broker));
        terminal.start_command(line);
        terminal.shows(&format!("offline: waiting for the connection to {broker}; Ctrl-C cancels"));
        terminal.keys(CTRL_C);
        terminal.shows("\ncanceled");
    }
    terminal.line("decode hlc 001696374425000:00001:StateStore");
    let screen = terminal.shows("2023-10-03");
    assert_eq!(screen.matches("offline: waiting").count(), 1, "{screen}");
}

#[test]
fn after_a_takeover_each_line_reports_how_to_reconnect() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = Terminal::start(place.command(&["-b", &server.url(), "-i", "me"]));
    terminal.ends_with(&format!("127.0.0.1:{}>", server.port()));
    place.run(&["ping", "-i", "me", "-b", &server.url()]);
    terminal.shows("the session ended: lost the connection");
    terminal.line("get k");
    terminal.shows("hint: use a unique client id with -i, or omit -i");
    terminal.shows("hint: \\c\n");
    terminal.line("\\c");
    terminal.shows("connected to");
    terminal.line("get k");
    terminal.shows("key not found: k");
}

#[test]
fn ctrl_d_ends_a_prompt_that_is_offline() {
    let place = Place::new();
    let mut server = Server::start(&place, &[]);
    let mut terminal = at(&place, &server);
    server.kill();
    terminal.shows("connection lost");
    let offline = format!("127.0.0.1:{} (offline ", server.port());
    terminal.shows(&offline);
    terminal.keys(CTRL_C);
    terminal.wait_for("a new prompt", |screen| screen.matches(&offline).count() == 2);
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_background_lock_is_released_on_exit() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut terminal = at(&place, &server);
    terminal.line("lock deploy --holder me");
    terminal.shows("locked deploy as me, token ");
    terminal.ends_with(&format!("127.0.0.1:{} [1 lock]>", server.port()));
    assert_eq!(holder(&place, &server, "deploy"), "--- stdout\nme\n--- exit 0\n");
    for (line, refusals) in [("lock deploy", 1), ("lock deploy -- true", 2), ("lock deploy --once", 3)] {
        terminal.line(line);
        terminal.wait_for("the refusal", |screen| {
            screen.matches("this session holds the lock deploy already").count() == refusals
        });
    }
    assert_eq!(holder(&place, &server, "deploy"), "--- stdout\nme\n--- exit 0\n");
    terminal.line("set guarded v --fence-env");
    terminal.shows("stored guarded");
    assert!(place.run(&["set", "guarded", "w", "-b", &server.url()]).ends_with("--- exit 76\n"));
    terminal.line("lock second --holder me");
    terminal.shows("locked second");
    terminal.line("set guarded v --fence-env");
    terminal.shows("2 locks are held, and each has its own token");
    terminal.line("unlock second");
    terminal.shows("released second");
    assert!(holder(&place, &server, "second").contains("second is free"));
    terminal.press_ctrl_d();
    terminal.shows("released deploy");
    assert_eq!(terminal.end(), Some(0));
    assert!(holder(&place, &server, "deploy").contains("deploy is free"));
}

#[test]
fn a_lost_lock_is_reported_in_red_above_the_line() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    terminal.line("lock deploy --ttl 1s");
    terminal.shows("[1 lock]>");
    terminal.keys("get ha");
    terminal.shows("> get ha");
    place.run(&["set", "deploy", "another holder", "-b", &server.url()]);
    terminal.shows("LOCK LOST: deploy: the store reports another holder, or none");
    terminal.keys("lf\r");
    terminal.shows("key not found: half");
    terminal.line("set k v --fence-env");
    terminal.shows("no fencing token for --fence-env");
}

#[test]
fn waiting_for_a_lock_can_be_cancelled() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    place.run(&["set", "deploy", "another", "-b", &server.url()]);
    terminal.start_command("lock deploy");
    terminal.shows("waiting for deploy, held by another");
    terminal.keys(CTRL_C);
    terminal.shows("canceled waiting for the lock");
    terminal.ends_with(&format!("127.0.0.1:{}>", server.port()));
    terminal.line("get deploy");
    terminal.shows("get deploy\nanother\n");
}

#[test]
fn a_command_under_a_lock_owns_the_terminal() {
    let place = Place::new();
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    terminal.start_command("lock k -- sh -c 'read word; echo \"read $word\"'");
    terminal.line("this");
    terminal.shows("read this");
    terminal.line("lock k -- sh -c 'trap \"echo caught; exit\" INT; echo ready; read word'");
    terminal.shows("\nready");
    terminal.keys(CTRL_C);
    terminal.shows("caught");
    terminal.ends_with("embedded>");
    terminal.line("get k");
    terminal.shows("key not found: k");
}

#[test]
fn a_signal_releases_locks_and_restores_the_terminal() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let mut terminal = at(&place, &server);
    terminal.line("lock deploy");
    terminal.shows("[1 lock]>");
    terminal.keys("half a line");
    terminal.signal(Signal::SIGTERM);
    terminal.shows("released deploy");
    assert_eq!(terminal.end(), Some(143));
    assert!(holder(&place, &server, "deploy").contains("deploy is free"));
}

#[test]
fn a_signal_ends_the_prompt_of_a_dumb_terminal() {
    let place = Place::new().with_variable("TERM", "dumb");
    let server = Server::start(&place, &[]);
    let mut terminal = at(&place, &server);
    terminal.line("lock deploy");
    terminal.ends_with(&format!("127.0.0.1:{} [1 lock]>", server.port()));
    terminal.signal(Signal::SIGTERM);
    terminal.shows("released deploy");
    assert_eq!(terminal.end(), Some(143));
}

#[test]
fn ctrl_c_in_a_dumb_terminal_starts_a_new_line_and_keeps_locks() {
    let place = Place::new().with_variable("TERM", "dumb");
    let server = Server::start(&place, &[]);
    let mut terminal = at(&place, &server);
    let prompt = format!("127.0.0.1:{} [1 lock]>", server.port());
    terminal.line("lock deploy --holder me");
    terminal.ends_with(&prompt);
    terminal.keys(CTRL_C);
    terminal.wait_for("a new prompt", |screen| screen.ends_with(&format!("\n{prompt} ^C\n{prompt}")));
    terminal.line("set k 'one");
    terminal.wait_for("a line that continues", |screen| screen.ends_with("set k 'one\n>"));
    terminal.keys(CTRL_C);
    terminal.wait_for("a new prompt", |screen| screen.ends_with(&format!("\n> ^C\n{prompt}")));
    terminal.line("get k");
    terminal.wait_for("the new line alone", |screen| {
        screen.ends_with(&format!("{prompt} get k\nerror: key not found: k\n{prompt}"))
    });
    assert_eq!(holder(&place, &server, "deploy"), "--- stdout\nme\n--- exit 0\n");
    place.write("words", "begun\n");
    terminal.line("\\! tail -f words");
    terminal.ends_with("begun");
    terminal.keys(CTRL_C);
    terminal.wait_for("one prompt", |screen| screen.ends_with(&format!("\nbegun\n^C\n{prompt}")));
    terminal.keys(CTRL_D);
    terminal.shows("released deploy");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_line_that_is_not_utf_8_is_refused_and_the_prompt_continues() {
    for term in ["dumb", "xterm"] {
        let place = Place::new().with_variable("TERM", term);
        let server = Server::start(&place, &[]);
        let terminal = at(&place, &server);
        terminal.line("lock deploy --holder me");
        terminal.shows("[1 lock]>");
        terminal.bytes(b"get caf\xe9\r");
        terminal.shows("error: the line is not valid UTF-8\nhint: \"\\xFF\"");
        terminal.ends_with(&format!("127.0.0.1:{} [1 lock]>", server.port()));
        assert_eq!(holder(&place, &server, "deploy"), "--- stdout\nme\n--- exit 0\n");
    }
}

#[test]
fn a_dumb_terminal_gets_no_escape_sequences() {
    let place = Place::new().with_variable("TERM", "dumb");
    let mut server = Server::start(&place, &["--data", "state"]);
    let mut terminal = at(&place, &server);
    server.kill();
    terminal.shows("connection lost");
    // A dumb terminal is not repainted each second: only the next prompt shows the seconds.
    terminal.wait_for("two seconds", |_| {
        terminal.keys(CTRL_C);
        offline(&terminal.screen()) >= Some(2)
    });
    server.start_again(&place, &["--data", "state"]);
    terminal.shows("connected again after");
    terminal.keys(CTRL_D);
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.has_received(b'\x1b'), "{}", terminal.screen());
}

#[test]
fn a_closed_terminal_ends_the_prompt_and_releases_locks() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let terminal = at(&place, &server);
    terminal.line("lock deploy");
    terminal.shows("[1 lock]>");
    terminal.hang_up();
    wait_until("the lock is free", || {
        holder(&place, &server, "deploy").contains("deploy is free").then_some(())
    });
}

#[test]
fn a_foreground_watch_ends_with_ctrl_c() {
    let place = Place::new();
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    terminal.start_command("watch k | cat");
    terminal.shows("CURRENT");
    terminal.keys(CTRL_C);
    terminal.ends_with("embedded>");
    terminal.line("set k v");
    terminal.shows("stored k (1 byte)");
    terminal.line("watch k --until set --exec-on initial -- sh -c 'cat > out'");
    terminal.line("get k");
    terminal.shows("get k\nv\n");
    wait_until("the command has run", || fs::read(place.path("out")).ok().filter(|out| out == b"v"));
}
