//! Has the linker put side by side in the executable what an idle server has run: the system keeps what lies around it in
//! memory too.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "so cargo is spoken with")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=layout");
    let has = |name, value| env::var(name).is_ok_and(|set: String| set == value);
    // The linkers that a compiler brings or finds by itself know such scripts; not every other one does.
    let has_linker = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    if has("TARGET", "x86_64-unknown-linux-gnu") && has("PROFILE", "release") && !has_linker {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bin=mqkv=-T{folder}/layout/order.ld");
    }
}
