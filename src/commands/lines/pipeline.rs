//! Requests in flight: sent in order, answered in order.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::unconstrained;

/// The default for the number of requests in flight.
pub const INFLIGHT_DEFAULT: u16 = 64;
/// The greatest number of requests in flight that an option accepts.
pub const INFLIGHT_MAX: i64 = 1024;
/// The limit of the bytes in flight; a single request may be larger.
const BYTES_MAX: usize = 16 * 1024 * 1024;

type Request<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Requests in flight, and outcomes that wait for the ones before them.
///
/// A request is polled when it is pushed, so that requests enter the session in order; the session keeps the order, and a
/// request sees what those before it have changed. After that only the first request is waited for. A request must be
/// sent before its future waits for anything else.
pub struct Pipeline<'a, T> {
    slots: VecDeque<Slot<'a, T>>,
    count_max: usize,
    bytes: usize,
}

struct Slot<'a, T> {
    state: State<'a, T>,
    bytes: usize,
}

enum State<'a, T> {
    Pending(Request<'a, T>),
    Done(T),
}

impl<'a, T> Pipeline<'a, T> {
    /// Creates an empty pipeline.
    #[must_use]
    pub fn new(count_max: u16) -> Self {
        Self { slots: VecDeque::new(), count_max: usize::from(count_max), bytes: 0 }
    }

    /// Returns whether another request may be pushed.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.slots.len() < self.count_max && (self.bytes < BYTES_MAX || self.slots.is_empty())
    }

    /// Returns whether there is no request, pending or done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a request of this size, and sends it. Returns its outcome if it is done at once.
    pub fn push(&mut self, bytes: usize, request: impl Future<Output = T> + 'a) -> Option<&T> {
        // With a task budget, the runtime could hold this request back, and a later one would overtake it.
        let mut request: Request<'a, T> = Box::pin(unconstrained(request));
        // It is polled with a waker again when it is the first.
        let state = match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => State::Done(outcome),
            Poll::Pending => State::Pending(request),
        };
        self.bytes = self.bytes.saturating_add(bytes);
        self.slots.push_back(Slot { state, bytes });
        match self.slots.back() {
            Some(Slot { state: State::Done(outcome), .. }) => Some(outcome),
            _ => None,
        }
    }

    /// Adds an outcome that needs no request.
    pub fn push_done(&mut self, outcome: T) {
        self.slots.push_back(Slot { state: State::Done(outcome), bytes: 0 });
    }

    /// Removes and returns the first outcome, if its request is done.
    pub fn try_next(&mut self) -> Option<T> {
        match self.slots.pop_front()? {
            Slot { state: State::Done(outcome), bytes } => {
                self.bytes = self.bytes.saturating_sub(bytes);
                Some(outcome)
            }
            pending => {
                self.slots.push_front(pending);
                None
            }
        }
    }

    /// Waits until the first request is done; returns at once if there is none. Cancel-safe.
    pub async fn wait(&mut self) {
        poll_fn(|context| self.poll_wait(context)).await;
    }

    /// Polls requests up to the first that is pending.
    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut is_first_done = false;
        for slot in &mut self.slots {
            if let State::Pending(request) = &mut slot.state {
                match request.as_mut().poll(context) {
                    Poll::Ready(outcome) => slot.state = State::Done(outcome),
                    Poll::Pending if is_first_done => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
            is_first_done = true;
        }
        Poll::Ready(())
    }
}

impl<T> fmt::Debug for Pipeline<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pipeline").field("len", &self.slots.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{mpsc, oneshot};

    #[tokio::test]
    async fn outcomes_are_returned_in_the_order_of_the_requests() {
        let mut pipeline = Pipeline::new(3);
        let (first, wait) = oneshot::channel::<()>();
        let waiting = async {
            wait.await.unwrap();
            1
        };
        assert_eq!(pipeline.push(1, waiting), None);
        assert_eq!(pipeline.push(1, async { 2 }), Some(&2));
        pipeline.push_done(3);
        assert!(!pipeline.has_capacity());
        tokio::select! {
            biased;
            () = pipeline.wait() => panic!("the first request is pending"),
            () = async {} => {}
        }
        assert_eq!(pipeline.try_next(), None);
        first.send(()).unwrap();
        pipeline.wait().await;
        assert_eq!(
            [pipeline.try_next(), pipeline.try_next(), pipeline.try_next()],
            [Some(1), Some(2), Some(3)]
        );
        assert!(pipeline.is_empty() && pipeline.has_capacity());
    }

    #[tokio::test]
    async fn requests_are_sent_in_order_through_a_bounded_channel() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut pipeline = Pipeline::new(500);
        for number in 0..500 {
            let sender = sender.clone();
            pipeline.push(1, async move { sender.send(number).await.unwrap() });
        }
        drop(sender);
        let reader = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(number) = receiver.recv().await {
                seen.push(number);
            }
            seen
        });
        while !pipeline.is_empty() {
            pipeline.wait().await;
            while pipeline.try_next().is_some() {}
        }
        drop(pipeline);
        assert!(reader.await.unwrap().is_sorted());
    }

    #[test]
    fn bytes_are_bounded_but_a_single_request_may_exceed_the_limit() {
        let mut pipeline: Pipeline<'_, ()> = Pipeline::new(64);
        pipeline.push(usize::MAX, async {});
        assert!(!pipeline.has_capacity());
        pipeline.slots.clear();
        assert!(pipeline.has_capacity());
    }
}
