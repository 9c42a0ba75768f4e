//! Numbers of connections, shared by the broker and the store.

/// Number of one connection to this process.
///
/// A number is never used twice in a process, and later connections have greater ones: a client that reconnects has
/// another number, so what belongs to its earlier connection is never mistaken for the new one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);
