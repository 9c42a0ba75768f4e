//! `examples/kubernetes`: the commands of its containers and probes, run here with what their volumes contain.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use super::common::bounded::bounded_transcript;
use super::common::pki::Ca;
use super::common::yaml::Yaml;
use super::common::{LoggedServer, Place, StreamedProcess, reserved_port, wait_until, write_script};

/// The resources of a file by their kind.
fn manifest(name: &str) -> BTreeMap<String, Yaml> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kubernetes").join(name);
    let documents = Yaml::documents(&fs::read_to_string(path).unwrap());
    documents.into_iter().map(|resource| (resource.at(&["kind"]).text().to_owned(), resource)).collect()
}

/// A container of a manifest as it runs here: with folders of a place instead of its volumes, and addresses of this machine
/// instead of those of the cluster.
struct Container<'a> {
    place: &'a Place,
    pod: &'a Yaml,
    /// Addresses of the manifest, and those that take their place.
    addresses: Vec<(&'static str, String)>,
}

impl Container<'_> {
    fn spec(&self) -> &Yaml {
        self.pod.at(&["containers", "0"])
    }

    /// Returns a word of the manifest as it is here.
    fn here(&self, word: &str) -> String {
        let mut word = word.to_owned();
        for (of_manifest, here) in &self.addresses {
            word = word.replace(of_manifest, here);
        }
        for mount in self.spec().get("volumeMounts").map_or(&[][..], Yaml::list) {
            let volume = self.place.path(mount.at(&["name"]).text());
            word = word.replacen(mount.at(&["mountPath"]).text(), volume.to_str().unwrap(), 1);
        }
        word
    }

    /// Returns a command with the variables of the container.
    fn command(&self, words: &[&str]) -> Command {
        let words: Vec<_> = words.iter().map(|word| self.here(word)).collect();
        let mut command = self.place.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        for variable in self.spec().get("env").map_or(&[][..], Yaml::list) {
            // Kubernetes alone knows what others stand for.
            if let Some(value) = variable.get("value") {
                command.env(variable.at(&["name"]).text(), self.here(value.text()));
            }
        }
        command
    }

    fn start(&self) -> StreamedProcess {
        StreamedProcess::start(&mut self.command(&self.spec().at(&["args"]).texts()))
    }

    /// Returns whether a probe succeeds.
    fn is_probed(&self, probe: &str) -> bool {
        let words = self.spec().at(&[probe, "exec", "command"]).texts();
        assert_eq!(words[0], "mqkv");
        bounded_transcript(&mut self.command(&words[1..])).ends_with("--- exit 0\n")
    }
}

const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];

#[test]
fn the_store_starts_with_its_seed_is_probed_and_keeps_what_clients_write() {
    let (place, resources) = (Place::new(), manifest("store.yaml"));
    let pod = resources["Deployment"].at(&["spec", "template", "spec"]);
    let port = reserved_port();
    let addresses = vec![
        ("0.0.0.0:1883", format!("127.0.0.1:{port}")),
        ("127.0.0.1:1883", format!("127.0.0.1:{port}")),
        ("127.0.0.1:9883", "127.0.0.1:0".to_owned()),
    ];
    let container = Container { place: &place, pod, addresses };
    fs::create_dir(place.path("keys")).unwrap();
    for (name, content) in resources["ConfigMap"].at(&["data"]).map() {
        fs::write(place.path("keys").join(name), content.text()).unwrap();
    }
    let url = format!("mqtt://127.0.0.1:{port}");
    for start in ["first", "second"] {
        assert!(PROBES.iter().all(|probe| !container.is_probed(probe)), "{start}: nothing runs");
        let store = container.start();
        wait_until("the startup probe succeeds", || container.is_probed("startupProbe").then_some(()));
        assert!(PROBES.iter().all(|probe| container.is_probed(probe)));
        // Only a new store gets the keys of the seed.
        let setpoint = if start == "first" { b"70" } else { b"80" };
        assert_eq!(place.bytes_at(&url, &["get", "line1/setpoint"]), setpoint);
        if start == "first" {
            assert_eq!(place.run_at(&url, &["set", "line1/count", "7"]), "--- exit 0\n");
            assert_eq!(place.run_at(&url, &["set", "line1/setpoint", "80"]), "--- exit 0\n");
        }
        assert_eq!(place.bytes_at(&url, &["get", "line1/count"]), b"7");
        store.signal(Signal::SIGTERM);
        assert_eq!(store.end().2, Some(0), "{start}");
    }
}

#[test]
fn the_names_in_the_cluster_s_resources_agree_and_an_update_goes_on_with_a_ready_standby() {
    let resources = manifest("cluster.yaml");
    let deployment = &resources["Deployment"];
    let labels = deployment.at(&["spec", "template", "metadata", "labels"]);
    for selector in [
        deployment.at(&["spec", "selector", "matchLabels"]),
        resources["PodDisruptionBudget"].at(&["spec", "selector", "matchLabels"]),
        resources["NetworkPolicy"].at(&["spec", "podSelector", "matchLabels"]),
    ] {
        assert_eq!(selector, labels);
    }
    let container = deployment.at(&["spec", "template", "spec", "containers", "0"]);
    assert_eq!(
        container.at(&["envFrom", "0", "configMapRef", "name"]),
        resources["ConfigMap"].at(&["metadata", "name"])
    );
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(container.at(&[probe, "httpGet", "port"]), container.at(&["ports", "0", "name"]));
    }
    let update = deployment.at(&["spec", "strategy", "rollingUpdate"]);
    assert_eq!((update.at(&["maxSurge"]).text(), update.at(&["maxUnavailable"]).text()), ("1", "0"));
}

#[cfg(feature = "cluster")]
#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn both_pods_of_the_cluster_are_ready_and_the_second_one_answers_when_the_first_one_ends() {
    use super::common::etcd::EtcdCluster;
    use super::common::http;
    use super::mosquitto::mosquitto;
    let (place, resources) = (Place::new(), manifest("cluster.yaml"));
    let (_broker, url) = mosquitto(&place);
    let etcd = EtcdCluster::start(&place, 1);
    let pod = resources["Deployment"].at(&["spec", "template", "spec"]);
    let start = |name: &str| {
        let admin = reserved_port();
        let addresses = vec![("0.0.0.0:9883", format!("127.0.0.1:{admin}"))];
        let container = Container { place: &place, pod, addresses };
        let mut command = container.command(&container.spec().at(&["args"]).texts());
        for (variable, value) in resources["ConfigMap"].at(&["data"]).map() {
            let value = match variable.as_str() {
                "MQKV_BROKER" => url.clone(),
                "MQKV_ETCD" => etcd.urls().join(","),
                _ => value.text().to_owned(),
            };
            command.env(variable, value);
        }
        let identity = container.spec().at(&["env", "0"]);
        assert_eq!(identity.at(&["valueFrom", "fieldRef", "fieldPath"]).text(), "metadata.name");
        command.env(identity.at(&["name"]).text(), name);
        (StreamedProcess::start(&mut command), admin)
    };
    let is_probed = |admin: u16, probe: &str| {
        let path = pod.at(&["containers", "0", probe, "httpGet", "path"]).text();
        http::get(admin, path).0.starts_with("HTTP/1.1 200 ")
    };
    let listens = |admin: u16| std::net::TcpStream::connect(("127.0.0.1", admin)).is_ok();
    let (first, first_admin) = start("mqkv-store-1");
    wait_until("the first pod listens", || listens(first_admin).then_some(()));
    wait_until("the first pod is ready", || is_probed(first_admin, "readinessProbe").then_some(()));
    assert_eq!(place.run_at(&url, &["set", "line1/temp", "21.5"]), "--- exit 0\n");
    let (second, second_admin) = start("mqkv-store-2");
    wait_until("the second pod listens", || listens(second_admin).then_some(()));
    assert!(is_probed(second_admin, "livenessProbe"));
    wait_until("the second pod is ready", || is_probed(second_admin, "readinessProbe").then_some(()));
    assert!(http::get(second_admin, "/readyz?role=owner").0.starts_with("HTTP/1.1 503 "));
    first.signal(Signal::SIGTERM);
    assert_eq!(first.end().2, Some(0));
    assert_eq!(place.bytes_at(&url, &["get", "line1/temp"]), b"21.5");
    assert!(http::get(second_admin, "/readyz?role=owner").0.starts_with("HTTP/1.1 200 "));
    second.signal(Signal::SIGTERM);
    assert_eq!(second.end().2, Some(0));
}

/// Returns the value of an option of the first container, such as `20s`.
fn option<'a>(pod: &'a Yaml, name: &str) -> &'a str {
    let words = pod.at(&["containers", "0", "args"]).texts();
    words.into_iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap()
}

#[test]
fn each_store_has_time_to_drain_and_memory_beyond_its_limit() {
    for name in ["store.yaml", "cluster.yaml"] {
        let resources = manifest(name);
        let pod = resources["Deployment"].at(&["spec", "template", "spec"]);
        let number = |text: &str, unit: &str| text.strip_suffix(unit).unwrap().parse::<u64>().unwrap();
        let grace_s = pod.at(&["terminationGracePeriodSeconds"]).text().parse::<u64>().unwrap();
        assert!(number(option(pod, "--drain"), "s") < grace_s);
        let memory = pod.at(&["containers", "0", "resources", "limits", "memory"]).text();
        // docs/server.md: plan for 1.5 times --memory-max.
        assert!(number(memory, "Mi") * 2 >= number(option(pod, "--memory-max"), "M") * 3);
    }
}

#[test]
fn the_names_in_the_store_s_resources_agree() {
    let resources = manifest("store.yaml");
    let deployment = &resources["Deployment"];
    let pod = deployment.at(&["spec", "template", "spec"]);
    let labels = deployment.at(&["spec", "template", "metadata", "labels"]);
    for selector in [
        deployment.at(&["spec", "selector", "matchLabels"]),
        resources["Service"].at(&["spec", "selector"]),
        resources["NetworkPolicy"].at(&["spec", "podSelector", "matchLabels"]),
    ] {
        assert_eq!(selector, labels);
    }
    let port = pod.at(&["containers", "0", "ports", "0", "name"]);
    assert_eq!(resources["Service"].at(&["spec", "ports", "0", "targetPort"]), port);
    assert_eq!(resources["NetworkPolicy"].at(&["spec", "ingress", "0", "ports", "0", "port"]), port);
    let name = |kind: &str| resources[kind].at(&["metadata", "name"]).text();
    let sources: Vec<_> =
        pod.at(&["volumes"]).list().iter().map(|volume| volume.map()[1].1.map()[0].1.text()).collect();
    assert_eq!(sources, [name("PersistentVolumeClaim"), name("ConfigMap")]);
}

#[test]
fn each_container_has_few_privileges() {
    let (store, client, cluster) =
        (manifest("store.yaml"), manifest("client.yaml"), manifest("cluster.yaml"));
    let template = |resources: &BTreeMap<String, Yaml>| {
        resources["Deployment"].at(&["spec", "template", "spec"]).clone()
    };
    for pod in [template(&store), template(&cluster), client["Pod"].at(&["spec"]).clone()] {
        assert_eq!(pod.at(&["automountServiceAccountToken"]).text(), "false");
        assert_eq!(pod.at(&["securityContext", "runAsNonRoot"]).text(), "true");
        assert_eq!(pod.at(&["securityContext", "seccompProfile", "type"]).text(), "RuntimeDefault");
        let container = pod.at(&["containers", "0", "securityContext"]);
        assert_eq!(container.at(&["readOnlyRootFilesystem"]).text(), "true");
        assert_eq!(container.at(&["allowPrivilegeEscalation"]).text(), "false");
        assert_eq!(container.at(&["capabilities", "drop"]).texts(), ["ALL"]);
    }
}

/// The broker of the product, with this token and a certificate for these names.
fn broker(place: &Place, names: &[&str]) -> LoggedServer {
    let ca = Ca::new(place, "ca.pem");
    ca.issue(place, "broker", names);
    place.write("tokens", "mqkv-client first\nmqkv-client second\n");
    let options = [
        "--listen",
        "mqtts://127.0.0.1:0",
        "--tls-cert",
        "broker.pem",
        "--tls-key",
        "broker.key",
        "--sat-tokens",
        "tokens",
    ];
    LoggedServer::start(place, &options)
}

/// Writes a file into a volume as Kubernetes does: all files change at once, with the link `..data`.
fn project(place: &Place, volume: &str, name: &str, content: &str) {
    let folder = place.path(volume);
    let version = format!("..2026_11_23_{:02}", fs::read_dir(&folder).map_or(0, Iterator::count));
    fs::create_dir_all(folder.join(&version)).unwrap();
    let file = folder.join(&version).join(name);
    fs::write(&file, content).unwrap();
    // The mode of a volume with an fsGroup.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&version, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    if !folder.join(name).exists() {
        symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
    }
}

#[test]
fn the_client_authenticates_with_its_service_account_and_with_renewed_tokens() {
    let (place, resources) = (Place::new(), manifest("client.yaml"));
    let pod = resources["Pod"].at(&["spec"]);
    let server = broker(&place, &["aio-broker", "127.0.0.1"]);
    let addresses = vec![("aio-broker:18883", format!("127.0.0.1:{}", server.port(0)))];
    let container = Container { place: &place, pod, addresses };
    let source = pod.at(&["volumes", "0", "projected", "sources", "0", "serviceAccountToken"]);
    let token = source.at(&["path"]).text();
    project(&place, "trust-bundle", "ca.crt", &fs::read_to_string(place.path("ca.pem")).unwrap());
    project(&place, "broker-sat", token, "first");
    let watch = container.start();
    assert!(watch.line().contains("line1/temp"));
    let run = |words: &[&str]| bounded_transcript(&mut container.command(words));
    assert_eq!(run(&["set", "line1/temp", "21.5"]), "--- exit 0\n");
    assert!(watch.line().contains("21.5"));
    project(&place, "broker-sat", token, "second");
    server.log_line_with("authenticated again");
    place.write("tokens", "mqkv-client second\n");
    server.signal(Signal::SIGHUP);
    server.log_line_with("connections closed: 0");
    assert_eq!(run(&["set", "line1/temp", "22"]), "--- exit 0\n");
    assert!(watch.line().contains("22"));
    assert_eq!(source.at(&["audience"]).text(), "aio-internal");
}

#[test]
fn the_commands_for_a_forwarded_port_work_as_the_page_shows_them() {
    let place = Place::new();
    // The certificate is not for localhost.
    let server = broker(&place, &["aio-broker"]);
    let url = format!("mqtts://localhost:{}", server.port(0));
    place.write("token", "second");
    let options = ["-b", &url, "--server-name", "aio-broker", "-T", "ca.pem", "--sat-file", "token"];
    let set = [&["set", "line1/temp", "21.5"], &options[..]].concat();
    assert_eq!(place.run_bounded(&set), "--- exit 0\n");
    fs::remove_file(place.path("token")).unwrap();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/connecting.md")).unwrap();
    let section = page.split("\n## Azure IoT Operations\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = section.split("```sh").skip(1).filter_map(|rest| rest.split_once('\n'));
    let (_, rest) = blocks.into_iter().find(|(_, block)| block.starts_with("kubectl port-forward")).unwrap();
    let block = rest.split("```").next().unwrap().replace("mqtts://localhost:18883", &url);
    let kubectl = "#!/bin/sh\necho \"$*\" >> kubectl.log\ncase $1 in\ncreate) printf first ;;\nget) cat ca.pem ;;\nesac\n";
    fs::create_dir(place.path("bin")).unwrap();
    write_script(&place.path("bin/kubectl"), kubectl);
    let folder = Path::new(env!("CARGO_BIN_EXE_mqkv")).parent().unwrap();
    let path = format!("{}:{}:/usr/bin:/bin", place.path("bin").display(), folder.display());
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-c", &format!("{block}\nwait")])
        .env_clear()
        .env("PATH", path)
        .env("HOME", place.folder());
    shell.current_dir(place.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(bounded_transcript(&mut shell), "--- stdout\n21.5(no line feed)\n--- exit 0\n");
    let called = fs::read_to_string(place.path("kubectl.log")).unwrap();
    let mut called: Vec<_> = called.lines().collect();
    // The first one runs in the background.
    called.sort_unstable();
    assert_eq!(
        called,
        [
            "create token mqkv-client -n azure-iot-operations --audience aio-internal",
            r"get configmap azure-iot-operations-aio-ca-trust-bundle -n azure-iot-operations -o jsonpath={.data.ca\.crt}",
            "port-forward -n azure-iot-operations service/aio-broker 18883",
        ]
    );
}
