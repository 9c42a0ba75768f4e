//! Histories of operations on keys, and the check whether they are linearizable.

use std::collections::BTreeMap;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::client::{Reply, Response, Unknown, Verb, Version};

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Operation {
    pub client: usize,
    pub key: String,
    pub verb: Verb,
    pub response: Result<Response, Unknown>,
    /// Places of call and response in the order of all events.
    pub called: u64,
    pub returned: u64,
}

/// A key as the specification knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyState {
    value: Option<String>,
    /// The version of the value; None if the outcome of its SET is unknown.
    version: Option<Version>,
    /// The greatest version that the key had, also of values that are gone.
    version_min: Version,
}

struct KeySpecification;

impl Specification for KeySpecification {
    type State = KeyState;
    type Operation = (Verb, Result<Response, Unknown>);

    fn init() -> KeyState {
        KeyState::default()
    }

    fn apply((verb, response): &Self::Operation, state: &KeyState) -> (bool, KeyState) {
        match apply(verb, response.as_ref().ok(), state) {
            Some(next) => (true, next),
            None => (false, state.clone()),
        }
    }
}

/// Returns the state after an operation; None if it cannot have had this response in this state.
fn apply(verb: &Verb, response: Option<&Response>, state: &KeyState) -> Option<KeyState> {
    let holds = |value: &String| state.value.as_ref() == Some(value);
    let is_applied = match verb {
        Verb::Set(_) => true,
        Verb::SetAbsent(_) => state.value.is_none(),
        Verb::SetAbsentOrEqual(value) => state.value.is_none() || holds(value),
        Verb::Get => false,
        Verb::Del => state.value.is_some(),
        Verb::VDel(value) => holds(value),
    };
    let mut next = state.clone();
    if is_applied {
        next.version = response.and_then(|response| response.version);
        next.value = match verb {
            Verb::Set(value) | Verb::SetAbsent(value) | Verb::SetAbsentOrEqual(value) => Some(value.clone()),
            Verb::Get | Verb::Del | Verb::VDel(_) => None,
        };
    }
    let Some(Response { reply, version }) = response else {
        next.version = next.version.filter(|_| next.value.is_some());
        return Some(next);
    };
    let is_stored_version = match (state.version, *version) {
        (Some(stored), Some(version)) => stored == version,
        _ => true,
    };
    let is_possible = match (verb, reply) {
        (Verb::Get, Reply::Value(value)) => holds(value) && is_stored_version,
        (Verb::Get, Reply::Absent) => state.value.is_none(),
        (Verb::Set(_) | Verb::SetAbsent(_) | Verb::SetAbsentOrEqual(_), Reply::Done) => {
            is_applied && version.is_some_and(|version| version > state.version_min)
        }
        (Verb::SetAbsent(_) | Verb::SetAbsentOrEqual(_), Reply::Number(-1)) => {
            !is_applied && is_stored_version
        }
        (Verb::Del | Verb::VDel(_), Reply::Number(1)) => is_applied && is_stored_version,
        (Verb::Del | Verb::VDel(_), Reply::Number(0)) => state.value.is_none(),
        (Verb::VDel(_), Reply::Number(-1)) => state.value.is_some() && !is_applied,
        _ => false,
    };
    if next.value.is_none() {
        next.version = None;
    } else if next.version.is_none() {
        // A read shows the version of a SET whose outcome was unknown.
        next.version = *version;
    }
    next.version_min = next.version_min.max(version.unwrap_or_default());
    is_possible.then_some(next)
}

/// Checks each key by itself: a store is linearizable if each of its keys is.
///
/// # Errors
/// The operations of the first key that is not linearizable.
pub fn check(operations: &[Operation]) -> Result<(), String> {
    let mut by_key: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        let is_effective = operation.response.is_ok() || operation.verb != Verb::Get;
        if is_effective {
            by_key.entry(&operation.key).or_default().push(operation);
        }
    }
    for (key, operations) in by_key {
        if !is_linearizable(&operations) {
            let lines = operations.iter().map(|operation| {
                let Operation { client, verb, response, called, returned, .. } = operation;
                format!("  {called}..{returned} client {client}: {verb:?} -> {response:?}\n")
            });
            return Err(format!("{key} is not linearizable:\n{}", lines.collect::<String>()));
        }
    }
    Ok(())
}

fn is_linearizable(operations: &[&Operation]) -> bool {
    let mut events = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        let content = (operation.verb.clone(), operation.response.clone());
        // The effect of an operation with an unknown outcome may come at any time, or never: it returns after all
        // others. It blocks none of its client's later operations, so each operation is a process of its own.
        let returned = if operation.response.is_ok() { operation.returned } else { u64::MAX };
        events.push((operation.called, (number, Action::Call(content.clone()))));
        events.push((returned, (number, Action::Response(content))));
    }
    events.sort_by_key(|(at, _)| *at);
    WGLChecker::<KeySpecification>::is_linearizable(History::from_actions(
        events.into_iter().map(|(_, action)| action).collect(),
    ))
}
