//! Waits of tests that have no limit. Instead of `child.wait()` write `bounded(|| child.wait())`, of `tests/watchdog/mod.rs`.
//!
//! What a spawned thread does may block: whatever waits for the thread has a limit. So may a task, because the watchdog ends a program in
//! which no test ends.

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Token};

use crate::source::is_for_tests;

/// Methods that block, and the number of their arguments.
const BLOCKING: &[(&str, usize)] = &[
    ("accept", 0),
    ("incoming", 0),
    ("join", 0),
    ("output", 0),
    ("read_exact", 1),
    ("read_line", 1),
    ("read_to_end", 1),
    ("read_to_string", 1),
    ("recv", 0),
    ("recv", 1),
    ("status", 0),
    ("wait", 0),
    ("wait_with_output", 0),
];

/// Functions that give a wait a limit, or start a thread or task for it.
const BOUNDED: &[&str] = &["bounded", "in_time", "spawn", "spawn_blocking", "timeout"];

/// Paths with a wait that may have no limit: `*` stands for all.
const ALLOWED: &[(&str, &str)] = &[
    // Scenarios run for as long as they are asked to.
    ("tests/faults/", "*"),
    ("tests/interop/", "*"),
    // The function itself.
    ("tests/watchdog/", "join"),
    // A child that has forked and may start no thread; the test waits for it with a limit.
    ("tests/it/testing_store.rs", "read_exact"),
];

/// Returns the line and the name of each wait without a limit in the tests of a file; `is_test` if all of it is for tests.
pub fn unbounded(path: &str, text: &str, is_test: bool) -> Vec<(usize, String)> {
    // Most files have none, and to read a file takes long.
    if !BLOCKING.iter().any(|(name, _)| text.contains(&format!(".{name}("))) {
        return Vec::new();
    }
    let file = syn::parse_file(text).unwrap();
    let mut waits = Waits { in_test: is_test, text, found: Vec::new() };
    waits.visit_file(&file);
    let is_allowed = |name: &str| {
        ALLOWED.iter().any(|(place, allowed)| path.starts_with(place) && [name, "*"].contains(allowed))
    };
    waits.found.retain(|(_, name)| !is_allowed(name));
    waits.found
}

struct Waits<'a> {
    in_test: bool,
    text: &'a str,
    found: Vec<(usize, String)>,
}

impl Waits<'_> {
    fn in_marked(&mut self, attributes: &[Attribute], visit: impl FnOnce(&mut Self)) {
        let outer = self.in_test;
        self.in_test |= attributes.iter().any(|attribute| is_for_tests(&attribute.meta));
        visit(self);
        self.in_test = outer;
    }

    /// Whether a method of this name is another one in this file: one of no process, or of a socket that has a timeout.
    fn is_harmless(&self, name: &str) -> bool {
        match name {
            "output" | "status" => !self.text.contains("Command"),
            _ => (name.starts_with("read_") || name == "recv") && self.text.contains("set_read_timeout"),
        }
    }
}

impl<'ast> Visit<'ast> for Waits<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.in_marked(&item.attrs, |waits| visit::visit_item_fn(waits, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.in_marked(&item.attrs, |waits| visit::visit_item_mod(waits, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.in_marked(&item.attrs, |waits| visit::visit_item_impl(waits, item));
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let Expr::Path(function) = &*call.func else { return visit::visit_expr_call(self, call) };
        let name = function.path.segments.last().map(|segment| segment.ident.to_string());
        if !name.is_some_and(|name| BOUNDED.contains(&name.as_str())) {
            visit::visit_expr_call(self, call);
        }
    }

    fn visit_expr_await(&mut self, awaited: &'ast syn::ExprAwait) {
        match &*awaited.base {
            Expr::MethodCall(call) => visit::visit_expr_method_call(self, call),
            other => self.visit_expr(other),
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        let blocks = BLOCKING.contains(&(name.as_str(), call.args.len()));
        if self.in_test && blocks && !self.is_harmless(&name) {
            self.found.push((call.method.span().start().line, name));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // Their arguments are futures.
        if ["join", "select"]
            .iter()
            .any(|name| call.path.segments.last().is_some_and(|last| last.ident == name))
        {
            return;
        }
        // Only patterns and the syntax of rare macros are no expressions.
        if let Ok(arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        }
    }
}
