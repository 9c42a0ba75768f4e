//! Settings of the state store in a server.

use std::path::PathBuf;

use crate::protocol::request::CommandCase;
use crate::server::operations::OperationsSettings;
use crate::store::Limits;

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
    /// Whether commands in lower case are accepted.
    pub case: CommandCase,
    pub persistence: Persistence,
    /// What operators can see, and where.
    pub operations: OperationsSettings,
}
