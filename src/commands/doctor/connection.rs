//! Connects to the broker, and reports each step.

use std::io;
use std::pin::pin;
use std::time::Instant;

use super::check::{Check, Detail, Warning};
use super::report::Report;
use crate::client::probe::{ConnectionStep, Observation};
use crate::client::{
    Certificate, Client, ConnectionProbe, Error, Reconnect, Settings, Target, TlsError, TlsHandshake,
    TrustedRoots, UnsuitableCause, detect_protocol, expiry_text,
};
use crate::clock;
use crate::commands::token_text;

/// Fewer days until the expiry of a certificate are a warning.
const DAYS_LEFT_MIN: i64 = 30;
const NO_TLS: &str = "TLS is not configured: the connection is not encrypted";
const NO_NETWORK: &str = "the store is inside this process";

/// Connects once. Returns None after a failure, which is in the report.
pub(super) async fn check(settings: Settings, report: &mut Report<'_>) -> io::Result<Option<Client>> {
    let is_in_process = matches!(settings.target, Target::Pipe(_));
    report.expect_web_socket(settings.web_socket.is_some());
    if is_in_process {
        for check in [Check::Dns, Check::Tcp, Check::Tls] {
            report.skip(check, NO_NETWORK)?;
        }
    }
    let mut steps = Steps {
        target: settings.target.to_string(),
        client_id: settings.client_id.clone(),
        wall_ms: clock::wall_ms(),
        is_in_process,
        is_resolved: is_in_process,
        failed: Vec::new(),
        is_reached: is_in_process,
        handshake: None,
        is_tls_reported: false,
    };
    let (probe, mut observations) = ConnectionProbe::new();
    let settings = Settings { probe, connect_retries: 0, reconnect: Reconnect::Never, ..settings };
    let mut connecting = pin!(Client::connect(settings.clone()));
    let result = loop {
        tokio::select! {
            biased;
            Some(observation) = observations.recv() => steps.handle(observation, report)?,
            result = &mut connecting => break result,
        }
    };
    while let Ok(observation) = observations.try_recv() {
        steps.handle(observation, report)?;
    }
    match result {
        Ok(client) => Ok(Some(client)),
        Err(error) => {
            let error = if steps.is_reached { detect_protocol(&settings, error).await } else { error };
            steps.fail(error, report)?;
            report.skip_rest()?;
            Ok(None)
        }
    }
}

/// The steps of the connection so far.
struct Steps {
    target: String,
    client_id: String,
    wall_ms: u64,
    /// Whether there is no network between client and store.
    is_in_process: bool,
    is_resolved: bool,
    /// The addresses that could not be reached, with the errors of the system.
    failed: Vec<(String, String)>,
    is_reached: bool,
    /// Reported only after the next message of the broker: in TLS 1.3 the server verifies the client's certificate after
    /// the client has finished the handshake.
    handshake: Option<(Instant, Box<TlsHandshake>)>,
    is_tls_reported: bool,
}

impl Steps {
    fn handle(&mut self, observation: Observation, report: &mut Report<'_>) -> io::Result<()> {
        let Observation { at, step } = observation;
        match step {
            ConnectionStep::TokenRead(token) => {
                let warning = token_text::warning(&token).map(|(message, hint)| Warning { message, hint });
                report.pass_at(at, Check::Token, Detail::Token(token), warning.into_iter().collect())
            }
            ConnectionStep::Resolved { addresses, source } => {
                self.is_resolved = true;
                let addresses = addresses.iter().map(ToString::to_string).collect();
                report.pass_at(at, Check::Dns, Detail::Addresses { addresses, source }, Vec::new())
            }
            ConnectionStep::ConnectFailed { address, cause } => {
                self.failed.push((address.to_string(), cause));
                Ok(())
            }
            ConnectionStep::Connected { address } => {
                self.is_reached = true;
                let failed = std::mem::take(&mut self.failed);
                let detail = Detail::Tcp { reached: Some(address.to_string()), failed };
                report.pass_at(at, Check::Tcp, detail, Vec::new())
            }
            ConnectionStep::TlsHandshake(handshake) => {
                self.handshake = Some((at, handshake));
                Ok(())
            }
            ConnectionStep::WebSocketOpened { path } => {
                self.report_tls(report)?;
                report.pass_at(at, Check::Ws, Detail::WebSocket { path }, Vec::new())
            }
            // This connection has no request before its CONNACK.
            ConnectionStep::EarlyPacketsRefused { .. } => Ok(()),
            ConnectionStep::Accepted(properties) => {
                self.report_tls(report)?;
                let client_id = self.client_id.clone();
                let detail = Detail::Connack { client_id, properties };
                report.pass_at(at, Check::Connack, detail, Vec::new())
            }
        }
    }

    /// Reports the TLS handshake, once.
    fn report_tls(&mut self, report: &mut Report<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.is_tls_reported, true) {
            return Ok(());
        }
        let Some((at, handshake)) = self.handshake.take() else {
            return if self.is_in_process { Ok(()) } else { report.skip(Check::Tls, NO_TLS) };
        };
        let now_s = self.now_s();
        // With --insecure the handshake succeeds whatever the dates are, so they are checked here.
        let certificate = handshake.chain.first().and_then(|certificate| certificate.as_ref().ok());
        let cause = certificate.and_then(|certificate| out_of_time(certificate, now_s));
        let warnings = warnings(&handshake, now_s);
        let detail = Detail::Tls { handshake, now_s };
        match cause {
            None => report.pass_at(at, Check::Tls, detail, warnings),
            Some(cause) => {
                let target = self.target.clone();
                let error = Error::Tls { target, cause, in_web_socket: false };
                report.fail_at(at, Check::Tls, Some(detail), error)
            }
        }
    }

    fn fail(mut self, error: Error, report: &mut Report<'_>) -> io::Result<()> {
        let check = match &error {
            Error::Credentials { .. } => Check::Settings,
            Error::Tls { .. } => Check::Tls,
            Error::WebSocket { .. } => Check::Ws,
            Error::Unsuitable { cause: UnsuitableCause::Qos, .. } => Check::Qos,
            _ if !self.is_resolved => Check::Dns,
            _ if !self.is_reached => Check::Tcp,
            _ => Check::Connack,
        };
        let now_s = self.now_s();
        let detail = match check {
            Check::Tcp => Some(Detail::Tcp { reached: None, failed: std::mem::take(&mut self.failed) }),
            Check::Tls => self.handshake.take().map(|(_, handshake)| Detail::Tls { handshake, now_s }),
            Check::Ws | Check::Connack => {
                self.report_tls(report)?;
                None
            }
            _ => None,
        };
        report.fail(check, detail, error)
    }

    fn now_s(&self) -> u64 {
        self.wall_ms / 1000
    }
}

fn out_of_time(certificate: &Certificate, now_s: u64) -> Option<TlsError> {
    let days = certificate.days_left(now_s);
    if certificate.not_before_s > now_s {
        let days = certificate.not_before_s.saturating_sub(now_s) / (24 * 60 * 60);
        return Some(TlsError::NotValidYet { days: Some(days) });
    }
    // A certificate that expired less than a day ago has -1 days left.
    (days < 0).then(|| TlsError::Expired { days: Some(days.unsigned_abs().saturating_sub(1)) })
}

fn warnings(handshake: &TlsHandshake, now_s: u64) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut check = |whose: &str, certificate: &Certificate, hint: &str| {
        let days = certificate.days_left(now_s);
        if days < DAYS_LEFT_MIN {
            let message = format!("{whose} {}", expiry_text(days));
            found.push(Warning { message, hint: hint.to_owned() });
        }
    };
    let mut chain = handshake.chain.iter().flatten();
    if let Some(own) = chain.next() {
        check("the broker's certificate", own, "renew the broker's certificate");
    }
    for ca in chain {
        check("the certificate of its CA", ca, "renew the CA and the broker's certificate");
    }
    if let Some(Ok(client)) = &handshake.client_certificate {
        check("the client's certificate", client, "renew the client's certificate (-C and -K)");
    }
    if handshake.roots == TrustedRoots::Any {
        let message = "--insecure: the broker is not authenticated".to_owned();
        found.push(Warning { message, hint: "trust the broker's CA: -T FILE".to_owned() });
    }
    found
}
