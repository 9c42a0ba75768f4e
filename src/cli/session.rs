//! Session of a verb: connects on first use, starts an embedded store, reads certificates and passwords.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::config::Configuration;
use super::config::origin::Line;
use super::connection::{Connection, Endpoint, Login};
use super::detached::run_detached;
use super::embedded::Embedded;
use super::kube::{Access, Kube, Kubectl};
use super::signals::EndSignals;
use super::{environment, file_permissions, password, report};
use crate::client::Outcome;
use crate::client::{Authentication, PasswordSource, Settings, Target, Tracer};
use crate::commands::{CommandError, Kind, Preparation, Session, SettingsFuture};
use crate::net::{ClientTls, TlsOptions};
use crate::render::escape::escape;
use crate::render::{Format, Style};

/// What the session has started besides its connection: a store inside this process, or kubectl.
#[derive(Clone, Debug, Default)]
pub struct Started(Rc<RefCell<Option<Running>>>);

#[derive(Debug)]
enum Running {
    Store(Embedded),
    Kubectl(JoinSet<()>),
}

impl Started {
    /// Stops it; returns when everything that a store has acknowledged is durable.
    pub async fn stop(self) {
        let running = self.0.take();
        match running {
            Some(Running::Store(store)) => store.stop().await,
            Some(Running::Kubectl(mut tasks)) => tasks.shutdown().await,
            None => {}
        }
    }
}

/// Returns a session that connects on first use; `signals` are handled from then on.
pub fn session(
    connection: Option<Connection>,
    tracer: Option<Tracer>,
    signals: EndSignals,
    style: Style,
) -> (Session, Started) {
    let (started, preparation) = (Started::default(), Preparation::default());
    let takes_input = matches!(&connection, Some(Connection { login: Login::Input { .. }, .. }));
    let (of_session, steps) = (started.clone(), preparation.clone());
    let connect = move || -> SettingsFuture {
        let handling = signals.handle();
        let connecting = connect(connection.clone(), of_session.clone(), steps.clone(), style);
        let tracer = tracer.clone();
        Box::pin(async move {
            handling?;
            Ok(Settings { tracer, ..connecting.await? })
        })
    };
    let session = Session::new(connect, environment::process_context(), preparation);
    if takes_input {
        session.close_input();
    }
    (session, started)
}

/// Rejects writes if the context is read-only, unless `is_forced`.
pub fn guarded(session: Session, configuration: &Configuration, is_forced: bool) -> Session {
    match configuration.read_only() {
        Some(line) if !is_forced => session.read_only(read_only(line)),
        _ => session,
    }
}

fn read_only(line: &Line) -> CommandError {
    let error = CommandError::new(Kind::Configuration, format!("the context {} is read-only", line.context));
    let error = error.cause(format!("{}: read_only = true", line.place())).hint("--force-write");
    CommandError { outcome: Some(Outcome::Unchanged), ..error }
}

/// Returns the settings of a client of a broker that this machine reaches.
pub async fn network_settings(connection: &Connection, style: Style) -> Result<Settings, CommandError> {
    connect(Some(connection.clone()), Started::default(), Preparation::default(), style).await
}

async fn connect(
    connection: Option<Connection>,
    started: Started,
    preparation: Preparation,
    style: Style,
) -> Result<Settings, CommandError> {
    let connection =
        connection.ok_or_else(|| CommandError::new(Kind::Bug, "an offline verb requested a connection"))?;
    let (host, port, mut tls, web_socket, kube) = match connection.endpoint.clone() {
        Endpoint::Network { host, port, tls, web_socket, kube } => (host, port, tls, web_socket, kube),
        Endpoint::Embedded { data } => {
            let store = Embedded::start(data.as_deref()).await?;
            let target = store.target();
            started.0.replace(Some(Running::Store(store)));
            return Ok(connection.settings(target, None, authentication(&connection.login).await?));
        }
    };
    // Even with --quiet: the risk is too high to hide it.
    if tls.as_ref().is_some_and(|tls| tls.insecure) && style.format != Format::Json {
        report::log(
            "warning: --insecure: the broker's certificate is not verified, an attacker can read and change \
             everything",
        );
    }
    let (mut target, mut token) = (Target::Tcp { host, port }, None);
    if let Some(kube) = &kube {
        let access = open_kube(kube, connection.kubectl_timeout, &preparation, style).await?;
        started.0.replace(Some(Running::Kubectl(access.tasks)));
        target = Target::Forwarded(access.forwarding);
        tls.iter_mut().for_each(|tls| tls.given_ca.clone_from(&access.ca));
        token = access.token.map(Authentication::SharedToken);
    }
    let tls = read_tls_and_check_secrets(&connection, tls, style).await?;
    let authentication = match token {
        Some(token) => token,
        None => authentication(&connection.login).await?,
    };
    Ok(Settings { web_socket, ..connection.settings(target, tls, authentication) })
}

/// Runs kubectl for a broker in a cluster; with --verbose, prints the commands.
async fn open_kube(
    kube: &Kube,
    within: Duration,
    preparation: &Preparation,
    style: Style,
) -> Result<Access, CommandError> {
    let kubectl = Kubectl { program: environment::kubectl(), url: kube.url.clone(), within };
    if style.verbose && report::takes_warnings(&style) {
        kube.calls().for_each(|call| report::log(&escape(kubectl.line(call).as_bytes())));
    }
    kube.open(kubectl, preparation).await
}

/// Reads the TLS files and warns of secret files that other users can read. The connect timeout applies, because a file
/// can be a pipe or on a file system that hangs.
async fn read_tls_and_check_secrets(
    connection: &Connection,
    options: Option<TlsOptions>,
    style: Style,
) -> Result<Option<ClientTls>, CommandError> {
    let secrets: Vec<PathBuf> = match report::takes_warnings(&style) {
        true => connection.secret_files().cloned().collect(),
        false => Vec::new(),
    };
    if options.is_none() && secrets.is_empty() {
        return Ok(None);
    }
    let read = run_detached(move || {
        secrets.iter().filter_map(|file| file_permissions::warning(file)).for_each(|line| report::log(&line));
        options.as_ref().map(ClientTls::load).transpose()
    });
    let within = connection.connect_timeout;
    let late = |_| {
        let message = format!("cannot read the files of the connection within {within:?}");
        CommandError::new(Kind::File, message).hint("mqkv config show --origin")
    };
    Ok(timeout(within, read).await.map_err(late)???)
}

/// Returns the credentials; asks for the password or reads it from standard input if the login requires that.
async fn authentication(login: &Login) -> Result<Authentication, CommandError> {
    let (username, password) = match login {
        Login::Known(authentication) => return Ok(authentication.clone()),
        Login::Input { username } => (username, run_detached(password::read_input).await??),
        Login::Ask { username } => {
            (username, password::ask(format!("password of {}: ", escape(username.as_bytes()))).await?)
        }
    };
    Ok(Authentication::Password {
        username: username.clone(),
        password: Some(PasswordSource::Given(password)),
    })
}
