//! A data directory that other processes want, that is moved, and whose files are removed or replaced while a server uses it.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use super::common::{LoggedServer, Place, Server, http, wait_until};

/// The verbs that need the directory for themselves.
const OTHERS: [&str; 6] = [
    "serve --listen 127.0.0.1:0 --data",
    "data verify",
    "data recover",
    "data clear-fence",
    "data lower-versions",
    "get k --embedded",
];
const IN_USE: &str = "is in use by another process\n";
const REFUSED: &str = "the change could not be persisted";
const STOPPED: &str = "persistent writes are refused until the disk works again: cannot use kept: ";

fn start(place: &Place) -> LoggedServer {
    LoggedServer::start(place, &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", "kept"])
}

fn at(place: &Place, server: &LoggedServer, words: &[&str]) -> String {
    place.run_at(&format!("mqtt://127.0.0.1:{}", server.port(0)), words)
}

/// Checks that no other process gets the directory.
fn check_in_use(place: &Place, directory: &str) {
    for verb in OTHERS {
        let mut words: Vec<_> = verb.split(' ').collect();
        let embedded = format!("--embedded={directory}");
        match words.last().copied() {
            Some("--embedded") => *words.last_mut().unwrap() = &embedded,
            Some("clear-fence") => words.extend([directory, "k"]),
            _ => words.push(directory),
        }
        let shown = place.run_bounded(&words);
        assert!(
            shown.contains(&format!("error: {directory} {IN_USE}")) && shown.ends_with("--- exit 74\n"),
            "{verb}: {shown}"
        );
    }
}

/// Waits until the server reports without a request that it has stopped to write, and checks that it refuses and says so.
fn check_stopped(place: &Place, server: &LoggedServer, cause: &str) {
    server.log_line_with(&format!("{STOPPED}{cause}"));
    let shown = at(place, server, &["set", "later", "v"]);
    assert!(shown.contains(REFUSED) && shown.ends_with("--- exit 76\n"), "{shown}");
    let (head, _) = http::get(server.port(1), "/readyz");
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(at(place, server, &["get", "k"]), "--- stdout\nv(no line feed)\n--- exit 0\n");
}

fn end(server: LoggedServer) {
    server.signal(Signal::SIGTERM);
    server.log_line_with("stopping: ");
    let id = server.id().to_string();
    drop(server);
    wait_until("the server ends", || (!Path::new("/proc").join(&id).exists()).then_some(()));
}

fn keys(place: &Place) -> String {
    place.run_bounded(&["keys", "--embedded=kept"])
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns the names and contents of all files.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_directory_whose_lock_file_was_removed_is_used_by_one_process() {
    let place = Place::new();
    let server = start(&place);
    assert_eq!(at(&place, &server, &["set", "k", "v"]), "--- exit 0\n");
    fs::remove_file(place.path("kept/lock")).unwrap();
    check_in_use(&place, "kept");
    check_stopped(
        &place,
        &server,
        "its file lock was removed or replaced: restart to read the directory again",
    );
    check_in_use(&place, "kept");
    end(server);
    let server = Server::start(&place, &["-q", "--data", "kept"]);
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nk\n--- exit 0\n");
    assert_eq!(place.run_at(&server.url(), &["set", "k", "w"]), "--- exit 0\n");
}

#[test]
fn files_that_are_restored_under_a_server_are_not_written_by_it() {
    let place = Place::new();
    assert_eq!(place.run_bounded(&["set", "k", "v", "--embedded=kept"]), "--- exit 0\n");
    let backup = files(&place.path("kept"));
    let server = start(&place);
    assert_eq!(at(&place, &server, &["set", "lost", "v"]), "--- exit 0\n");
    for (name, _) in files(&place.path("kept")) {
        fs::remove_file(place.path("kept").join(name)).unwrap();
    }
    backup.iter().for_each(|(name, bytes)| place.write(&format!("kept/{name}"), bytes));
    check_in_use(&place, "kept");
    check_stopped(&place, &server, "its file lock was removed or replaced");
    assert!(files(&place.path("kept")) == backup, "the server has changed the files");
    end(server);
    assert!(files(&place.path("kept")) == backup, "the server has changed the files at its end");
    assert_eq!(place.run_bounded(&["keys", "--embedded=kept"]), "--- stdout\nk\n--- exit 0\n");
}

#[test]
fn a_server_whose_directory_was_moved_leaves_the_new_one_to_another_server() {
    let place = Place::new();
    let server = start(&place);
    assert_eq!(at(&place, &server, &["set", "k", "v"]), "--- exit 0\n");
    fs::rename(place.path("kept"), place.path("moved")).unwrap();
    let mut other = Server::start(&place, &["-q", "--data", "kept"]);
    assert_eq!(place.run_at(&other.url(), &["set", "other", "v"]), "--- exit 0\n");
    check_in_use(&place, "moved");
    check_in_use(&place, "kept");
    other.kill();
    let before = files(&place.path("kept"));
    check_stopped(&place, &server, "it was moved, removed or replaced: restart with the directory to use");
    end(server);
    assert!(files(&place.path("kept")) == before, "the files of the other server have changed");
    assert_eq!(place.run_bounded(&["keys", "--embedded=kept"]), "--- stdout\nother\n--- exit 0\n");
    assert_eq!(place.run_bounded(&["keys", "--embedded=moved"]), "--- stdout\nk\n--- exit 0\n");
}

#[test]
fn a_server_acknowledges_no_write_to_a_directory_that_was_removed() {
    let place = Place::new();
    let server = start(&place);
    assert_eq!(at(&place, &server, &["set", "k", "v"]), "--- exit 0\n");
    fs::remove_dir_all(place.path("kept")).unwrap();
    let shown = at(&place, &server, &["set", "lost", "v"]);
    assert!(shown.contains(REFUSED) && shown.ends_with("--- exit 76\n"), "{shown}");
    check_stopped(&place, &server, "it was moved, removed or replaced");
    fs::create_dir(place.path("kept")).unwrap();
    let shown = at(&place, &server, &["set", "lost", "v"]);
    assert!(shown.contains(REFUSED), "{shown}");
    end(server);
    assert_eq!(files(&place.path("kept")), []);
}

#[test]
fn a_directory_that_is_moved_back_is_written_again() {
    let place = Place::new();
    let server = start(&place);
    assert_eq!(at(&place, &server, &["set", "k", "v"]), "--- exit 0\n");
    fs::rename(place.path("kept"), place.path("moved")).unwrap();
    check_stopped(&place, &server, "it was moved, removed or replaced");
    fs::rename(place.path("moved"), place.path("kept")).unwrap();
    server.log_line_with("the disk works again: persistent writes are accepted");
    assert_eq!(at(&place, &server, &["set", "again", "v"]), "--- exit 0\n");
    drop(server);
    let shown = keys(&place);
    assert_eq!(sorted(&shown), ["--- exit 0", "--- stdout", "again", "k"]);
}

/// The changes are in memory too, so the next snapshot has them.
#[test]
fn a_log_that_was_removed_under_a_server_costs_no_acknowledged_write() {
    let place = Place::new();
    let server = start(&place);
    assert_eq!(at(&place, &server, &["set", "k", "v"]), "--- exit 0\n");
    fs::remove_file(place.path("kept/log-1")).unwrap();
    let shown = at(&place, &server, &["set", "refused", "v"]);
    assert!(shown.contains(REFUSED), "{shown}");
    server.log_line_with("log-1: it was removed");
    server.log_line_with("the disk works again: persistent writes are accepted");
    assert_eq!(at(&place, &server, &["set", "again", "v"]), "--- exit 0\n");
    drop(server);
    assert_eq!(sorted(&keys(&place)), ["--- exit 0", "--- stdout", "again", "k"]);
}
