//! Authorization: allow-only rules in the format of Azure IoT Operations, and each client's permissions (protocol §7).

mod authorizer;
mod error;
mod policy;
mod template;
mod topic_set;
mod yaml;

pub use authorizer::{Authorizer, ClientPermissions};
pub use error::AuthorizationError;
