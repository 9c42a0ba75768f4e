//! Brokers in a Kubernetes cluster: the user's kubectl forwards a port, gets the CAs and creates tokens. Nothing is written to disk.

mod error;
mod kubectl;
mod messages;
mod tasks;
mod token;
pub mod url;

use tokio::task::JoinSet;

use self::error::{account, explain};
use self::kubectl::{CONFIGMAP, Failure};
use self::token::new_token;
use self::url::KubeUrl;
use crate::client::{Error, Forwarding, SharedToken};
use crate::clock;
use crate::commands::{CommandError, Preparation, PreparationStep, Prepared};
use crate::net::GivenCa;

pub use self::kubectl::Kubectl;

/// A broker in a cluster, and what its client still needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kube {
    pub url: KubeUrl,
    pub needs_ca: bool,
    pub needs_token: bool,
}

/// Access to a broker in a cluster.
#[derive(Debug)]
pub struct Access {
    pub forwarding: Forwarding,
    pub ca: Option<GivenCa>,
    pub token: Option<SharedToken>,
    /// What keeps the port forwarded and the token valid. Kubectl ends with it.
    pub tasks: JoinSet<()>,
}

impl Kube {
    /// Returns the calls of kubectl that a connection begins with.
    pub fn calls(&self) -> impl Iterator<Item = PreparationStep> {
        let ca = self.needs_ca.then_some(PreparationStep::Ca);
        let token = self.needs_token.then_some(PreparationStep::Token);
        std::iter::once(PreparationStep::Forward).chain(ca).chain(token)
    }

    /// Makes all calls at the same time, and keeps the port forwarded and the token valid from then on.
    ///
    /// # Errors
    /// The error of the first call that fails, with the other errors as causes.
    pub async fn open(&self, kubectl: Kubectl, preparation: &Preparation) -> Result<Access, CommandError> {
        drop(preparation.take());
        let KubeUrl { namespace, service, port, .. } = &self.url;
        let calls = Calls { kubectl: &kubectl, preparation };
        let forward = calls.make(PreparationStep::Forward, true, kubectl.forward(), |(_, local)| {
            format!("127.0.0.1:{local} leads to the service {service} of the namespace {namespace}")
        });
        let ca = calls.make(PreparationStep::Ca, self.needs_ca, kubectl.output(PreparationStep::Ca), |_| {
            format!("configmap {CONFIGMAP}")
        });
        let token =
            calls.make(PreparationStep::Token, self.needs_token, new_token(&kubectl), |_| account(&self.url));
        let (forward, ca, token) = match tokio::join!(forward, ca, token) {
            (Ok(Some(forward)), Ok(ca), Ok(token)) => (forward, ca, token),
            (forward, ca, token) => {
                let errors = [forward.err(), ca.err(), token.err()];
                // One of them has failed.
                return Err(together(errors).unwrap_or_else(|| Error::Closed.into()));
            }
        };
        let (handle, forwarding) = Forwarding::new(service, *port, forward.1);
        let mut tasks = JoinSet::new();
        tasks.spawn(tasks::keep_forward(kubectl.clone(), forward.0, handle));
        let ca = ca.map(|pem| GivenCa::new(&format!("the configmap {CONFIGMAP}"), pem.bytes()));
        let token = token.map(|(secret, lifetime)| {
            let (renewer, token) = SharedToken::new(&account(&self.url), secret, lifetime);
            tasks.spawn(tasks::keep_token(kubectl.clone(), renewer, lifetime));
            token
        });
        Ok(Access { forwarding, ca, token, tasks })
    }
}

/// The calls before a connection.
struct Calls<'a> {
    kubectl: &'a Kubectl,
    preparation: &'a Preparation,
}

impl Calls<'_> {
    /// Makes a call if its result is needed, and records its time.
    async fn make<T>(
        &self,
        step: PreparationStep,
        is_needed: bool,
        call: impl Future<Output = Result<T, Failure>>,
        describe: impl Fn(&T) -> String,
    ) -> Result<Option<T>, CommandError> {
        if !is_needed {
            return Ok(None);
        }
        let started = clock::monotonic();
        let result = call.await.map_err(|failure| explain(step, &failure, self.kubectl));
        let elapsed = clock::monotonic().saturating_duration_since(started);
        let described = result.as_ref().map(describe).map_err(CommandError::clone);
        self.preparation.add(Prepared { step, elapsed, result: described });
        result.map(Some)
    }
}

/// Returns the first error, with the others that differ from it.
fn together(errors: [Option<CommandError>; 3]) -> Option<CommandError> {
    errors.into_iter().flatten().reduce(|first, other| match other.message == first.message {
        true => first,
        false => other.hints.into_iter().fold(first.cause(other.message), CommandError::hint),
    })
}
