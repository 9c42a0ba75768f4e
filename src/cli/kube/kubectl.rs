//! Calls of kubectl: their arguments, and what it prints, bounded.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{sleep, timeout};

use super::messages::Messages;
use super::url::KubeUrl;
use crate::commands::PreparationStep;
use crate::net::Secret;
use crate::platform::{self, Background};

/// The configmap with the CAs of the product, in the namespace of the broker.
pub const CONFIGMAP: &str = "azure-iot-operations-aio-ca-trust-bundle";
/// Audience of the tokens: the broker of the product.
pub const AUDIENCE: &str = "aio-internal";

/// The longest output: a configmap has at most 1 MiB, and CONNECT has no room for a token of 64 KiB.
const fn output_bytes_max(step: PreparationStep) -> usize {
    match step {
        PreparationStep::Ca => 1024 * 1024,
        PreparationStep::Forward | PreparationStep::Token => 64 * 1024 - 1,
    }
}

/// The program, what it is called for, and the time that each call has.
#[derive(Clone, Debug)]
pub struct Kubectl {
    pub program: OsString,
    pub url: KubeUrl,
    pub within: Duration,
}

/// Why a call has failed.
#[derive(Debug)]
pub enum Failure {
    NotStarted(io::Error),
    Ended(Messages),
    TimedOut(Duration, Messages),
    /// It has printed nothing, or too much.
    Unusable,
}

impl Kubectl {
    /// Returns the line that a shell would run for a call.
    pub fn line(&self, step: PreparationStep) -> String {
        let program = self.program.to_string_lossy();
        let words: Vec<_> = self.arguments(step).iter().map(|word| quoted(word)).collect();
        format!("{} {}", quoted(&program), words.join(" "))
    }

    /// Returns another command for the same context, and with `has_namespace` for the same namespace.
    pub fn line_for(&self, command: &str, has_namespace: bool) -> String {
        let KubeUrl { context, namespace, .. } = &self.url;
        let namespace = if has_namespace { format!(" --namespace {namespace}") } else { String::new() };
        let context = context.as_ref().map(|context| format!(" --context {}", quoted(context)));
        format!("{command}{namespace}{}", context.unwrap_or_default())
    }

    fn arguments(&self, step: PreparationStep) -> Vec<String> {
        let KubeUrl { context, namespace, service, port, account } = &self.url;
        let (service, port) = (format!("service/{service}"), format!(":{port}"));
        let words = match step {
            PreparationStep::Forward => ["port-forward", "--address", "127.0.0.1", &service, &port],
            PreparationStep::Ca => ["get", "configmap", CONFIGMAP, "-o", r"jsonpath={.data.ca\.crt}"],
            PreparationStep::Token => ["create", "token", account, "--audience", AUDIENCE],
        };
        let place = ["--namespace", namespace].into_iter();
        let context = context.iter().flat_map(|context| ["--context", context]);
        words.into_iter().chain(place).chain(context).map(str::to_owned).collect()
    }

    /// Runs a call to its end, and returns its output.
    pub async fn output(&self, step: PreparationStep) -> Result<Secret, Failure> {
        let mut running = self.start(step)?;
        self.read_until(step, &mut running, |_| None::<()>).await?;
        // Without a status the output has to do.
        let status = timeout(self.within, running.status()).await.ok().flatten();
        if status.is_some_and(|status| !status.success()) {
            return Err(Failure::Ended(running.messages));
        }
        Some(Secret::new(running.output)).filter(|output| !output.bytes().is_empty()).ok_or(Failure::Unusable)
    }

    /// Starts to forward a free port of 127.0.0.1, and returns it.
    pub async fn forward(&self) -> Result<(Forward, u16), Failure> {
        let step = PreparationStep::Forward;
        let mut running = self.start(step)?;
        match self.read_until(step, &mut running, local_port).await? {
            Some(port) => Ok((Forward(running), port)),
            None => Err(Failure::Ended(running.messages)),
        }
    }

    /// Reads the output until something is found there; None at its end.
    async fn read_until<T>(
        &self,
        step: PreparationStep,
        running: &mut Running,
        find: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let reading = async {
            while running.read().await {
                if running.output.len() > output_bytes_max(step) {
                    return Err(Failure::Unusable);
                }
                if let Some(found) = find(&running.output) {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        };
        let read = timeout(self.within, reading).await;
        read.unwrap_or_else(|_| Err(Failure::TimedOut(self.within, std::mem::take(&mut running.messages))))
    }

    fn start(&self, step: PreparationStep) -> Result<Running, Failure> {
        let mut command = Command::new(platform::program(&self.program));
        command.args(self.arguments(step));
        let (program, stdout, stderr) = Background::spawn(command).map_err(Failure::NotStarted)?;
        // A buffer that grows would leave parts of a token in memory.
        let output = Vec::with_capacity(output_bytes_max(step).saturating_add(1));
        let (stdout, stderr) = (Some(stdout), Some(stderr));
        Ok(Running { program, stdout, stderr, status: None, output, messages: Messages::default() })
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the port in `Forwarding from 127.0.0.1:PORT -> 18883`, once the line is complete.
fn local_port(output: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(output).ok()?;
    let (_, rest) = text.split_once("127.0.0.1:")?;
    let (port, _) = rest.split_once(|c: char| !c.is_ascii_digit())?;
    port.parse().ok()
}

/// A running call.
struct Running {
    program: Background,
    /// None at its end, as the other one.
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Set when it has ended.
    status: Option<Option<ExitStatus>>,
    output: Vec<u8>,
    messages: Messages,
}

impl Running {
    /// Reads more output or messages. Returns false when there are no more. Cancel safe.
    async fn read(&mut self) -> bool {
        // A process that kubectl has started and left can hold its streams open.
        const AFTER_END: Duration = Duration::from_millis(500);
        if self.stdout.is_none() && self.stderr.is_none() {
            return false;
        }
        let has_ended = self.status.is_some();
        tokio::select! {
            () = read_some(&mut self.stdout, &mut self.output) => {}
            () = read_some(&mut self.stderr, self.messages.bytes()) => self.messages.cut(),
            status = self.program.ended(), if !has_ended => self.status = Some(status),
            () = sleep(AFTER_END), if has_ended => return false,
        }
        true
    }

    async fn status(&mut self) -> Option<ExitStatus> {
        match self.status {
            Some(status) => status,
            None => self.program.ended().await,
        }
    }
}

/// Reads some bytes; takes a stream away at its end.
async fn read_some(stream: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    match stream {
        Some(open) => {
            if !matches!(open.read_buf(into).await, Ok(1..)) {
                *stream = None;
            }
        }
        None => std::future::pending().await,
    }
}

/// A port that is forwarded until this is dropped.
pub struct Forward(Running);

impl Forward {
    /// Waits until it has ended or is of no use, and returns what it has printed about that. Cancel safe.
    pub async fn ended(&mut self) -> &Messages {
        while self.0.read().await && !self.0.messages.are_about_lost_forward() {
            // A line for each connection.
            self.0.output.clear();
        }
        &self.0.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubectl(url: &str) -> Kubectl {
        let url = KubeUrl::parse(url).unwrap().unwrap();
        Kubectl { program: "kubectl".into(), url, within: Duration::from_secs(1) }
    }

    #[test]
    fn a_line_can_be_pasted_into_a_shell() {
        let kubectl = kubectl("kube://it's%20mine/ns/svc:1884?serviceaccount=me");
        let with = r"--namespace ns --context 'it'\''s mine'";
        for (step, line) in [
            (PreparationStep::Forward, "port-forward --address 127.0.0.1 service/svc :1884"),
            (
                PreparationStep::Ca,
                r"get configmap azure-iot-operations-aio-ca-trust-bundle -o 'jsonpath={.data.ca\.crt}'",
            ),
            (PreparationStep::Token, "create token me --audience aio-internal"),
        ] {
            assert_eq!(kubectl.line(step), format!("kubectl {line} {with}"));
        }
    }

    #[test]
    fn the_port_is_read_when_its_line_is_complete() {
        assert_eq!(local_port(b"Forwarding from 127.0.0.1:401"), None);
        assert_eq!(local_port(b"Forwarding from 127.0.0.1:40123 -> 18883\n"), Some(40123));
        assert_eq!(local_port(b"Forwarding from [::1]:40123 -> 18883\n"), None);
    }
}
