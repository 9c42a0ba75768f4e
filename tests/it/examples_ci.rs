//! `examples/ci`: its script, and the commands of its pipelines as written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::common::yaml::Yaml;
use super::common::{Place, Server, write_script};
use crate::a_watchdog::bounded;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// The working directory of an application with tests, in which the commands of a pipeline run.
struct Workspace {
    place: Place,
}

impl Workspace {
    /// Creates it with the keys of the examples, and with programs in the place of those that the pipelines install and run.
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("tests")).unwrap();
        fs::copy(example("testing/keys.jsonl"), place.path("tests/keys.jsonl")).unwrap();
        fs::create_dir(place.path("bin")).unwrap();
        let workspace = Self { place };
        workspace.program("pip", r#"[ "$*" = "install tools/mqkv-0.1.0-*.whl" ]"#);
        // The tests of the application: they need the store with its keys, and leave a mark that they have run.
        workspace.program(
            "pytest",
            r#"[ "$(mqkv get line1/setpoint)" = 70 ] && mqkv set tested yes && echo tested"#,
        );
        workspace
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.place.path("bin").join(name);
        write_script(&path, &format!("#!/bin/sh\n{script}\n"));
    }

    /// Returns a command with `mqkv` and the programs of the workspace in its PATH.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let folder = Path::new(env!("CARGO_BIN_EXE_mqkv")).parent().unwrap();
        let path = format!("{}:{}:/usr/bin:/bin", self.place.path("bin").display(), folder.display());
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.place.folder())
            .env("TMPDIR", self.place.folder());
        command.current_dir(self.place.folder()).stdin(Stdio::null());
        command
    }

    /// Runs a step of a pipeline as GitHub and GitLab do.
    fn step(&self, script: &str, variables: &[(String, String)]) -> Output {
        let variables = variables.iter().map(|(name, value)| (name, value));
        bounded(|| self.command("bash").args(["-e", "-c", script]).envs(variables).output()).unwrap()
    }
}

impl Drop for Workspace {
    /// Kills the store that a job leaves in the background, as the runner does at the end of a job.
    fn drop(&mut self) {
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let is_here =
                fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder == self.place.folder());
            if is_here && let Ok(id) = process.file_name().to_string_lossy().parse() {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

#[track_caller]
fn succeeded(what: &str, output: &Output) -> String {
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {shown}{}", String::from_utf8_lossy(&output.stderr));
    shown.into_owned()
}

/// Returns `test-with-store WORD...`.
fn with_store(workspace: &Workspace, words: &[&str]) -> Command {
    let mut command = workspace.command(example("ci/test-with-store"));
    command.args(words);
    command
}

#[test]
fn the_script_runs_a_command_beside_a_store_and_exits_with_its_code() {
    let workspace = Workspace::new();
    let names = || fs::read_dir(workspace.place.folder()).unwrap().count();
    let before = names();
    let output =
        bounded(|| with_store(&workspace, &["pytest"]).env("STORE_SEED", "tests/keys.jsonl").output())
            .unwrap();
    assert_eq!(succeeded("pytest", &output), "tested\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let output = bounded(|| {
        with_store(&workspace, &["sh", "-c", "echo $MQKV_BROKER; mqkv get none; exit 7"]).output()
    })
    .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let url = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("error: key not found: none\nstore: "), "with the log of the store: {errors}");
    assert!(
        workspace.place.run_at(url.trim(), &["ping"]).contains("connection refused"),
        "the store has ended"
    );
    assert_eq!(names(), before, "it leaves no files");
}

#[test]
fn the_script_runs_nothing_if_the_store_does_not_start() {
    let workspace = Workspace::new();
    workspace.place.write("invalid", "{}\n");
    let output =
        bounded(|| with_store(&workspace, &["echo", "run"]).env("STORE_SEED", "invalid").output()).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(65), Vec::new()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("store: error: ") && errors.contains("missing member"), "{errors}");
}

/// Replaces the address of a store in a container by that of one that runs here.
fn here(text: &str, server: &Server) -> String {
    let address = format!("127.0.0.1:{}", server.port());
    ["0.0.0.0:1883", "127.0.0.1:1883", "store:1883"]
        .iter()
        .fold(text.to_owned(), |text, of_pipeline| text.replace(of_pipeline, &address))
}

/// Runs the command of a container, without its port.
fn container(workspace: &Workspace, command: &[&str]) -> Server {
    let (verb, options) = command.split_first().unwrap();
    assert_eq!(*verb, "serve");
    let listen = options.iter().position(|word| *word == "--listen").unwrap();
    assert_eq!(options[listen + 1], "0.0.0.0:1883", "reachable from the job");
    Server::start(&workspace.place, &[&options[..listen], &options[listen + 2..], &["-q"]].concat())
}

#[test]
fn the_jobs_of_github_work_as_written() {
    let text = fs::read_to_string(example("ci/github.yml")).unwrap();
    let workflow = Yaml::documents(&text).remove(0);
    let jobs = workflow.at(&["jobs"]).map();
    assert_eq!(
        jobs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["one-command", "several-steps", "container"]
    );
    for (name, job) in jobs {
        let workspace = Workspace::new();
        let path = |name: &str| workspace.place.path(name).display().to_string();
        fs::write(path("github-env"), "").unwrap();
        let mut variables =
            vec![("RUNNER_TEMP".to_owned(), path("")), ("GITHUB_ENV".to_owned(), path("github-env"))];
        // A service runs the command of the image.
        let server =
            job.get("services").map(|_| container(&workspace, &["serve", "--listen", "0.0.0.0:1883"]));
        let here = |text: &str| server.as_ref().map_or_else(|| text.to_owned(), |server| here(text, server));
        for (name, value) in job.get("env").map_or(&[][..], Yaml::map) {
            variables.push((name.clone(), here(value.text())));
        }
        if let Some(options) = job.get("services").map(|services| services.at(&["store", "options"]).text()) {
            let health = options.split('"').nth(1).unwrap();
            succeeded(health, &workspace.step(health, &variables));
        }
        let mut shown = String::new();
        for step in job.at(&["steps"]).list() {
            let Some(run) = step.get("run") else { continue };
            shown += &succeeded(name, &workspace.step(run.text(), &variables));
            let set = fs::read_to_string(path("github-env")).unwrap();
            variables.extend(
                set.lines()
                    .map(|line| line.split_once('=').unwrap())
                    .map(|(name, value)| (name.to_owned(), value.to_owned())),
            );
        }
        assert!(shown.contains("tested\n"), "{name}: {shown}");
    }
}

#[test]
fn the_jobs_of_gitlab_work_as_written() {
    let text = fs::read_to_string(example("ci/gitlab.yml")).unwrap();
    let pipeline = Yaml::documents(&text).remove(0);
    assert_eq!(pipeline.map().len(), 2);
    for (name, job) in pipeline.map() {
        let workspace = Workspace::new();
        let server = job
            .get("services")
            .map(|services| container(&workspace, &services.at(&["0", "command"]).texts()));
        let variables = job.get("variables").map_or(&[][..], Yaml::map).iter();
        let variables: Vec<_> = variables
            .map(|(name, value)| (name.clone(), here(value.text(), server.as_ref().unwrap())))
            .collect();
        // GitLab runs all lines in one shell.
        let script = job.at(&["script"]).texts().join("\n");
        let shown = succeeded(name, &workspace.step(&script, &variables));
        assert!(shown.contains("tested\n"), "{name}: {shown}");
    }
}

#[test]
fn the_images_have_the_version_of_this_package() {
    let files = [
        "examples/ci/github.yml",
        "examples/ci/gitlab.yml",
        "examples/compose/compose.yaml",
        "examples/kubernetes/store.yaml",
        "examples/kubernetes/client.yaml",
        "docs/testing.md",
    ];
    for file in files {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let mut versions =
            text.split("/mqkv:").skip(1).map(|rest| rest.split(['\n', '"', ' ']).next().unwrap()).peekable();
        assert!(versions.peek().is_some(), "{file} names no image");
        assert!(versions.all(|version| version == env!("CARGO_PKG_VERSION")), "{file}");
    }
}
