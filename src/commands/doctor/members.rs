//! Members of the JSON objects of what a check observed, and the text of names (pure).

use serde::{Serialize, Serializer};

use crate::client::probe::{AddressSource, ConnackProperties};
use crate::client::{Certificate, SentToken, TlsHandshake, TokenClaims, TrustedRoots};
use crate::render::duration::rfc3339;

/// Writes the source of addresses.
pub fn source<S: Serializer>(source: &AddressSource, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match source {
        AddressSource::Given => "given",
        AddressSource::Loopback => "loopback",
        AddressSource::Resolver => "resolver",
    })
}

/// Writes addresses with their errors.
pub fn missed<S: Serializer>(failed: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Missed<'a> {
        address: &'a str,
        cause: &'a str,
    }
    serializer.collect_seq(failed.iter().map(|(address, cause)| Missed { address, cause }))
}

/// Writes the claims of a token.
pub fn token<S: Serializer>(token: &SentToken, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Whether it is a JSON Web Token.
        jwt: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<&'a str>,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        audiences: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        issued: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        not_before: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expires: Option<String>,
    }
    let claims = token.claims.as_ref();
    let time = |of: fn(&TokenClaims) -> Option<u64>| claims.and_then(of)?.checked_mul(1000).and_then(rfc3339);
    let members = Members {
        file: token.file.as_ref().map(|file| file.display().to_string()),
        jwt: claims.is_some(),
        subject: claims.and_then(|claims| claims.subject.as_deref()),
        audiences: claims.map(|claims| claims.audiences.as_slice()).unwrap_or_default(),
        issued: time(|claims| claims.issued_s),
        not_before: time(|claims| claims.not_before_s),
        expires: time(|claims| claims.expires_s),
    };
    members.serialize(serializer)
}

pub fn tls<S: Serializer>(handshake: &TlsHandshake, now_s: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cipher: Option<&'a str>,
        #[serde(flatten)]
        roots: Roots,
        chain: Vec<CertificateMembers<'a>>,
        asks_for_client_certificate: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        client_certificate: Option<CertificateMembers<'a>>,
    }
    #[derive(Serialize)]
    #[serde(tag = "roots", rename_all = "lowercase")]
    enum Roots {
        Platform { roots_count: usize },
        File { cafile: String },
        Any,
    }
    let TlsHandshake { version, cipher, roots, chain, requests_client_certificate, client_certificate } =
        handshake;
    let certificate = |certificate| CertificateMembers::of(certificate, *now_s);
    let members = Members {
        version: *version,
        cipher: cipher.as_deref(),
        roots: match roots {
            TrustedRoots::Platform { count } => Roots::Platform { roots_count: *count },
            TrustedRoots::File(path) => Roots::File { cafile: path.display().to_string() },
            TrustedRoots::Any => Roots::Any,
        },
        chain: chain.iter().map(|sent| certificate(sent.as_ref().ok())).collect(),
        asks_for_client_certificate: *requests_client_certificate,
        client_certificate: client_certificate.as_ref().map(|own| certificate(own.as_ref().ok())),
    };
    members.serialize(serializer)
}

/// A certificate, or no members if it is malformed.
#[derive(Serialize)]
#[serde(untagged)]
enum CertificateMembers<'a> {
    WellFormed {
        subject: String,
        issuer: String,
        names: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        not_before: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        not_after: Option<String>,
        days_left: i64,
    },
    Malformed {},
}

impl<'a> CertificateMembers<'a> {
    fn of(certificate: Option<&'a Certificate>, now_s: u64) -> Self {
        let Some(certificate) = certificate else { return Self::Malformed {} };
        let time = |seconds: u64| rfc3339(seconds.saturating_mul(1000));
        Self::WellFormed {
            subject: name_text(&certificate.subject),
            issuer: name_text(&certificate.issuer),
            names: &certificate.host_names,
            not_before: time(certificate.not_before_s),
            not_after: time(certificate.not_after_s),
            days_left: certificate.days_left(now_s),
        }
    }
}

/// Formats a distinguished name, such as `CN=press 7,O=Werk`.
pub fn name_text(attributes: &[(String, String)]) -> String {
    if attributes.is_empty() {
        return "(no name)".to_owned();
    }
    let pairs: Vec<_> = attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(",")
}

/// Writes the properties of a CONNACK.
pub fn connack<S: Serializer>(
    client_id: &str,
    properties: &ConnackProperties,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        client_id: &'a str,
        client_id_assigned: bool,
        qos_max: u8,
        retain: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        packet_bytes_max: Option<u32>,
        receive_max: u16,
        session_expiry_s: u32,
        keep_alive_s: u64,
        topic_aliases_max: u16,
        wildcard_subscriptions: bool,
        subscription_ids: bool,
        shared_subscriptions: bool,
    }
    let members = Members {
        client_id: properties.assigned_id.as_deref().unwrap_or(client_id),
        client_id_assigned: properties.assigned_id.is_some(),
        qos_max: properties.qos_max,
        retain: properties.retain,
        packet_bytes_max: properties.packet_bytes_max,
        receive_max: properties.receive_max,
        session_expiry_s: properties.session_expiry_s,
        keep_alive_s: properties.keep_alive.as_secs(),
        topic_aliases_max: properties.topic_aliases_max,
        wildcard_subscriptions: properties.wildcards,
        subscription_ids: properties.subscription_ids,
        shared_subscriptions: properties.shared_subscriptions,
    };
    members.serialize(serializer)
}
