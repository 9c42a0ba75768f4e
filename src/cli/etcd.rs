//! Options of etcd: completed from the environment, and as settings of the client.

use std::path::PathBuf;

use super::config::variables::Variables;
use crate::commands::CommandError;
use crate::commands::Kind;
use crate::commands::args::etcd::{EtcdArgs, name};
use crate::server::ClusterErrorKind;
#[cfg(feature = "cluster")]
use crate::{
    cli::{detached::run_detached, password},
    net::{IdentityFiles, TlsOptions},
    server::etcd::{ConnectError, Etcd, EtcdSettings},
};

/// Completes the options that are not given by the variables `MQKV_*`. Without the URLs of etcd, the other variables mean nothing.
///
/// # Errors
/// A variable is invalid, or an option requires another one that is not given.
pub fn complete(args: &mut EtcdArgs, variables: &Variables) -> Result<(), CommandError> {
    if args.etcd.is_empty()
        && let Some(urls) = text(variables, "MQKV_ETCD")?
    {
        args.etcd = urls.split(',').map(str::to_owned).collect();
        #[cfg(feature = "cluster")]
        for url in &args.etcd {
            Etcd::check_url(url)
                .map_err(|error| CommandError::new(Kind::Configuration, format!("MQKV_ETCD: {error}")))?;
        }
    }
    if !args.etcd.is_empty() {
        if args.cluster.is_none() {
            args.cluster = name_in(variables, "MQKV_CLUSTER")?;
        }
        let file = |name: &str| variables.get(name).map(PathBuf::from);
        let or_file =
            |option: &mut Option<PathBuf>, name: &str| *option = option.take().or_else(|| file(name));
        or_file(&mut args.etcd_ca, "MQKV_ETCD_CA");
        or_file(&mut args.etcd_cert, "MQKV_ETCD_CERT");
        or_file(&mut args.etcd_key, "MQKV_ETCD_KEY");
        or_file(&mut args.etcd_password_file, "MQKV_ETCD_PASSWORD_FILE");
        if args.etcd_user.is_none() {
            args.etcd_user = text(variables, "MQKV_ETCD_USER")?;
        }
    }
    match args.incomplete() {
        Some((option, missing)) => Err(CommandError::usage(format!("{option} requires {missing}"))),
        None => Ok(()),
    }
}

/// Returns the URLs of etcd, which must be given.
///
/// # Errors
/// They are not given, or as for [`complete`].
pub fn complete_required(args: &EtcdArgs, variables: &Variables) -> Result<EtcdArgs, CommandError> {
    let mut args = args.clone();
    complete(&mut args, variables)?;
    if args.etcd.is_empty() {
        let error = CommandError::usage("the URLs of etcd are missing");
        return Err(error.hint("--etcd http://HOST:2379, or the variable MQKV_ETCD"));
    }
    Ok(args)
}

/// Returns the value of a variable as text.
///
/// # Errors
/// It is not UTF-8.
pub fn text(variables: &Variables, name: &str) -> Result<Option<String>, CommandError> {
    let invalid = || CommandError::new(Kind::Configuration, format!("{name}: expected UTF-8"));
    variables.get(name).map(|value| value.to_str().map(str::to_owned).ok_or_else(invalid)).transpose()
}

/// Returns the value of a variable as the name of a cluster or an instance.
pub fn name_in(variables: &Variables, variable: &str) -> Result<Option<String>, CommandError> {
    let invalid = |what| CommandError::new(Kind::Configuration, format!("{variable}: {what}"));
    text(variables, variable)?.map(|value| name(&value).map_err(invalid)).transpose()
}

/// Returns the error of a build that has no client of etcd.
#[cfg(not(feature = "cluster"))]
#[must_use]
pub fn unsupported() -> CommandError {
    if !crate::platform::SUPPORTS_ETCD {
        return CommandError::usage("--etcd: etcd is supported on Linux and macOS only");
    }
    let error = CommandError::usage("--etcd: this mqkv was built without support for etcd");
    error.hint("in a clone of mqkv: cargo install --path . --locked --features cluster")
}

/// Returns the settings of the client. Reads files.
#[cfg(feature = "cluster")]
pub async fn settings(args: &EtcdArgs) -> Result<EtcdSettings, CommandError> {
    let password = match args.etcd_password_file.clone() {
        Some(path) => Some(run_detached(move || password::read_file(&path)).await??),
        None => None,
    };
    let files = args.etcd_cert.clone().zip(args.etcd_key.clone());
    let identity =
        files.map(|(certfile, keyfile)| IdentityFiles { certfile, keyfile, keypasswordfile: None });
    Ok(EtcdSettings {
        endpoints: args.etcd.clone(),
        tls: TlsOptions { cafile: args.etcd_ca.clone(), identity, ..TlsOptions::default() },
        user: args.etcd_user.clone().zip(password),
        ..EtcdSettings::default()
    })
}

#[cfg(feature = "cluster")]
pub async fn connect(args: &EtcdArgs) -> Result<Etcd, CommandError> {
    Etcd::connect(&settings(args).await?).await.map_err(|error| connect_error(&error))
}

/// Returns the error of a connection with its exit code and hint.
#[cfg(feature = "cluster")]
pub fn connect_error(error: &ConnectError) -> CommandError {
    cluster_error(error.kind(), error.to_string(), error.hint().map(str::to_owned))
}

/// Returns an error of etcd, or of what is in it, with its exit code and hint.
pub fn cluster_error(kind: ClusterErrorKind, reason: String, hint: Option<String>) -> CommandError {
    let kind = match kind {
        ClusterErrorKind::Settings => Kind::Usage,
        ClusterErrorKind::Files => Kind::File,
        ClusterErrorKind::Unavailable => Kind::Unavailable,
        ClusterErrorKind::Authentication => Kind::Authorization,
        ClusterErrorKind::Incompatible => Kind::Data,
    };
    let error = CommandError::new(kind, reason);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(args: EtcdArgs, all: &[(&str, &str)]) -> Result<EtcdArgs, CommandError> {
        let variables = Variables::of(all.iter().map(|(name, value)| (name.into(), value.into())));
        let mut args = args;
        complete(&mut args, &variables).map(|()| args)
    }

    #[test]
    fn variables_complete_what_is_not_given() {
        let all = [
            ("MQKV_ETCD", "http://a,http://b"),
            ("MQKV_CLUSTER", "prod"),
            ("MQKV_ETCD_USER", "mqkv"),
            ("MQKV_ETCD_PASSWORD_FILE", "p"),
        ];
        let args = completed(EtcdArgs::default(), &all).unwrap();
        assert_eq!(args.etcd, ["http://a", "http://b"]);
        assert_eq!((args.cluster(), args.etcd_user.as_deref()), ("prod", Some("mqkv")));
        let typed = EtcdArgs { cluster: Some("test".to_owned()), ..EtcdArgs::default() };
        assert_eq!(completed(typed, &all).unwrap().cluster(), "test");
    }

    #[test]
    fn variables_of_etcd_mean_nothing_without_its_urls() {
        let args =
            completed(EtcdArgs::default(), &[("MQKV_CLUSTER", "a/b"), ("MQKV_ETCD_USER", "u")]).unwrap();
        assert!(args.etcd.is_empty() && args.cluster.is_none() && args.etcd_user.is_none());
        let error = completed(EtcdArgs::default(), &[("MQKV_ETCD", "http://u"), ("MQKV_CLUSTER", "a/b")])
            .unwrap_err();
        assert!(error.kind == Kind::Configuration && error.message.starts_with("MQKV_CLUSTER: "));
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn an_invalid_url_in_the_variable_is_reported_with_its_name() {
        let error = completed(EtcdArgs::default(), &[("MQKV_ETCD", "http://a,b")]).unwrap_err();
        let expected = "MQKV_ETCD: invalid endpoint of etcd: 'b' is not of the form https://HOST:PORT or http://HOST:PORT";
        assert_eq!((error.kind, error.message.as_str()), (Kind::Configuration, expected));
    }
}
