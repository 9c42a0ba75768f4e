//! Checks the architecture of the source tree: imports, cycles, pure files, owners of crates and of the process.
//!
//! The tables are in `rules.rs`; [`injected`] holds a violation of each kind.
#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic here is a failed test"
)]

#[path = "../watchdog/mod.rs"]
mod a_watchdog;
mod cycles;
mod injected;
mod packages;
mod rules;
mod source;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::{env, fmt, fs};

use cycles::{Modules, cycles, folder_cycles, graph};
use rules::{
    CLOCK_OWNER, ENVIRONMENT_OWNER, FOLDER_IMPORTS, IMPORTS, KNOWN_CYCLES, KNOWN_IMPORTS, OWNERS, PLANNED,
    PLATFORM, PURE,
};
use source::{Kind, Reference, Source, module_of, within_package};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Import,
    Cycle,
    FolderCycle,
    Purity,
    Owner,
    FirstLine,
    Clock,
    Environment,
    Terminal,
    Thread,
    System,
    Wait,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    rule: Rule,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what } = self;
        write!(out, "{path}:{line}: {rule:?}: {what}")
    }
}

/// A tree of source files.
struct Tree {
    texts: BTreeMap<String, String>,
    /// The files below `src` and `core/src`.
    sources: BTreeMap<String, Source>,
}

impl Tree {
    fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let texts: BTreeMap<_, _> = files.into_iter().collect();
        let sources =
            texts.iter().filter(|(path, _)| path.starts_with("src/") || path.starts_with("core/src/"));
        let sources = sources.map(|(path, text)| (path.clone(), Source::read(path, text))).collect();
        Self { texts, sources }
    }

    fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut report = |path: &str, line, rule, what: String| {
            found.push(Violation { path: path.to_owned(), line, rule, what });
        };
        for (path, text) in &self.texts {
            if !text.starts_with("//! ") {
                report(path, 1, Rule::FirstLine, "the first line is no `//! …`".to_owned());
            }
        }
        let modules = Modules::new(&self.sources);
        let test_modules: BTreeSet<_> =
            self.sources.values().flat_map(|source| &source.test_modules).collect();
        let is_test = |path: &str| {
            let module = module_of(path);
            (1..=module.len()).any(|len| test_modules.contains(&module[..len].to_vec()))
        };
        for (path, text) in &self.texts {
            let is_test = path.starts_with("tests/") || is_test(path);
            for (line, what) in waits::unbounded(path, text, is_test) {
                report(
                    path,
                    line,
                    Rule::Wait,
                    format!("{what} without a limit: see tests/architecture/waits.rs"),
                );
            }
        }
        for (path, source) in &self.sources {
            let is_test = is_test(path);
            if row(IMPORTS, top_module(path)).is_none() {
                report(path, 1, Rule::Import, format!("{} is no module of the table", top_module(path)));
            }
            for reference in &source.references {
                let in_test = reference.in_test || is_test;
                let line = reference.line;
                if let Some(what) = forbidden_import(path, reference, &modules) {
                    report(path, line, Rule::Import, what);
                }
                if let Some(what) = forbidden_crate(path, reference) {
                    report(path, line, Rule::Owner, what);
                }
                let broken = if in_test { Vec::new() } else { broken_rules(path, reference) };
                for rule in broken {
                    report(path, line, rule, reference.path.join("::"));
                }
            }
        }
        let graph = graph(&self.sources, &modules, is_test);
        for tie in folder_cycles(&graph) {
            let imports = tie.imports.iter().map(|(folder, item)| format!("{folder} ({item})"));
            let imports: Vec<_> = imports.collect();
            let what = format!("{} is in a cycle of folders: imports {}", tie.folder, imports.join(", "));
            report(&tie.file, tie.line, Rule::FolderCycle, what);
        }
        for tie in cycles(&graph) {
            let items = tie.items.iter().map(|(file, items)| {
                let items: Vec<_> = items.iter().map(String::as_str).collect();
                format!("{file} ({})", items.join(", "))
            });
            let items: Vec<_> = items.collect();
            let what = format!("in a cycle of {} files: imports {}", tie.files, items.join(", "));
            report(tie.file, tie.line, Rule::Cycle, what);
        }
        found.sort();
        found.dedup();
        found
    }
}

/// `core/src/store/mod.rs` is in `store`, `src/main.rs` in `main`.
fn top_module(path: &str) -> &str {
    within_package(path).split(['/', '.']).next().unwrap_or(path)
}

fn row<'a>(table: &[(&str, &'a [&'a str])], name: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(key, _)| *key == name).map(|(_, values)| *values)
}

fn forbidden_import(path: &str, reference: &Reference, modules: &Modules<'_>) -> Option<String> {
    let from = top_module(path);
    let allowed = row(IMPORTS, from).unwrap_or(&[]);
    let target = modules.absolute(&reference.module, &reference.path)?;
    let to = match target.first() {
        Some(to) => to,
        None if reference.kind == Kind::Use => "*",
        // `pub(crate)`
        None => return None,
    };
    let of_folder = FOLDER_IMPORTS.iter().any(|(folder, module)| path.starts_with(folder) && to == *module);
    // It exists in tests only.
    let is_watchdog = to == "a_watchdog";
    let fine = to == from || allowed.contains(&to) || of_folder || is_watchdog;
    (!fine).then(|| format!("{from} may not import {to}"))
}

fn forbidden_crate(path: &str, reference: &Reference) -> Option<String> {
    let (owned, places) = OWNERS.iter().find(|(owned, _)| reference.is_of_crate(owned))?;
    let fine = places.iter().any(|place| path.starts_with(place));
    (!fine).then(|| format!("{owned} belongs to {}", places.join(", ")))
}

/// The rules about the clock, the process and purity that a name breaks.
fn broken_rules(path: &str, name: &Reference) -> Vec<Rule> {
    let mut found = Vec::new();
    let reads_clock = name.contains(&["SystemTime", "now"])
        || name.contains(&["Instant", "now"])
        || (name.kind == Kind::Call && name.last() == "elapsed");
    if reads_clock && path != CLOCK_OWNER {
        found.push(Rule::Clock);
    }
    let reads_environment =
        ["var", "var_os", "vars", "vars_os"].iter().any(|read| name.contains(&["env", read]));
    if reads_environment && path != ENVIRONMENT_OWNER {
        found.push(Rule::Environment);
    }
    let prints =
        name.kind == Kind::Macro && ["print", "println", "eprint", "eprintln", "dbg"].contains(&name.last());
    if prints || name.contains(&["process", "exit"]) {
        found.push(Rule::Terminal);
    }
    // It panics where the system has no thread left.
    if name.contains(&["thread", "spawn"]) {
        found.push(Rule::Thread);
    }
    let is_of_system = name.contains(&["std", "os"]) || name.contains(&["cfg"]) && name.path.len() == 2;
    if is_of_system && !path.starts_with(PLATFORM) {
        found.push(Rule::System);
    }
    if PURE.iter().any(|place| path.starts_with(place)) {
        let outside =
            ["env", "fs", "net", "process", "thread"].iter().any(|part| name.contains(&["std", part]));
        let foreign = ["tokio", "rand", "getrandom"].iter().any(|foreign| name.is_of_crate(foreign));
        let time = reads_clock || name.contains(&["SystemTime"]);
        if outside || foreign || prints || time || name.kind == Kind::Async {
            found.push(Rule::Purity);
        }
    }
    found
}

/// Every file below a folder of the package with this ending, by its path from the package.
fn files_below(folder: &str, ending: &str) -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

static SOURCE_TREE: LazyLock<Tree> = LazyLock::new(|| {
    let tree = Tree::new(["core/src", "src", "tests"].map(|folder| files_below(folder, "rs")).concat());
    for entry in ["src/lib.rs", "src/main.rs", "core/src/lib.rs", "core/src/protocol/frame.rs", file!()] {
        assert!(tree.texts.contains_key(entry), "{entry} was not scanned");
    }
    tree
});

/// With `ARCHITECTURE_REPORT` in the environment it fails with all violations, the known ones too.
#[test]
#[expect(clippy::disallowed_methods, reason = "the variable is for this test, not for the program")]
fn the_source_tree_keeps_the_rules() {
    let imports = KNOWN_IMPORTS
        .iter()
        .map(|(path, to)| (*path, Rule::Import, format!("{} may not import {to}", top_module(path))));
    let cycles = KNOWN_CYCLES.iter().map(|path| (*path, Rule::Cycle, "in a cycle of ".to_owned()));
    let is_full = env::var_os("ARCHITECTURE_REPORT").is_some();
    let known: Vec<_> = imports.chain(cycles).filter(|_| !is_full).collect();
    let found = SOURCE_TREE.violations();
    let is = |found: &Violation, (path, rule, what): &(&str, Rule, String)| {
        found.path == *path && found.rule == *rule && found.what.starts_with(what.as_str())
    };
    let new = found.iter().filter(|found| !known.iter().any(|known| is(found, known)));
    let mut report: Vec<_> = new.map(Violation::to_string).collect();
    for known in known.iter().filter(|known| !found.iter().any(|found| is(found, known))) {
        let (path, rule, _) = known;
        report.push(format!("{path}: {rule:?}: mended, remove its row from tests/architecture/rules.rs"));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

#[test]
fn every_row_of_the_tables_is_about_something_that_exists() {
    let files =
        |place: &'static str| SOURCE_TREE.sources.iter().filter(move |(path, _)| path.starts_with(place));
    let places = PURE.iter().filter(|place| !PLANNED.contains(place));
    for place in places.chain([&CLOCK_OWNER, &ENVIRONMENT_OWNER, &PLATFORM]) {
        assert!(files(place).count() > 0, "{place} does not exist");
    }
    for (owned, places) in OWNERS {
        for place in *places {
            let mut references = files(place).flat_map(|(_, source)| &source.references);
            assert!(
                references.any(|reference| reference.is_of_crate(owned)),
                "{place} does not name {owned}"
            );
        }
    }
}

#[test]
fn every_vector_file_is_read_by_a_test() {
    let vectors = files_below("tests/vectors", "txt");
    assert!(vectors.len() >= 7, "only {} vector files", vectors.len());
    let sources = files_below("core/src", "rs");
    for (path, _) in vectors {
        let include = format!("../{path}\")");
        let readers = sources.iter().filter(|(_, text)| text.contains(&include));
        assert_eq!(readers.count(), 1, "{path} is not read by exactly one file");
    }
}
