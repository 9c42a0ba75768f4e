//! A session with a broker.
