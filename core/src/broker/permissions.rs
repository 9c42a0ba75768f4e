//! Permissions: what a client may do, as decided by rules that the broker does not know.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::principal::Principal;

/// The rules of a broker. Without any, every client may do everything.
pub trait AccessControl: Send + Sync {
    /// Returns the permissions of a client, for as long as it is connected or has a session.
    fn permissions(self: Arc<Self>, client_id: &Arc<str>, principal: &Principal) -> Arc<dyn Permissions>;
}

/// The permissions of one client. They change when the rules do.
///
/// An application that has permissions of its own implements them in the same type, and finds that type again by
/// downcasting: the broker knows topics only.
pub trait Permissions: Any + Debug + Send + Sync {
    fn may_connect(&self) -> bool;

    fn may_publish(&self, topic: &str) -> bool;

    /// Whether the client may subscribe to a topic filter; of a shared subscription, to the filter in it.
    fn may_subscribe(&self, filter: &str) -> bool;

    /// Whether the client may receive messages on a topic.
    fn may_receive(&self, topic: &str) -> bool;

    /// Returns a number that is another one once the rules have changed.
    fn generation(&self) -> u64;

    /// Evaluates changed rules now. The broker calls this before it takes a lock, because it may take long.
    fn refresh(&self);
}
