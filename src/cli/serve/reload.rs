//! SIGHUP: reloads the authorization rules, users, tokens, TLS files, and the rules of an exchange.

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::args::ServeArgs;
use super::exchange::NodeFile;
use super::logging::EventLog;
use crate::cli::detached::run_detached;
use crate::commands::CommandError;
use crate::platform::{Signals, service_manager};
use crate::server::StoreServer;

/// The SIGHUP signals since the start.
#[derive(Debug)]
pub struct ReloadSignals(Signals);

impl ReloadSignals {
    /// Starts to handle SIGHUP, or returns `None` if nothing can be reloaded: SIGHUP then stops the server. With --exec
    /// and no --authz it is forwarded to the command, whose terminal can be gone; nothing is reloaded then.
    pub fn listen(args: &ServeArgs) -> Result<Option<Self>, CommandError> {
        let files =
            [&args.config_file, &args.tls_cert, &args.users, &args.sat_tokens, &args.exchange.exchange];
        let has_files = files.into_iter().any(Option::is_some);
        if args.authz.is_none() && (!has_files || args.run.exec) {
            return Ok(None);
        }
        Signals::of_hangup()
            .map(|signals| Some(Self(signals)))
            .map_err(|error| CommandError::system("listen to SIGHUP", &error))
    }

    /// Reloads at each signal, including those during the start, until the returned tasks are dropped. Rules, users with
    /// tokens, TLS files and the exchange have a task each, so that a file that hangs delays only itself.
    #[must_use]
    pub fn reload(
        self,
        server: &StoreServer,
        args: &ServeArgs,
        file: Option<NodeFile>,
        log: &EventLog,
    ) -> JoinSet<()> {
        let (mut tasks, (requested, _)) = (JoinSet::new(), watch::channel(0));
        let (rules_done, for_rules) = watch::channel(0);
        let (credentials_done, for_credentials) = watch::channel(0);
        let (certificates_done, for_certificates) = watch::channel(0);
        let (exchange_done, for_exchange) = watch::channel(0);
        if let Some(rules) = server.rules().cloned() {
            tasks.spawn(at_each(requested.subscribe(), rules_done, log.clone(), move || rules.reload()));
        }
        if let Some(credentials) = server.credentials().cloned() {
            let reload = move || credentials.reload();
            tasks.spawn(at_each(requested.subscribe(), credentials_done, log.clone(), reload));
        }
        if let Some(certificates) = server.certificates().cloned() {
            let (key, warnings) = (args.tls_key.clone(), log.clone());
            let reload = move || {
                key.iter().for_each(|key| warnings.warn_of_secret(key));
                certificates.reload();
            };
            tasks.spawn(at_each(requested.subscribe(), certificates_done, log.clone(), reload));
        }
        if let (Some(exchange), Some(file)) = (server.exchange().cloned(), file) {
            let reload = move || file.reload(&exchange);
            tasks.spawn(at_each(requested.subscribe(), exchange_done, log.clone(), reload));
        }
        // With --exec the command notifies the service manager, not the server.
        let is_service = !args.run.exec;
        let done = [for_rules, for_credentials, for_certificates, for_exchange];
        tasks.spawn(handle(self.0, requested, done, is_service));
        tasks
    }
}

/// Requests a reload at each signal, and notifies the service manager when reloading begins and when it is complete.
async fn handle(
    mut signals: Signals,
    requested: watch::Sender<u64>,
    mut done: [watch::Receiver<u64>; 4],
    is_service: bool,
) {
    let (mut count, mut is_reloading) = (0_u64, false);
    loop {
        tokio::select! {
            biased;
            _ = signals.next() => {
                if is_service {
                    service_manager::reloading();
                }
                count = count.saturating_add(1);
                requested.send_replace(count);
                is_reloading = is_service;
            }
            () = all_done(&mut done, count), if is_reloading => {
                service_manager::reloaded();
                is_reloading = false;
            }
        }
    }
}

/// Waits until everything has been reloaded at the signal with this number or a later one.
async fn all_done(done: &mut [watch::Receiver<u64>], count: u64) {
    for done in done {
        // An error means that there is nothing of this kind to reload: the sender is gone.
        let _ = done.wait_for(|done| *done >= count).await;
    }
}

async fn at_each(
    mut requested: watch::Receiver<u64>,
    done: watch::Sender<u64>,
    log: EventLog,
    reload: impl Fn() + Clone + Send + 'static,
) {
    while requested.changed().await.is_ok() {
        let count = *requested.borrow_and_update();
        // On a thread of its own: a file can be on a file system that hangs.
        if let Err(error) = run_detached(reload.clone()).await {
            log.warn(&format!("nothing was reloaded at a SIGHUP: {}", error.message));
        }
        done.send_replace(count);
    }
}
