//! The packages that the binary is built from: their number is bounded, and Debian's metadata agrees with Cargo's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::rules::{PACKAGES_DEFAULT_MAX, PACKAGES_MAX_SLACK, PACKAGES_WITH_CLUSTER_MAX};
use crate::a_watchdog::bounded;

/// Returns the packages that are compiled into the binary, by name and version, without our own two.
fn packages(options: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
        .args(["tree", "--package", "mqkv", "--locked", "--offline", "--edges", "normal", "--prefix", "none"])
        .args(options);
    let output = bounded(|| command.output()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let all: BTreeSet<_> = lines.lines().map(package).collect();
    let own =
        [env!("CARGO_PKG_NAME"), "mqkv-core"].map(|name| format!("{name} v{}", env!("CARGO_PKG_VERSION")));
    for own in &own {
        assert!(
            all.contains(own),
            "{own} is not in the tree: Cargo.toml and core/Cargo.toml have one version"
        );
    }
    all.into_iter().filter(|package| !own.contains(package)).collect()
}

#[track_caller]
fn assert_bounded(options: &[&str], max: usize) {
    let packages = packages(options);
    let count = packages.len();
    assert!(
        count <= max,
        "{count} packages exceed the bound of {max} in tests/architecture/rules.rs: a new one is a decision\n{packages:#?}"
    );
    assert!(
        count + PACKAGES_MAX_SLACK >= max,
        "{count} packages: lower the bound of {max} in tests/architecture/rules.rs"
    );
}

#[test]
fn the_packages_of_the_default_build_are_bounded() {
    assert_bounded(&[], PACKAGES_DEFAULT_MAX);
}

#[test]
#[ignore = "needs the packages of the feature cluster, which a default build does not download"]
fn the_packages_of_the_build_with_the_feature_cluster_are_bounded() {
    assert_bounded(&["--features", "cluster"], PACKAGES_WITH_CLUSTER_MAX);
}

#[test]
fn the_default_build_compiles_nothing_of_etcd_or_of_the_tests() {
    let packages = packages(&[]);
    for absent in ["tonic", "prost", "etcd-client", "proptest", "rcgen", "tempfile"] {
        let is_absent = |package: &&String| package.split(' ').next() == Some(absent);
        assert_eq!(packages.iter().find(is_absent), None);
    }
}

#[test]
fn the_newest_entry_of_the_debian_changelog_is_this_version() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/debian/changelog");
    let text = fs::read_to_string(path).unwrap();
    let expected = concat!(env!("CARGO_PKG_NAME"), " (", env!("CARGO_PKG_VERSION"), "-1) ");
    assert!(text.starts_with(expected), "{path} does not begin with {expected}");
}

#[test]
fn the_changelog_and_the_pages_name_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let changelog = read("CHANGELOG.md");
    let newest = changelog.lines().find_map(|line| line.strip_prefix("## ["));
    assert!(newest.unwrap().starts_with(&format!("{version}] - ")), "CHANGELOG.md begins with {newest:?}");
    // Packages are named with their version: `mqkv_0.1.0-1_amd64.deb`, `mqkv-0.1.0-py3-none-*.whl`, `mqkv:0.1.0`.
    for name in ["docs/install.md", "docs/testing.md", "examples/ci/github.yml", "examples/ci/gitlab.yml"] {
        let text = read(name);
        let named = ["mqkv_", "mqkv-", "mqkv:"].iter().flat_map(|prefix| text.split(prefix).skip(1));
        let named: Vec<_> = named.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())).collect();
        assert!(!named.is_empty(), "{name} names no package");
        for rest in named {
            assert!(rest.starts_with(version), "{name}: {}", rest.lines().next().unwrap());
        }
    }
    let reference = format!("is the repository on GitHub and {version} the version");
    assert!(read("docs/install.md").contains(&reference), "docs/install.md");
}
