//! Certificates and keys from local files, in PEM, and what is wrong with those that hold something else.

use std::path::{Path, PathBuf};

use pkcs8::EncryptedPrivateKeyInfoRef;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::{PemObject, SectionKind};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::client::authentication::first_line;
use crate::client::error::TlsSetupError as Error;
use crate::net::certificate::Certificate;
use crate::net::secret::Secret;

/// More than any bundle has; a device or a pipe without an end must not fill the memory.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a client or server shows to the other side.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a certificate, with those that lead to its CA, and its key.
    pub(crate) fn load(certfile: &Path, keyfile: &Path, password: Option<&Path>) -> Result<Self, Error> {
        let chain = certificates(certfile)?;
        let password = password.map(password_in).transpose()?;
        Ok(Self { chain, key: key(keyfile, password.as_ref())? })
    }
}

/// Reads the certificates of CAs.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|_| nonsense(path, "holds a certificate that cannot be read", None))?;
    }
    Ok(roots)
}

/// Whether a file with a certificate has that of its CA in it, too: the last one has signed itself.
#[must_use]
pub fn has_own_ca(path: &Path) -> bool {
    // A pipe has been read by whoever uses the certificate.
    let last = path.is_file().then(|| certificates(path).ok()?.pop()).flatten();
    last.and_then(|last| Certificate::parse(&last).ok()).is_some_and(|last| last.issuer == last.subject)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path)?;
    let text = text.bytes();
    let sections = sections(path, text, "openssl x509 -inform der -in FILE -out FILE.pem")?;
    let has_key = holds(text, ENCRYPTED) || sections.iter().any(|(kind, _)| is_key(*kind));
    let certificates = sections.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    let certificates: Vec<_> = certificates.map(|(_, der)| CertificateDer::from(der)).collect();
    match certificates.is_empty() {
        false => Ok(certificates),
        true if has_key => Err(nonsense(path, "holds a key, where a certificate is wanted", Some(SWAPPED))),
        true => Err(nonsense(path, "holds no certificate", None)),
    }
}

fn key(path: &Path, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(path)?;
    let text = text.bytes();
    if holds(text, ENCRYPTED_IN_AN_OLD_WAY) {
        let hint = "openssl pkcs8 -topk8 -in FILE -out FILE.pkcs8";
        return Err(nonsense(
            path,
            "holds a key that is encrypted in an old way; PKCS#8 is wanted",
            Some(hint),
        ));
    }
    let found = |text: &[u8]| {
        let sections = sections(path, text, "openssl pkey -inform der -in FILE -out FILE.pem")?;
        let has_certificate = sections.iter().any(|(kind, _)| *kind == SectionKind::Certificate);
        sections.into_iter().find(|(kind, _)| is_key(*kind)).ok_or_else(|| match has_certificate {
            true => nonsense(path, "holds a certificate, where a key is wanted", Some(SWAPPED)),
            false => nonsense(path, "holds no key", None),
        })
    };
    match (holds(text, ENCRYPTED), password) {
        (true, None) => Err(nonsense(path, IS_ENCRYPTED, Some("-P with the file of its password"))),
        // Its section differs in the label alone, which the reader of PEM does not know.
        (true, Some(password)) => decrypt(path, &found(relabelled(text).bytes())?.1, password.bytes()),
        (false, _) => {
            let (kind, der) = found(text)?;
            let broken = || nonsense(path, "holds a key that cannot be read", None);
            PrivateKeyDer::from_pem(kind, der).ok_or_else(broken)
        }
    }
}

/// What is wrong with a key that needs a password.
pub(crate) const IS_ENCRYPTED: &str = "holds an encrypted key";
const SWAPPED: &str = "are the files of the certificate and of the key swapped?";
/// How a label ends.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY-----";
/// The header of a section.
const ENCRYPTED_IN_AN_OLD_WAY: &str = "Proc-Type: 4,ENCRYPTED";
const BEGIN: &str = "-----BEGIN ";

fn decrypt(path: &Path, der: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    let broken = |_| nonsense(path, "holds an encrypted key that cannot be read", None);
    let refused =
        |_| nonsense(path, "holds a key that this password does not decrypt", Some("check the file of -P"));
    let info = EncryptedPrivateKeyInfoRef::try_from(der).map_err(broken)?;
    let plain = info.decrypt(password).map_err(refused)?;
    Ok(PrivateKeyDer::Pkcs8(plain.as_bytes().to_vec().into()))
}

/// A password is what stands in the file's first line.
fn password_in(path: &Path) -> Result<Secret, Error> {
    let password = first_line(read(path)?);
    if password.bytes().is_empty() { Err(nonsense(path, "holds no password", None)) } else { Ok(password) }
}

fn sections(path: &Path, text: &[u8], from_der: &'static str) -> Result<Vec<(SectionKind, Vec<u8>)>, Error> {
    /// The beginning of any certificate or key in DER.
    const SEQUENCE: u8 = 0x30;
    if text.trim_ascii().is_empty() {
        return Err(nonsense(path, "is empty", None));
    }
    if text.first() == Some(&SEQUENCE) && !holds(text, BEGIN) {
        return Err(nonsense(path, "is DER, where PEM is wanted", Some(from_der)));
    }
    let sections: Result<_, _> = <(SectionKind, Vec<u8>)>::pem_slice_iter(text).collect();
    sections.map_err(|_| nonsense(path, "is PEM that makes no sense", None))
}

fn is_key(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

fn holds(text: &[u8], words: &str) -> bool {
    text.windows(words.len()).any(|window| window == words.as_bytes())
}

fn relabelled(text: &[u8]) -> Secret {
    Secret::new(String::from_utf8_lossy(text).replace(ENCRYPTED, "PRIVATE KEY-----").into_bytes())
}

fn read(path: &Path) -> Result<Secret, Error> {
    let text = Secret::read_file(path, FILE_BYTES_MAX)
        .map_err(|error| Error::Unreadable { path: path.to_owned(), cause: error.to_string() })?;
    if text.bytes().len() > FILE_BYTES_MAX {
        return Err(nonsense(path, "has more than 16 MiB", None));
    }
    Ok(text)
}

pub(crate) fn nonsense(path: &Path, what: &'static str, hint: Option<&str>) -> Error {
    let path = PathBuf::from(path);
    // The hint is to be typed as it is.
    let hint = hint.map(|hint| hint.replace("FILE", &path.display().to_string()));
    Error::Nonsense { path, what, hint }
}
