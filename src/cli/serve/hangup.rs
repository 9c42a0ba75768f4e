//! SIGHUP: reads the rules and the files of TLS again, where there are any.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::ServeArgs;
use super::telling::Teller;
use crate::cli::aside::aside;
use crate::commands::CommandError;
use crate::server::StoreServer;

/// The SIGHUPs from now on, for each of what is read again: a file that hangs holds up nothing but itself.
#[derive(Debug)]
pub struct Hangups {
    for_rules: Signal,
    for_certificates: Signal,
}

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
        let listen =
            || signal(SignalKind::hangup()).map_err(|error| CommandError::system("listen to SIGHUP", &error));
        Ok(Some(Self { for_rules: listen()?, for_certificates: listen()? }))
    }

    /// Reads again at each of them, those that came during the start included, until the tasks are dropped.
    #[must_use]
    pub fn reload(self, server: &StoreServer, args: &ServeArgs, teller: &Teller) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(rules) = server.rules().cloned() {
            tasks.spawn(at_each(self.for_rules, teller.clone(), move || rules.reload()));
        }
        if let Some(certificates) = server.certificates().cloned() {
            let (key, warning) = (args.tls_key.clone(), teller.clone());
            tasks.spawn(at_each(self.for_certificates, teller.clone(), move || {
                key.iter().for_each(|key| warning.warn_of_secret(key));
                certificates.reload();
            }));
        }
        tasks
    }
}

async fn at_each(mut hangups: Signal, teller: Teller, reload: impl Fn() + Clone + Send + 'static) {
    while hangups.recv().await.is_some() {
        // A file may be on a disk that hangs.
        if let Err(error) = aside(reload.clone()).await {
            teller.warn(&format!("nothing was read again at a SIGHUP: {}", error.message));
        }
    }
}
