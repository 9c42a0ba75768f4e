//! Options of whoever connects, which `serve` shares with the verbs by its place on the command line only: refused, each
//! with what may have been meant (pure).

use clap::{Arg, Args, Command};

use crate::cli::args::{ConnectionArgs, DisplayArgs, Options};
use crate::commands::CommandError;

/// What there is to say to several of them.
const WHERE: &str = "--listen HOST:PORT, or --listen URL: where to listen";
const WHO: &str = "--users FILE, with what `mqkv serve user add FILE NAME` has written: who is let in";

/// Where a password is, which `serve user add` asks for, too.
const OF_PASSWORD: [&str; 2] = ["password_file", "ask_password"];

/// Does not offer them where they are understood and refused: to `serve` and what is below it, once it is asked for.
pub fn hide(serve: Command) -> Command {
    let (every, display) =
        (Options::augment_args(Command::new("")), DisplayArgs::augment_args(Command::new("")));
    let has = |command: &Command, arg: &Arg| command.get_arguments().any(|own| own.get_id() == arg.get_id());
    serve.mut_args(|arg| {
        let is_foreign = has(&every, &arg) && !has(&display, &arg);
        if is_foreign { arg.hide(true) } else { arg }
    })
}

/// Offers those again that say where a password is.
pub fn show_of_password(command: Command) -> Command {
    command.mut_args(|arg| {
        let is_shown = OF_PASSWORD.contains(&arg.get_id().as_str());
        if is_shown { arg.hide(false) } else { arg }
    })
}

/// Refuses what only a client can use.
///
/// # Errors
/// The first of them.
pub fn refuse(options: &Options) -> Result<(), CommandError> {
    match given(&options.connection, options.force_write) {
        None => Ok(()),
        Some((flag, hint)) => {
            let hint = if hint.is_empty() { "mqkv serve --help" } else { hint };
            Err(CommandError::usage(format!("{flag} is for those who connect, and serve does not"))
                .hint(hint))
        }
    }
}

/// The first that was typed, and what may have been meant.
fn given(connection: &ConnectionArgs, force_write: bool) -> Option<(&'static str, &'static str)> {
    let ConnectionArgs {
        broker,
        hostname,
        port,
        notls,
        cafile,
        certfile,
        keyfile,
        keypasswordfile,
        server_name,
        insecure,
        username,
        password_file,
        ask_password,
        sat_file,
        embedded,
        client_id,
        timeout,
        connect_timeout,
        retries,
        keep_alive,
        context,
        no_context,
        config,
        trace,
    } = connection;
    let all = [
        (broker.is_some(), "--broker", WHERE),
        (hostname.is_some(), "--hostname", WHERE),
        (port.is_some(), "--port", WHERE),
        (*notls, "--notls", "--listen mqtt://HOST:PORT: a door without TLS"),
        (cafile.is_some(), "--cafile", "--client-ca FILE: whose certificates let clients in"),
        (certfile.is_some(), "--certfile", "--tls-cert FILE: the server's certificate"),
        (keyfile.is_some(), "--keyfile", "--tls-key FILE: the key of the server's certificate"),
        (keypasswordfile.is_some(), "--keypasswordfile", "--tls-key FILE, with a key that is not encrypted"),
        (server_name.is_some(), "--server-name", "--tls-cert FILE: the names are in the certificate"),
        (*insecure, "--insecure", ""),
        (username.is_some(), "--username", WHO),
        (password_file.is_some(), "--password-file", WHO),
        (*ask_password, "--ask-password", WHO),
        (sat_file.is_some(), "--sat-file", "--sat-tokens FILE: whose tokens let clients in"),
        (embedded.is_some(), "--embedded", "--data DIR keeps everything in DIR; without it, in memory"),
        (client_id.is_some(), "--client-id", ""),
        (timeout.is_some(), "--timeout", ""),
        (connect_timeout.is_some(), "--connect-timeout", ""),
        (retries.is_some(), "--retries", ""),
        (keep_alive.is_some(), "--keep-alive", ""),
        (context.is_some(), "--context", WHERE),
        (*no_context, "--no-context", ""),
        (config.is_some(), "--config", ""),
        (trace.is_some(), "--trace", "--log text: every connection and what became of it"),
        (force_write, "--force-write", ""),
    ];
    all.into_iter().find_map(|(is_given, flag, hint)| is_given.then_some((flag, hint)))
}
