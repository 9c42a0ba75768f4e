//! Reloads of files of a running server: rules, the exchange, users and tokens, certificates.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::Identities;
use super::authorization::Authorizer;
use super::delivery::BrokerPublisher;
use super::event::exchange::ExchangeEvent;
use super::event::{CertificateInUse, Event, EventSink};
use super::exchange::settings::RootFile;
use super::metrics::Metrics;
use super::service::Service;
use crate::broker::Broker;
use crate::clock;
use crate::net::detached::run_detached;
use crate::net::tls::ServerTls;

/// How often the TLS files are read, so that renewed ones are used without a signal.
const CERTIFICATES_INTERVAL: Duration = Duration::from_secs(1);
/// The log has a warning when a certificate expires within this time, or within a tenth of its validity if that is less: those of a
/// day or of an hour are renewed late.
const EXPIRES_SOON_S: u64 = 7 * 24 * 60 * 60;

/// Reloads the authorization rules of a running server.
#[derive(Clone)]
pub struct RulesReloader {
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) broker: Broker,
    pub(super) service: Arc<Service>,
    pub(super) events: EventSink,
}

impl RulesReloader {
    /// Reads the rules again and logs the result. No client is disconnected: requests and messages are
    /// authorized by the new rules from now on, watches that they do not allow end, and subscriptions that
    /// they do not allow deliver nothing. Rules with an error leave the old ones in force. May block.
    pub fn reload(&self) {
        let outcome = self.authorizer.reload().map(|()| self.authorizer.len());
        if outcome.is_ok() {
            self.broker.reauthorize_all();
            self.service.revoke_watches();
        }
        (self.events)(Event::Rules { outcome: outcome.map_err(|error| error.to_string()) });
    }
}

impl fmt::Debug for RulesReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RulesReloader").field("authorizer", &self.authorizer).finish_non_exhaustive()
    }
}

/// Reloads the file of a running node of an exchange.
#[derive(Clone)]
pub struct ExchangeReloader {
    pub(super) service: Arc<Service>,
    pub(super) publisher: BrokerPublisher<Broker, Arc<Metrics>>,
    pub(super) events: EventSink,
}

impl ExchangeReloader {
    /// At a root: applies the rules and the leaves that may join by themselves, and logs the result. If the rules differ, all links end,
    /// and the leaves receive the new ones. With an error, or the file of another node, the old ones stay in force.
    pub fn reload(&self, read: Result<RootFile, String>) {
        let outcome = read.and_then(|file| {
            let count = file.rules.len();
            self.service.set_exchange_rules(&self.publisher, file).map(|()| count)
        });
        (self.events)(ExchangeEvent::Rules { outcome }.into());
    }

    /// Logs that a leaf reloads nothing. `outcome`: whether its file has changed since the start, or what is wrong with it.
    pub fn reload_leaf(&self, outcome: Result<bool, String>) {
        (self.events)(ExchangeEvent::LeafReload { outcome }.into());
    }
}

impl fmt::Debug for ExchangeReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ExchangeReloader").finish_non_exhaustive()
    }
}

/// Reloads the users and tokens of a running server.
#[derive(Clone)]
pub struct CredentialsReloader {
    pub(super) identities: Arc<Identities>,
    pub(super) broker: Broker,
    pub(super) events: EventSink,
}

impl CredentialsReloader {
    /// Reads the files again, closes the connections of removed users, changed passwords and removed tokens, and logs the
    /// result. A file that cannot be read or is invalid is logged and changes nothing. May block.
    pub fn reload(&self) {
        let outcome = self.identities.reload();
        let closed = self.broker.close_invalid();
        (self.events)(Event::Credentials { closed, outcome });
    }
}

impl fmt::Debug for CredentialsReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CredentialsReloader").field("identities", &self.identities).finish_non_exhaustive()
    }
}

/// Reloads the certificates, keys and client CAs of all listeners of a running server.
#[derive(Clone)]
pub struct CertificatesReloader {
    tls_configurations: Vec<ServerTls>,
    broker: Broker,
    events: EventSink,
    /// Locked while the files are read, so that no reload undoes a later one.
    reported: Arc<Mutex<Reported>>,
}

/// What the log has about the files.
#[derive(Default)]
struct Reported {
    /// The error of the last reload.
    error: Option<String>,
    /// Certificates that are out of time, or will be soon.
    validity: Vec<Event>,
}

impl CertificatesReloader {
    /// Returns a reloader of these configurations, if there are any. The log has a warning if a certificate is out of time, or
    /// will be soon.
    pub(super) fn new(tls_configurations: Vec<ServerTls>, broker: Broker, events: EventSink) -> Option<Self> {
        if tls_configurations.is_empty() {
            return None;
        }
        let this = Self { tls_configurations, broker, events, reported: Arc::default() };
        this.report_validity(&mut this.reported.lock().unwrap_or_else(PoisonError::into_inner), true);
        Some(this)
    }

    /// Reads the files again and logs the result: new handshakes use the new files. If one file has an error, all
    /// listeners keep the old ones. Existing connections continue, except those of clients whose own certificate has
    /// expired. May block.
    pub fn reload(&self) {
        self.broker.close_invalid();
        self.read(true);
    }

    /// Reads the files again every second, for ever. Files that have changed are used as by [`CertificatesReloader::reload`], and
    /// nothing is logged twice. Pipes are not read again.
    pub(super) async fn watch(self) {
        if !self.tls_configurations.iter().all(ServerTls::is_readable_again) {
            return;
        }
        loop {
            sleep(CERTIFICATES_INTERVAL).await;
            let this = self.clone();
            // Without a thread it is tried again.
            let _ = run_detached(move || this.read(false)).await;
        }
    }

    fn read(&self, is_requested: bool) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = match ServerTls::reload(&self.tls_configurations) {
            Err(error) => {
                let reason = error.with_hint();
                let last = reported.error.replace(reason.clone());
                if is_requested || last.as_ref() != Some(&reason) {
                    (self.events)(Event::CertificatesKept { reason });
                }
                false
            }
            Ok(has_changed) => {
                let is_recovery = reported.error.take().is_some();
                if is_requested || has_changed || is_recovery {
                    let is_shown = is_recovery || !is_requested;
                    (self.events)(Event::Certificates { own: self.first_to_expire(), is_shown });
                }
                is_requested || has_changed
            }
        };
        self.report_validity(&mut reported, is_news);
    }

    fn first_to_expire(&self) -> Option<CertificateInUse> {
        let all = self.tls_configurations.iter().filter_map(ServerTls::certificate);
        let first = all.min_by_key(|certificate| certificate.not_after_s)?;
        Some(CertificateInUse { name: first.name(), days_left: first.days_left(clock::wall_ms() / 1000) })
    }

    /// Logs the certificates that are out of time or will be soon; with `all`, also those that the log has.
    fn report_validity(&self, reported: &mut Reported, all: bool) {
        let now_s = clock::wall_ms() / 1000;
        let mut found: Vec<_> =
            self.tls_configurations.iter().filter_map(|tls| validity_event(tls, now_s)).collect();
        found.dedup();
        found
            .iter()
            .filter(|event| all || !reported.validity.contains(event))
            .cloned()
            .for_each(&*self.events);
        reported.validity = found;
    }
}

/// Returns a warning if the server's certificate has expired, is not valid yet, or expires soon.
fn validity_event(tls: &ServerTls, now_s: u64) -> Option<Event> {
    let certificate = tls.certificate()?;
    let file = tls.certificate_file().display();
    let (from_s, to_s) = (certificate.not_before_s, certificate.not_after_s);
    let days_left = certificate.days_left(now_s);
    let soon_s = EXPIRES_SOON_S.min(to_s.saturating_sub(from_s) / 10);
    let what = match days_left {
        ..0 => "has expired",
        _ if from_s > now_s => "is not valid yet",
        _ if to_s.saturating_sub(now_s) < soon_s => {
            return Some(Event::ExpiresSoon { file: file.to_string(), days_left });
        }
        _ => return None,
    };
    Some(Event::OutOfTime { reason: format!("{file} contains a certificate that {what}") })
}

impl fmt::Debug for CertificatesReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CertificatesReloader")
            .field("tls_configurations", &self.tls_configurations)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::net::tls::ServerTlsFiles;

    #[test]
    fn a_certificate_of_a_day_is_reported_a_few_hours_before_it_expires_and_one_of_a_year_a_week_before() {
        const HOUR_S: u64 = 3600;
        let home = tempfile::tempdir().unwrap();
        let [certfile, keyfile] = ["c", "k"].map(|name| home.path().join(name));
        let key = KeyPair::generate().unwrap();
        fs::write(&keyfile, key.serialize_pem()).unwrap();
        let hours_reported = |from, to| {
            let mut params = CertificateParams::new([]).unwrap();
            (params.not_before, params.not_after) = (from, to);
            fs::write(&certfile, params.self_signed(&key).unwrap().pem()).unwrap();
            let (certfile, keyfile) = (certfile.clone(), keyfile.clone());
            let tls = ServerTls::load(ServerTlsFiles { certfile, keyfile, client_ca: None }).unwrap();
            let end_s = tls.certificate().unwrap().not_after_s;
            let is_soon = |hours: &u64| {
                matches!(validity_event(&tls, end_s - hours * HOUR_S), Some(Event::ExpiresSoon { .. }))
            };
            assert!(matches!(validity_event(&tls, end_s + 1), Some(Event::OutOfTime { .. })));
            (0..400).filter(is_soon).max().unwrap()
        };
        assert_eq!(hours_reported(date_time_ymd(2026, 1, 1), date_time_ymd(2026, 1, 2)), 2);
        assert_eq!(hours_reported(date_time_ymd(2026, 1, 1), date_time_ymd(2027, 1, 1)), 7 * 24 - 1);
    }
}
