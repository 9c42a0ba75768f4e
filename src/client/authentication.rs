//! How a client shows who it is, beside its certificate: read anew for every connection, for secrets change.

mod files;
mod token;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use super::error::{CredentialError, Error};
use crate::net::secret::Secret;
pub(super) use files::{FileRead, SecretFiles};
pub(super) use token::TokenWatch;

/// The longest password or token that a CONNECT can carry, in bytes.
const SECRET_BYTES_MAX: usize = 65_535;

/// Who the client says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// Nobody, or whoever its certificate says.
    #[default]
    None,
    /// A user.
    Password {
        /// The user's name.
        username: String,
        /// The password, where there is one.
        password: Option<PasswordSource>,
    },
    /// Whoever a Kubernetes service account token says: the file's bytes as they are (protocol §8).
    ServiceAccountToken {
        /// The file, which Kubernetes writes anew before the token expires.
        file: PathBuf,
    },
}

/// Where a password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// It is known.
    Given(Secret),
    /// The first line of a file.
    File(PathBuf),
}

/// What a CONNECT says of the client.
#[derive(Debug)]
pub(super) enum Credentials {
    None,
    Password { username: String, password: Option<Secret> },
    Token(FileRead),
}

impl Authentication {
    /// Reads what is in files, for at most so long: a file may be on a disk that hangs.
    pub(super) async fn read(&self, files: &SecretFiles, within: Duration) -> Result<Credentials, Error> {
        Ok(match self {
            Self::None => Credentials::None,
            Self::Password { username, password } => {
                let password = match password {
                    None => None,
                    Some(PasswordSource::Given(password)) => Some(password.clone()),
                    Some(PasswordSource::File(path)) => {
                        Some(read(path, files, within, |bytes| bytes.first_line()).await?.secret)
                    }
                };
                Credentials::Password { username: username.clone(), password }
            }
            Self::ServiceAccountToken { file } => {
                Credentials::Token(read(file, files, within, |token| token).await?)
            }
        })
    }
}

async fn read(
    path: &Path,
    files: &SecretFiles,
    within: Duration,
    extract: fn(Secret) -> Secret,
) -> Result<FileRead, Error> {
    let failed = |cause| Error::Credentials { path: path.to_owned(), cause };
    let unreadable = |error: io::Error| failed(CredentialError::Unreadable(super::dial::explain(&error)));
    let opened = path.to_owned();
    let FileRead { secret, stamp } =
        match timeout(within, files.run_detached(move || files::read(&opened))).await {
            Ok(Some(read)) => read.map_err(unreadable)?,
            Ok(None) | Err(_) => {
                let cause = format!("it could not be read within {within:?}");
                return Err(failed(CredentialError::Unreadable(cause)));
            }
        };
    if secret.bytes().len() > SECRET_BYTES_MAX {
        return Err(failed(CredentialError::TooLong(SECRET_BYTES_MAX)));
    }
    let secret = extract(secret);
    if secret.bytes().is_empty() {
        Err(failed(CredentialError::Empty))
    } else {
        Ok(FileRead { secret, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_the_files_bytes_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, " t\n").unwrap();
        let authentication = Authentication::ServiceAccountToken { file };
        let Credentials::Token(token) =
            authentication.read(&SecretFiles::new(), Duration::from_secs(5)).await.unwrap()
        else {
            panic!("no token");
        };
        assert_eq!(token.secret.bytes(), b" t\n");
    }

    #[tokio::test]
    async fn what_cannot_be_a_secret_is_told_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            Authentication::ServiceAccountToken { file: folder.path().join(name) }
        };
        let gone = Authentication::ServiceAccountToken { file: folder.path().join("gone") };
        let cases = [
            (gone, "gone: no such file or directory"),
            (Authentication::ServiceAccountToken { file: folder.path().to_owned() }, "is a directory"),
            (file("empty", b""), "empty is empty"),
            (file("long", &[b'x'; SECRET_BYTES_MAX + 1]), "long has more than 65535 bytes"),
        ];
        for (authentication, words) in cases {
            let error = authentication
                .read(&SecretFiles::new(), Duration::from_secs(5))
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
