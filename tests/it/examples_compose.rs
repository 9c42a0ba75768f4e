//! `examples/compose`: the command and the health check of its store.

use std::fs;
use std::path::Path;

use super::common::yaml::Yaml;
use super::common::{Place, Server};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/compose")
}

fn services() -> (Yaml, Yaml) {
    let text = fs::read_to_string(folder().join("compose.yaml")).unwrap();
    let file = Yaml::documents(&text).remove(0);
    (file.at(&["services"]).clone(), file.at(&["configs"]).clone())
}

#[test]
fn the_store_starts_with_its_keys_and_is_healthy() {
    let (place, (services, configs)) = (Place::new(), services());
    let store = services.at(&["store"]);
    let config = store.at(&["configs", "0"]);
    let source = configs.at(&[config.at(&["source"]).text(), "file"]).text();
    fs::copy(folder().join(source), place.path("keys")).unwrap();
    let words = store.at(&["command"]).texts();
    assert_eq!(words[..3], ["serve", "--listen", "0.0.0.0:1883"], "reachable from other containers");
    let target = config.at(&["target"]).text();
    let options: Vec<_> = words[3..].iter().map(|word| if *word == target { "keys" } else { word }).collect();
    let server = Server::start(&place, &[&options, &["-q"][..]].concat());
    let check = store.at(&["healthcheck", "test"]).texts();
    assert_eq!(check[..2], ["CMD", "mqkv"]);
    assert!(place.run_at(&server.url(), &check[2..]).ends_with("--- exit 0\n"));
    assert_eq!(place.bytes_at(&server.url(), &["get", "line1/setpoint"]), b"70");
}

#[test]
fn the_application_waits_for_a_healthy_store_at_its_name() {
    let (services, _) = services();
    let application = services.at(&["application"]);
    assert_eq!(application.at(&["depends_on", "store", "condition"]).text(), "service_healthy");
    let host = application.at(&["environment", "AIO_BROKER_HOSTNAME"]).text();
    let port = application.at(&["environment", "AIO_BROKER_TCP_PORT"]).text();
    let listens = services.at(&[host, "command", "2"]).text();
    assert_eq!(listens, format!("0.0.0.0:{port}"));
}
