//! The prompt under the job control of a shell, and the traces that it leaves on the screen.

use super::common::{CTRL_C, CTRL_Z, ENTER, Place, Server, Terminal};

/// Starts an interactive shell in a terminal, and the prompt in it.
fn prompt_in_shell(shell: &[&str], place: &Place, server: &Server) -> Terminal {
    let terminal = Terminal::in_shell(shell, place, &["-b", &server.url()]);
    terminal.ends_with(&prompt(server));
    terminal
}

fn prompt(server: &Server) -> String {
    format!("127.0.0.1:{}>", server.port())
}

#[test]
fn after_ctrl_z_and_fg_the_line_is_repainted() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    for shell in [&["bash", "--norc", "--noprofile", "-i"][..], &["sh", "-i"]] {
        let mut terminal = prompt_in_shell(shell, &place, &server);
        terminal.keys("set k on two");
        terminal.shows("> set k on two");
        // The cursor is in the middle of the line.
        terminal.keys("\x1b[D\x1b[D\x1b[D\x1b[D");
        let prompt = prompt(&server);
        let place_in_row = u16::try_from(prompt.len() + 1 + "set k on".len()).unwrap();
        terminal.wait_for("the cursor", |_| terminal.cursor() == place_in_row);
        for _ in 0..2 {
            terminal.keys(CTRL_Z);
            terminal.ends_with("$");
            terminal.line("fg");
            let row = format!("{prompt} set k on two");
            terminal.ends_with(&row);
            terminal.wait_for("the cursor", |_| terminal.cursor() == place_in_row);
        }
        terminal.keys(&format!("e \x05 --nx\x17{ENTER}"));
        terminal.shows("unexpected argument 'two'");
        terminal.ends_with(&prompt);
        terminal.keys(CTRL_Z);
        terminal.ends_with("$");
        terminal.line("fg");
        terminal.ends_with(&prompt);
        terminal.line("ping");
        terminal.shows("ping\n");
        terminal.press_ctrl_d();
        terminal.ends_with("$");
        terminal.line("exit");
        terminal.end();
    }
}

#[test]
fn a_prompt_without_a_shell_is_not_stopped() {
    let place = Place::new();
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    terminal.keys(&format!("get half{CTRL_Z}"));
    terminal.keys(&format!("way{ENTER}"));
    terminal.shows("key not found: halfway");
}

#[test]
fn a_hint_is_erased_when_the_line_is_entered_or_cancelled() {
    let place = Place::new();
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    for keys in [CTRL_C, ENTER] {
        terminal.keys("set");
        terminal.shows("embedded> set KEY VALUE");
        terminal.keys(keys);
        terminal.wait_for("the end of the line", |screen| {
            screen.contains("embedded> set\n") && screen.ends_with("\nembedded>")
        });
        let screen = terminal.screen();
        assert!(!screen.contains("[--ttl"), "{screen}");
        terminal.keys("\x0c");
        terminal.wait_for("a clear screen", |screen| screen == "embedded>");
    }
    // Also behind a line of two rows, and in the last row of the screen.
    let wide = format!("get {}", "k".repeat(90));
    terminal.line("\\! seq 40");
    terminal.ends_with("embedded>");
    terminal.keys(&wide);
    terminal.wait_for("the line", |screen| screen.ends_with(&"k".repeat(24)));
    terminal.keys(" ");
    terminal.shows("k KEY... [-");
    terminal.keys(CTRL_C);
    terminal.ends_with("embedded>");
    let screen = terminal.screen();
    assert!(screen.ends_with(&format!("{}\nembedded>", "k".repeat(24))), "{screen}");
}

#[test]
fn without_color_there_are_no_hints() {
    let place = Place::new().with_variable("NO_COLOR", "1");
    let terminal = Terminal::start(place.command(&["--embedded"]));
    terminal.ends_with("embedded>");
    terminal.line("get line1/temp");
    terminal.shows("key not found");
    terminal.keys("get l");
    terminal.ends_with("embedded> get l");
    terminal.clear("embedded>");
    terminal.keys("set k ~");
    terminal.ends_with("embedded> set k ~");
    let screen = terminal.screen();
    assert!(!screen.contains("VALUE") && !screen.contains("open quote"), "{screen}");
}
