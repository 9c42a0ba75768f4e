//! The picture of the tour: what a real terminal shows, as an SVG whose rows are text.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use super::common::{CTRL_D, Place, Server, Terminal};

const ROWS: u16 = 24;
const COLUMNS: u16 = 80;
/// Size of a character and of the border, in units of the SVG.
const CELL: (f64, f64) = (8.4, 18.0);
const BORDER: f64 = 14.0;
/// How long a typed line and its output are shown, in seconds.
const TYPED_S: f64 = 1.1;
const SHOWN_S: f64 = 2.4;
const LAST_S: f64 = 6.0;
/// The colors of a terminal, from black to bright white.
const PALETTE: [&str; 16] = [
    "#21262d", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#c9d1d9", "#8b949e",
    "#ffa198", "#aff5b4", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#ffffff",
];
const PICTURE: &str = "docs/pictures/tour.svg";

/// A line that is typed, and the prompt after it.
const SHELL: &str = "$";
const PROMPT: &str = ">";
const TOUR: [(&str, &str); 14] = [
    ("mqkv set line1/temp 21.5 --ttl 30m", SHELL),
    ("mqkv get line1/temp", SHELL),
    ("mqkv set job/7 worker-3 --nx && echo mine", SHELL),
    ("mqkv set job/7 worker-4 --nx || echo \"exit code $?\"", SHELL),
    ("mqkv lock deploy -- echo 'one at a time'", SHELL),
    ("mqkv get job/7 -j", SHELL),
    ("mqkv gte job/7", SHELL),
    ("clear", SHELL),
    ("mqkv", PROMPT),
    ("keys --sort", PROMPT),
    ("watch line1/temp", PROMPT),
    ("set line1/temp 22.25", PROMPT),
    ("lock shift", PROMPT),
    ("unlock shift", PROMPT),
];

/// What the screen shows from a time on: rows of runs of one style.
struct Frame {
    at_s: f64,
    rows: Vec<Vec<Run>>,
}

#[derive(PartialEq)]
struct Run {
    column: u16,
    text: String,
    color: Option<usize>,
    is_bold: bool,
}

/// Plays the tour in a terminal, and returns its frames and how long they take.
fn play(port: Option<u16>) -> (Vec<Frame>, f64) {
    let place = Place::new();
    let listen = format!("127.0.0.1:{}", port.unwrap_or(0));
    let server = Server::start(&place, &["--listen", &listen]);
    let program = place.command(&[]);
    let mut shell = std::process::Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env_clear().current_dir(place.folder());
    shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let folder = Path::new(env!("CARGO_BIN_EXE_mqkv")).parent().unwrap();
    shell.env("PATH", format!("{}:/usr/bin:/bin", folder.display())).env("PS1", "$ ");
    if port.is_none() {
        shell.env("MQKV_PORT", server.port().to_string());
    }
    let mut terminal = Terminal::of_size(shell, ROWS, COLUMNS);
    terminal.ends_with(SHELL);
    let (mut frames, mut at_s) = (Vec::new(), 0.0);
    for (line, prompt) in TOUR {
        terminal.keys(line);
        terminal.wait_for(line, |screen| screen.lines().last().is_some_and(|row| row.contains(line)));
        frames.push(Frame { at_s, rows: terminal.parsed(rows) });
        at_s += TYPED_S;
        let before = terminal.received_lines();
        terminal.keys("\r");
        terminal.wait_for(prompt, |screen| {
            terminal.received_lines() > before
                && screen.lines().last().is_some_and(|row| row.ends_with(prompt))
                && (!line.starts_with("watch") || screen.contains("CURRENT"))
                && (!line.starts_with("set line1/temp 22") || screen.contains("22.25\n"))
        });
        frames.push(Frame { at_s, rows: terminal.parsed(rows) });
        at_s += SHOWN_S;
    }
    at_s += LAST_S - SHOWN_S;
    terminal.keys(CTRL_D);
    terminal.ends_with(SHELL);
    terminal.line("exit");
    terminal.end();
    (frames, at_s)
}

/// Returns the rows of a screen, each as runs of characters of the same style.
fn rows(screen: &vt100::Screen) -> Vec<Vec<Run>> {
    let row = |row| {
        let mut runs: Vec<Run> = Vec::new();
        for column in 0..COLUMNS {
            let cell = screen.cell(row, column).unwrap();
            let text = if cell.has_contents() { cell.contents() } else { " " };
            let color = match cell.fgcolor() {
                vt100::Color::Idx(index) => Some(usize::from(index)),
                vt100::Color::Default | vt100::Color::Rgb(..) => None,
            };
            match runs.last_mut() {
                Some(run) if (run.color, run.is_bold) == (color, cell.bold()) => run.text.push_str(text),
                _ => runs.push(Run { column, text: text.to_owned(), color, is_bold: cell.bold() }),
            }
        }
        if let Some(last) = runs.last_mut() {
            last.text.truncate(last.text.trim_end().len());
        }
        runs.retain(|run| !run.text.trim().is_empty());
        runs
    };
    let mut rows: Vec<_> = (0..ROWS).map(row).collect();
    while rows.last().is_some_and(Vec::is_empty) {
        rows.pop();
    }
    rows
}

/// Returns the frames as a film: they stand below each other, and are moved through a window one by one.
fn svg(frames: &[Frame], length_s: f64) -> String {
    let (width, height) =
        (f64::from(COLUMNS) * CELL.0 + 2.0 * BORDER, f64::from(ROWS) * CELL.1 + 2.0 * BORDER);
    let mut steps = String::new();
    for (number, frame) in frames.iter().enumerate() {
        let percent = frame.at_s * 100.0 / length_s;
        let _ = write!(steps, "{percent:.3}%{{transform:translateY(-{:.0}px)}}", number as f64 * height);
    }
    let last = (frames.len() - 1) as f64 * height;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n\
         <title>mqkv in a terminal: keys, a lock, the prompt and a watch</title>\n<style>\n\
         text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#c9d1d9;white-space:pre}}\n\
         .film{{transform:translateY(-{last:.0}px);animation:film {length_s:.1}s step-end infinite}}\n\
         @keyframes film{{{steps}}}\n@media(prefers-reduced-motion:reduce){{.film{{animation:none}}}}\n\
         .b{{font-weight:bold}}\n"
    );
    for (index, color) in PALETTE.iter().enumerate() {
        let _ = writeln!(out, ".c{index}{{fill:{color}}}");
    }
    let _ = writeln!(
        out,
        "</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n<g class=\"film\">"
    );
    for (number, frame) in frames.iter().enumerate() {
        for (row, runs) in frame.rows.iter().enumerate() {
            let y = number as f64 * height + BORDER + (row as f64 + 0.75) * CELL.1;
            let _ = write!(out, "<text y=\"{y:.1}\">");
            for run in runs {
                let x = BORDER + f64::from(run.column) * CELL.0;
                let columns = run.text.chars().count();
                let mut class =
                    run.color.map(|index| format!("c{}", index % PALETTE.len())).unwrap_or_default();
                if run.is_bold {
                    class = format!("{class} b").trim().to_owned();
                }
                let class = if class.is_empty() { class } else { format!(" class=\"{class}\"") };
                let text = run.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let length = columns as f64 * CELL.0;
                let _ = write!(out, "<tspan x=\"{x:.1}\" textLength=\"{length:.1}\"{class}>{text}</tspan>");
            }
            out.push_str("</text>\n");
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// Returns the text of a picture, with a `#` for each number and each name that differs in each run, and `@` for the broker.
fn text_of(svg: &str) -> String {
    let film = svg.split("<g class=\"film\">").nth(1).unwrap();
    let mut text = String::new();
    let mut is_tag = false;
    for character in film.chars() {
        match character {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            other if !is_tag => text.push(other),
            _ => {}
        }
    }
    let row = |row: &str| {
        let mut out = String::new();
        for word in row.split_inclusive(' ') {
            let is_version = word.contains("\"version\":");
            match word {
                word if word.starts_with("localhost:") => out.push('@'),
                word if word.starts_with("mqkv-") => out.push('#'),
                word if is_version
                    || word.chars().any(|c| c.is_ascii_digit()) && word.contains([':', '.']) =>
                {
                    out.push('#');
                }
                word => out.push_str(word.trim_end()),
            }
            out.push(' ');
        }
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    text.lines().map(row).filter(|row| !row.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns the rows of a picture but for those of a prompt, where hints may or may not be shown yet. An event of a watch may come
/// before or after the answer of its command.
fn output_of(picture: &str) -> BTreeSet<String> {
    text_of(picture).lines().filter(|row| !row.starts_with(['$', '@'])).map(str::to_owned).collect()
}

/// With the variable `MQKV_RECORD` the picture is written, from a server on port 1883.
#[test]
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn the_picture_of_the_tour_shows_what_the_program_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    let is_recorded = std::env::var_os("MQKV_RECORD").is_some();
    let (frames, length_s) = play(is_recorded.then_some(1883));
    if is_recorded {
        std::fs::write(&path, svg(&frames, length_s)).unwrap();
    }
    let picture = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        output_of(&picture),
        output_of(&svg(&frames, length_s)),
        "record it again: see CONTRIBUTING.md"
    );
    let escaped = |line: &str| line.replace('&', "&amp;").replace('>', "&gt;");
    for (line, _) in TOUR {
        assert!(picture.contains(&escaped(line)), "{line}");
    }
}
