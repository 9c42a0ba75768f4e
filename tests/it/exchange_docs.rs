//! The files of `docs/exchange.md`, and the example, as written. [`super::docs`] runs the commands of the page.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::common::Place;
use crate::a_watchdog::bounded;

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Returns the code blocks of a section in this language.
fn blocks<'a>(page: &'a str, heading: &str, language: &str) -> Vec<&'a str> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let begin = format!("```{language}");
    let blocks = section.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| block.split_once('\n').unwrap().1).collect()
}

#[test]
fn the_page_shows_the_files_of_the_example() {
    let page = file("docs/exchange.md");
    let blocks = blocks(&page, "Tour", "toml");
    for name in ["root.toml", "press-7.toml"] {
        let shown = format!("# {name}\n{}", file(&format!("examples/exchange/{name}")));
        assert!(blocks.contains(&shown.as_str()), "{name} differs from the page:\n{shown}");
    }
    let of_other = file("examples/exchange/press-7.toml").replace("press-7", "press-9");
    assert_eq!(file("examples/exchange/press-9.toml"), of_other);
}

#[test]
fn the_example_finds_its_collision() {
    let place = Place::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/exchange/run.sh");
    let output = bounded(|| {
        Command::new("bash")
            .arg(script)
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("MQKV", env!("CARGO_BIN_EXE_mqkv"))])
            .envs([("HOME", place.folder()), ("TMPDIR", place.folder())])
            .output()
    })
    .unwrap();
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    assert!(shown.trim_end().ends_with("is a conflict"), "{shown}");
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 0, "it leaves no files");
}
