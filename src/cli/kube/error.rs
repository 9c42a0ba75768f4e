//! Errors of kubectl: what has failed, why, and what to do about it (pure).

use std::io;

use super::kubectl::{AUDIENCE, CONFIGMAP, Failure, Kubectl};
use super::url::KubeUrl;
use crate::commands::{CommandError, Kind, PreparationStep};

/// How many of the last lines of kubectl are searched, and shown after a timeout.
const LINES_MAX: usize = 5;
/// What kubectl prints if the API server does not answer.
const UNREACHABLE: &[&str] =
    &[" refused", "Unable to connect", "no such host", "i/o timeout", "is unreachable", "EOF"];

/// Returns the error of a call.
pub fn explain(step: PreparationStep, failure: &Failure, kubectl: &Kubectl) -> CommandError {
    let program = kubectl.program.to_string_lossy();
    let call = match step {
        PreparationStep::Forward => "port-forward",
        PreparationStep::Ca => "get configmap",
        PreparationStep::Token => "create token",
    };
    match failure {
        Failure::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => {
            CommandError::new(Kind::Configuration, format!("{program} not found"))
                .hint("install kubectl, or name the program: MQKV_KUBECTL=FILE")
        }
        Failure::NotStarted(error) => {
            CommandError::new(Kind::Configuration, format!("cannot run {program}: {error}"))
        }
        Failure::TimedOut(after, messages) => {
            let message = format!("no answer from kubectl {call} within {after:?}");
            let error = CommandError::new(Kind::Timeout, message);
            let error = messages.last_lines(LINES_MAX).into_iter().fold(error, CommandError::cause);
            let sign_in = kubectl.line_for("kubectl get namespaces", false);
            let error = error.hint(format!("to sign in once: {sign_in}"));
            replaceable(step, error.hint("increase --connect-timeout"))
        }
        Failure::Unusable if step == PreparationStep::Ca => {
            let message = format!("the configmap {CONFIGMAP} has no ca.crt");
            replaceable(step, CommandError::new(Kind::Unavailable, message))
        }
        Failure::Unusable => {
            let message = format!("kubectl {call} has printed no {}", step.name());
            replaceable(step, CommandError::new(Kind::Unavailable, message))
        }
        Failure::Ended(messages) => {
            let text = messages.last_lines(LINES_MAX).join("\n");
            let error = explain_messages(step, &text, kubectl).unwrap_or_else(|| {
                let message = format!("kubectl {call} has failed");
                let error = CommandError::new(Kind::Unavailable, message).hint(kubectl.line(step));
                replaceable(step, error)
            });
            let said = Some(messages.last()).filter(|line| !line.is_empty());
            said.into_iter().fold(error, CommandError::cause)
        }
    }
}

/// Adds the hint with what makes this call superfluous.
fn replaceable(step: PreparationStep, error: CommandError) -> CommandError {
    match step {
        PreparationStep::Forward => error,
        PreparationStep::Ca => error.hint("without the configmap: -T FILE"),
        PreparationStep::Token => error.hint("without a new token: --sat-file FILE, or -C FILE -K FILE"),
    }
}

/// Returns the error that these messages are about, if they are known.
fn explain_messages(step: PreparationStep, text: &str, kubectl: &Kubectl) -> Option<CommandError> {
    let KubeUrl { namespace, service, port, account, .. } = &kubectl.url;
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let there = |command: &str| kubectl.line_for(command, true);
    let (what, list) = match step {
        PreparationStep::Forward => (format!("service {service}"), "services"),
        PreparationStep::Ca => (format!("configmap {CONFIGMAP}"), "configmaps"),
        PreparationStep::Token => (format!("service account {account}"), "serviceaccounts"),
    };
    // In this order: the first reason is the one of those behind it.
    Some(if has(&["context \""]) {
        let context = kubectl.url.context.as_deref().unwrap_or_default();
        CommandError::new(Kind::Configuration, format!("kubectl has no context {context}"))
            .hint("kubectl config get-contexts")
    } else if let Some((verb, resource)) = denied(text) {
        let message = format!("forbidden: {verb} {resource} in the namespace {namespace}");
        let checked = resource.replace('/', " --subresource ");
        let error = CommandError::new(Kind::Authorization, message);
        replaceable(step, error.hint(there(&format!("kubectl auth can-i {verb} {checked}"))))
    } else if has(&["Unauthorized", "must be logged in", "getting credentials", "Please enter Username"]) {
        CommandError::new(Kind::Authorization, "kubectl is not signed in to the cluster")
            .hint(kubectl.line_for("kubectl get namespaces", false))
    } else if has(&["unknown flag: --audience"]) {
        let message = "kubectl is too old: create token needs version 1.24";
        replaceable(step, CommandError::new(Kind::Configuration, message))
    } else if has(&["has expired or is not yet valid"]) {
        CommandError::new(Kind::Unavailable, "kubectl does not accept the certificate of the cluster")
            .hint("correct the clock of this machine, or renew the certificate")
    } else if has(&["localhost:8080"]) {
        CommandError::new(Kind::Configuration, "kubectl has no current context")
            .hint("kubectl config get-contexts, then -b kube://CONTEXT")
    } else if has(&["does not have a service port"]) {
        CommandError::new(Kind::Unavailable, format!("the {what} has no port {port}"))
            .hint(there(&format!("kubectl get services {service}")))
    } else if has(&["\" not found", "could not find the requested resource"]) {
        let message = format!("no {what} in the namespace {namespace}");
        let error = CommandError::new(Kind::Unavailable, message);
        replaceable(step, error.hint(there(&format!("kubectl get {list}"))))
    } else if has(&["pod is not running", "no pods", "watch closed before", "waiting for the condition"]) {
        CommandError::new(Kind::Unavailable, format!("no running pod behind the {what}"))
            .hint(there("kubectl get pods"))
    } else if has(UNREACHABLE) {
        CommandError::new(Kind::Unavailable, "kubectl cannot reach the cluster")
            .hint(kubectl.line_for("kubectl cluster-info", false))
    } else {
        return None;
    })
}

/// Returns verb and resource of `… is forbidden: User "ann" cannot create resource "pods/portforward" in API group …`.
fn denied(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("is forbidden: ")?;
    let (_, rest) = rest.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    rest.split_once('"').map(|(resource, _)| (verb, resource))
}

/// Returns what a client reports as the cause while a forward or a token is missing.
pub fn in_short(step: PreparationStep, failure: &Failure, kubectl: &Kubectl) -> String {
    let error = explain(step, failure, kubectl);
    std::iter::once(error.message).chain(error.causes.into_iter().last()).collect::<Vec<_>>().join(": ")
}

/// Returns the account of a token, for messages.
pub fn account(url: &KubeUrl) -> String {
    let KubeUrl { account, namespace, .. } = url;
    format!("the service account {account} of the namespace {namespace} (audience {AUDIENCE})")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::messages::Messages;
    use super::*;

    fn explained(step: PreparationStep, text: &str) -> (Kind, String, String) {
        let url = KubeUrl::parse("kube://plant/ns").unwrap().unwrap();
        let kubectl = Kubectl { program: "kubectl".into(), url, within: Duration::from_secs(1) };
        let mut messages = Messages::default();
        messages.bytes().extend_from_slice(text.as_bytes());
        let error = explain(step, &Failure::Ended(messages), &kubectl);
        (error.kind, error.message, error.hints.concat())
    }

    /// What versions 1.20 and 1.32 print.
    #[test]
    fn an_error_of_kubectl_has_its_cause_and_the_next_step() {
        use PreparationStep::{Ca, Forward, Token};
        let forbidden = |verb: &str, resource: &str| {
            format!(
                "x \"y\" is forbidden: User \"ann\" cannot {verb} resource \"{resource}\" in API group \"\" in the namespace \"ns\"\n"
            )
        };
        for (step, text, kind, message, hint) in [
            (Ca, "error: context \"plant\" does not exist\n".to_owned(), Kind::Configuration, "no context plant", "kubectl config get-contexts"),
            (Ca, format!("Error from server (Forbidden): {}", forbidden("get", "configmaps")), Kind::Authorization, "forbidden: get configmaps in the namespace ns", "can-i get configmaps --namespace ns --context plant"),
            (Token, format!("error: failed to create token: {}", forbidden("create", "serviceaccounts/token")), Kind::Authorization, "forbidden: create serviceaccounts/token", "can-i create serviceaccounts --subresource token"),
            (Forward, format!("error: error upgrading connection: {}", forbidden("create", "pods/portforward")), Kind::Authorization, "forbidden: create pods/portforward", "can-i create pods --subresource portforward"),
            (Forward, "error: You must be logged in to the server (Unauthorized)\n".to_owned(), Kind::Authorization, "not signed in", "kubectl get namespaces --context plant"),
            (Token, "error: failed to create token: Unauthorized\n".to_owned(), Kind::Authorization, "not signed in", "kubectl get namespaces"),
            (Forward, "Unable to connect to the server: getting credentials: exec: executable kubelogin not found\n".to_owned(), Kind::Authorization, "not signed in", "kubectl get namespaces"),
            (Token, "Error: unknown flag: --audience\nSee 'kubectl create --help' for usage.\n".to_owned(), Kind::Configuration, "too old", "--sat-file FILE"),
            (Ca, "Unable to connect to the server: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026 is before 2027\n".to_owned(), Kind::Unavailable, "does not accept the certificate", "correct the clock"),
            (Ca, "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n".to_owned(), Kind::Configuration, "no current context", "kube://CONTEXT"),
            (Forward, "error: Service aio-broker does not have a service port 1884\n".to_owned(), Kind::Unavailable, "the service aio-broker has no port 18883", "get services aio-broker"),
            (Forward, "Error from server (NotFound): services \"aio-broker\" not found\n".to_owned(), Kind::Unavailable, "no service aio-broker in the namespace ns", "get services"),
            (Ca, "Error from server (NotFound): configmaps \"c\" not found\n".to_owned(), Kind::Unavailable, "no configmap azure-iot-operations-aio-ca-trust-bundle", "-T FILE"),
            (Token, "error: failed to create token: serviceaccounts \"default\" not found\n".to_owned(), Kind::Unavailable, "no service account default", "get serviceaccounts"),
            (Forward, "error: unable to forward port because pod is not running. Current status=Pending\n".to_owned(), Kind::Unavailable, "no running pod behind the service aio-broker", "get pods"),
            (Token, "error: failed to create token: Post \"https://h\": dial tcp 1.2.3.4:443: connect: connection refused\n".to_owned(), Kind::Unavailable, "cannot reach the cluster", "cluster-info"),
            (Token, "error: failed to create token: Post \"http://localhost:8080/api\": dial tcp 127.0.0.1:8080: connect: connection refused\n".to_owned(), Kind::Configuration, "no current context", "kube://CONTEXT"),
            (Ca, "Unable to connect to the server: dial tcp: lookup h: no such host\n".to_owned(), Kind::Unavailable, "cannot reach the cluster", "cluster-info"),
            (Forward, "something else\n".to_owned(), Kind::Unavailable, "kubectl port-forward has failed", "kubectl port-forward --address 127.0.0.1"),
            (Forward, String::new(), Kind::Unavailable, "kubectl port-forward has failed", "kubectl port-forward"),
        ] {
            let (found_kind, found, hints) = explained(step, &text);
            assert_eq!(found_kind, kind, "{text}");
            assert!(found.contains(message), "{text}: {found}");
            assert!(hints.contains(hint), "{text}: {hints}");
        }
    }
}
