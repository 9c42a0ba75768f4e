//! A certificate authority for tests; its certificates are files.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use super::Place;

pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    /// Creates a CA and writes its certificate to this file.
    pub fn new(place: &Place, file: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, file);
        let ca = Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap());
        place.write(file, ca.0.pem());
        ca
    }

    /// Writes NAME.pem and NAME.key: a certificate for these host names, and its key.
    pub fn issue(&self, place: &Place, name: &str, names: &[&str]) {
        self.issue_between(place, name, names, [1975, 4096]);
    }

    /// As [`Self::issue`], valid from the first day of one year to the first day of another.
    pub fn issue_between(&self, place: &Place, name: &str, names: &[&str], years: [i32; 2]) {
        let key = KeyPair::generate().unwrap();
        place.write(&format!("{name}.key"), key.serialize_pem());
        place.write(&format!("{name}.pem"), self.sign(names, years, &key));
    }

    /// As [`Self::issue`], valid for `days` and an hour from now.
    pub fn issue_for_days(&self, place: &Place, name: &str, names: &[&str], days: u64) {
        let key = KeyPair::generate().unwrap();
        place.write(&format!("{name}.key"), key.serialize_pem());
        let now = Duration::from_millis(mqkv::clock::wall_ms());
        let end = date_time_ymd(1970, 1, 1) + now + Duration::from_secs(days * 86_400 + 3600);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(1975, 1, 1), end);
        place.write(&format!("{name}.pem"), params.signed_by(&key, &self.0).unwrap().pem());
    }

    /// Writes NAME.pem only: a certificate for an existing key.
    pub fn issue_for(&self, place: &Place, name: &str, key_pem: &str) {
        let certificate = self.sign(&[name], [1975, 4096], &KeyPair::from_pem(key_pem).unwrap());
        place.write(&format!("{name}.pem"), certificate);
    }

    /// Writes NAME.pem and NAME.key: a certificate as `openssl req -x509` makes it by default, self-signed and one of a CA.
    pub fn self_signed(place: &Place, name: &str, names: &[&str], years: [i32; 2]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        [params.not_before, params.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        place.write(&format!("{name}.key"), key.serialize_pem());
        place.write(&format!("{name}.pem"), params.self_signed(&key).unwrap().pem());
    }

    fn sign(&self, names: &[&str], years: [i32; 2], key: &KeyPair) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        [params.not_before, params.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
        params.signed_by(key, &self.0).unwrap().pem()
    }
}
