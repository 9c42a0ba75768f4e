//! Identities: users with passwords and bearers of tokens, from files that may change while the server runs.

mod authenticator;
mod error;
mod identities;
mod login_limit;
mod reloaded_file;
mod tokens;
mod users;
mod verified_passwords;

pub use authenticator::IdentityAuthenticator;
pub use error::IdentityError;
pub use identities::{CredentialFiles, Identities, LOGIN_FAILURES_MAX};
pub use users::UsersFile;
