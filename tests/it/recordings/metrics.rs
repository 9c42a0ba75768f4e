//! Names of the metrics of a server and of the nodes of an exchange.

use std::collections::BTreeSet;

use super::super::examples_monitoring::metrics_given;
use super::recorded;

#[test]
fn metrics_of_every_version_exist() {
    let given = metrics_given();
    for recorded in recorded("metrics.txt", || given.iter().map(|name| format!("{name}\n")).collect()) {
        assert!(recorded.lines().count() > 50);
        let missing: BTreeSet<_> = recorded.lines().filter(|name| !given.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
