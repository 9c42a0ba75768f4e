//! The store behind an embedded broker.
