//! The way to the broker: connects, and takes down each step as it is detail.

use std::io;
use std::pin::pin;
use std::time::Instant;

use super::check::{Check, Detail, Warning};
use crate::client::probe::{ConnectionStep, Observation};
use crate::client::{
    Certificate, Client, ConnectionProbe, Error, Reconnect, Settings, Target, TlsError, TlsHandshake,
    TrustedRoots, detect_protocol, expiry_text,
};
use crate::clock;
use crate::commands::doctor::report::Report;

/// With fewer days left a certificate is worth a warning.
const DAYS_LEFT_MIN: i64 = 30;
const WHY_NO_TLS: &str = "it is not asked for: whoever is on the way can read along";
const WHY_NO_NETWORK: &str = "the store is inside this process";

/// Connects once. None: it has failed, and why is on the report.
pub(super) async fn connect(settings: Settings, report: &mut Report<'_>) -> io::Result<Option<Client>> {
    let mut way = Way {
        target: settings.target.to_string(),
        client_id: settings.client_id.clone(),
        wall_ms: clock::wall_ms(),
        is_resolved: false,
        failed: Vec::new(),
        is_reached: false,
        handshake: None,
        is_settled: false,
    };
    report.expect_web_socket(settings.web_socket.is_some());
    if matches!(settings.target, Target::Pipe(_)) {
        for check in [Check::Dns, Check::Tcp, Check::Tls] {
            report.skip(check, WHY_NO_NETWORK)?;
        }
        (way.is_resolved, way.is_reached) = (true, true);
    }
    let is_inside = way.is_reached;
    let (probe, mut observations) = ConnectionProbe::new();
    let settings = Settings { probe, connect_retries: 0, reconnect: Reconnect::Never, ..settings };
    let mut connecting = pin!(Client::connect(settings.clone()));
    let result = loop {
        tokio::select! {
            biased;
            Some(observation) = observations.recv() => way.see(observation, is_inside, report)?,
            result = &mut connecting => break result,
        }
    };
    while let Ok(observation) = observations.try_recv() {
        way.see(observation, is_inside, report)?;
    }
    match result {
        Ok(client) => Ok(Some(client)),
        Err(error) => {
            let error = if way.is_reached { detect_protocol(&settings, error).await } else { error };
            way.fail(error, is_inside, report)?;
            report.skip_rest()?;
            Ok(None)
        }
    }
}

/// How far it went.
struct Way {
    target: String,
    client_id: String,
    wall_ms: u64,
    is_resolved: bool,
    failed: Vec<(String, String)>,
    is_reached: bool,
    /// Held back until the broker has said something in it: in TLS 1.3 it judges the client afterwards.
    handshake: Option<(Instant, Box<TlsHandshake>)>,
    /// What came of it is told.
    is_settled: bool,
}

impl Way {
    fn see(&mut self, observation: Observation, is_inside: bool, report: &mut Report<'_>) -> io::Result<()> {
        let Observation { at, step } = observation;
        match step {
            ConnectionStep::Resolved { addresses, source } => {
                self.is_resolved = true;
                let addresses = addresses.iter().map(ToString::to_string).collect();
                report.note_at(at, Check::Dns, Detail::Addresses { addresses, source }, Vec::new())
            }
            ConnectionStep::ConnectFailed { address, cause } => {
                self.failed.push((address.to_string(), cause));
                Ok(())
            }
            ConnectionStep::Connected { address } => {
                self.is_reached = true;
                let failed = std::mem::take(&mut self.failed);
                let way = Detail::Tcp { reached: Some(address.to_string()), failed };
                report.note_at(at, Check::Tcp, way, Vec::new())
            }
            ConnectionStep::TlsHandshake(sight) => {
                self.handshake = Some((at, sight));
                Ok(())
            }
            ConnectionStep::WebSocketOpened { path } => {
                self.settle_tls(is_inside, report)?;
                report.note_at(at, Check::Ws, Detail::WebSocket { path }, Vec::new())
            }
            ConnectionStep::Accepted(properties) => {
                self.settle_tls(is_inside, report)?;
                let advice = (properties.qos_max == 0).then(|| Warning {
                    message: "the broker takes QoS 0 only, and requests to the store are QoS 1".to_owned(),
                    hint: "a broker or a listener that takes QoS 1".to_owned(),
                });
                let client_id = self.client_id.clone();
                let detail = Detail::Connack { client_id, properties };
                report.note_at(at, Check::Connack, detail, advice.into_iter().collect())
            }
        }
    }

    /// The broker has spoken: TLS is as good as it looked.
    fn settle_tls(&mut self, is_inside: bool, report: &mut Report<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.is_settled, true) {
            return Ok(());
        }
        let Some((at, sight)) = self.handshake.take() else {
            return if is_inside { Ok(()) } else { report.skip(Check::Tls, WHY_NO_TLS) };
        };
        let now_s = self.now_s();
        // Nobody has looked at the dates where whoever answers is trusted.
        let own = sight.chain.first().and_then(|own| own.as_ref().ok());
        let cause = own.and_then(|own| out_of_time(own, now_s));
        let advice = advice(&sight, now_s);
        let detail = Detail::Tls { sight, now_s };
        match cause {
            None => report.note_at(at, Check::Tls, detail, advice),
            Some(cause) => {
                let target = self.target.clone();
                report.fail_at(
                    at,
                    Check::Tls,
                    Some(detail),
                    Error::Tls { target, cause, in_web_socket: false },
                )
            }
        }
    }

    fn fail(mut self, error: Error, is_inside: bool, report: &mut Report<'_>) -> io::Result<()> {
        let check = match &error {
            Error::Credentials { .. } => Check::Settings,
            Error::Tls { .. } => Check::Tls,
            Error::WebSocket { .. } => Check::Ws,
            _ if !self.is_resolved => Check::Dns,
            _ if !self.is_reached => Check::Tcp,
            _ => Check::Connack,
        };
        let now_s = self.now_s();
        let detail = match check {
            Check::Tcp => Some(Detail::Tcp { reached: None, failed: std::mem::take(&mut self.failed) }),
            Check::Tls => self.handshake.take().map(|(_, sight)| Detail::Tls { sight, now_s }),
            Check::Ws | Check::Connack => {
                self.settle_tls(is_inside, report)?;
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
    // Less than a day over is a negative day.
    (days < 0).then(|| TlsError::Expired { days: Some(days.unsigned_abs().saturating_sub(1)) })
}

fn advice(sight: &TlsHandshake, now_s: u64) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut judge = |whose: &str, certificate: &Certificate, hint: &str| {
        let days = certificate.days_left(now_s);
        if days < DAYS_LEFT_MIN {
            let message = format!("{whose} {}", expiry_text(days));
            found.push(Warning { message, hint: hint.to_owned() });
        }
    };
    let mut chain = sight.chain.iter().flatten();
    if let Some(own) = chain.next() {
        judge("the broker's certificate", own, "a new certificate for the broker");
    }
    for ca in chain {
        judge("the certificate of its CA", ca, "a new certificate for the broker, from a CA that lasts");
    }
    if let Some(Ok(client)) = &sight.client_certificate {
        judge("the client's certificate", client, "a new certificate for this client: -C and -K");
    }
    if sight.roots == TrustedRoots::Any {
        let message = "--insecure: whoever answers is trusted".to_owned();
        found.push(Warning { message, hint: "-T FILE with the certificate of the broker's CA".to_owned() });
    }
    found
}
