//! Connections: their numbers, and the method of authentication with tokens.

/// Number of one connection to this process.
///
/// A number is never used twice in a process, and later connections have greater ones: a client that reconnects has
/// another number, so what belongs to its earlier connection is never mistaken for the new one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// The method of enhanced authentication with a Kubernetes service account token (protocol §8).
pub const K8S_SAT: &str = "K8S-SAT";
