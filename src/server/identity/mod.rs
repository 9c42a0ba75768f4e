//! Identities: users with passwords and bearers of tokens, from files that may change while the server runs.

mod error;
mod identities;
mod reloaded_file;
mod tokens;
mod users;

pub use error::IdentityError;
pub use identities::{CredentialFiles, Identities};
pub use users::UsersFile;
