//! The name of [`Exit`] in the verbs.

pub use super::exit::Exit as Verdict;
