//! The real kubectl, with a small server that answers like the API server of a cluster.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::super::common::{StreamedProcess, line_in};
use super::super::watch::without_time;
use super::*;
use crate::a_watchdog::bounded;

/// The API server; it ends with its standard input.
struct ApiServer(Child);

impl ApiServer {
    /// Starts the server in front of the broker of a cluster, and writes a configuration of kubectl.
    fn start(cluster: &Cluster) -> Self {
        let inside = &cluster.inside;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/kube/apiserver.py");
        let child = Command::new("python3")
            .arg(script)
            .args([inside.path("ca.pem"), inside.path("token")])
            .arg(cluster.server.port(0).to_string())
            .stdin(Stdio::piped())
            .stdout(fs::File::create(inside.path("api")).unwrap())
            .spawn()
            .unwrap();
        let port = line_in(&inside.path("api"));
        let config = format!(
            "{{kind: Config, apiVersion: v1, current-context: plant,\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}],\n\
             users: [{{name: u, user: {{token: t}}}}],\n\
             contexts: [{{name: plant, context: {{cluster: c, user: u}}}}]}}\n"
        );
        cluster.outside.write("kubeconfig", config);
        Self(child)
    }

    /// Ends all forwards.
    fn drop_forwards(&self) {
        self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = bounded(|| self.0.wait());
    }
}

fn kubectl() -> PathBuf {
    let found = bounded(|| Command::new("sh").args(["-c", "command -v kubectl"]).output()).unwrap();
    String::from_utf8(found.stdout).unwrap().trim().into()
}

#[test]
#[ignore = "needs Debian's kubernetes-client and python3"]
fn the_real_kubectl_forwards_a_port_and_gets_ca_and_token() {
    let cluster = Cluster::new();
    let api = ApiServer::start(&cluster);
    let command = |words: &[&str]| {
        let mut command = cluster.command(words);
        command.env("MQKV_KUBECTL", kubectl()).env("KUBECONFIG", cluster.outside.path("kubeconfig"));
        command
    };
    let run = |words: &[&str]| bounded_transcript(&mut command(words));
    cluster.outside.write("token", &cluster.token);
    let with_file = ["--sat-file", "token"];
    // Older versions create no token for an audience, among them the one of Debian 12.
    let creates_tokens =
        bounded(|| Command::new(kubectl()).args(["create", "token", "-h"]).output()).unwrap();
    let creates_tokens = String::from_utf8_lossy(&creates_tokens.stdout).contains("--audience");
    let options = if creates_tokens { &[][..] } else { &with_file };
    if creates_tokens {
        let shown = run(&["get", "k", "-b", "kube:///azure-iot-operations?serviceaccount=denied"]);
        assert!(shown.contains("error: forbidden: create serviceaccounts/token in the namespace"), "{shown}");
    } else {
        let shown = run(&["get", "k", "-b", "kube:"]);
        assert!(shown.contains("error: kubectl is too old: create token needs version 1.24"), "{shown}");
    }
    let shown = run(&[&["-b", "kube://plant", "set", "k", "one"], options].concat());
    assert_eq!(shown, "--- exit 0\n");
    for (url, message, code) in [
        ("kube://other", "error: kubectl has no context other\n", 78),
        (
            "kube://plant/azure-iot-operations/other",
            "error: no service other in the namespace azure-iot-operations\n",
            69,
        ),
        (
            "kube://plant/azure-iot-operations/aio-broker:1",
            "error: the service aio-broker has no port 1\n",
            69,
        ),
    ] {
        let shown = run(&[&["get", "k", "-b", url], options].concat());
        assert!(shown.contains(message) && shown.ends_with(&format!("--- exit {code}\n")), "{shown}");
    }
    let watch = StreamedProcess::start(&mut command(&[&["watch", "k", "-b", "kube:"], options].concat()));
    assert_eq!(without_time(&watch.line()), "CURRENT\tk\tone");
    api.drop_forwards();
    assert!(watch.error_line().starts_with("connection lost: "));
    assert!(without_time(&watch.line()).starts_with("GAP\t\t"));
    assert_eq!(run(&[&["-b", "kube:", "set", "k", "two"], options].concat()), "--- exit 0\n");
    assert_eq!(without_time(&watch.line()), "SET\tk\ttwo");
    watch.signal(Signal::SIGTERM);
    assert_eq!(watch.end().2, Some(143));
    drop(api);
    let shown = run(&[&["get", "k", "-b", "kube:"], options].concat());
    assert!(shown.contains("error: kubectl cannot reach the cluster\n"), "{shown}");
}
