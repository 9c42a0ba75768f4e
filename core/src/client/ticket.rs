//! The recipients of responses.

use tokio::sync::oneshot;

use super::answers::AnswerSender;
use super::error::Error;
use super::publication::Acknowledgement;
use super::request::Response;
use super::subscriptions::FilterTicket;
use super::watch::Registration;
use super::watches::ActionTicket;

pub(super) type Answer = oneshot::Sender<Result<Response, Error>>;

/// The recipient of a response.
#[derive(Debug)]
pub(super) enum Ticket {
    Request(Answer),
    /// A request with this number.
    Bulk(AnswerSender, u64),
    Message(Acknowledgement),
    Watch(ActionTicket),
    Subscription(FilterTicket),
    /// The end of a registration. The last one of a watch has the sender that confirms its end.
    Unwatch(Registration, #[expect(dead_code, reason = "dropping it confirms")] Option<oneshot::Sender<()>>),
}

impl Ticket {
    /// Returns whether the caller has dropped its future or handle, so that its request need not be sent any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Request(answer) => answer.is_closed(),
            Self::Bulk(answers, _) => answers.is_closed(),
            Self::Message(_) | Self::Watch(_) | Self::Subscription(_) | Self::Unwatch(..) => false,
        }
    }
}
