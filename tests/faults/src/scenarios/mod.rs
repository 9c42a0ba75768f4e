//! One scenario per file: `run` returns its figures, or what was found.

pub mod bit_flips;
pub mod budgets;
pub mod cluster;
pub mod forged_ids;
pub mod half_open_tls;
pub mod hostile_clients;
pub mod kills;
pub mod linearizability;
pub mod lock_out;
pub mod logins;
pub mod one_shot;
pub mod power_cuts;
pub mod retained_publisher;
pub mod star;
