//! SIGHUP: reads the rules and the files of TLS again, where there are any.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ServeArgs;
use super::systemd;
use crate::cli::detached::aside;
use crate::cli::serve::logging::Teller;
use crate::commands::CommandError;
use crate::server::StoreServer;

/// The SIGHUPs from now on.
#[derive(Debug)]
pub struct Hangups(Signal);

impl Hangups {
    /// Begins to listen, unless there is nothing to read again: then a SIGHUP is one of the signals that end it. With
    /// --exec it is the command's, whose terminal may be gone, and certificates last for as long as a command runs.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn listen(args: &ServeArgs) -> Result<Option<Self>, CommandError> {
        if args.authz.is_none() && (args.tls_cert.is_none() || args.run.exec) {
            return Ok(None);
        }
        let hangups = signal(SignalKind::hangup());
        hangups
            .map(|hangups| Some(Self(hangups)))
            .map_err(|error| CommandError::system("listen to SIGHUP", &error))
    }

    /// Reads again at each of them, those that came during the start included, until the tasks are dropped; the rules in
    /// one task and the files of TLS in another: a file that hangs holds up nothing but itself.
    #[must_use]
    pub fn reload(self, server: &StoreServer, args: &ServeArgs, teller: &Teller) -> JoinSet<()> {
        let (mut tasks, (wanted, _)) = (JoinSet::new(), watch::channel(0));
        let (rules_done, for_rules) = watch::channel(0);
        let (certificates_done, for_certificates) = watch::channel(0);
        if let Some(rules) = server.rules().cloned() {
            tasks.spawn(at_each(wanted.subscribe(), rules_done, teller.clone(), move || rules.reload()));
        }
        if let Some(certificates) = server.certificates().cloned() {
            let (key, warning) = (args.tls_key.clone(), teller.clone());
            let reload = move || {
                key.iter().for_each(|key| warning.warn_of_secret(key));
                certificates.reload();
            };
            tasks.spawn(at_each(wanted.subscribe(), certificates_done, teller.clone(), reload));
        }
        // With --exec whether it is ready is the command's to say.
        let is_service = !args.run.exec;
        tasks.spawn(hear(self.0, wanted, [for_rules, for_certificates], is_service));
        tasks
    }
}

/// Counts the signals, has everything read at each, and tells the service manager when it begins and when all is done.
async fn hear(
    mut hangups: Signal,
    wanted: watch::Sender<u64>,
    mut done: [watch::Receiver<u64>; 2],
    is_service: bool,
) {
    let (mut count, mut is_reloading) = (0_u64, false);
    loop {
        tokio::select! {
            biased;
            hangup = hangups.recv() => {
                if hangup.is_none() {
                    return;
                }
                if is_service {
                    systemd::reloading();
                }
                count = count.saturating_add(1);
                wanted.send_replace(count);
                is_reloading = is_service;
            }
            () = all_done(&mut done, count), if is_reloading => {
                systemd::reloaded();
                is_reloading = false;
            }
        }
    }
}

/// Waits until all has been read as it was at this signal, or later.
async fn all_done(done: &mut [watch::Receiver<u64>], count: u64) {
    for done in done {
        // Where there is nothing to read, nobody is left to say so.
        let _ = done.wait_for(|done| *done >= count).await;
    }
}

async fn at_each(
    mut wanted: watch::Receiver<u64>,
    done: watch::Sender<u64>,
    teller: Teller,
    reload: impl Fn() + Clone + Send + 'static,
) {
    while wanted.changed().await.is_ok() {
        let count = *wanted.borrow_and_update();
        // A file may be on a disk that hangs.
        if let Err(error) = aside(reload.clone()).await {
            teller.warn(&format!("nothing was read again at a SIGHUP: {}", error.message));
        }
        done.send_replace(count);
    }
}
