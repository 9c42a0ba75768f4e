//! Violations of each rule in small trees, which the checker must report, and code that it must not.

use crate::{Rule, Tree, Violation};

/// Checks a tree of these files and an empty root.
fn violations(files: &[(&str, &str)]) -> Vec<Violation> {
    let files = [&[("src/lib.rs", "//! Root.")], files].concat();
    Tree::new(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned()))).violations()
}

/// Checks a tree of files that have this code below their first line.
fn rules_broken_by(files: &[(&str, &str)]) -> Vec<(Rule, usize)> {
    let texts: Vec<_> = files.iter().map(|(_, code)| format!("//! Injected.\n{code}")).collect();
    let files: Vec<_> = files.iter().zip(&texts).map(|((path, _), text)| (*path, text.as_str())).collect();
    violations(&files).into_iter().map(|found| (found.rule, found.line)).collect()
}

fn rules_broken_in(path: &str, code: &str) -> Vec<(Rule, usize)> {
    rules_broken_by(&[(path, code)])
}

#[test]
fn an_import_against_the_table_is_reported() {
    let import = vec![(Rule::Import, 2)];
    for (path, code) in [
        ("core/src/protocol/frame.rs", "use crate::store::Store;"),
        ("core/src/protocol/frame.rs", "fn f() { crate::clock::now(); }"),
        ("core/src/protocol/frame.rs", "use super::super::store;"),
        ("core/src/protocol/mod.rs", "use super::store;"),
        ("core/src/protocol/frame.rs", "use crate::{protocol::key, store::Store};"),
        ("core/src/protocol/frame.rs", "use {std::fmt, crate::store};"),
        ("core/src/protocol/frame.rs", "mod a { mod b { use super::super::super::super::store; } }"),
        ("core/src/protocol/frame.rs", "pub(in crate::store) fn f() {}"),
        ("core/src/protocol/frame.rs", "use crate::*;"),
        ("core/src/protocol/frame.rs", "use crate as root;"),
        ("core/src/protocol/frame.rs", "use mqkv::store;"),
        ("core/src/protocol/frame.rs", "#[cfg(test)]\nmod tests { use crate::store; }"),
        ("core/src/clock.rs", "use crate::protocol::Key;"),
        ("core/src/store/mod.rs", "use crate::client::Client;"),
        ("core/src/exchange/mod.rs", "use crate::server::Server;"),
        ("core/src/client/mod.rs", "use crate::server::Server;"),
        ("core/src/server/service.rs", "use crate::render::text;"),
        ("core/src/server/service.rs", "use crate::commands::Emit;"),
        ("core/src/mqtt/mod.rs", "use crate::broker::Broker;"),
        ("core/src/net/mod.rs", "use crate::client::Client;"),
        ("core/src/broker/mod.rs", "use crate::store::Store;"),
        ("core/src/broker/mod.rs", "use crate::server::Server;"),
        ("core/src/server/service.rs", "use crate::client::Client;"),
        ("core/src/server/exchange.rs", "use crate::client::Client;"),
        ("core/src/server/service.rs", "fn f() { g(format!(\"{}\", crate::client::name())); }"),
        ("core/src/server/service.rs", "#[arg(value_parser = crate::client::parse)]\nstruct Args;"),
        ("src/commands/get.rs", "use crate::net;"),
        ("src/commands/get.rs", "use crate::server::Server;"),
        ("src/render/text.rs", "use crate::client::Client;"),
        ("src/render/text.rs", "use crate::commands::Emit;"),
        ("src/shell/backslash.rs", "use crate::server::Server;"),
        ("src/main.rs", "fn main() { mqkv::server::start() }"),
        ("src/lib.rs", "pub use crate::protocol::Key;"),
    ] {
        let expected = if code.starts_with("#[cfg") { vec![(Rule::Import, 3)] } else { import.clone() };
        assert_eq!(rules_broken_in(path, code), expected, "{path}: {code}");
    }
}

#[test]
fn an_import_by_the_table_is_not_reported() {
    for (path, code) in [
        ("core/src/server/exchange/uplink.rs", "use crate::client::Client;"),
        ("core/src/protocol/frame.rs", "use super::key::Key; use crate::protocol::message;"),
        ("core/src/protocol/frame.rs", "mod tests { use super::super::generators; use super::*; }"),
        (
            "core/src/protocol/frame.rs",
            "pub(crate) fn f() {} pub(super) fn g() {} pub(in crate::protocol) fn h() {}",
        ),
        ("core/src/protocol/frame.rs", "// use crate::store;\n/* /* crate::store */ crate::store */"),
        (
            "core/src/protocol/frame.rs",
            "const A: &str = \"crate::store::\\\"\"; const B: &str = r#\"\"crate::store\"#;",
        ),
        (
            "core/src/protocol/frame.rs",
            "fn f<'a>(x: &'a str) -> char { '\"' } // crate::store\"\nconst C: u8 = b'\\'';",
        ),
        ("core/src/store/mod.rs", "use crate::protocol::{Key as K, Value}; use crate::{protocol as wire};"),
        ("core/src/server/service.rs", "use crate::{broker::a, clock, exchange::b, protocol::c, store::d};"),
        ("src/cli/serve.rs", "use crate::server::Server; use crate::protocol::Key;"),
        ("src/render/text.rs", "use crate::protocol::Key;"),
        ("src/commands/get.rs", "use crate::client::Client; use crate::render::Record;"),
        ("src/main.rs", "fn main() -> std::process::ExitCode { mqkv::cli::main() }"),
    ] {
        assert_eq!(rules_broken_in(path, code), [], "{path}: {code}");
    }
}

#[test]
fn a_module_outside_the_table_is_reported() {
    assert_eq!(rules_broken_in("src/util/mod.rs", "fn f() {}"), [(Rule::Import, 1)]);
}

#[test]
fn an_impure_name_in_a_pure_file_is_reported() {
    let pure = [
        "core/src/protocol/frame.rs",
        "core/src/store/mod.rs",
        "core/src/exchange/star.rs",
        "src/render/text.rs",
        "core/src/client/session.rs",
        "core/src/client/watch.rs",
        "core/src/client/lock.rs",
        "src/commands/lines/words.rs",
        "src/shell/completion/engine.rs",
    ];
    for code in [
        "use tokio::sync::mpsc;",
        "async fn f() {}",
        "use std::fs;",
        "use std::{fmt, net::TcpStream};",
        "fn f() { std::thread::yield_now(); }",
        "fn f() { ::std::process::id(); }",
        "use std::env::args;",
        "fn f(now: SystemTime) {}",
        "use std::time::{Duration, SystemTime};",
        "use rand::Rng;",
    ] {
        for path in pure {
            assert_eq!(rules_broken_in(path, code), [(Rule::Purity, 2)], "{path}: {code}");
        }
        let elsewhere = rules_broken_in("core/src/server/service.rs", code);
        assert_eq!(elsewhere, [], "{code}");
    }
    let random = rules_broken_in("core/src/store/mod.rs", "fn f() { rand::random(); }");
    assert_eq!(random, [(Rule::Purity, 2)]);
}

#[test]
fn pure_code_is_not_reported() {
    let code = "use std::time::{Duration, Instant};\nfn f(now: Instant) { let rand = now; let environment = 1; window.elapsed(now); }";
    assert_eq!(rules_broken_in("core/src/client/session.rs", code), []);
}

#[test]
fn a_test_module_of_a_pure_file_may_do_impure_things() {
    let code = "#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\nuse std::fs;\nfn f() { println!() }\n}";
    assert_eq!(rules_broken_in("core/src/store/mod.rs", code), []);
    let after = format!("{code}\nuse std::fs;");
    assert_eq!(rules_broken_in("core/src/store/mod.rs", &after), [(Rule::Purity, 8)]);
}

#[test]
fn a_file_that_is_a_test_module_may_do_impure_things() {
    let parent = "#[cfg(test)]\nmod simulation;\n#[cfg(not(test))]\nmod plain;";
    let code = "use std::fs;";
    let rules = rules_broken_by(&[
        ("core/src/store/mod.rs", parent),
        ("core/src/store/simulation.rs", code),
        ("core/src/store/plain.rs", code),
    ]);
    assert_eq!(rules, [(Rule::Purity, 2)]);
}

#[test]
fn a_crate_outside_its_owner_is_reported() {
    for (path, code) in [
        ("core/src/server/service.rs", "use rumqttc::Client;"),
        ("core/src/client/mod.rs", "fn f(x: rumqttc::Client) {}"),
        ("core/src/client/mod.rs", "use rumqttc as mqtt;"),
        ("core/src/client/mod.rs", "extern crate rumqttc;"),
        ("core/src/client/mod.rs", "fn f(x: &mut ::rumqttc::Client) {}"),
        ("core/src/server/mod.rs", "use {rustix::fs, std::fmt};"),
        ("src/shell/mod.rs", "pub use ::rustyline::Editor;"),
        ("src/cli/args.rs", "fn f() { serde_json::to_string(&1); }"),
        ("src/render/text.rs", "fn f() { hex::encode([]); }"),
        ("src/render/text.rs", "use clap::Parser;"),
        ("core/src/server/service.rs", "#[cfg(test)] mod tests { use rustix::fs::fadvise; }"),
    ] {
        assert_eq!(rules_broken_in(path, code), [(Rule::Owner, 2)], "{path}: {code}");
    }
}

#[test]
fn a_crate_in_a_second_file_is_reported_there() {
    for (name, owner) in [
        ("colored", "src/render/style.rs"),
        ("anstream", "src/cli/report.rs"),
        ("humantime", "src/render/duration.rs"),
        ("hex", "src/render/encoding.rs"),
    ] {
        let code = format!("use {name}::f;");
        for second in ["src/cli/a.rs", "src/commands/b.rs"] {
            let rules = rules_broken_by(&[(owner, &code), (second, &code)]);
            assert_eq!(rules, [(Rule::Owner, 2)], "{name} in {second}");
        }
        assert_eq!(rules_broken_in(owner, &code), [], "{name}");
    }
}

#[test]
fn a_crate_in_its_owner_is_not_reported() {
    let rules = rules_broken_by(&[
        ("core/src/client/transport.rs", "use rumqttc::Client;"),
        ("core/src/mqtt/oracle.rs", "use rumqttc::mqttbytes;"),
        ("core/src/platform/unix/file.rs", "use rustix::fs::fadvise;"),
        ("src/render/json/writer.rs", "use serde_json::Value;"),
        ("core/src/protocol/topic.rs", "use hex::encode;"),
        ("src/render/encoding.rs", "use hex::encode;"),
        ("src/commands/set.rs", "#[derive(clap::Args)] struct Set { hex: bool, base64: bool }"),
        ("src/cli/args.rs", "use clap::Parser; fn f() { let colored = args.base64; }"),
    ]);
    assert_eq!(rules, []);
}

#[test]
fn a_file_without_a_first_line_is_reported() {
    for (path, text) in [
        ("core/src/store/mod.rs", "use crate::protocol;\n"),
        ("tests/it/main.rs", "// not this\n//! a doc\n"),
        ("core/src/store/scan.rs", ""),
        ("core/src/store/limits.rs", "//!\n"),
    ] {
        let found = violations(&[(path, text)]);
        let rules: Vec<_> = found.iter().map(|found| found.rule).collect();
        assert_eq!(rules, [Rule::FirstLine], "{path}: {text}");
    }
}

#[test]
fn code_for_one_system_outside_the_module_platform_is_reported() {
    for code in [
        "#[cfg(unix)] fn f() {}",
        "#[cfg(not(target_os = \"linux\"))] fn f() {}",
        "use std::os::fd::AsFd;",
        "fn f() { std::os::unix::fs::chown(); }",
    ] {
        assert_eq!(rules_broken_in("core/src/net/secret.rs", code), [(Rule::System, 2)], "{code}");
        assert_eq!(rules_broken_in("core/src/platform/unix/file.rs", code), [], "{code}");
        assert_eq!(rules_broken_in("core/src/net/secret.rs", &format!("#[cfg(test)] {code}")), [], "{code}");
    }
}

#[test]
fn a_reading_of_the_clock_outside_its_owner_is_reported() {
    for code in [
        "fn f() { SystemTime::now(); }",
        "fn f() { std::time::Instant::now(); }",
        "fn f() { tokio::time::Instant::now(); }",
        "fn f() { since.elapsed(); }",
        "fn f(x: Option<u8>) { x.map_or_else(Instant::now, g); }",
    ] {
        assert_eq!(rules_broken_in("core/src/server/service.rs", code), [(Rule::Clock, 2)], "{code}");
        assert_eq!(rules_broken_in("core/src/clock.rs", code), [], "{code}");
    }
}

#[test]
fn a_reading_of_the_environment_outside_its_owner_is_reported() {
    for code in [
        "fn f() { std::env::var(\"A\"); }",
        "use std::env::{args, var_os};",
        "fn f() { env::vars(); }",
        "fn f() { env::vars_os(); }",
    ] {
        let rules = rules_broken_in("src/cli/args.rs", code);
        assert_eq!(rules, [(Rule::Environment, 2)], "{code}");
        assert_eq!(rules_broken_in("src/cli/environment.rs", code), [], "{code}");
    }
    assert_eq!(rules_broken_in("src/cli/args.rs", "const A: &str = env!(\"A\");"), []);
}

#[test]
fn a_thread_that_panics_where_there_is_none_to_be_had_is_reported() {
    for code in ["fn f() { thread::spawn(g); }", "use std::thread::spawn;", "use std::thread::{self, spawn};"]
    {
        assert_eq!(rules_broken_in("src/cli/environment.rs", code), [(Rule::Thread, 2)], "{code}");
    }
    let fine = "fn f() { thread::Builder::new().spawn(g); tokio::spawn(h); }\n#[cfg(test)] mod tests { use std::thread::spawn; }";
    assert_eq!(rules_broken_in("src/cli/environment.rs", fine), []);
}

#[test]
fn a_print_or_an_exit_is_reported_wherever_it_is() {
    for code in [
        "fn f() { println!(\"a\"); }",
        "fn f() { print!(\"a\"); }",
        "fn f() { eprintln!(\"a\"); }",
        "fn f() { eprint!(\"a\"); }",
        "fn f() { std::println!(); }",
        "fn f() { dbg!(1); }",
        "fn f() { std::process::exit(1); }",
        "use std::process::exit;",
    ] {
        assert_eq!(rules_broken_in("src/cli/exit.rs", code), [(Rule::Terminal, 2)], "{code}");
    }
    let fine =
        "fn f() { writeln!(out, \"a\"); if print != 1 { } let code = std::process::ExitCode::SUCCESS; }";
    assert_eq!(rules_broken_in("src/cli/exit.rs", fine), []);
}

/// Two files of the store, `b` importing this from `a`, which defines `A` and imports `B`.
fn cycle_with(code: &str) -> Vec<Violation> {
    violations(&[
        ("core/src/store/mod.rs", "//! Store.\nmod a;\nmod b;\npub use a::A;"),
        ("core/src/store/a.rs", "//! A.\nuse super::b::B;\npub struct A(B);\nimpl A { pub fn new() {} }"),
        ("core/src/store/b.rs", &format!("//! B.\npub struct B;\n{code}")),
    ])
}

#[test]
fn a_cycle_of_two_files_is_reported_with_the_items_that_tie_it() {
    let report: Vec<_> = cycle_with("use super::a::A;").iter().map(Violation::to_string).collect();
    assert_eq!(
        report,
        [
            "core/src/store/a.rs:2: Cycle: in a cycle of 2 files: imports core/src/store/b.rs (B)",
            "core/src/store/b.rs:3: Cycle: in a cycle of 2 files: imports core/src/store/a.rs (A)",
        ]
    );
}

#[test]
fn a_cycle_is_reported_however_the_path_is_written() {
    for code in [
        "use crate::store::a::A;",
        "use super::A;",
        "use crate::store::{b, A as Other};",
        "use {std::fmt, super::{a::{self, A}}};",
        "use super::*; fn f(a: A) {}",
        "use super::a::*;",
        "use super::a; fn f() { a::A::new() }",
        "use super::a as other; fn f() -> Option<other::A> { None }",
        "use crate::store; fn f() { store::A::new() }",
        "fn f() { super::A::new() }",
        "fn f(a: &dyn Fn(super::a::A)) {}",
        "impl From<super::A> for B { fn from(a: super::A) -> Self { Self } }",
        "fn f() { assert!(g(1).h(super::A::new())) }",
        "fn f() { format!(\"{:?}\", [crate::store::a::A::new()]) }",
        "fn f() { block! { use super::{b, A}; } }",
        "macro_rules! m { () => { $crate::store::A::new() } }",
        "#[arg(value_parser = super::A::new)] struct Args;",
        "use super::a;",
        "#[derive(Serialize)] struct S { #[serde(rename = \"s\", serialize_with = \"super::a::f\")] s: u8 }",
        "enum E { V { #[serde(with = \"crate::store::a\")] s: u8 } }",
        "#[serde(from = \"super::A\")] struct S;",
        "mod inner { use super::super::A; }",
        "mod inner { fn f() { fn g() { use super::super::a::A; } } }",
    ] {
        let rules: Vec<_> = cycle_with(code).into_iter().map(|found| (found.rule, found.line)).collect();
        assert_eq!(rules, [(Rule::Cycle, 2), (Rule::Cycle, 3)], "{code}");
    }
}

#[test]
fn a_file_that_imports_nothing_back_is_in_no_cycle() {
    for code in [
        "use super::super::store;",
        "pub(super) fn f() {} pub(in crate::store) fn g() {}",
        "fn f() { let a = 1; a.b(); }",
        "struct A; fn f(a: A) {} mod inner { use super::A; }",
        "mod a { pub struct A; } use a::A;",
        "#[cfg(test)] mod tests { use super::super::A; }",
        "#[cfg(test)] use super::A;",
        "impl B { #[cfg(test)] fn f(a: super::A) {} }",
        "#[serde(rename = \"super::A\", serialize_with = \"g\")] struct S;",
        "/// [`super::A`]\nfn f() -> &'static str { \"super::A\" } // super::A",
    ] {
        assert_eq!(cycle_with(code), [], "{code}");
    }
}

#[test]
fn a_parent_that_only_declares_and_re_exports_is_in_no_cycle() {
    let parent = "mod a; pub mod b; pub use a::A; pub use self::b::{B as C, *}; use crate::protocol::Key;";
    let tree = |parent: &str| {
        rules_broken_by(&[
            ("core/src/store/mod.rs", parent),
            (
                "core/src/store/a.rs",
                "use super::{C, Key, b}; pub struct A(C, b::D); fn f(&self) { assert!(self.g()) }",
            ),
            ("core/src/store/b.rs", "pub struct B; pub struct D;"),
            ("core/src/protocol/mod.rs", "pub struct Key;"),
        ])
    };
    assert_eq!(tree(parent), []);
    for item in ["pub struct Limits(A);", "pub fn a() -> A { a::A::new() }"] {
        assert_eq!(tree(&format!("{parent} {item}")), [], "the child does not import it");
    }
}

#[test]
fn a_parent_that_defines_what_its_child_imports_is_in_a_cycle() {
    for parent in ["use a::A; pub struct Limits(A);", "pub struct Limits; fn f() { a::A::new() }"] {
        for path in ["core/src/store/mod.rs", "core/src/store.rs"] {
            let rules = rules_broken_by(&[
                (path, parent),
                ("core/src/store/a.rs", "use super::Limits; pub struct A(Limits);"),
            ]);
            assert_eq!(rules, [(Rule::Cycle, 2), (Rule::Cycle, 2)], "{path}: {parent}");
        }
    }
}

#[test]
fn a_cycle_through_files_of_several_folders_is_reported_as_one() {
    let found = violations(&[
        ("core/src/store/mod.rs", "//! Store.\nmod a;\nmod b;"),
        ("core/src/store/a.rs", "//! A.\nuse super::b::c::C;\npub fn a() {}"),
        ("core/src/store/b/mod.rs", "//! B.\npub mod c;\nuse super::a::a;\npub fn b() {}"),
        ("core/src/store/b/c.rs", "//! C.\nuse super::b;\npub struct C;"),
        ("core/src/store/d.rs", "//! D.\nuse super::a::a;"),
    ]);
    let report: Vec<_> = found.iter().map(Violation::to_string).collect();
    assert_eq!(
        report,
        [
            "core/src/store/a.rs:2: Cycle: in a cycle of 3 files: imports core/src/store/b/c.rs (C)",
            "core/src/store/a.rs:2: FolderCycle: store/a is in a cycle of folders: imports store/b (C)",
            "core/src/store/b/c.rs:2: Cycle: in a cycle of 3 files: imports core/src/store/b/mod.rs (b)",
            "core/src/store/b/mod.rs:3: Cycle: in a cycle of 3 files: imports core/src/store/a.rs (a)",
            "core/src/store/b/mod.rs:3: FolderCycle: store/b is in a cycle of folders: imports store/a (a)",
        ]
    );
}

#[test]
fn a_cycle_of_folders_without_a_cycle_of_files_is_reported() {
    let tree = |import: &str| {
        violations(&[
            ("core/src/store/mod.rs", "//! Store.\nmod a;\nmod b;\nmod event;"),
            ("core/src/store/a/mod.rs", "//! A.\npub mod one;\npub mod two;"),
            (
                "core/src/store/a/one.rs",
                "//! One.\nuse crate::store::b::three::Three;\npub struct One(Three);",
            ),
            ("core/src/store/a/two.rs", "//! Two.\npub struct Two;"),
            (
                "core/src/store/b.rs",
                "//! B.\npub mod three;\npub mod four;\nuse three::Three;\npub struct B(Three);",
            ),
            ("core/src/store/b/three.rs", "//! Three.\npub struct Three;"),
            ("core/src/store/b/four.rs", &format!("//! Four.\n{import}")),
            ("core/src/store/event.rs", "//! Event.\nuse super::a::two::Two;\npub struct Event(Two);"),
        ])
    };
    let report = |import: &str| tree(import).iter().map(Violation::to_string).collect::<Vec<_>>();
    assert_eq!(
        report("use crate::store::a::two::Two;"),
        [
            "core/src/store/a/one.rs:2: FolderCycle: store/a is in a cycle of folders: imports store/b (Three)",
            "core/src/store/b/four.rs:2: FolderCycle: store/b is in a cycle of folders: imports store/a (Two)",
        ]
    );
    assert_eq!(report("use crate::store::event::Event;").len(), 3, "the file between them is part of it");
    for import in ["use super::B;", "use super::three::Three;", "#[cfg(test)] use crate::store::a::two::Two;"]
    {
        assert_eq!(report(import), [""; 0], "{import}");
    }
}

#[test]
fn a_wait_of_a_test_without_a_limit_is_reported() {
    for code in [
        "fn f() { child.wait().unwrap(); }",
        "fn f() { command.args([1]).output().unwrap(); } use std::process::Command;",
        "fn f() { assert!(a == 1, \"{}\", Command::new(\"true\").status().unwrap()); }",
        "fn f() { let read = || stream.read_line(&mut line); read(); }",
        "async fn f() { thread.join().unwrap(); }",
        "fn f() { thread::scope(|scope| { scope.spawn(move || receiver.recv()); }); }",
        "fn f() { socket.recv(&mut bytes); }",
        "fn f() { for stream in listener.incoming() { g(stream); } }",
    ] {
        assert_eq!(rules_broken_in("tests/it/verb.rs", code), [(Rule::Wait, 2)], "{code}");
        let of_tests = format!("#[cfg(test)] mod tests {{ {code} }}");
        assert_eq!(rules_broken_in("core/src/server/service.rs", &of_tests), [(Rule::Wait, 2)], "{code}");
        assert_eq!(rules_broken_in("core/src/server/service.rs", code), [], "{code}");
    }
}

#[test]
fn a_wait_of_a_test_with_a_limit_is_not_reported() {
    for code in [
        "fn f() { bounded(|| child.wait()).unwrap(); }",
        "fn f() { spawn(move || listener.accept()); std::thread::spawn(|| a.join()); }",
        "async fn f() { receiver.recv().await; timeout(limit, stream.read_exact(&mut a)).await; }",
        "async fn f() { tokio::join!(bulk.wait(), task); }",
        "fn f() { instance.status(); path.join(\"a\"); parts.join(\", \"); condition.wait(guard); }",
        "fn f() { a.set_read_timeout(limit); a.read_to_end(&mut bytes); }",
    ] {
        assert_eq!(rules_broken_in("tests/it/verb.rs", code), [], "{code}");
    }
}
