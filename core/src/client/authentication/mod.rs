//! Authentication of the client: passwords and tokens, read from their files for each connection.

mod credentials;
mod secret_reader;
mod shared_token;
mod token_watcher;

pub(super) use credentials::Credentials;
pub use credentials::{Authentication, PasswordSource};
pub(super) use secret_reader::FileRead;
pub use secret_reader::SecretReader;
pub use shared_token::{SharedToken, TokenRenewer};
pub(super) use token_watcher::TokenWatcher;
