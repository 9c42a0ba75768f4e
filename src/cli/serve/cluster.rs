//! `--etcd`: the state of a store in etcd, as an instance of a cluster.

use std::time::Duration;

use clap::{Arg, Args};

use crate::cli::config::variables::Variables;
use crate::cli::etcd;
use crate::commands::args::etcd::{EtcdArgs, name};
use crate::commands::{CommandError, Kind, duration};
use crate::render::escape::escape;
use crate::server::ClusterSettings;

/// The longest `--failover`: requests are held a little longer, and etcd takes longer for a lease by half an election.
const FAILOVER_MAX: Duration = Duration::from_secs(30);
/// The default of `--failover`.
#[cfg(feature = "cluster")]
const FAILOVER: Duration = Duration::from_secs(2);

/// The state in etcd.
#[derive(Clone, Debug, Args)]
#[command(mut_args(of_instance))]
pub struct ClusterArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Name of this instance [default: the host name]
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = name)]
    pub instance: Option<String>,
    /// Time after which another takes over [default: 2s]
    ///
    /// It counts from the owner's last sign of life. etcd takes at least one and a half times its election timeout: 2 s with its defaults.
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = failover)]
    pub failover: Option<Duration>,
    /// Leave the history of etcd to others
    ///
    /// Otherwise it is discarded every five minutes. Use it where others share the etcd, or where it compacts by itself.
    #[arg(long, hide_short_help = true)]
    pub no_compaction: bool,
}

/// Returns an option of etcd as that of an instance, whose state may be elsewhere.
fn of_instance(arg: Arg) -> Arg {
    const LONG: &str = "Keep the state in etcd, at these URLs\n\nOne instance of the cluster answers, all others follow and take over; see \
        docs/scale-out.md. URLs are separated by commas.";
    match arg.get_id().as_str() {
        "etcd" => arg
            .help("Keep the state in etcd, at these URLs")
            .long_help(LONG)
            .conflicts_with("data")
            .hide_short_help(true),
        "cluster" | "etcd_ca" | "etcd_cert" | "etcd_key" | "etcd_user" | "etcd_password_file" => {
            arg.hide_short_help(true)
        }
        _ => arg,
    }
}

fn failover(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    if time <= FAILOVER_MAX { Ok(time) } else { Err(format!("at most {}", duration::text(FAILOVER_MAX))) }
}

impl ClusterArgs {
    /// Completes the options by the variables `MQKV_*`, unless `excludes_etcd`: an option that contradicts `--etcd` is given.
    ///
    /// # Errors
    /// A variable is invalid, or an option requires another one that is not given.
    pub fn complete(&mut self, variables: &Variables, excludes_etcd: bool) -> Result<(), CommandError> {
        let none = Variables::default();
        let variables = if excludes_etcd { &none } else { variables };
        etcd::complete(&mut self.etcd, variables)?;
        // Before anything is tried, such as a listener whose address is in use.
        #[cfg(not(feature = "cluster"))]
        if self.is_given() {
            return Err(etcd::unsupported());
        }
        if self.etcd.etcd.is_empty() {
            let others = [
                ("--instance", self.instance.is_some()),
                ("--failover", self.failover.is_some()),
                ("--no-compaction", self.no_compaction),
            ];
            return match others.into_iter().find(|(_, is_given)| *is_given) {
                Some((option, _)) => Err(CommandError::usage(format!("{option} requires --etcd"))),
                None => Ok(()),
            };
        }
        if self.instance.is_none() {
            self.instance = etcd::name_in(variables, "MQKV_INSTANCE")?;
        }
        if self.failover.is_none()
            && let Some(text) = etcd::text(variables, "MQKV_FAILOVER")?
        {
            let invalid = |what| CommandError::new(Kind::Configuration, format!("MQKV_FAILOVER: {what}"));
            self.failover = Some(failover(&text).map_err(invalid)?);
        }
        Ok(())
    }

    /// Whether the state is in etcd.
    #[must_use]
    pub fn is_given(&self) -> bool {
        !self.etcd.etcd.is_empty()
    }

    /// Returns the name of this instance.
    #[must_use]
    pub fn instance(&self) -> String {
        self.instance.clone().unwrap_or_else(crate::cli::environment::host_name)
    }

    /// Describes the cluster for the log; `None` without one.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let name = |name: &str| escape(name.as_bytes());
        self.is_given().then(|| {
            format!("instance {} of the cluster {}", name(&self.instance()), name(self.etcd.cluster()))
        })
    }

    /// Returns the settings of the instance, if the state is in etcd. Reads files.
    ///
    /// # Errors
    /// The options are invalid, a file cannot be read, or this build does not support etcd.
    #[cfg(feature = "cluster")]
    pub async fn settings(&self) -> Result<Option<ClusterSettings>, CommandError> {
        if !self.is_given() {
            return Ok(None);
        }
        // Whole seconds, as etcd counts them; at least one.
        let failover = self.failover.unwrap_or(FAILOVER);
        let lease_s = u32::try_from(failover.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
        Ok(Some(ClusterSettings {
            etcd: etcd::settings(&self.etcd).await?,
            name: self.etcd.cluster().to_owned(),
            instance: self.instance().into(),
            lease_s,
            compacts: !self.no_compaction,
        }))
    }

    /// Returns no settings: [`Self::complete`] has refused etcd.
    #[cfg(not(feature = "cluster"))]
    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn settings(&self) -> Result<Option<ClusterSettings>, CommandError> {
        Ok(None)
    }
}
