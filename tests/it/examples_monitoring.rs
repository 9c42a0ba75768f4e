//! `examples/monitoring`: the rules of Prometheus and the dashboard of Grafana. `.ci/examples` checks both with promtool.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::common::exchange::{ROOT, leaf_file};
use super::common::{Place, http, wait_until};
use super::operations_admin::{families, serve};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Returns the names in a text that look like metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    let is_metric = |word: &&str| word.starts_with("mqkv_") && !word.ends_with('_');
    words.filter(is_metric).map(str::to_owned).collect()
}

/// Returns the names that the metrics of a root and of a leaf have, those of series included.
pub fn metrics_given() -> BTreeSet<String> {
    let place = Place::new();
    place.write("root.toml", ROOT);
    let (_root, root_url, root) = serve(&place, &["--data", "r", "--exchange", "root.toml"]);
    place.write("leaf.toml", leaf_file("press-7", &root_url));
    let (_leaf, _, leaf) = serve(&place, &["--data", "l", "--exchange", "leaf.toml"]);
    let text = |port| http::get(port, "/metrics").1;
    wait_until("the link", || text(leaf).contains("\nmqkv_exchange_linked 1\n").then_some(()));
    let mut names = BTreeSet::new();
    for port in [root, leaf] {
        for (family, metric) in families(&text(port)) {
            let series = metric.samples.keys().map(|series| series.split('{').next().unwrap().to_owned());
            names.extend(series);
            names.insert(family);
        }
    }
    names
}

/// Metrics of `--etcd`: a test in core/src/server/operations/prometheus/cluster.rs has them.
fn is_of_cluster(name: &str) -> bool {
    name.starts_with("mqkv_cluster_") || name.starts_with("mqkv_etcd_")
}

#[test]
fn every_metric_that_rules_dashboard_and_pages_name_is_in_metrics() {
    let given = metrics_given();
    let mut unknown = Vec::new();
    let pages = ["alerts.yml", "dashboard.json"].map(|name| format!("examples/monitoring/{name}"));
    let pages = pages
        .into_iter()
        .chain(["docs/monitoring.md", "docs/server.md", "docs/exchange.md"].map(str::to_owned));
    for page in pages {
        let named = metrics_in(&read(&page));
        assert!(!named.is_empty() || page.ends_with(".md"), "{page}");
        let missing = named.into_iter().filter(|name| !is_of_cluster(name) && !given.contains(name));
        unknown.extend(missing.map(|name| format!("{page}: {name}")));
    }
    assert!(unknown.is_empty(), "not in /metrics: {unknown:#?}\n{given:#?}");
}

#[test]
fn every_metric_has_a_row_in_the_page_about_monitoring() {
    let page = read("docs/monitoring.md");
    let families: BTreeSet<String> = metrics_given()
        .into_iter()
        .filter(|name| !["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end)))
        .collect();
    let named = metrics_in(&page);
    let missing: Vec<_> = families.difference(&named).collect();
    assert!(missing.is_empty(), "not in docs/monitoring.md: {missing:#?}");
}

#[test]
fn the_dashboard_is_json_and_each_panel_has_a_title_and_a_query() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("examples/monitoring/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 8, "{}", panels.len());
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(!title.is_empty());
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(targets.iter().all(|target| target["expr"].as_str().unwrap().contains("mqkv_")), "{title}");
        assert!(!targets.is_empty(), "{title}");
    }
}

#[test]
fn each_alert_is_in_the_page_about_monitoring() {
    let rules = read("examples/monitoring/alerts.yml");
    let page = read("docs/monitoring.md");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let missing: Vec<_> = alerts.iter().filter(|alert| !page.contains(&format!("`{alert}`"))).collect();
    assert!(missing.is_empty(), "not in docs/monitoring.md: {missing:?}");
}
