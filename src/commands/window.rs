//! Some requests in flight at a time, sent in order, their answers taken in order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How many requests may be in flight unless told otherwise.
pub const INFLIGHT: u16 = 64;
/// How many may be asked for: each answer looks at all of them.
pub const INFLIGHT_MAX: i64 = 1024;
/// How many bytes may be in flight; one request may be larger.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// A request on its way, and what comes of it.
pub type Flight<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Requests in flight.
///
/// Each time it is looked at, all of them are, in order: so they put their requests into the session in order, which
/// keeps it, and a request sees what those before it have done.
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

    /// Puts a request of this size behind the others, and sends it if it can go. Gives its outcome where that is there
    /// at once, as it is for what needs not be sent.
    pub async fn push(&mut self, bytes: usize, mut flight: Flight<'a, T>) -> Option<&T> {
        self.bytes = self.bytes.saturating_add(bytes);
        let state = poll_fn(|context| {
            Poll::Ready(match flight.as_mut().poll(context) {
                Poll::Ready(outcome) => Some(State::Landed(outcome)),
                Poll::Pending => None,
            })
        })
        .await
        .unwrap_or(State::Flying(flight));
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

    fn poll_settle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        for slot in &mut self.slots {
            if let State::Flying(flight) = &mut slot.state
                && let Poll::Ready(outcome) = flight.as_mut().poll(context)
            {
                slot.state = State::Landed(outcome);
            }
        }
        match self.slots.front() {
            Some(Slot { state: State::Flying(_), .. }) => Poll::Pending,
            Some(Slot { state: State::Landed(_), .. }) | None => Poll::Ready(()),
        }
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
        assert_eq!(window.push(1, Box::pin(waiting)).await, None);
        assert_eq!(window.push(1, Box::pin(async { 2 })).await, Some(&2));
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
            window.push(1, Box::pin(async move { sender.send(number).await.unwrap() })).await;
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

    #[tokio::test]
    async fn bytes_are_bounded_but_one_request_always_goes() {
        let mut window: Window<'_, ()> = Window::new(64);
        window.push(usize::MAX, Box::pin(async {})).await;
        assert!(!window.has_room());
        window.slots.clear();
        assert!(window.has_room());
    }
}
