//! Requests that are removed from a session without an answer (pure).

use super::Session;

impl<T> Session<T> {
    /// Removes the requests whose tickets match. They have no answer.
    pub fn cancel(&mut self, is_cancelled: impl Fn(&T) -> bool) {
        self.requests.retain(|_, pending| !is_cancelled(&pending.ticket));
        self.forget_deadlines();
        let (requests, messages) = (&self.requests, &self.messages);
        self.unsent.retain(|id| requests.contains_key(id) || messages.contains(*id));
    }

    /// Removes the requests that would be sent next, as long as their tickets match. It costs less than [`Session::cancel`], so
    /// that it can precede each [`Session::poll_outgoing`].
    pub fn cancel_next(&mut self, is_cancelled: impl Fn(&T) -> bool) {
        while let Some(id) = self.unsent.front()
            && self.requests.get(id).is_some_and(|pending| is_cancelled(&pending.ticket))
        {
            self.requests.remove(id);
            self.unsent.pop_front();
            self.forget_deadlines();
        }
    }
}
