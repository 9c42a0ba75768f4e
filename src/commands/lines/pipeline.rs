//! Some requests in flight at a time, sent in order, their answers taken in order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::unconstrained;

/// How many requests may be in flight unless told otherwise.
pub const INFLIGHT: u16 = 64;
/// How many may be asked for.
pub const INFLIGHT_MAX: i64 = 1024;
/// How many bytes may be in flight; one request may be larger.
const BYTES_MAX: usize = 16 * 1024 * 1024;

type Flight<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Requests in flight.
///
/// A future is polled when it is pushed: so requests enter the session in order, which keeps it, and a request sees what
/// those before it have done. From then on only the first is waited for. A future must send its one request before it
/// waits for anything else.
pub struct Window<'a, T> {
    slots: VecDeque<Slot<'a, T>>,
    count_max: usize,
    bytes: usize,
}

struct Slot<'a, T> {
    state: State<'a, T>,
    bytes: usize,
}

enum State<'a, T> {
    Flying(Flight<'a, T>),
    Landed(T),
}

impl<'a, T> Window<'a, T> {
    /// An empty window.
    #[must_use]
    pub fn new(count_max: u16) -> Self {
        Self { slots: VecDeque::new(), count_max: usize::from(count_max), bytes: 0 }
    }

    /// Whether another request may be pushed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.slots.len() < self.count_max && (self.bytes < BYTES_MAX || self.slots.is_empty())
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Puts a request of this size behind the others, and sends it. Gives its outcome where that is there at once, as it
    /// is for what needs not be sent.
    pub fn push(&mut self, bytes: usize, flight: impl Future<Output = T> + 'a) -> Option<&T> {
        // Without this a request could be held back by a runtime that wants others to have their turn, and be overtaken.
        let mut flight: Flight<'a, T> = Box::pin(unconstrained(flight));
        // Nobody waits for it before it is the first.
        let state = match flight.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => State::Landed(outcome),
            Poll::Pending => State::Flying(flight),
        };
        self.bytes = self.bytes.saturating_add(bytes);
        self.slots.push_back(Slot { state, bytes });
        match self.slots.back() {
            Some(Slot { state: State::Landed(outcome), .. }) => Some(outcome),
            _ => None,
        }
    }

    /// Puts something that needs no request behind the others.
    pub fn push_landed(&mut self, outcome: T) {
        self.slots.push_back(Slot { state: State::Landed(outcome), bytes: 0 });
    }

    /// The first outcome, if it is there already.
    pub fn try_next(&mut self) -> Option<T> {
        match self.slots.pop_front()? {
            Slot { state: State::Landed(outcome), bytes } => {
                self.bytes = self.bytes.saturating_sub(bytes);
                Some(outcome)
            }
            flying => {
                self.slots.push_front(flying);
                None
            }
        }
    }

    /// Waits until the first outcome is there; at once, if the window is empty. May be dropped at any time.
    pub async fn settle(&mut self) {
        poll_fn(|context| self.poll_settle(context)).await;
    }

    /// Lands what can land, up to the first that cannot.
    fn poll_settle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut has_landed = false;
        for slot in &mut self.slots {
            if let State::Flying(flight) = &mut slot.state {
                match flight.as_mut().poll(context) {
                    Poll::Ready(outcome) => slot.state = State::Landed(outcome),
                    Poll::Pending if has_landed => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
            has_landed = true;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{mpsc, oneshot};

    #[tokio::test]
    async fn outcomes_come_in_the_order_of_the_requests() {
        let mut window = Window::new(3);
        let (first, wait) = oneshot::channel::<()>();
        let waiting = async {
            wait.await.unwrap();
            1
        };
        assert_eq!(window.push(1, waiting), None);
        assert_eq!(window.push(1, async { 2 }), Some(&2));
        window.push_landed(3);
        assert!(!window.has_room());
        tokio::select! {
            biased;
            () = window.settle() => panic!("the first is not there yet"),
            () = async {} => {}
        }
        assert_eq!(window.try_next(), None);
        first.send(()).unwrap();
        window.settle().await;
        assert_eq!([window.try_next(), window.try_next(), window.try_next()], [Some(1), Some(2), Some(3)]);
        assert!(window.is_empty() && window.has_room());
    }

    #[tokio::test]
    async fn requests_go_out_in_order_through_a_narrow_channel() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut window = Window::new(500);
        for number in 0..500 {
            let sender = sender.clone();
            window.push(1, async move { sender.send(number).await.unwrap() });
        }
        drop(sender);
        let reader = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(number) = receiver.recv().await {
                seen.push(number);
            }
            seen
        });
        while !window.is_empty() {
            window.settle().await;
            while window.try_next().is_some() {}
        }
        drop(window);
        assert!(reader.await.unwrap().is_sorted());
    }

    #[test]
    fn bytes_are_bounded_but_one_request_always_goes() {
        let mut window: Window<'_, ()> = Window::new(64);
        window.push(usize::MAX, async {});
        assert!(!window.has_room());
        window.slots.clear();
        assert!(window.has_room());
    }
}
