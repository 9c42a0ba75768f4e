//! What the value of an argument is, attached to the argument for completion and hints.
//!
//! Of paths and commands it is clap's `ValueHint`: a `PathBuf` is a path unless it has another hint.

use clap::builder::ArgExt;

/// A value that the caller of the completion has to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Key,
    /// The name of a context.
    Context,
    /// The name of a leaf of an exchange.
    Leaf,
    /// The number of a conflict of an exchange.
    Conflict,
}

impl ArgExt for ValueKind {}

/// A verb, the verb below the one before it, or a topic: returns the topics, each with its description.
#[derive(Clone, Copy, Debug)]
pub struct HelpSubject(pub fn() -> Vec<(&'static str, &'static str)>);

impl ArgExt for HelpSubject {}

/// Values of an argument that takes any: offered, each with its description.
#[derive(Clone, Copy, Debug)]
pub struct CommonValues(pub &'static [(&'static str, &'static str)]);

impl ArgExt for CommonValues {}

/// A broker in a cluster, as a URL.
pub const KUBE: CommonValues = CommonValues(&[("kube:", "the broker of Azure IoT Operations, by kubectl")]);

/// An argument that is one of several forms of the same. Hints leave out the options among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherForm {
    /// Of the first operand.
    OfOperand,
    /// Of a value.
    OfValue,
}

impl ArgExt for OtherForm {}
