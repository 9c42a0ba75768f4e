//! Turns of handshakes: clients that are not connected yet leave the thread to those that are.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::clock;

/// The shortest pause that a timer can make; shorter ones add up.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause after one step, which the system may have suspended for any time.
const PAUSE_MAX: Duration = Duration::from_millis(10);

thread_local! {
    /// The turn of this thread, and the time at which its handshakes have paused for as long as they have run.
    static TURN: Arc<Mutex<Option<Instant>>> = Arc::default();
}

/// Runs a handshake in turns with the others of this thread. Together they pause for as long as they run, so they take half
/// of the thread's time at most.
///
/// Otherwise strangers that connect again and again would be in the queue of the thread all the time, and each request of
/// a connected client would wait for all of them.
///
/// `set_waiting` is called with true when the handshake waits, for its client or another part of the server, and with false
/// when it is to go on.
pub async fn run_in_turns<T>(handshake: impl Future<Output = T>, set_waiting: impl Fn(bool)) -> T {
    let turn = TURN.with(Arc::clone);
    let mut handshake = pin!(handshake);
    loop {
        let mut resumes_at = turn.lock().await;
        // The turn is held meanwhile, so the others pause, too.
        let pause = resumes_at.map(|at| at.saturating_duration_since(clock::monotonic()));
        match pause {
            Some(pause) if pause >= PAUSE_MIN => sleep(pause).await,
            // If the system has suspended the thread, the pause is over already, but other tasks still wait.
            Some(_) => yield_now().await,
            None => {}
        }
        let begun = clock::monotonic();
        let polled = poll_fn(|context| Poll::Ready(handshake.as_mut().poll(context))).await;
        let took = clock::monotonic().saturating_duration_since(begun).min(PAUSE_MAX);
        *resumes_at = resumes_at.map_or(begun, |at| at.max(begun)).checked_add(took.saturating_mul(2));
        drop(resumes_at);
        match polled {
            Poll::Ready(result) => return result,
            // The handshake has registered the waker of this task.
            Poll::Pending => {
                set_waiting(true);
                wait_until_woken().await;
                set_waiting(false);
            }
        }
    }
}

async fn wait_until_woken() {
    let mut is_waiting = false;
    poll_fn(|_| if std::mem::replace(&mut is_waiting, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::thread;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_between_the_steps_of_handshakes() {
        assert!(most_in_a_row(PAUSE_MIN * 2).await <= 2);
        // As if the system had suspended the thread in each step: the pause is over when the step is.
        assert!(most_in_a_row(PAUSE_MAX * 3).await <= 2);
    }

    /// Returns the most steps between two turns of another task: two, because the runtime continues tasks that have yielded in
    /// reverse order.
    async fn most_in_a_row(step: Duration) -> u32 {
        let (in_a_row, most) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u32)));
        let handshake = move |in_a_row: Rc<Cell<u32>>, most: Rc<Cell<u32>>| async move {
            for _ in 0..2 {
                thread::sleep(step);
                in_a_row.set(in_a_row.get() + 1);
                most.set(most.get().max(in_a_row.get()));
                yield_now().await;
            }
        };
        let all = async {
            let begin =
                || spawn_local(run_in_turns(handshake(Rc::clone(&in_a_row), Rc::clone(&most)), |_| {}));
            let handshakes: Vec<_> = (0..5).map(|_| begin()).collect();
            let other = Rc::clone(&in_a_row);
            let other = spawn_local(async move {
                loop {
                    other.set(0);
                    yield_now().await;
                }
            });
            for handshake in handshakes {
                handshake.await.unwrap();
            }
            other.abort();
        };
        LocalSet::new().run_until(all).await;
        most.get()
    }

    #[tokio::test]
    async fn a_handshake_that_is_given_up_leaves_its_turn_to_the_others() {
        let step = || run_in_turns(async { thread::sleep(PAUSE_MIN * 2) }, |_| {});
        step().await;
        let mut given_up = Box::pin(step());
        // Holds the turn, and pauses.
        assert!(poll_fn(|context| Poll::Ready(given_up.as_mut().poll(context).is_pending())).await);
        drop(given_up);
        step().await;
    }
}
