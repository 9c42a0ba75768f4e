//! The program on any system: these tests use nothing but the program itself, loopback and a temporary folder. They run by
//! `cargo test`, and under Wine by `.ci/platforms`, where the program is the one beside them.
//!
//! Not here: what needs a console, such as the prompt's line editor. Wine has none that a test could drive.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "clippy.toml exempts test functions only, not the helpers that they share"
)]

#[path = "../watchdog/mod.rs"]
mod a_watchdog;

mod commands;
mod files;
mod place;
mod serving;
mod verbs;
