//! Options that name a cluster on etcd.

use std::path::PathBuf;

use clap::Args;

/// The longest name of a cluster or an instance.
const NAME_BYTES_MAX: usize = 255;

/// The members of etcd, how to connect to them, and the cluster in it.
#[derive(Clone, Debug, Default, Args)]
pub struct EtcdArgs {
    /// Client URLs of etcd, separated by commas
    ///
    /// https://HOST:PORT or, without TLS options, http://HOST:PORT.
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// Name of the cluster in etcd [default: default]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub cluster: Option<String>,
    /// CA certificates for etcd, PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd, PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub etcd_key: Option<PathBuf>,
    /// User of etcd
    #[arg(long, value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// File with the password of the user
    #[arg(long, value_name = "FILE")]
    pub etcd_password_file: Option<PathBuf>,
}

impl EtcdArgs {
    #[must_use]
    pub fn cluster(&self) -> &str {
        self.cluster.as_deref().unwrap_or("default")
    }

    /// Returns the first option that is given in vain: one that requires another one which is not given.
    #[must_use]
    pub fn incomplete(&self) -> Option<(&'static str, &'static str)> {
        let Self { etcd, cluster, etcd_ca, etcd_cert, etcd_key, etcd_user, etcd_password_file } = self;
        let requires_etcd = [
            ("--cluster", cluster.is_some()),
            ("--etcd-ca", etcd_ca.is_some()),
            ("--etcd-cert", etcd_cert.is_some()),
            ("--etcd-key", etcd_key.is_some()),
            ("--etcd-user", etcd_user.is_some()),
            ("--etcd-password-file", etcd_password_file.is_some()),
        ];
        let alone = requires_etcd.into_iter().find(|(_, is_given)| etcd.is_empty() && *is_given);
        match alone {
            Some((option, _)) => Some((option, "--etcd")),
            None if etcd_cert.is_some() && etcd_key.is_none() => Some(("--etcd-cert", "--etcd-key")),
            None if etcd_key.is_some() && etcd_cert.is_none() => Some(("--etcd-key", "--etcd-cert")),
            None if etcd_user.is_some() && etcd_password_file.is_none() => {
                Some(("--etcd-user", "--etcd-password-file"))
            }
            None if etcd_password_file.is_some() && etcd_user.is_none() => {
                Some(("--etcd-password-file", "--etcd-user"))
            }
            None => None,
        }
    }
}

/// Parses a name that is a part of etcd's keys.
///
/// # Errors
/// It is empty, too long, or has a slash or a control character.
pub fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c != '/' && !c.is_control();
    match text.len() {
        1..=NAME_BYTES_MAX if text.chars().all(is_plain) => Ok(text.to_owned()),
        _ => Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes, without / and control characters")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn incomplete(words: &[&str]) -> Option<(&'static str, &'static str)> {
        let words = [&["etcd"], words].concat();
        let matches = EtcdArgs::augment_args(Command::new("etcd")).try_get_matches_from(words).unwrap();
        EtcdArgs::from_arg_matches(&matches).unwrap().incomplete()
    }

    #[test]
    fn an_option_that_needs_another_one_is_found() {
        assert_eq!(incomplete(&[]), None);
        assert_eq!(incomplete(&["--etcd", "http://a,http://b", "--cluster", "prod"]), None);
        assert_eq!(incomplete(&["--cluster", "prod"]), Some(("--cluster", "--etcd")));
        assert_eq!(incomplete(&["--etcd", "u", "--etcd-key", "k"]), Some(("--etcd-key", "--etcd-cert")));
        assert_eq!(
            incomplete(&["--etcd", "u", "--etcd-user", "u"]),
            Some(("--etcd-user", "--etcd-password-file"))
        );
    }
}
