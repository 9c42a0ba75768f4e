//! The credentials of a CONNECT.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use super::secret_reader::{self, FileRead, SECRET_BYTES_MAX, SecretReader};
use super::shared_token::SharedToken;
use crate::client::error::{CredentialError, Error, io_error_text};
use crate::client::token_claims::{SentToken, TokenClaims};
use crate::clock;
use crate::files::text::{self, EncodingError};
use crate::net::secret::Secret;

/// How the client authenticates, in addition to its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    #[default]
    None,
    Password {
        username: String,
        password: Option<PasswordSource>,
    },
    /// With a Kubernetes service account token: the bytes of the file, unchanged (protocol §8). Kubernetes replaces the file
    /// before the token expires.
    ServiceAccountToken {
        file: PathBuf,
    },
    /// With a service account token that another task renews.
    SharedToken(SharedToken),
}

/// The source of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    Given(Secret),
    /// The first line of a file.
    File(PathBuf),
}

/// The credentials of a CONNECT.
#[derive(Debug)]
pub(in crate::client) enum Credentials {
    None,
    Password { username: String, password: Option<Secret> },
    Token(FileRead),
}

impl Authentication {
    /// Returns whether CONNECT has an authentication method: only AUTH and DISCONNECT may follow it before CONNACK (MQTT 5,
    /// 3.1.2.11.9).
    #[must_use]
    pub fn has_method(&self) -> bool {
        matches!(self, Self::ServiceAccountToken { .. } | Self::SharedToken(_))
    }

    /// Returns what a token that was read states about itself.
    pub(in crate::client) fn sent_token(&self, read: &FileRead) -> SentToken {
        let file = match self {
            Self::ServiceAccountToken { file } => Some(file.clone()),
            Self::SharedToken(_) | Self::None | Self::Password { .. } => None,
        };
        let now_s = clock::wall_ms() / 1000;
        SentToken { file, claims: TokenClaims::parse(read.secret.bytes()), now_s }
    }

    /// Reads the files. Fails if that takes longer than `within`: a file may be on a disk that hangs.
    pub(in crate::client) async fn read_credentials(
        &self,
        files: &SecretReader,
        within: Duration,
    ) -> Result<Credentials, Error> {
        Ok(match self {
            Self::None => Credentials::None,
            Self::Password { username, password } => {
                let password = match password {
                    None => None,
                    Some(PasswordSource::Given(password)) => Some(password.clone()),
                    Some(PasswordSource::File(path)) => {
                        let read = read_secret_file(path, files, within, |bytes| bytes.first_line());
                        Some(read.await?.secret)
                    }
                };
                Credentials::Password { username: username.clone(), password }
            }
            Self::ServiceAccountToken { file } => {
                Credentials::Token(read_secret_file(file, files, within, checked_token).await?)
            }
            Self::SharedToken(token) => match timeout(within, token.valid()).await {
                Ok(Some(secret)) => Credentials::Token(FileRead::in_memory(secret)),
                Ok(None) | Err(_) => return Err(Error::NoToken { cause: token.failure() }),
            },
        })
    }
}

/// Returns the token as it is. The broker knows none with a byte order mark.
fn checked_token(token: Secret) -> Result<Secret, EncodingError> {
    text::check_unmarked(token.bytes())?;
    Ok(token)
}

async fn read_secret_file(
    path: &Path,
    files: &SecretReader,
    within: Duration,
    extract: fn(Secret) -> Result<Secret, EncodingError>,
) -> Result<FileRead, Error> {
    let failed = |cause| Error::Credentials { path: path.to_owned(), cause };
    let unreadable = |error: io::Error| failed(CredentialError::Unreadable(io_error_text(&error)));
    let opened = path.to_owned();
    let FileRead { secret, stamp } =
        match timeout(within, files.run(move || secret_reader::read(&opened))).await {
            Ok(Some(read)) => read.map_err(unreadable)?,
            Ok(None) | Err(_) => {
                let cause = format!("timed out after {within:?}");
                return Err(failed(CredentialError::Unreadable(cause)));
            }
        };
    if secret.bytes().len() > SECRET_BYTES_MAX {
        return Err(failed(CredentialError::TooLong(SECRET_BYTES_MAX)));
    }
    let secret = extract(secret).map_err(|error| failed(CredentialError::Encoding(error)))?;
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
    async fn a_token_is_the_unchanged_content_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, " t\n").unwrap();
        let authentication = Authentication::ServiceAccountToken { file };
        let Credentials::Token(token) =
            authentication.read_credentials(&SecretReader::default(), Duration::from_secs(5)).await.unwrap()
        else {
            panic!("no token");
        };
        assert_eq!(token.secret.bytes(), b" t\n");
    }

    // The words of other systems are others.
    #[cfg(unix)]
    #[tokio::test]
    async fn an_invalid_secret_file_is_an_error_that_names_the_file() {
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
            (
                file("marked", b"\xEF\xBB\xBFt"),
                "marked is encoded in UTF-8 with a byte order mark; UTF-8 is required",
            ),
            (
                file("long", &[b'x'; SECRET_BYTES_MAX + 1]),
                "long is too long for a secret: more than 65535 bytes",
            ),
        ];
        for (authentication, words) in cases {
            let error = authentication
                .read_credentials(&SecretReader::default(), Duration::from_secs(5))
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
