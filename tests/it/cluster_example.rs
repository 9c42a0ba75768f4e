//! `examples/cluster`: a store on etcd behind Mosquitto, whose owner is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::common::Place;
use crate::a_watchdog::bounded;

/// The cluster of the example; ended when dropped.
struct Example {
    place: Place,
    script: PathBuf,
}

impl Example {
    fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/cluster/run.sh");
        Self { place: Place::new(), script }
    }

    fn folder(&self) -> PathBuf {
        self.place.path("cluster")
    }

    fn output(&self, verb: &str) -> Output {
        let mut command = Command::new("bash");
        command.arg(&self.script).arg(verb).env_clear();
        command.envs([("PATH", "/usr/bin:/bin"), ("MQKV", env!("CARGO_BIN_EXE_mqkv"))]);
        command.env("HOME", self.place.folder()).env("MQKV_CLUSTER_DIR", self.folder());
        bounded(|| command.output()).unwrap()
    }

    /// Runs a verb of the script, which succeeds; returns what it prints.
    fn run(&self, verb: &str) -> String {
        let Output { status, stdout, stderr } = self.output(verb);
        let (shown, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{verb}: {shown}{errors}");
        shown.into_owned()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        if self.folder().exists() {
            self.output("down");
        }
    }
}

#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn the_example_answers_a_get_after_its_owner_was_killed() {
    let example = Example::new();
    assert!(example.run("up").starts_with("up: mqkv -b mqtt://127.0.0.1:"));
    for _ in 0..2 {
        let shown = example.run("kill-owner");
        assert!(shown.contains(" ms: 21.5\n"), "{shown}");
        assert!(shown.ends_with(" runs again, and follows\n"), "{shown}");
    }
    example.run("down");
    assert!(!example.folder().exists(), "it leaves no files");
}
