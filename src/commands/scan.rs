//! The keys that match a pattern, one page after the other, asked for while the last one is worked on.

use std::ffi::OsString;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::error::CommandError;
use crate::client::{Client, Error};
use crate::protocol::{ErrorReply, Key};

/// Pages that are on their way.
#[derive(Debug)]
pub struct Pages(mpsc::Receiver<Result<Vec<Key>, Error>>);

impl Pages {
    /// Begins to ask for pages.
    #[must_use]
    pub fn begin(client: &Client, pattern: Bytes) -> Self {
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

    /// The next page; none: there are no more. May be dropped at any time.
    ///
    /// # Errors
    /// The page could not be had; a broker without SCAN is told of.
    pub async fn next(&mut self) -> Result<Option<Vec<Key>>, CommandError> {
        self.0.recv().await.transpose().map_err(explain)
    }
}

/// The pattern that was asked for, or the one that every key matches.
///
/// # Errors
/// It is empty.
pub fn pattern(word: Option<OsString>) -> Result<Bytes, CommandError> {
    let pattern = word.map_or(Bytes::from_static(b"*"), |word| Bytes::from(word.into_encoded_bytes()));
    if pattern.is_empty() { Err(Error::EmptyPattern.into()) } else { Ok(pattern) }
}

fn explain(error: Error) -> CommandError {
    let is_unknown = error == Error::Refused(ErrorReply::UnknownCommand);
    let is_syntax = error == Error::Refused(ErrorReply::SyntaxError);
    let error = CommandError::from(error);
    if is_unknown {
        let hints = vec!["mqkv export --keys-from FILE, with the keys in a file, one a line".to_owned()];
        let message = "this broker cannot list keys: its store does not know SCAN".to_owned();
        return CommandError { message, hints, ..error };
    }
    if is_syntax {
        return error
            .hint("a pattern is text: * any characters, ? one, [ab] [0-9] [!x] one of them, [*] a star");
    }
    error
}
