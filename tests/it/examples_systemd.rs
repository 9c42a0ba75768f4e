//! `examples/systemd`: the unit of an instance on etcd, run here with what its file of variables contains.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the settings that confine a service, without those of its folder and its comments.
fn confinement(unit: &str) -> Vec<String> {
    let from = unit.lines().skip_while(|line| *line != "UMask=0077");
    let lines = from.take_while(|line| *line != "[Install]");
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn an_instance_on_etcd_is_confined_as_the_packaged_server_is() {
    let packaged = confinement(&read("packaging/systemd/mqkv.service"));
    assert!(packaged.len() > 20, "{packaged:?}");
    assert_eq!(confinement(&read("examples/systemd/mqkv-store.service")), packaged);
}

#[cfg(feature = "cluster")]
#[test]
#[ignore = "needs Debian's etcd-server and mosquitto"]
fn the_unit_starts_an_instance_with_its_file_of_variables() {
    use super::common::etcd::EtcdCluster;
    use super::common::{Place, StreamedProcess, http, reserved_port, wait_until};
    use super::mosquitto::mosquitto;
    use nix::sys::signal::Signal;

    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let (etcd, admin) = (EtcdCluster::start(&place, 1), reserved_port());
    let unit = read("examples/systemd/mqkv-store.service");
    let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/mqkv ")).unwrap();
    let started = started.replace(":9883", &format!(":{admin}"));
    let mut command = place.command(&started.split(' ').collect::<Vec<_>>());
    for line in read("examples/systemd/mqkv-store.env").lines().filter(|line| line.contains('=')) {
        let (name, value) = line.trim_start_matches('#').split_once('=').unwrap();
        match name {
            "MQKV_BROKER" => command.env(name, &url),
            "MQKV_ETCD" => command.env(name, etcd.urls().join(",")),
            // Those that have no value yet must be known, too.
            _ if line.starts_with('#') => &mut command,
            _ => command.env(name, value),
        };
    }
    let store = StreamedProcess::start(&mut command);
    wait_until("it is ready", || {
        std::net::TcpStream::connect(("127.0.0.1", admin)).ok()?;
        http::get(admin, "/readyz?role=owner").0.starts_with("HTTP/1.1 200 ").then_some(())
    });
    assert_eq!(place.run_at(&url, &["set", "k", "v"]), "--- exit 0\n");
    store.signal(Signal::SIGTERM);
    assert_eq!(store.end().2, Some(0));
}
