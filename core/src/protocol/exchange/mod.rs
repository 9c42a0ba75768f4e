//! Operator requests of an exchange and their answers, and the topics of an exchange.
//!
//! A request is an MQTT request to [`topic::COMMAND`], with response topic and correlation data. Request and answer are
//! one RESP3 array each; elements behind the known ones are ignored, so that a later version can add some.

mod answer;
mod command;
mod conflict;
pub(crate) mod elements;
mod refusal;
pub mod topic;

pub use answer::{
    Answer, AnswerError, KeyReport, KeyState, LeafReport, LeafState, OwnReport, OwnState, RootReport,
    RuleReport,
};
pub use command::{Command, IDS_MAX};
pub use conflict::{ConflictPage, ConflictReport, Lost, Origin};
pub use refusal::Refusal;

#[cfg(test)]
mod tests;
