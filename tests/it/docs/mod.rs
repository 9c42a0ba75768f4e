//! The pages for readers: their commands are run, and what they print is compared with what the pages show.
//!
//! [`page`] has what a page may state about a block, and [`compare`] what may differ. To put the present output into
//! the pages: `MQKV_DOCS=write cargo test --test it docs::`; then look at the changes.

mod compare;
mod page;
mod prose;
mod reference;
mod session;
mod troubleshooting;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use self::page::Page;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns whether the present output is put into the pages.
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn is_writing() -> bool {
    std::env::var_os("MQKV_DOCS").is_some_and(|word| word == "write")
}

/// Pages with recipes, which readers run again and again in one folder.
const RUN_TWICE: &[&str] = &["docs/recipes.md", "docs/testing.md"];

/// Runs a page, with the blocks that need these programs.
fn run(name: &str, has: &dyn Fn(&str) -> bool) {
    let page = Page::read(&root().join(name));
    let times = if RUN_TWICE.contains(&name) { 2 } else { 1 };
    let (differences, edits) = session::run(&page, has, times);
    if is_writing() {
        fs::write(&page.path, page.with_output(edits)).unwrap();
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Pages, each with a test of its own.
macro_rules! pages {
    ($($test:ident $name:literal)*) => {
        const PAGES: &[&str] = &[$($name),*];

        mod commands_work_as_shown_in {
            $(
                #[test]
                fn $test() {
                    super::run($name, &|_| false);
                }
            )*
        }
    };
}

pages! {
    readme "README.md"
    contributing "CONTRIBUTING.md"
    security "SECURITY.md"
    architecture "docs/architecture.md"
    backup "docs/backup.md"
    bench "docs/bench.md"
    comparison "docs/comparison.md"
    configuration "docs/configuration.md"
    connecting "docs/connecting.md"
    exchange "docs/exchange.md"
    exit_codes "docs/exit-codes.md"
    formats "docs/formats.md"
    getting_started "docs/getting-started.md"
    glossary "docs/glossary.md"
    guarantees "docs/guarantees.md"
    install "docs/install.md"
    interoperability "docs/interoperability.md"
    locks "docs/locks.md"
    monitoring "docs/monitoring.md"
    mqtt_conformance "docs/mqtt-conformance.md"
    performance "docs/performance.md"
    prompt "docs/prompt.md"
    protocol "docs/protocol.md"
    recipes "docs/recipes.md"
    reference "docs/reference.md"
    scale_out "docs/scale-out.md"
    server "docs/server.md"
    stability "docs/stability.md"
    testing "docs/testing.md"
    troubleshooting "docs/troubleshooting.md"
}

/// Returns the pages in the repository.
fn pages_of_repository() -> BTreeSet<String> {
    let of_root = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
    let of_docs = fs::read_dir(root().join("docs")).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        (name.ends_with(".md") && name != "SUMMARY.md").then(|| format!("docs/{name}"))
    });
    of_root.into_iter().chain(of_docs).collect()
}

#[test]
#[ignore = "needs Debian's mosquitto, curl and jq"]
fn commands_that_need_other_programs_work_as_shown() {
    for name in
        PAGES.iter().filter(|name| fs::read_to_string(root().join(name)).unwrap().contains(" needs: "))
    {
        run(name, &|_| true);
    }
}

#[test]
fn each_page_has_a_test() {
    let tested: BTreeSet<String> = PAGES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(tested, pages_of_repository(), "list them in tests/it/docs/mod.rs");
}
