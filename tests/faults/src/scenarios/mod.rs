//! One scenario per file: `run` returns its figures, or what was found.

pub mod bit_flips;
pub mod cluster;
pub mod hostile_clients;
pub mod kills;
pub mod linearizability;
pub mod logins;
pub mod power_cuts;
pub mod star;
