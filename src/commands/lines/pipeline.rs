//! Requests in flight: sent in order, answered in order.

use std::collections::VecDeque;

use super::window::Window;
use crate::client::{Bulk, Client, Error, RawRequest, Response};
use crate::clock;

/// The greatest number of requests in flight that an option accepts.
pub const INFLIGHT_MAX: i64 = 1024;
/// The limit of the bytes in flight; a single request may be larger.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Requests in flight, each with a context of the caller, and contexts without a request that wait for the ones before them.
///
/// Requests enter the session in the order in which they are pushed; the session keeps the order, and a request sees what
/// those before it have changed.
#[derive(Debug)]
pub struct Pipeline<T> {
    slots: VecDeque<Slot<T>>,
    /// None until the first request.
    bulk: Option<Bulk>,
    window: Window,
    bytes: usize,
    /// The answers that the window has not counted.
    answers: usize,
}

#[derive(Debug)]
struct Slot<T> {
    context: T,
    /// The size of the request; None: there is none.
    bytes: Option<usize>,
}

impl<T> Pipeline<T> {
    /// Creates an empty pipeline for a fixed number of requests in flight, or one that adapts.
    #[must_use]
    pub fn new(inflight: Option<u16>) -> Self {
        Self { slots: VecDeque::new(), bulk: None, window: Window::new(inflight), bytes: 0, answers: 0 }
    }

    /// Returns whether another request may be pushed.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.slots.len() < self.window.size() && (self.bytes < BYTES_MAX || self.slots.is_empty())
    }

    /// Returns whether there is no request, pending or done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a request of this size. It is sent with the next call of [`Pipeline::wait`]; the client is the same each time.
    pub fn push(&mut self, context: T, bytes: usize, request: RawRequest, client: &Client) {
        self.bulk.get_or_insert_with(|| client.bulk()).push(request);
        self.bytes = self.bytes.saturating_add(bytes);
        self.slots.push_back(Slot { context, bytes: Some(bytes) });
    }

    /// Adds a context that needs no request.
    pub fn push_done(&mut self, context: T) {
        self.slots.push_back(Slot { context, bytes: None });
    }

    /// Removes and returns the first context, with the result of its request if it has one, once that is known.
    pub fn try_next(&mut self) -> Option<(T, Option<Result<Response, Error>>)> {
        let result = match self.slots.front()?.bytes {
            None => None,
            Some(bytes) => {
                let result = self.bulk.as_mut()?.try_next()?;
                self.bytes = self.bytes.saturating_sub(bytes);
                self.answers = self.answers.saturating_add(1);
                Some(result)
            }
        };
        self.slots.pop_front().map(|slot| (slot.context, result))
    }

    /// Sends the requests that were pushed, and waits until the result of the first is known; returns at once if there is none.
    /// Cancel-safe.
    pub async fn wait(&mut self) {
        if self.slots.front().is_none_or(|slot| slot.bytes.is_none()) {
            return;
        }
        let was_full = !self.has_capacity();
        let Some(bulk) = &mut self.bulk else { return };
        bulk.wait().await;
        if let Some(receive_max) = bulk.receive_max() {
            self.window.handle_receive_max(receive_max);
        }
        self.window.handle_answers(std::mem::take(&mut self.answers), was_full, clock::monotonic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_without_a_request_are_returned_in_order_and_count() {
        let mut pipeline = Pipeline::new(Some(3));
        for number in 0..3 {
            assert!(pipeline.has_capacity());
            pipeline.push_done(number);
        }
        assert!(!pipeline.has_capacity());
        let returned: Vec<_> = std::iter::from_fn(|| pipeline.try_next()).collect();
        assert_eq!(returned, [(0, None), (1, None), (2, None)]);
        assert!(pipeline.is_empty() && pipeline.has_capacity());
    }

    #[test]
    fn bytes_are_bounded_but_a_single_request_may_exceed_the_limit() {
        let mut pipeline = Pipeline::new(None);
        pipeline.bytes = usize::MAX;
        assert!(pipeline.has_capacity());
        pipeline.push_done(());
        assert!(!pipeline.has_capacity());
    }
}
