//! What a session leaves in the routing tables when it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::broker::publication::Delivery;
use crate::broker::session::entry::SessionEntry;

/// A session that has ended, with what is still to be done for it.
#[derive(Debug)]
pub struct EndedSession {
    pub entry: Arc<SessionEntry>,
    /// The topic filters whose subscriptions are still there.
    pub filters: IntoIter<String>,
    /// Unacknowledged messages. Those of shared subscriptions go to other members of their groups.
    pub undelivered: VecDeque<Delivery>,
}
