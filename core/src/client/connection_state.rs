//! The connection of a session's task, or the progress of the next one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep_until;

use super::error::{Error, LossCause, ReasonCode, io_error_text};
use super::packet::ConnectionLimits;
use super::settings::Settings;
use super::transport::Connection;
use super::transport::handshake::Handshake;

type Attempt<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The connection, or the progress of the next one.
pub(super) enum ConnectionState {
    /// There has been no command yet.
    Idle,
    Connected(Connection),
    /// Waits until then before it connects.
    Backoff(Instant),
    /// Connects the stream.
    Opening(Attempt<Handshake>),
    /// Waits for CONNACK.
    Accepting(Attempt<(Connection, ConnectionLimits)>),
}

/// The result of waiting on a [`ConnectionState`].
pub(super) enum Progress {
    /// Bytes were read or written.
    Transferred,
    BackoffEnded,
    Opened(Handshake),
    Accepted(Connection, ConnectionLimits),
}

/// The loss of a connection, or a failed attempt.
pub(super) struct ConnectionLoss {
    pub(super) cause: LossCause,
    /// The error of a failed attempt.
    pub(super) error: Option<Error>,
}

impl From<LossCause> for ConnectionLoss {
    fn from(cause: LossCause) -> Self {
        Self::new(cause)
    }
}

impl ConnectionLoss {
    pub(super) fn new(cause: impl Into<LossCause>) -> Self {
        Self { cause: cause.into(), error: None }
    }

    fn of_attempt(error: Error) -> Self {
        Self { error: Some(error.clone()), ..Self::new(error.to_string()) }
    }

    /// Returns whether the cause may be that packets were sent before the CONNACK: the broker does not accept them, or they
    /// violate limits of its CONNACK.
    pub(super) fn may_be_due_to_early_packets(&self) -> bool {
        match &self.error {
            None => self.cause.reason().is_none_or(ReasonCode::may_be_about_packets),
            Some(Error::Rejected { reason, .. }) => {
                reason.may_be_about_packets() && !reason.is_about_connections()
            }
            // The broker has closed the connection, or has answered something else than CONNACK. One that answers nothing is
            // more likely none, and is not waited for twice.
            Some(error) => matches!(error, Error::Connect { .. } | Error::NotMqtt { .. }),
        }
    }
}

impl ConnectionState {
    /// Starts the first attempt to connect.
    pub(super) fn opening(settings: &Arc<Settings>) -> Self {
        let settings = Arc::clone(settings);
        Self::Opening(Box::pin(async move { Handshake::start(&settings).await }))
    }

    /// Starts another attempt. It reads the TLS files again.
    pub(super) fn reopening(settings: &Arc<Settings>) -> Self {
        let settings = Arc::clone(settings);
        Self::Opening(Box::pin(async move {
            settings.reload_tls().await?;
            Handshake::start(&settings).await
        }))
    }

    /// Starts an attempt that reads the TLS files again and sends nothing before CONNACK. Its only progress is
    /// [`Progress::Accepted`].
    pub(super) fn connecting(settings: Settings) -> Self {
        Self::Accepting(Box::pin(async move {
            settings.reload_tls().await?;
            let handshake = Handshake::start(&settings).await?;
            handshake.finish(&settings).await
        }))
    }

    /// Continues an attempt.
    pub(super) fn accepting(handshake: Handshake, settings: &Arc<Settings>) -> Self {
        let settings = Arc::clone(settings);
        Self::Accepting(Box::pin(async move { handshake.finish(&settings).await }))
    }

    /// Waits for the next progress. Reads from the connection only if `read` is set. Cancel safe.
    pub(super) async fn progress(&mut self, read: bool) -> Result<Progress, ConnectionLoss> {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Connected(connection) => match connection.transfer(read).await {
                Ok(()) => Ok(Progress::Transferred),
                Err(error) => Err(ConnectionLoss::new(io_error_text(&error))),
            },
            Self::Backoff(until) => {
                sleep_until((*until).into()).await;
                Ok(Progress::BackoffEnded)
            }
            Self::Opening(attempt) => attempt.await.map(Progress::Opened).map_err(ConnectionLoss::of_attempt),
            Self::Accepting(attempt) => {
                let accepted = attempt.await.map_err(ConnectionLoss::of_attempt);
                accepted.map(|(connection, limits)| Progress::Accepted(connection, limits))
            }
        }
    }
}
