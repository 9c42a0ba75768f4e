//! Everything that starts processes: the real binary in a hermetic environment.
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // clippy.toml exempts tests only, not what they share

mod common;
mod decode;
mod help;
mod lock;
mod lock_lost;
mod shell;
mod shell_lost;
mod unreachable;
mod usage;
#[cfg(unix)]
mod watch;
#[cfg(unix)]
mod watch_command;
#[cfg(unix)]
mod watch_lost;
