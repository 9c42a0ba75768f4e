//! Data folders: of a server, and of a root and a leaf of an exchange.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use serde_json::Value;

use super::super::common::exchange::Node;
use super::super::common::{Place, Server};
use super::{folder_to_write, folders};

/// A segment of the log ends with zeros, to the length that the next groups need.
const BLOCK_BYTES: usize = 4096;

/// Copies a data folder without what holds no data: the reserve and the zeros at the end of segments.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "reserve" {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        if name.starts_with("log-") {
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            bytes.truncate(used.next_multiple_of(BLOCK_BYTES));
        }
        fs::write(to.join(name), bytes).unwrap();
        fs::set_permissions(to.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Runs a command that must succeed and returns its standard output.
#[track_caller]
fn output(place: &Place, words: &[&str]) -> String {
    let output = place.command(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns what `data verify` finds in a folder, without what depends on its place and the time.
fn verified(place: &Place, folder: &str) -> Value {
    let mut found: Value = serde_json::from_str(&output(place, &["data", "verify", folder, "-j"])).unwrap();
    for member in ["file_bytes", "log_bytes", "expired"] {
        found.as_object_mut().unwrap().remove(member);
    }
    found
}

/// The keys of a server with their versions, in the order of the keys.
fn exported(place: &Place, url: &str) -> String {
    let exported = output(place, &["-b", url, "export"]);
    let mut lines: Vec<_> = exported.split_inclusive('\n').collect();
    lines.sort_unstable();
    lines.concat()
}

/// Makes the folder `plant` of a server: with a snapshot, and with groups behind it that a killed process has written.
fn write_plant(place: &Place) {
    let set = |server: &Server, words: &[&str]| {
        assert_eq!(place.run_at(&server.url(), &[&["set", "-q"], words].concat()), "--- exit 0\n");
    };
    let mut server = Server::start(place, &["-q", "--data", "plant"]);
    set(&server, &["line1/temp", "21.5"]);
    set(&server, &["--hex", "00ff", "--key-hex", "ff00"]);
    set(&server, &["job/7", "worker-3", "--ttl", "36500d"]);
    set(&server, &["fenced", "f", "--fence", "001795542120412:00001:StateStore"]);
    set(&server, &["gone", "g"]);
    // An orderly end writes a snapshot if there are more than 4 MiB of log.
    let line = format!("set line1/log {}\n", "x".repeat(60_000));
    let batch = place.run_at_with_input(&server.url(), &["batch", "-q"], line.repeat(80).as_bytes());
    assert!(batch.ends_with("--- exit 0\n"));
    set(&server, &["line1/log", "short"]);
    server.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(server.end(), Some(0));
    let server = Server::start(place, &["-q", "--data", "plant"]);
    set(&server, &["line1/temp", "22"]);
    assert_eq!(place.run_at(&server.url(), &["del", "gone"]), "--- exit 0\n");
    drop(server);
    assert!(
        fs::read_dir(place.path("plant"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_str().unwrap().starts_with("snapshot-") })
    );
}

/// Makes the folders of a root and of a leaf: with a conflict, a deletion, and a change that the root does not have.
fn write_exchange(place: &Place) {
    let mut root = Node::root(place, &[]);
    let mut leaf = root.leaf("press-7");
    root.wait_synchronized("press-7");
    root.set("recipe/1", "steel");
    root.set("line/2", "75");
    leaf.set("line/1", "75");
    root.wait_for("line/1", "75");
    root.settle();
    leaf.kill();
    root.set("line/1", "80");
    assert_eq!(root.run(&["del", "line/2"]), "--- exit 0\n");
    root.kill();
    leaf.start_again();
    leaf.set("line/1", "81");
    root.start_again();
    root.wait_synchronized("press-7");
    root.kill();
    leaf.set("line/3", "offline");
    leaf.kill();
}

/// Makes the folders of this version, and what later versions must find in them.
fn write(to: &Path) {
    let place = Place::new();
    write_plant(&place);
    write_exchange(&place);
    for folder in ["plant", "root", "press-7"] {
        copy(&place.path(folder), &to.join(folder));
    }
    for folder in ["plant", "root", "press-7"] {
        let text = serde_json::to_string_pretty(&verified(&place, folder)).unwrap();
        fs::write(to.join(format!("{folder}.json")), text + "\n").unwrap();
    }
    let server = Server::start(&place, &["-q", "--data", "plant"]);
    fs::write(to.join("plant.jsonl"), exported(&place, &server.url())).unwrap();
}

/// Returns the folders of all versions. If recordings are to be written, the first caller writes those of this version.
fn versions() -> Vec<PathBuf> {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| {
        if let Some(folder) = folder_to_write() {
            write(&folder);
        }
    });
    folders()
}

/// Returns a place with the folders that a version has written.
fn place_of(version: &Path) -> Place {
    let place = Place::new();
    for folder in ["plant", "root", "press-7"] {
        copy(&version.join(folder), &place.path(folder));
        let expected: Value =
            serde_json::from_str(&fs::read_to_string(version.join(format!("{folder}.json"))).unwrap())
                .unwrap();
        let found = verified(&place, folder);
        for (member, value) in expected.as_object().unwrap() {
            assert_eq!(&found[member], value, "{folder}: {member}");
        }
    }
    place
}

#[test]
fn a_server_serves_the_data_folders_of_every_version() {
    for version in versions() {
        let place = place_of(&version);
        let server = Server::start(&place, &["-q", "--data", "plant"]);
        let expected = fs::read_to_string(version.join("plant.jsonl")).unwrap();
        let found = exported(&place, &server.url());
        // These members differ in each run, and some versions did not export them.
        let without = |line: &str| {
            let end = line.find(",\"expires\"").or(line.find(",\"fence\"")).unwrap_or(line.len() - 1);
            format!("{}}}\n", &line[..end])
        };
        let [shown, recorded] = [&found, &expected].map(|text| text.lines().map(without).collect::<String>());
        assert_eq!(shown, recorded);
        assert!(found.contains(",\"expires\":") && found.contains(",\"fence\":"), "{found}");
        let unfenced = place.run_at(&server.url(), &["set", "fenced", "x"]);
        assert!(
            unfenced.contains("a fencing token is required") && unfenced.ends_with("exit 76\n"),
            "{unfenced}"
        );
        assert_eq!(place.run_at(&server.url(), &["set", "line1/temp", "23"]), "--- exit 0\n");
        let in_memory = Server::start(&place, &["-q"]);
        let export = version.join("plant.jsonl");
        output(&place, &["-b", &in_memory.url(), "import", export.to_str().unwrap()]);
        let keys = output(&place, &["-b", &in_memory.url(), "keys"]);
        assert_eq!(keys.lines().count(), expected.lines().count());
    }
}

#[test]
fn the_nodes_of_an_exchange_go_on_with_the_data_folders_of_every_version() {
    for version in versions() {
        let place = place_of(&version);
        let root = Node::root(&place, &[]);
        let leaf = root.leaf("press-7");
        root.wait_synchronized("press-7");
        root.wait_for("line/3", "offline");
        for node in [&root, &leaf] {
            node.wait_for("recipe/1", "steel");
            node.wait_for("line/1", "80");
            assert!(node.run(&["get", "line/2"]).ends_with("--- exit 1\n"));
            let conflicts = node.run(&["exchange", "conflicts"]);
            assert!(conflicts.contains("\tline/1\tpress-7\troot-wins\t4\tthe root\t81\n"), "{conflicts}");
        }
    }
}
