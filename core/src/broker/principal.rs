//! Principals: the authenticated identity of a client.

use std::sync::Arc;

use super::address::address;
use crate::net::certificate::{Attribute, Certificate};

/// The identity that a client has authenticated as; the default is an anonymous client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// The user of a password, or the owner of a token.
    pub user: Option<Arc<str>>,
    /// The attributes of the subject of the client's certificate, in their order.
    pub attributes: Arc<[Attribute]>,
    /// The alternative names of the certificate: `DNS`, `IP`, `URI` and `email`.
    pub alternatives: Arc<[Attribute]>,
    /// The attributes of the certificate's issuer, with the prefix `issuer.`: a subject is unique for one CA only.
    pub issuer: Arc<[Attribute]>,
}

impl Principal {
    /// Returns the principal of a verified certificate, without a user.
    #[must_use]
    pub fn of_certificate(certificate: Certificate) -> Self {
        let Certificate { subject, subject_alt_names, issuer, .. } = certificate;
        Self {
            user: None,
            attributes: subject.into(),
            alternatives: subject_alt_names.into(),
            issuer: issuer.into_iter().map(|(name, value)| (format!("issuer.{name}"), value)).collect(),
        }
    }

    /// Whether the client is not anonymous.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.user.is_some() || !self.certificate_name().is_empty()
    }

    /// Whether both are the same user or, if neither has one, have certificates with the same name from the same issuer.
    ///
    /// Several CAs may be trusted, and each may issue a certificate for any name. Names of issuers are compared, not keys:
    /// a renewed certificate stays the same principal, also if the CA's key has been renewed.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_same_certificate =
            || self.certificate_name() == other.certificate_name() && self.issuer == other.issuer;
        self.user == other.user && (self.user.is_some() || is_same_certificate())
    }

    /// Returns bytes that two principals share exactly if they are the same: see [`Principal::is_same_as`]. They are empty
    /// for an anonymous client.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let mut texts: Vec<&str> = Vec::new();
        match &self.user {
            Some(user) => texts.extend(["user", user]),
            None => {
                let attributes = self.certificate_name().iter().chain(self.issuer.iter());
                texts.extend(attributes.flat_map(|(name, value)| [name.as_str(), value.as_str()]));
            }
        }
        // Names of attributes with and without the prefix of the issuer distinguish both lists; lengths separate the texts.
        texts
            .iter()
            .flat_map(|text| [&(text.len() as u64).to_be_bytes()[..], text.as_bytes()].concat())
            .collect()
    }

    /// Returns whose memory it is that a client takes: the user's, the certificate's or, of anonymous clients, that of the
    /// [`address`](address()).
    #[must_use]
    pub fn owner(&self, remote: &str) -> Arc<str> {
        match &self.user {
            Some(user) => format!("user {user}").into(),
            None => match self.describe() {
                Some(certificate) => format!("certificate {certificate}").into(),
                None => address(remote),
            },
        }
    }

    /// Returns the attributes of the certificate's subject, its alternative names, then the attributes of its issuer.
    pub fn certificate_attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().chain(self.alternatives.iter()).chain(self.issuer.iter())
    }

    /// Returns the subject of the certificate, or its alternative names if the subject is empty (RFC 5280, 4.1.2.6).
    fn certificate_name(&self) -> &[Attribute] {
        if self.attributes.is_empty() { &self.alternatives } else { &self.attributes }
    }

    /// Returns user and certificate as text, not escaped; None for an anonymous client.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        let attributes = self.certificate_name().iter().map(|(name, value)| format!("{name}={value}"));
        let parts: Vec<String> = self.user.iter().map(|user| user.to_string()).chain(attributes).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_principal_is_its_user_and_its_certificate() {
        let attributes = [("CN".to_owned(), "press 7".to_owned()), ("O".to_owned(), "Werk".to_owned())];
        let alternatives: Arc<[Attribute]> = [("URI".to_owned(), "spiffe://werk/press".to_owned())].into();
        let user = Some("ann".into());
        let issuer = Arc::default();
        let principal = Principal { user, attributes: attributes.into(), alternatives, issuer };
        assert_eq!(principal.describe().as_deref(), Some("ann, CN=press 7, O=Werk"));
        let without_subject = Principal { user: None, attributes: Arc::default(), ..principal };
        assert_eq!(without_subject.describe().as_deref(), Some("URI=spiffe://werk/press"));
        assert!(without_subject.is_authenticated() && !without_subject.is_same_as(&Principal::default()));
        assert_eq!(Principal::default().describe(), None);
    }

    #[test]
    fn a_user_is_the_same_with_any_certificate_and_without_a_user_the_certificate_decides() {
        let principal = |user: Option<&str>, name: &str| Principal {
            user: user.map(Into::into),
            attributes: [("CN".to_owned(), name.to_owned())].into(),
            ..Principal::default()
        };
        assert!(principal(Some("ann"), "a").is_same_as(&principal(Some("ann"), "b")));
        assert!(!principal(Some("ann"), "a").is_same_as(&principal(Some("bob"), "a")));
        assert!(!principal(Some("ann"), "a").is_same_as(&principal(None, "a")));
        assert!(principal(None, "a").is_same_as(&principal(None, "a")));
        assert!(!principal(None, "a").is_same_as(&principal(None, "b")));
        assert!(!principal(None, "a").is_same_as(&Principal::default()));
        assert!(principal(None, "a").is_authenticated() && !Principal::default().is_authenticated());
    }

    #[test]
    fn the_same_name_from_another_issuer_is_another_principal() {
        let principal = |user: Option<&str>, issuer: &str| {
            let certificate = Certificate {
                subject: vec![("CN".to_owned(), "press".to_owned())],
                subject_alt_names: Vec::new(),
                issuer: vec![("CN".to_owned(), issuer.to_owned())],
                host_names: Vec::new(),
                not_before_s: 0,
                not_after_s: 1,
                is_ca: false,
                is_for_servers: true,
            };
            Principal { user: user.map(Into::into), ..Principal::of_certificate(certificate) }
        };
        assert!(principal(None, "CA 1").is_same_as(&principal(None, "CA 1")));
        assert!(!principal(None, "CA 1").is_same_as(&principal(None, "CA 2")));
        assert!(principal(Some("ann"), "CA 1").is_same_as(&principal(Some("ann"), "CA 2")));
        let of = principal(None, "CA 1");
        let attributes: Vec<_> = of.certificate_attributes().map(|(name, _)| name.as_str()).collect();
        assert_eq!(attributes, ["CN", "issuer.CN"]);
    }
}
