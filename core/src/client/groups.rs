//! Groups of requests that wait for room in the session.

use std::collections::VecDeque;
use std::vec;

use super::answers::AnswerSender;
use super::request::RawRequest;
use super::ticket::Ticket;

/// Requests of [`Bulk`](super::Bulk) handles, in order. The session takes as many as it has room for, so that the requests of
/// other handles need not wait for a whole group.
#[derive(Debug, Default)]
pub(super) struct Groups(VecDeque<Group>);

#[derive(Debug)]
struct Group {
    requests: vec::IntoIter<RawRequest>,
    /// The number of the next request.
    next: u64,
    answers: AnswerSender,
}

impl Groups {
    /// Adds requests that are numbered from `first`.
    pub(super) fn add(&mut self, requests: Vec<RawRequest>, first: u64, answers: AnswerSender) {
        self.0.push_back(Group { requests: requests.into_iter(), next: first, answers });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the next request and passes it on; those of dropped handles are removed only. Returns whether there was one.
    pub(super) fn send_next(&mut self, send: impl FnOnce(RawRequest, Ticket)) -> bool {
        while let Some(group) = self.0.front_mut() {
            match group.requests.next() {
                Some(request) if !group.answers.is_closed() => {
                    let number = group.next;
                    group.next = number.wrapping_add(1);
                    send(request, Ticket::Bulk(group.answers.clone(), number));
                    return true;
                }
                _ => drop(self.0.pop_front()),
            }
        }
        false
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
