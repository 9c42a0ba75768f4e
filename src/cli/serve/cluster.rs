//! `--etcd`: the state of a store in etcd, as an instance of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

#[cfg(feature = "cluster")]
use crate::cli::{detached::run_detached, resolve::read_password_file};
use crate::commands::{CommandError, duration};
#[cfg(feature = "cluster")]
use crate::net::{IdentityFiles, TlsOptions};
use crate::render::escape::escape;
use crate::server::ClusterSettings;
#[cfg(feature = "cluster")]
use crate::server::etcd::EtcdSettings;

/// The longest name of a cluster or an instance.
const NAME_BYTES_MAX: usize = 255;
/// The longest `--failover`: requests are held a little longer, and etcd takes longer for a lease by half an election.
const FAILOVER_MAX: Duration = Duration::from_secs(30);

/// The state in etcd.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Keep the state in etcd, at these URLs
    ///
    /// One instance of the cluster answers, all others follow and take over; see docs/scale-out.md. URLs are separated by commas.
    #[arg(long, hide_short_help = true, value_name = "URLS", value_delimiter = ',', conflicts_with = "data")]
    pub etcd: Vec<String>,
    /// Name of the cluster in etcd
    #[arg(long, hide_short_help = true, value_name = "NAME", default_value = "default", value_parser = name, requires = "etcd")]
    pub cluster: String,
    /// Name of this instance [default: the host name]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = name, requires = "etcd")]
    pub instance: Option<String>,
    /// CA certificates for etcd, PEM
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd, PEM
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "etcd_key")]
    pub etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// User of etcd
    #[arg(long, hide_short_help = true, value_name = "NAME", requires = "etcd_password_file")]
    pub etcd_user: Option<String>,
    /// File with the password of the user
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// Time after which another instance takes over
    ///
    /// It counts from the owner's last sign of life. etcd takes at least one and a half times its election timeout: 2 s with its defaults.
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "2s", value_parser = failover, requires = "etcd")]
    pub failover: Duration,
    /// Leave the history of etcd to others
    ///
    /// Otherwise it is discarded every five minutes. Use it where others share the etcd, or where it compacts by itself.
    #[arg(long, hide_short_help = true, requires = "etcd")]
    pub no_compaction: bool,
}

/// Parses a name that is a part of etcd's keys.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c != '/' && !c.is_control();
    match text.len() {
        1..=NAME_BYTES_MAX if text.chars().all(is_plain) => Ok(text.to_owned()),
        _ => Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes, without / and control characters")),
    }
}

fn failover(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    if time <= FAILOVER_MAX { Ok(time) } else { Err(format!("at most {}", duration::text(FAILOVER_MAX))) }
}

impl ClusterArgs {
    /// Returns the name of this instance.
    #[must_use]
    pub fn instance(&self) -> String {
        self.instance.clone().unwrap_or_else(crate::cli::resolve::host_name)
    }

    /// Describes the cluster for the log; `None` without one.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let name = |name: &str| escape(name.as_bytes());
        (!self.etcd.is_empty())
            .then(|| format!("instance {} of the cluster {}", name(&self.instance()), name(&self.cluster)))
    }

    /// Returns the settings of the instance, if the state is in etcd. Reads files.
    ///
    /// # Errors
    /// The options are invalid, a file cannot be read, or this build does not support etcd.
    #[cfg(feature = "cluster")]
    pub async fn settings(&self) -> Result<Option<ClusterSettings>, CommandError> {
        if self.etcd.is_empty() {
            return Ok(None);
        }
        let password = match self.etcd_password_file.clone() {
            Some(path) => Some(run_detached(move || read_password_file(&path)).await??),
            None => None,
        };
        let files = self.etcd_cert.clone().zip(self.etcd_key.clone());
        let identity =
            files.map(|(certfile, keyfile)| IdentityFiles { certfile, keyfile, keypasswordfile: None });
        let etcd = EtcdSettings {
            endpoints: self.etcd.clone(),
            tls: TlsOptions { cafile: self.etcd_ca.clone(), identity, ..TlsOptions::default() },
            user: self.etcd_user.clone().zip(password),
            ..EtcdSettings::default()
        };
        // Whole seconds, as etcd counts them; at least one.
        let lease_s = u32::try_from(self.failover.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
        Ok(Some(ClusterSettings {
            etcd,
            name: self.cluster.clone(),
            instance: self.instance().into(),
            lease_s,
            compacts: !self.no_compaction,
        }))
    }

    #[cfg(not(feature = "cluster"))]
    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn settings(&self) -> Result<Option<ClusterSettings>, CommandError> {
        if self.etcd.is_empty() {
            return Ok(None);
        }
        let error = CommandError::usage("--etcd: this mqkv was built without support for etcd");
        Err(error.hint("cargo install mqkv --features cluster"))
    }
}
