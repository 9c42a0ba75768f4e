//! Everything that starts processes: the real binary in a hermetic environment.

mod common;
mod decode;
mod help;
mod unreachable;
mod usage;
