//! Pages of the keys that match a pattern; the next page is requested while the last one is processed.

use std::ffi::OsString;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::error::CommandError;
use crate::client::{Client, Error};
use crate::protocol::{ErrorReply, Key};

/// Pages of keys.
#[derive(Debug)]
pub struct Pages(mpsc::Receiver<Result<Vec<Key>, Error>>);

impl Pages {
    /// Starts to request pages.
    #[must_use]
    pub fn request(client: &Client, pattern: Bytes) -> Self {
        let (sender, pages) = mpsc::channel(1);
        let client = client.clone();
        tokio::spawn(async move {
            let mut token = None;
            loop {
                let page = client.scan(pattern.clone(), token.take()).await;
                let next = page.as_ref().ok().and_then(|page| page.token.clone());
                if sender.send(page.map(|page| page.keys)).await.is_err() || next.is_none() {
                    return;
                }
                token = next;
            }
        });
        Self(pages)
    }

    /// Returns the next page; None at the end. Cancel-safe.
    ///
    /// # Errors
    /// The request failed. A broker without SCAN gets a message of its own.
    pub async fn next(&mut self) -> Result<Option<Vec<Key>>, CommandError> {
        self.0.recv().await.transpose().map_err(scan_error)
    }
}

/// Returns the pattern, by default the one that every key matches.
///
/// # Errors
/// [`Error::EmptyPattern`].
pub fn pattern(word: Option<OsString>) -> Result<Bytes, CommandError> {
    let pattern = word.map_or(Bytes::from_static(b"*"), |word| Bytes::from(word.into_encoded_bytes()));
    if pattern.is_empty() { Err(Error::EmptyPattern.into()) } else { Ok(pattern) }
}

fn scan_error(error: Error) -> CommandError {
    let is_unknown = error == Error::Refused(ErrorReply::UnknownCommand);
    let is_syntax = error == Error::Refused(ErrorReply::SyntaxError);
    let error = CommandError::from(error);
    if is_unknown {
        let hints = vec!["list the keys in a file, one per line: mqkv export --keys-from FILE".to_owned()];
        let message = "cannot list keys: the store of this broker does not support SCAN".to_owned();
        return CommandError { message, hints, ..error };
    }
    if is_syntax {
        return error.hint(
            "valid patterns are UTF-8 with * (any characters), ? (one), [ab] [0-9] [!x] (one of a set), [*] (a star)",
        );
    }
    error
}
