//! Settings of the state store in a server.

use std::path::PathBuf;

use crate::server::exchange::settings::ExchangeSettings;
use crate::server::operations_settings::OperationsSettings;
use crate::store::Limits;

/// The share of the store's memory that the responses for duplicate detection may take besides: one seventh, so that
/// both together are half of `--memory-max`.
const RESPONSES_SHARE: u64 = 7;
/// What these responses may take in any case, in bytes: a store with little memory must recognize writes too.
const RESPONSES_BYTES_MIN: u64 = 1024 * 1024;

/// Returns the limit of the memory of responses to writes that may be delivered again, in bytes.
#[must_use]
pub fn recorded_bytes_max(limits: &Limits) -> u64 {
    (limits.memory_bytes_max / RESPONSES_SHARE).max(RESPONSES_BYTES_MIN)
}

/// Which keys are persisted, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// None: all keys are in memory only, as in the product (protocol §7).
    #[default]
    None,
    /// Keys whose SET asked for it (`aio-persistence`), until they are deleted or expire, in this directory. Their
    /// changes are committed before they are answered.
    Custom(PathBuf),
    /// All keys, in this directory. Every change is committed before it is answered.
    All(PathBuf),
}

/// Settings of the state store in a server.
#[derive(Clone, Debug, Default)]
pub struct StoreSettings {
    pub limits: Limits,
    pub persistence: Persistence,
    /// Whether a new store begins with keys: see [`StoreServer::take_seeding`](crate::server::StoreServer::take_seeding).
    pub has_seed: bool,
    /// `None`: the store takes part in no exchange. Otherwise there must be persistence.
    pub exchange: Option<ExchangeSettings>,
    /// What operators can see, and where.
    pub operations: OperationsSettings,
}
