//! Sessions that outlive a forward and a token: `watch`, `lock`, the prompt; and what ends with them.

use super::super::common::StreamedProcess;
use super::super::watch::without_time;
use super::*;

fn watch(cluster: &Cluster, options: &[&str]) -> StreamedProcess {
    let words = ["watch", "k", "-b", "kube:"];
    let watch = StreamedProcess::start(&mut cluster.command(&[&words, options].concat()));
    assert_eq!(without_time(&watch.line()), "CURRENT\tk\tone");
    watch
}

#[track_caller]
fn set(cluster: &Cluster, value: &str) {
    // Not by kubectl, whose forwards are counted.
    let options = ["-T", "ca.pem", "--sat-file", "token", "--server-name", SERVICE];
    let url = format!("mqtts://127.0.0.1:{}", cluster.server.port(0));
    let shown = cluster.inside.run_at(&url, &[&["set", "k", value], &options[..]].concat());
    assert_eq!(shown, "--- exit 0\n");
}

#[test]
fn a_watch_reports_the_gap_of_a_forward_that_has_ended_and_goes_on() {
    let cluster = Cluster::new();
    set(&cluster, "one");
    let watch = watch(&cluster, &[]);
    cluster.end_forward(1);
    assert!(watch.error_line().starts_with("connection lost: "));
    set(&cluster, "two");
    assert!(without_time(&watch.line()).starts_with("GAP\t\t"));
    assert_eq!(without_time(&watch.line()), "RESYNC\tk\ttwo");
    set(&cluster, "three");
    assert_eq!(without_time(&watch.line()), "SET\tk\tthree");
    // Configmap and token are those of the start.
    assert_eq!(cluster.calls(), [TOKEN, CA, FORWARD, FORWARD]);
    watch.signal(Signal::SIGTERM);
    assert_eq!(watch.end().2, Some(143));
    cluster.nothing_runs();
}

#[test]
fn a_forward_that_fails_for_a_while_is_tried_again() {
    let cluster = Cluster::new();
    set(&cluster, "one");
    let watch = watch(&cluster, &[]);
    cluster.fail("port-forward", Some("Error from server (NotFound): services \"aio-broker\" not found\n"));
    cluster.end_forward(1);
    wait_until("two attempts", || {
        (cluster.calls().iter().filter(|call| *call == FORWARD).count() > 2).then_some(())
    });
    cluster.fail("port-forward", None);
    assert!(without_time(&watch.line()).starts_with("GAP\t\t"));
    set(&cluster, "two");
    assert_eq!(without_time(&watch.line()), "SET\tk\ttwo");
}

#[test]
fn a_forward_that_is_deaf_is_started_again() {
    let cluster = Cluster::new();
    set(&cluster, "one");
    let watch = watch(&cluster, &["--connect-timeout", "4s"]);
    cluster.inside.write("deaf", "");
    cluster.end_forward(1);
    // This one accepts connections only, as after a machine has slept.
    cluster.forward(2);
    fs::remove_file(cluster.inside.path("deaf")).unwrap();
    assert!(without_time(&watch.line()).starts_with("GAP\t\t"));
    set(&cluster, "two");
    while without_time(&watch.line()) != "SET\tk\ttwo" {}
}

#[test]
fn a_token_is_renewed_before_its_end_within_the_session() {
    let cluster = Cluster::new();
    set(&cluster, "one");
    // The clock of the cluster is another one.
    let short = [5, 6].map(|lifetime_s| token_issued_at(1_000_000_000, lifetime_s));
    cluster
        .inside
        .write("tokens", format!("default {}\ndefault {}\ndefault {}\n", cluster.token, short[0], short[1]));
    cluster.server.signal(Signal::SIGHUP);
    cluster.server.log_line_with("connections closed: 0");
    cluster.inside.write("token", &short[0]);
    let watch = watch(&cluster, &[]);
    // The first renewal fails.
    cluster.fail("create", Some("Unable to connect to the server: dial tcp: i/o timeout\n"));
    wait_until("a renewal", || {
        (cluster.calls().iter().filter(|call| *call == TOKEN).count() > 1).then_some(())
    });
    cluster.inside.write("token", &short[1]);
    cluster.fail("create", None);
    cluster.server.log_line_with("authenticated again");
    cluster.inside.write("token", &cluster.token);
    set(&cluster, "two");
    assert_eq!(without_time(&watch.line()), "SET\tk\ttwo", "there was no gap");
}

#[test]
fn a_lock_is_renewed_over_a_forward_that_has_ended() {
    let cluster = Cluster::new();
    let script = "echo begun; until [ -e go ]; do sleep 0.05; done; echo done";
    let words =
        ["lock", "k", "--ttl", "60s", "--renew", "500ms", "-b", "kube:", "--token-file", "fence", "--"];
    let lock = StreamedProcess::start(&mut cluster.command(&[&words[..], &["sh", "-c", script]].concat()));
    assert_eq!(lock.line(), "begun");
    let fence = || fs::read_to_string(cluster.outside.path("fence")).unwrap();
    cluster.end_forward(1);
    cluster.forward(2);
    let before = fence();
    wait_until("a renewal", || (fence() != before).then_some(()));
    cluster.outside.write("go", "");
    let (lines, errors, code) = lock.end();
    assert_eq!((lines, code), (vec!["done".to_owned()], Some(0)), "{errors:?}");
    cluster.nothing_runs();
}

#[test]
fn a_lock_that_cannot_be_renewed_in_time_ends_as_always() {
    let cluster = Cluster::new();
    let words = [
        "lock",
        "k",
        "--ttl",
        "8s",
        "--kill-after",
        "1s",
        "-b",
        "kube:",
        "--",
        "sh",
        "-c",
        "echo begun; exec sleep 1000",
    ];
    let lock = StreamedProcess::start(&mut cluster.command(&words));
    assert_eq!(lock.line(), "begun");
    cluster.fail("port-forward", Some("error: error upgrading connection: pods \"b\" is forbidden: User \"ann\" cannot create resource \"pods/portforward\" in API group\n"));
    cluster.end_forward(1);
    let (_, errors, code) = lock.end();
    assert_eq!(code, Some(125), "{errors:?}");
    cluster.nothing_runs();
}

#[test]
fn the_prompt_shows_why_it_is_offline_and_connects_again() {
    let cluster = Cluster::new();
    set(&cluster, "one");
    let mut terminal = Terminal::start(cluster.command(&["-b", "kube:"]));
    terminal.ends_with("kube:>");
    cluster.fail("port-forward", Some("Error from server (NotFound): services \"aio-broker\" not found\n"));
    cluster.end_forward(1);
    terminal.shows("connection lost");
    terminal.shows("kube: (offline ");
    cluster.fail("port-forward", None);
    terminal.shows("connected again after");
    terminal.line("get k");
    terminal.wait_for("the value", |screen| screen.ends_with("get k\none\nkube:>"));
    // Ctrl-C is for the line, not for kubectl.
    terminal.clear("kube:>");
    assert!(is_running(&cluster.forward(2)));
    terminal.press_ctrl_d();
    assert_eq!(terminal.end(), Some(0));
    cluster.nothing_runs();
}

#[cfg(target_os = "linux")]
#[test]
fn kubectl_ends_with_a_killed_command() {
    let cluster = Cluster::new();
    set(&cluster, "one");
    for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM] {
        let watch = watch(&cluster, &[]);
        let lines = fs::read_to_string(cluster.inside.path("forwards")).unwrap();
        assert!(is_running(lines.lines().last().unwrap()));
        watch.signal(signal);
        cluster.nothing_runs();
        watch.end();
    }
    let mut terminal = Terminal::start(cluster.command(&["-b", "kube:"]));
    terminal.ends_with("kube:>");
    terminal.signal(Signal::SIGKILL);
    terminal.end();
    cluster.nothing_runs();
}

#[test]
fn an_interrupt_ends_kubectl_while_it_signs_in() {
    let cluster = Cluster::new();
    cluster.inside.write("slow-port-forward", "");
    let get = StreamedProcess::start(&mut cluster.command(&["get", "k", "-b", "kube:"]));
    let waiting = wait_until("the call of kubectl", || {
        let waiting = fs::read_to_string(cluster.inside.path("waiting")).ok()?;
        waiting.ends_with('\n').then(|| waiting.trim().to_owned())
    });
    get.signal(Signal::SIGINT);
    wait_until("the end of kubectl", || (!is_running(&waiting)).then_some(()));
    assert_eq!(get.end().2, Some(130));
}
