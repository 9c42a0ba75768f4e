//! What is done before a connection to a broker that is reached through a tunnel: each step with its time and its result.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::error::CommandError;

/// A step. They are made at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreparationStep {
    /// A port of this machine leads to the broker.
    Forward,
    /// The CAs that sign the certificate of the broker.
    Ca,
    /// A token to authenticate with.
    Token,
}

impl PreparationStep {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Ca => "ca",
            Self::Token => "token",
        }
    }
}

/// A completed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub step: PreparationStep,
    pub elapsed: Duration,
    /// What it has found, without secrets.
    pub result: Result<String, CommandError>,
}

/// The steps of the last connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Preparation(Rc<RefCell<Vec<Prepared>>>);

impl Preparation {
    pub fn add(&self, prepared: Prepared) {
        self.0.borrow_mut().push(prepared);
    }

    /// Takes the steps out, in their order.
    #[must_use]
    pub fn take(&self) -> Vec<Prepared> {
        let mut steps = self.0.take();
        steps.sort_by_key(|prepared| prepared.step);
        steps
    }
}
