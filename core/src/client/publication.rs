//! The handle of a published message.

use tokio::sync::oneshot;

use super::error::{Error, ReasonCode};

/// Reports the end of a message to its [`Publication`].
pub(super) type Acknowledgement = oneshot::Sender<Result<ReasonCode, Error>>;

/// A message that was published. Dropping it does not withdraw the message.
#[derive(Debug)]
pub struct Publication(oneshot::Receiver<Result<ReasonCode, Error>>);

impl Publication {
    pub(super) fn new() -> (Acknowledgement, Self) {
        let (acknowledgement, end) = oneshot::channel();
        (acknowledgement, Self(end))
    }

    /// Returns the reason code of the PUBACK: success, or [`ReasonCode::NO_MATCHING_SUBSCRIBERS`]. Cancel safe, and to be called
    /// until it has returned once.
    ///
    /// There is no time limit: a broker that does not respond is detected by the keep-alive.
    ///
    /// # Errors
    /// [`Error::PublishRefused`], [`Error::TooLarge`], or the error of the connection with the outcome of the message.
    pub async fn acknowledged(&mut self) -> Result<ReasonCode, Error> {
        (&mut self.0).await.unwrap_or(Err(Error::Closed))
    }
}
