//! Files that the program reads and writes: its configuration, with the paths and line ends of the system.

use crate::place::Place;

#[test]
fn a_context_is_added_used_and_removed() {
    let place = Place::new();
    let server = place.serve(&[]);
    let add = ["context", "add", "plant", "-b", &server.broker];
    let ran = place.run(&add);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.output(&["-x", "plant", "set", "k", "v"]);
    assert_eq!(place.output(&["-x", "plant", "get", "k"]), "v");
    assert!(place.run(&["context", "ls"]).stdout.contains("plant"));
    assert_eq!(place.run(&["context", "rm", "plant"]).code, Some(0));
    assert_eq!(place.run(&["-x", "plant", "get", "k"]).code, Some(78));
}

#[test]
fn the_configuration_is_in_the_folder_of_the_system() {
    let place = Place::new();
    let path = place.output(&["config", "path"]);
    let expected: &[&str] = match std::env::consts::OS {
        "macos" => &["Library", "Application Support", "mqkv", "config.toml"],
        "windows" => &["mqkv", "config.toml"],
        _ => &[".config", "mqkv", "config.toml"],
    };
    let expected: std::path::PathBuf = expected.iter().collect();
    assert_eq!(std::path::Path::new(&path), place.path("").join(expected));
}

#[test]
fn a_configuration_with_a_mark_and_line_ends_of_windows_is_read() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.write(
        "mqkv.toml",
        format!(
            "\u{feff}default_context = \"here\"\r\n\r\n[context.here]\r\nbroker = \"{}\"\r\n",
            server.broker
        ),
    );
    place.output(&["--config", "mqkv.toml", "set", "k", "v"]);
    assert_eq!(place.output(&["--config", "mqkv.toml", "get", "k"]), "v");
}
