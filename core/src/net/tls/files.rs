//! Certificates and keys in PEM files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkcs8::EncryptedPrivateKeyInfoRef;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::{PemObject, SectionKind};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsSetupError as Error;
use crate::files::text::{self, EncodingError};
use crate::net::certificate::Certificate;
use crate::net::secret::Secret;

/// More than any bundle of CAs has; a device or an endless pipe must not fill the memory.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The files with a client's certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate and its intermediate CAs.
    pub certfile: PathBuf,
    pub keyfile: PathBuf,
    /// The file with the key's password.
    pub keypasswordfile: Option<PathBuf>,
}

/// The certificate chain and key of a client or server.
#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a certificate with its intermediate CAs, and its key.
    pub(crate) fn load(certfile: &Path, keyfile: &Path, password: Option<&Path>) -> Result<Self, Error> {
        let chain = certificates(certfile)?;
        let password = password.map(password_in).transpose()?;
        Ok(Self { chain, key: key(keyfile, password.as_ref())? })
    }
}

/// CA certificates in memory, PEM. Clones share them.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenCa(Arc<(PathBuf, Vec<u8>)>);

impl GivenCa {
    /// Takes certificates that come from `origin`, which messages name.
    #[must_use]
    pub fn new(origin: &str, pem: &[u8]) -> Self {
        Self(Arc::new((origin.into(), pem.to_vec())))
    }

    /// Returns where they come from.
    pub(crate) fn origin(&self) -> &Path {
        &self.0.0
    }

    /// Parses the certificates.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        certificates_in(self.origin(), &self.0.1)
    }
}

impl fmt::Debug for GivenCa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "GivenCa({})", self.origin().display())
    }
}

/// Returns CA certificates that were read from `path` as those to trust.
pub(crate) fn roots(path: &Path, certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let added = roots.add(certificate.clone());
        added.map_err(|_| Error::invalid(path, "contains an invalid certificate", None))?;
    }
    Ok(roots)
}

/// Returns the first of these files that exists and is not a regular one: a pipe can be read only once, and may block.
pub(crate) fn first_irregular<'a>(mut files: impl Iterator<Item = &'a Path>) -> Option<&'a Path> {
    files.find(|file| file.metadata().is_ok_and(|metadata| !metadata.is_file()))
}

/// Returns whether a certificate file contains the CA's certificate, too: its last certificate is self-signed.
#[must_use]
pub fn contains_ca(path: &Path) -> bool {
    // A pipe cannot be read a second time.
    let last = path.is_file().then(|| certificates(path).ok()?.pop()).flatten();
    last.and_then(|last| Certificate::parse(&last).ok()).is_some_and(|last| last.issuer == last.subject)
}

/// Reads the certificates of a file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    certificates_in(path, read(path)?.bytes())
}

fn certificates_in(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let sections = sections(path, text, "openssl x509 -inform der -in FILE -out FILE.pem")?;
    let has_key = holds(text, ENCRYPTED) || sections.iter().any(|(kind, _)| is_key(*kind));
    let certificates = sections.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    let certificates: Vec<_> = certificates.map(|(_, der)| CertificateDer::from(der)).collect();
    match certificates.is_empty() {
        false => Ok(certificates),
        true if has_key => {
            Err(Error::invalid(path, "contains a key instead of a certificate", Some(SWAPPED)))
        }
        true => Err(Error::invalid(path, "contains no certificate", None)),
    }
}

fn key(path: &Path, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(path)?;
    let text = text.bytes();
    if holds(text, TRADITIONAL_ENCRYPTION) {
        let hint = "openssl pkcs8 -topk8 -in FILE -out FILE.pkcs8";
        return Err(Error::invalid(
            path,
            "contains a key with traditional encryption; PKCS#8 is required",
            Some(hint),
        ));
    }
    let found = |text: &[u8]| {
        let sections = sections(path, text, "openssl pkey -inform der -in FILE -out FILE.pem")?;
        let has_certificate = sections.iter().any(|(kind, _)| *kind == SectionKind::Certificate);
        sections.into_iter().find(|(kind, _)| is_key(*kind)).ok_or_else(|| match has_certificate {
            true => Error::invalid(path, "contains a certificate instead of a key", Some(SWAPPED)),
            false => Error::invalid(path, "contains no key", None),
        })
    };
    match (holds(text, ENCRYPTED), password) {
        (true, None) => Err(Error::invalid(
            path,
            IS_ENCRYPTED,
            Some("-P with a file that contains the password of the key"),
        )),
        // The PEM parser does not know the label of encrypted keys; the section is the same otherwise.
        (true, Some(password)) => decrypt(path, &found(relabeled(text).bytes())?.1, password.bytes()),
        (false, _) => {
            let (kind, der) = found(text)?;
            let broken = || Error::invalid(path, "contains an invalid key", None);
            PrivateKeyDer::from_pem(kind, der).ok_or_else(broken)
        }
    }
}

/// The error of an encrypted key without a password.
pub(super) const IS_ENCRYPTED: &str = "contains an encrypted key";
const SWAPPED: &str = "check whether the certificate file and the key file are swapped";
/// The end of a PEM label.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY-----";
/// A header inside a PEM section (RFC 1421), written by old versions of OpenSSL.
const TRADITIONAL_ENCRYPTION: &str = "Proc-Type: 4,ENCRYPTED";
const BEGIN: &str = "-----BEGIN ";

fn decrypt(path: &Path, der: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    let broken = |_| Error::invalid(path, "contains an invalid encrypted key", None);
    let refused = |_| {
        Error::invalid(
            path,
            "contains a key that the password does not decrypt",
            Some("check the password file of -P"),
        )
    };
    let info = EncryptedPrivateKeyInfoRef::try_from(der).map_err(broken)?;
    let plain = info.decrypt(password).map_err(refused)?;
    Ok(PrivateKeyDer::Pkcs8(plain.as_bytes().to_vec().into()))
}

/// Reads the password in the first line of a file.
fn password_in(path: &Path) -> Result<Secret, Error> {
    let password = read(path)?.first_line().map_err(|error| encoding_error(path, error))?;
    if password.bytes().is_empty() {
        Err(Error::invalid(path, "contains no password", None))
    } else {
        Ok(password)
    }
}

fn sections(path: &Path, text: &[u8], from_der: &'static str) -> Result<Vec<(SectionKind, Vec<u8>)>, Error> {
    /// The first byte of every certificate and key in DER.
    const SEQUENCE: u8 = 0x30;
    if text.trim_ascii().is_empty() {
        return Err(Error::invalid(path, "is empty", None));
    }
    if text.first() == Some(&SEQUENCE) && !holds(text, BEGIN) {
        return Err(Error::invalid(path, "is in DER format; PEM is required", Some(from_der)));
    }
    let sections: Result<_, _> = <(SectionKind, Vec<u8>)>::pem_slice_iter(text).collect();
    sections.map_err(|_| Error::invalid(path, "is malformed PEM", None))
}

fn is_key(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

fn holds(text: &[u8], words: &str) -> bool {
    text.windows(words.len()).any(|window| window == words.as_bytes())
}

fn relabeled(text: &[u8]) -> Secret {
    Secret::new(String::from_utf8_lossy(text).replace(ENCRYPTED, "PRIVATE KEY-----").into_bytes())
}

fn encoding_error(path: &Path, error: EncodingError) -> Error {
    Error::invalid(path, &error.to_string(), Some(&error.hint()))
}

fn read(path: &Path) -> Result<Secret, Error> {
    let text = Secret::read_file(path, FILE_BYTES_MAX)
        .map_err(|error| Error::Unreadable { path: path.to_owned(), cause: error.to_string() })?;
    if text.bytes().len() > FILE_BYTES_MAX {
        return Err(Error::invalid(path, "is larger than 16 MiB", None));
    }
    // The PEM parser takes a line with a byte order mark for text between certificates.
    let unmarked = text::unmarked(text.bytes()).map_err(|error| encoding_error(path, error))?;
    Ok(Secret::new(unmarked.to_vec()))
}
