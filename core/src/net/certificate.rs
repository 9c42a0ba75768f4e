//! X.509 certificates: the fields that identify their owner and their validity. The input is untrusted.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use x509_cert::Certificate as X509;
use x509_cert::der::asn1::{Any, ObjectIdentifier};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, SubjectAltName};
use x509_cert::name::Name;

/// A name's attribute: its type, such as `CN` or `O`, or the OID if it has no short name; and its value, as `#` and
/// hexadecimal digits if it is not text. Neither is escaped.
pub type Attribute = (String, String);

/// The fields of an X.509 certificate, not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// In the order of the certificate.
    pub subject: Vec<Attribute>,
    /// Subject alternative names (RFC 5280, 4.2.1.6) of the types `DNS`, `IP`, `URI` and `email`.
    pub subject_alt_names: Vec<Attribute>,
    pub issuer: Vec<Attribute>,
    /// The DNS names and IP addresses among the subject alternative names.
    pub host_names: Vec<String>,
    /// Start of the validity, in seconds since 1970.
    pub not_before_s: u64,
    /// Last second of the validity, in seconds since 1970.
    pub not_after_s: u64,
    /// Whether its basic constraints allow it to sign certificates.
    pub is_ca: bool,
    /// Whether its extended key usage, if it has one, includes the authentication of a TLS server.
    pub is_for_servers: bool,
}

/// The purpose of a TLS server (RFC 5280, 4.2.1.12).
const ID_KP_SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");

/// The bytes are not a certificate that can be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCertificate;

impl fmt::Display for InvalidCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("invalid X.509 certificate")
    }
}

impl Certificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// The bytes are not a certificate, or violate RFC 5280, for instance with a date before 1970.
    pub fn parse(der: &[u8]) -> Result<Self, InvalidCertificate> {
        let certificate = X509::from_der(der).map_err(|_| InvalidCertificate)?;
        let certificate = certificate.tbs_certificate();
        let extension = certificate.get_extension::<SubjectAltName>().map_err(|_| InvalidCertificate)?;
        let subject_alt_names: Vec<Attribute> = extension
            .map(|(_, SubjectAltName(names))| names.iter().filter_map(alt_name).collect())
            .unwrap_or_default();
        let is_host = |(kind, _): &&Attribute| kind == "DNS" || kind == "IP";
        let constraints = certificate.get_extension::<BasicConstraints>().map_err(|_| InvalidCertificate)?;
        let usage = certificate.get_extension::<ExtendedKeyUsage>().map_err(|_| InvalidCertificate)?;
        let validity = certificate.validity();
        Ok(Self {
            subject: attributes(certificate.subject()),
            issuer: attributes(certificate.issuer()),
            host_names: subject_alt_names.iter().filter(is_host).map(|(_, name)| name.clone()).collect(),
            subject_alt_names,
            not_before_s: validity.not_before.to_unix_duration().as_secs(),
            not_after_s: validity.not_after.to_unix_duration().as_secs(),
            is_for_servers: usage.is_none_or(|(_, ExtendedKeyUsage(of))| of.contains(&ID_KP_SERVER_AUTH)),
            is_ca: constraints.is_some_and(|(_, constraints)| constraints.ca),
        })
    }

    /// Returns its subject as text, not escaped, or its alternative names if the subject is empty (RFC 5280, 4.1.2.6).
    #[must_use]
    pub fn name(&self) -> String {
        let of = if self.subject.is_empty() { &self.subject_alt_names } else { &self.subject };
        of.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
    }

    /// Returns the whole days until it expires, rounded down: negative once it has expired.
    #[must_use]
    pub fn days_left(&self, now_s: u64) -> i64 {
        const DAY_S: i128 = 24 * 60 * 60;
        let left = i128::from(self.not_after_s).saturating_sub(i128::from(now_s));
        // A difference of two u64, divided by 86,400, fits an i64: the conversion cannot fail.
        i64::try_from(left.div_euclid(DAY_S)).unwrap_or(i64::MAX)
    }
}

/// Returns the predicate of a sentence about a certificate with this many days left: "expires in 3 days".
#[must_use]
pub fn expiry_text(days_left: i64) -> String {
    match days_left {
        ..0 => "has expired".to_owned(),
        0 => "expires within a day".to_owned(),
        1 => "expires in 1 day".to_owned(),
        days => format!("expires in {days} days"),
    }
}

fn attributes(name: &Name) -> Vec<Attribute> {
    name.iter().map(|attribute| (short_name(attribute.oid.to_string()), value(&attribute.value))).collect()
}

/// Returns the short name of an attribute type: those of RFC 4514 and those that OpenSSL prints.
fn short_name(oid: String) -> String {
    let name = match oid.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.42" => "GN",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return oid,
    };
    name.to_owned()
}

fn value(value: &Any) -> String {
    let bytes = value.value();
    let text = match value.tag() {
        Tag::Utf8String
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::VisibleString
        | Tag::TeletexString => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
        _ => None,
    };
    text.unwrap_or_else(|| bytes.iter().fold("#".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

fn alt_name(name: &GeneralName) -> Option<Attribute> {
    let (kind, value) = match name {
        GeneralName::DnsName(name) => ("DNS", name.to_string()),
        GeneralName::UniformResourceIdentifier(uri) => ("URI", uri.to_string()),
        GeneralName::Rfc822Name(address) => ("email", address.to_string()),
        GeneralName::IpAddress(address) => {
            let v4 = <[u8; 4]>::try_from(address.as_bytes()).map(|octets| Ipv4Addr::from(octets).to_string());
            let v6 =
                <[u8; 16]>::try_from(address.as_bytes()).map(|octets| Ipv6Addr::from(octets).to_string());
            ("IP", v4.or(v6).ok()?)
        }
        _ => return None,
    };
    Some((kind.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, IsCa, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn pair(name: &str, value: &str) -> Attribute {
        (name.to_owned(), value.to_owned())
    }

    fn der(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let names = ["a.example".to_owned(), "10.1.2.3".to_owned(), "::1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(1975, 1, 1);
        params.not_after = date_time_ymd(4096, 1, 1);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn parse_returns_subject_issuer_names_and_validity() {
        let certificate = Certificate::parse(&der(|params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, "press 7\n");
            params.distinguished_name.push(DnType::OrganizationName, "Werk Süd");
            params.distinguished_name.push(DnType::CustomDnType(vec![1, 2, 3, 4]), "x");
        }))
        .unwrap();
        let subject = [pair("CN", "press 7\n"), pair("O", "Werk Süd"), pair("1.2.3.4", "x")];
        assert_eq!(certificate.subject, subject);
        assert_eq!(certificate.issuer, subject);
        assert_eq!(certificate.host_names, ["a.example", "10.1.2.3", "::1"]);
        let hosts = [pair("DNS", "a.example"), pair("IP", "10.1.2.3"), pair("IP", "::1")];
        assert_eq!(certificate.subject_alt_names, hosts);
        assert_eq!((certificate.not_before_s, certificate.not_after_s), (157_766_400, 67_090_118_400));
        assert!(!certificate.is_ca);
    }

    #[test]
    fn uris_and_mail_addresses_are_alternative_names_but_not_host_names() {
        let certificate = Certificate::parse(&der(|params| {
            let (uri, mail) = ("spiffe://werk/press", "press@werk.example");
            params.subject_alt_names =
                vec![SanType::URI(uri.try_into().unwrap()), SanType::Rfc822Name(mail.try_into().unwrap())];
        }))
        .unwrap();
        let alt_names = [pair("URI", "spiffe://werk/press"), pair("email", "press@werk.example")];
        assert_eq!(certificate.subject_alt_names, alt_names);
        assert!(certificate.host_names.is_empty());
    }

    #[test]
    fn an_expired_certificate_has_negative_days_left() {
        const DAY_S: u64 = 86_400;
        let certificate = Certificate {
            subject_alt_names: Vec::new(),
            subject: Vec::new(),
            issuer: Vec::new(),
            host_names: Vec::new(),
            not_before_s: 0,
            not_after_s: 10 * DAY_S,
            is_ca: false,
            is_for_servers: true,
        };
        let left = |now_s| certificate.days_left(now_s);
        assert_eq!([left(0), left(9 * DAY_S), left(9 * DAY_S + 1), left(10 * DAY_S)], [10, 1, 0, 0]);
        assert_eq!([left(10 * DAY_S + 1), left(11 * DAY_S), left(11 * DAY_S + 1)], [-1, -1, -2]);
    }

    #[test]
    fn a_ca_certificate_is_recognized() {
        let certificate = der(|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
        assert!(Certificate::parse(&certificate).unwrap().is_ca);
    }

    #[test]
    fn binary_values_are_shown_in_hexadecimal_and_utf_16_text_is_decoded() {
        let value_of = |tag, bytes: &[u8]| value(&Any::new(tag, bytes).unwrap());
        assert_eq!(value_of(Tag::BmpString, &[0, b'a', 0x20, 0xAC]), "a€");
        assert_eq!(value_of(Tag::BmpString, &[0]), "#00");
        assert_eq!(value_of(Tag::Utf8String, &[0xFF, 0x0A]), "#ff0a");
        assert_eq!(value_of(Tag::OctetString, b"ab"), "#6162");
    }

    proptest! {
        #[test]
        fn no_input_makes_the_parser_panic(at in 0usize..600, byte in any::<u8>(), len in 0usize..600) {
            let mut bytes = der(|_| {});
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(len.max(at));
            let _ = Certificate::parse(&bytes);
            let _ = Certificate::parse(&bytes[at..]);
        }
    }
}
