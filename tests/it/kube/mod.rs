//! `-b kube:`: brokers that kubectl leads to. A script takes the place of kubectl, `mqkv serve` that of the cluster's broker.

mod errors;
mod lasting;
mod real;

use std::fs;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::common::bounded::bounded_transcript;
use super::common::pki::Ca;
use super::common::{ENTER, LoggedServer, Place, TAB, Terminal, is_running, wait_until, write_script};

const SERVICE: &str = "aio-broker";

/// A cluster: a broker with TLS and tokens, and a kubectl that leads to it. Commands run in a folder of their own.
pub struct Cluster {
    /// The folder of kubectl and of the server.
    inside: Place,
    /// Where commands run.
    outside: Place,
    server: LoggedServer,
    /// The token that the broker accepts and kubectl creates, valid for an hour.
    token: String,
}

impl Cluster {
    pub fn new() -> Self {
        Self::with("mqtts://127.0.0.1:0", &[])
    }

    /// Starts a cluster whose broker has this listener and further options.
    pub fn with(listen: &str, options: &[&str]) -> Self {
        let inside = Place::new();
        let ca = Ca::new(&inside, "ca.pem");
        ca.issue(&inside, "broker", &[SERVICE]);
        ca.issue(&inside, "me", &["me"]);
        let token = token_issued_at(mqkv::clock::wall_ms() / 1000, 3600);
        inside.write("tokens", format!("default {token}\n"));
        inside.write("token", &token);
        let tls = ["--tls-cert", "broker.pem", "--tls-key", "broker.key", "--sat-tokens", "tokens"];
        let server = LoggedServer::start(&inside, &[&tls[..], &["--listen", listen], options].concat());
        inside.write("server", server.port(0).to_string());
        let kubectl = inside.path("kubectl");
        write_script(&kubectl, include_str!("kubectl.pl"));
        let outside = Place::new().with_variable("MQKV_KUBECTL", kubectl.to_str().unwrap());
        Self { inside, outside, server, token }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        self.outside.command(words)
    }

    /// Runs a command and returns its transcript.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        bounded_transcript(&mut self.command(words))
    }

    /// Returns the calls of kubectl so far, sorted: they are made at the same time.
    pub fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.inside.path("calls")).unwrap_or_default();
        let mut calls: Vec<_> = calls.lines().map(str::to_owned).collect();
        calls.sort_unstable();
        calls
    }

    /// Returns the process of the last forward, once it has been started `count` times.
    pub fn forward(&self, count: usize) -> String {
        wait_until("a forwarded port", || {
            let forwards = fs::read_to_string(self.inside.path("forwards")).ok()?;
            let ids: Vec<_> = forwards.lines().collect();
            (ids.len() >= count && forwards.ends_with('\n')).then(|| ids.last().unwrap().to_string())
        })
    }

    /// Ends the last forward as a pod that is deleted does.
    pub fn end_forward(&self, count: usize) {
        let id = self.forward(count);
        nix::sys::signal::kill(Pid::from_raw(id.parse().unwrap()), Signal::SIGTERM).unwrap();
        wait_until("the end of the forward", || (!is_running(&id)).then_some(()));
    }

    /// Sets what a verb of kubectl prints before it fails; it succeeds again with `None`.
    pub fn fail(&self, verb: &str, said: Option<&str>) {
        let file = format!("fail-{verb}");
        match said {
            Some(said) => self.inside.write(&file, said),
            None => fs::remove_file(self.inside.path(&file)).unwrap(),
        }
    }

    /// Checks that no kubectl is left.
    pub fn nothing_runs(&self) {
        let forwards = fs::read_to_string(self.inside.path("forwards")).unwrap_or_default();
        for id in forwards.lines() {
            wait_until("the end of kubectl", || (!is_running(id)).then_some(()));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // If a test has failed.
        let forwards = fs::read_to_string(self.inside.path("forwards")).unwrap_or_default();
        for id in forwards.lines().filter(|id| is_running(id)) {
            let _ = killpg(Pid::from_raw(id.parse().unwrap()), Signal::SIGKILL);
        }
    }
}

/// Returns a token of the service account `default`.
fn token_issued_at(issued_s: u64, lifetime_s: u64) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let expires_s = issued_s + lifetime_s;
    let account = "system:serviceaccount:azure-iot-operations:default";
    let claims =
        format!(r#"{{"aud":["aio-internal"],"sub":"{account}","iat":{issued_s},"exp":{expires_s}}}"#);
    format!("{}.{}.{}", part(r#"{"alg":"RS256"}"#), part(&claims), part("signature"))
}

const FORWARD: &str =
    "port-forward --address 127.0.0.1 service/aio-broker :18883 --namespace azure-iot-operations";
const CA: &str = r"get configmap azure-iot-operations-aio-ca-trust-bundle -o jsonpath={.data.ca\.crt} --namespace azure-iot-operations";
const TOKEN: &str = "create token default --audience aio-internal --namespace azure-iot-operations";

#[test]
fn one_option_leads_to_the_broker_of_the_current_context_and_nothing_is_left_behind() {
    let cluster = Cluster::new();
    assert_eq!(cluster.run(&["-b", "kube:", "set", "line1/temp", "21.5"]), "--- exit 0\n");
    let shown = cluster.run(&["get", "line1/temp", "-b", "kube:"]);
    assert_eq!(shown, "--- stdout\n21.5(no line feed)\n--- exit 0\n");
    assert_eq!(cluster.calls(), [TOKEN, TOKEN, CA, CA, FORWARD, FORWARD]);
    cluster.nothing_runs();
    assert_eq!(fs::read_dir(cluster.outside.folder()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn a_url_names_context_namespace_service_port_and_service_account() {
    let cluster = Cluster::new();
    let url = "kube://arn:aws:eks:eu:1:cluster%2Fplant/lines/aio-broker:1884?serviceaccount=reader";
    assert!(cluster.run(&["ping", "-c", "1", "-b", url]).ends_with("--- exit 0\n"));
    let with = "--namespace lines --context arn:aws:eks:eu:1:cluster/plant";
    assert_eq!(
        cluster.calls(),
        [
            format!("create token reader --audience aio-internal {with}"),
            format!(
                r"get configmap azure-iot-operations-aio-ca-trust-bundle -o jsonpath={{.data.ca\.crt}} {with}"
            ),
            format!("port-forward --address 127.0.0.1 service/aio-broker :1884 {with}"),
        ]
    );
}

#[test]
fn explicit_options_replace_the_calls_of_kubectl() {
    let cluster = Cluster::new();
    fs::copy(cluster.inside.path("ca.pem"), cluster.outside.path("ca.pem")).unwrap();
    cluster.outside.write("token", &cluster.token);
    let called = |options: &[&str]| {
        let _ = fs::remove_file(cluster.inside.path("calls"));
        let shown = cluster.run(&[&["-b", "kube:", "set", "k", "v"], options].concat());
        (cluster.calls(), shown)
    };
    let ok = || "--- exit 0\n".to_owned();
    assert_eq!(called(&["-T", "ca.pem"]), (vec![TOKEN.into(), FORWARD.into()], ok()));
    assert_eq!(called(&["--sat-file", "token"]), (vec![CA.into(), FORWARD.into()], ok()));
    assert_eq!(called(&["-T", "ca.pem", "--sat-file", "token"]), (vec![FORWARD.into()], ok()));
    let (calls, shown) = called(&["--insecure"]);
    assert_eq!(calls, [TOKEN, FORWARD]);
    assert!(shown.contains("warning: --insecure") && shown.ends_with("--- exit 0\n"), "{shown}");
    let (_, shown) = called(&["--server-name", "other"]);
    assert!(shown.contains("is for aio-broker, not for other"), "{shown}");
    // The name of the service is the one that the certificate must have.
    let url = "kube:///azure-iot-operations/other";
    let shown = cluster.run(&["get", "k", "-b", url]);
    assert!(shown.contains("the certificate of other:18883 is for aio-broker, not for other"), "{shown}");
    assert_eq!(cluster.run(&["set", "k", "v", "-b", url, "--server-name", "aio-broker"]), ok());
}

#[test]
fn a_certificate_or_a_password_replaces_the_token() {
    let cluster = Cluster::with("mqtts://127.0.0.1:0?client-cert=optional", &["--client-ca", "ca.pem"]);
    for name in ["me.pem", "me.key"] {
        fs::copy(cluster.inside.path(name), cluster.outside.path(name)).unwrap();
    }
    let shown = cluster.run(&["-b", "kube:", "set", "k", "v", "-C", "me.pem", "-K", "me.key"]);
    assert_eq!(
        (shown, cluster.calls()),
        ("--- exit 0\n".to_owned(), vec![CA.to_owned(), FORWARD.to_owned()])
    );
    cluster.outside.write("password", "secret\n");
    let shown = cluster.run(&["-b", "kube:", "get", "k", "-u", "ann", "--password-file", "password"]);
    assert!(shown.ends_with("--- exit 77\n"), "{shown}");
    assert_eq!(cluster.calls(), [CA, CA, FORWARD, FORWARD]);
}

#[test]
fn the_commands_are_printed_with_verbose_and_the_token_never() {
    let cluster = Cluster::new();
    let secret = cluster.token.clone();
    let program = cluster.inside.path("kubectl").display().to_string();
    let shown = cluster.run(&["get", "k", "-b", "kube:", "-v", "--trace"]);
    assert!(shown.contains(&format!("\n{program} {FORWARD}\n")), "{shown}");
    assert!(
        shown.contains(&format!(
            "{program} {}\n",
            CA.replace("jsonpath={.data.ca\\.crt}", "'jsonpath={.data.ca\\.crt}'")
        )),
        "{shown}"
    );
    assert!(shown.contains(&format!("{program} {TOKEN}\n")), "{shown}");
    assert!(shown.contains("CONNECT"), "{shown}");
    let mut all = shown;
    for words in [
        &["doctor", "-b", "kube:", "-v", "--trace"][..],
        &["doctor", "-b", "kube:", "-j", "--trace"],
        &["get", "k", "-b", "kube:", "-j", "-v", "--trace"],
        &["config", "show", "-b", "kube:", "--origin"],
    ] {
        all += &cluster.run(words);
    }
    for part in secret.split('.') {
        assert!(!all.contains(part), "{all}");
    }
}

#[test]
fn doctor_reports_each_step_with_its_time() {
    let cluster = Cluster::new();
    let text = cluster.run(&["doctor", "-b", "kube:"]);
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|line| line.contains('\t')).map(|line| line.split('\t').collect()).collect();
    let names: Vec<_> = lines.iter().map(|line| line[1]).collect();
    assert_eq!(names[..6], ["forward", "ca", "token", "dns", "tcp", "tls"], "{text}");
    assert!(lines[..6].iter().all(|line| line[0] == "ok" && line[2].ends_with("ms")), "{text}");
    assert!(
        lines[0][3].ends_with("leads to the service aio-broker of the namespace azure-iot-operations"),
        "{text}"
    );
    assert!(
        lines[2][3].starts_with("azure-iot-operations/default; for the audience aio-internal; expires in "),
        "{text}"
    );
    assert!(
        lines[5][3].contains("trusted: the configmap azure-iot-operations-aio-ca-trust-bundle"),
        "{text}"
    );
    cluster.fail("get", Some("Error from server (NotFound): configmaps \"c\" not found\n"));
    let output = cluster.run(&["doctor", "-b", "kube:", "-j"]);
    let json: Value = serde_json::from_str(output.lines().nth(1).unwrap()).unwrap();
    let of =
        |name: &str| json.as_array().unwrap().iter().find(|check| check["check"] == name).unwrap().clone();
    assert_eq!((of("forward")["status"].as_str(), of("token")["status"].as_str()), (Some("ok"), Some("ok")));
    assert!(of("forward")["ms"].is_number() && of("forward")["details"]["prepared"].is_string());
    let ca = of("ca");
    assert_eq!((ca["status"].as_str(), ca["code"].as_u64()), (Some("fail"), Some(69)));
    assert!(ca["hint"].as_str().unwrap().contains("-T FILE"), "{ca}");
    assert_eq!(
        (of("dns")["status"].as_str(), of("dns")["message"].as_str()),
        (Some("skipped"), Some("ca failed"))
    );
    assert!(output.ends_with("--- exit 69\n"));
}

#[test]
fn a_context_has_a_broker_in_a_cluster() {
    let cluster = Cluster::new();
    let added = cluster.run(&["context", "add", "plant", "-b", "kube://plant-7"]);
    assert!(added.ends_with("--- exit 0\n"), "{added}");
    let listed = cluster.run(&["context", "ls"]);
    assert!(listed.contains("kube://plant-7"), "{listed}");
    let shown = cluster.run(&["config", "show", "-x", "plant"]);
    assert!(shown.contains("kube://plant-7"), "{shown}");
    assert_eq!(cluster.run(&["-x", "plant", "set", "k", "v"]), "--- exit 0\n");
    assert!(cluster.calls().iter().all(|call| call.ends_with("--context plant-7")));
    assert!(cluster.run(&["context", "test", "plant"]).ends_with("--- exit 0\n"));
}

#[test]
fn the_prompt_shows_the_url_and_connects_to_another_one() {
    let cluster = Cluster::new();
    let mut terminal = Terminal::start(cluster.command(&["-b", "kube://plant-7"]));
    terminal.shows("connected to kube://plant-7");
    terminal.ends_with("kube://plant-7>");
    terminal.line("set k v");
    terminal.shows("stored k");
    terminal.keys("\\c ku");
    terminal.keys(TAB);
    terminal.shows("\\c kube:");
    terminal.keys(ENTER);
    terminal.shows("connected to kube: in");
    terminal.line("get k");
    terminal.wait_for("the value", |screen| screen.ends_with("get k\nv\nkube:>"));
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
    cluster.nothing_runs();
}
