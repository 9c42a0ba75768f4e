//! `serve --admin` of a root and of a leaf: metrics and the page.

use super::common::exchange::{ROOT, leaf_file};
use super::common::{Place, http, wait_until};
use super::operations_admin::{families, rows, serve};

const KEY: &str = "line/<b>";

/// Returns a metric of `/metrics`.
fn metric(port: u16, series: &str) -> Option<f64> {
    let (_, body) = http::get(port, "/metrics");
    families(&body).get(series.split('{').next().unwrap())?.samples.get(series).copied()
}

fn expect(port: u16, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        wait_until(series, || metric(port, series).filter(|value| (value - expected).abs() < 1e-9));
    }
}

#[test]
fn the_page_and_the_metrics_of_a_root_and_of_a_leaf_show_the_exchange() {
    let place = Place::new();
    place.write("root.toml", ROOT);
    let (first_root, root_url, root) = serve(&place, &["--data", "r", "--exchange", "root.toml"]);
    place.write("leaf.toml", leaf_file("press-7", &root_url));
    let (_leaf, leaf_url, leaf) = serve(&place, &["--data", "l", "--exchange", "leaf.toml"]);
    expect(leaf, &[("mqkv_exchange_linked", 1.0)]);
    assert_eq!(place.run_at(&leaf_url, &["set", "line/1", "v"]), "--- exit 0\n");
    expect(root, &[("mqkv_exchange_leaf_synchronized{leaf=\"press-7\"}", 1.0)]);
    expect(leaf, &[("mqkv_exchange_accepted_total", 1.0)]);
    // While the leaf has no link, both change a key.
    drop(first_root);
    assert_eq!(place.run_at(&leaf_url, &["set", KEY, "<i>80"]), "--- exit 0\n");
    expect(leaf, &[("mqkv_exchange_linked", 0.0), ("mqkv_exchange_outbox_entries", 1.0)]);
    let (second_root, other_url, _) = serve(&place, &["--data", "r", "--exchange", "root.toml"]);
    assert_eq!(place.run_at(&other_url, &["set", KEY, "75"]), "--- exit 0\n");
    drop(second_root);
    let listen = root_url.strip_prefix("mqtt://").unwrap();
    let (_root, _, root) = serve(&place, &["--data", "r", "--exchange", "root.toml", "--listen", listen]);
    for port in [root, leaf] {
        expect(port, &[("mqkv_exchange_conflicts_total{reason=\"root-wins\"}", 1.0)]);
    }
    expect(
        root,
        &[
            ("mqkv_exchange_info{exchange=\"plant\",role=\"root\"}", 1.0),
            ("mqkv_exchange_leaf_synchronized{leaf=\"press-7\"}", 1.0),
            ("mqkv_exchange_leaf_accepted_total{leaf=\"press-7\"}", 1.0),
            ("mqkv_exchange_leaf_behind{leaf=\"press-7\"}", 0.0),
            ("mqkv_exchange_leaf_blocked{leaf=\"press-7\"}", 0.0),
            ("mqkv_exchange_leaf_conflicts{leaf=\"press-7\"}", 1.0),
            ("mqkv_exchange_leaf_refused_total{leaf=\"press-7\"}", 1.0),
            ("mqkv_exchange_leaf_pending{leaf=\"press-7\"}", 0.0),
            ("mqkv_exchange_leaf_up{leaf=\"press-7\"}", 1.0),
            ("mqkv_exchange_leaves", 1.0),
            ("mqkv_exchange_leaves_max", 1_000.0),
            ("mqkv_exchange_records", 2.0),
            ("mqkv_exchange_tombstones", 0.0),
            ("mqkv_exchange_tombstones_max", 100_000.0),
            ("mqkv_exchange_conflicts", 1.0),
            ("mqkv_exchange_conflicts_dropped_total", 0.0),
            ("mqkv_exchange_conflicts_total{reason=\"joined\"}", 0.0),
            ("mqkv_exchange_events_total{event=\"exchange-linked\"}", 1.0),
        ],
    );
    assert!(metric(root, "mqkv_exchange_leaf_heard_seconds{leaf=\"press-7\"}").is_some());
    assert_eq!(metric(root, "mqkv_exchange_version"), metric(leaf, "mqkv_exchange_version"));
    expect(
        leaf,
        &[
            ("mqkv_exchange_info{exchange=\"plant\",role=\"leaf\",leaf=\"press-7\"}", 1.0),
            ("mqkv_exchange_linked", 1.0),
            ("mqkv_exchange_blocked", 0.0),
            ("mqkv_exchange_outbox_entries", 0.0),
            ("mqkv_exchange_outbox_entries_max", 262_144.0),
            ("mqkv_exchange_outbox_bytes", 0.0),
            ("mqkv_exchange_outbox_max_bytes", 67_108_864.0),
            ("mqkv_exchange_made_total", 2.0),
            ("mqkv_exchange_accepted_total", 1.0),
            ("mqkv_exchange_refused_total", 1.0),
            ("mqkv_exchange_merged_total", 0.0),
            ("mqkv_exchange_conflicts", 1.0),
            ("mqkv_exchange_conflicts_max", 10_000.0),
        ],
    );

    let (_, page) = http::get(root, "/");
    assert!(page.contains("<dt>Role</dt><dd>root</dd>") && page.contains("<dd>1 of 1,000</dd>"), "{page}");
    let leaves = rows(&page, "leaves");
    assert_eq!(leaves[0][..8], ["press-7", "synchronized", "0", "0", "1", "1", "1", "now"], "{page}");
    assert_eq!(rows(&http::get(root, "/?leaves=press-8").1, "leaves").len(), 0);
    let conflict = "<code>line/&lt;b&gt;</code></a></th><td class=\"n\">1</td><td><code>press-7</code></td>\
                    <td class=\"n\">5 B</td><td>root wins</td><td>version 2 of the root</td>";
    assert!(page.contains(conflict), "{page}");
    let (_, page) = http::get(leaf, "/");
    assert!(page.contains("<dt>Role</dt><dd>leaf</dd>") && page.contains(">linked</span>"), "{page}");
    assert!(
        page.contains(conflict) && page.contains("0 B of 64 MiB") && !page.contains("id=\"leaves"),
        "{page}"
    );
}

#[test]
fn a_store_that_takes_no_part_shows_nothing_of_an_exchange() {
    let place = Place::new();
    let (_server, _, port) = serve(&place, &[]);
    for path in ["/", "/metrics"] {
        let (_, body) = http::get(port, path);
        assert!(!body.to_lowercase().contains("exchange"), "{body}");
    }
}
