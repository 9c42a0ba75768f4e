//! What the doctor has found, as one array.

use super::object::{Object, line, ms, op, put, put_bytes, put_some};
use crate::commands::duration::rfc3339;
use crate::commands::output::{
    AddressSource, Certificate, CheckResult, ConnackProperties, Detail, Status, TlsHandshake, TrustedRoots,
};
use crate::render::Rendered;
use crate::render::doctor::{hints, message, name_text};

/// Formats all checks; with --quiet, only the failures.
pub(super) fn array(checked: &[CheckResult], quiet: bool) -> Rendered {
    let shown = checked.iter().filter(|checked| !quiet || checked.failure().is_some());
    Rendered::stdout(line(shown.map(object).collect::<Vec<_>>()))
}

fn object(checked: &CheckResult) -> Object {
    let mut object = op("doctor");
    put(&mut object, "check", checked.check.name());
    let status = match &checked.status {
        Status::Ok => "ok",
        Status::Warn(_) => "warn",
        Status::Fail(_) => "fail",
        Status::Skipped(_) => "skipped",
    };
    put(&mut object, "status", status);
    put_some(&mut object, "ms", checked.elapsed.map(ms));
    put(&mut object, "message", message(checked));
    if let Status::Fail(error) = &checked.status {
        put(&mut object, "kind", error.kind.name());
        put(&mut object, "code", error.kind.code());
        if !error.causes.is_empty() {
            put(&mut object, "causes", error.causes.as_slice());
        }
    }
    let hints = hints(&checked.status);
    if !hints.is_empty() {
        put(&mut object, "hint", hints.join("; "));
    }
    put_some(&mut object, "details", checked.detail.as_ref().map(details));
    object
}

fn details(detail: &Detail) -> Object {
    let mut object = Object::new();
    match detail {
        Detail::Addresses { addresses, source } => {
            put(&mut object, "addresses", addresses.as_slice());
            let source = match source {
                AddressSource::Given => "given",
                AddressSource::Loopback => "loopback",
                AddressSource::Resolver => "resolver",
            };
            put(&mut object, "source", source);
        }
        Detail::Tcp { reached, failed } => {
            put_some(&mut object, "reached", reached.as_deref());
            let failed: Vec<_> = failed
                .iter()
                .map(|(address, cause)| {
                    let mut object = Object::new();
                    put(&mut object, "address", address.as_str());
                    put(&mut object, "cause", cause.as_str());
                    object
                })
                .collect();
            put(&mut object, "missed", failed);
        }
        Detail::Tls { handshake, now_s } => put_tls(&mut object, handshake, *now_s),
        Detail::WebSocket { path } => put(&mut object, "path", path.as_str()),
        Detail::Connack { client_id, properties } => put_connack(&mut object, client_id, properties),
        Detail::Subscription { topic, qos } => {
            put(&mut object, "topic", topic.as_str());
            put(&mut object, "qos", *qos);
        }
        Detail::Answer { key } => put_bytes(&mut object, "key", "key_encoding", key.as_bytes()),
        Detail::Clock { ahead_ms, margin_ms } => {
            put(&mut object, "ahead_ms", *ahead_ms);
            put(&mut object, "margin_ms", *margin_ms);
        }
        Detail::Early { is_answered } => put(&mut object, "answered", *is_answered),
        Detail::Etcd { text } => put(&mut object, "etcd", text.as_str()),
        Detail::Notified { set, delete } => {
            put(&mut object, "set_ms", ms(*set));
            put(&mut object, "delete_ms", ms(*delete));
        }
    }
    object
}

fn put_tls(object: &mut Object, handshake: &TlsHandshake, now_s: u64) {
    let TlsHandshake { version, cipher, roots, chain, requests_client_certificate, client_certificate } =
        handshake;
    put_some(object, "version", *version);
    put_some(object, "cipher", cipher.as_deref());
    match roots {
        TrustedRoots::Platform { count } => {
            put(object, "roots", "platform");
            put(object, "roots_count", *count);
        }
        TrustedRoots::File(path) => {
            put(object, "roots", "file");
            put(object, "cafile", path.display().to_string());
        }
        TrustedRoots::Any => put(object, "roots", "any"),
    }
    let certificate = |certificate: &Result<Certificate, _>| match certificate {
        Ok(certificate) => certificate_object(certificate, now_s),
        Err(_) => Object::new(),
    };
    put(object, "chain", chain.iter().map(certificate).collect::<Vec<_>>());
    put(object, "asks_for_client_certificate", *requests_client_certificate);
    put_some(object, "client_certificate", client_certificate.as_ref().map(certificate));
}

fn certificate_object(certificate: &Certificate, now_s: u64) -> Object {
    let mut object = Object::new();
    put(&mut object, "subject", name_text(&certificate.subject));
    put(&mut object, "issuer", name_text(&certificate.issuer));
    put(&mut object, "names", certificate.host_names.as_slice());
    let time = |seconds: u64| rfc3339(seconds.saturating_mul(1000));
    put_some(&mut object, "not_before", time(certificate.not_before_s));
    put_some(&mut object, "not_after", time(certificate.not_after_s));
    put(&mut object, "days_left", certificate.days_left(now_s));
    object
}

fn put_connack(object: &mut Object, client_id: &str, properties: &ConnackProperties) {
    put(object, "client_id", properties.assigned_id.as_deref().unwrap_or(client_id));
    put(object, "client_id_assigned", properties.assigned_id.is_some());
    put(object, "qos_max", properties.qos_max);
    put(object, "retain", properties.retain);
    put_some(object, "packet_bytes_max", properties.packet_bytes_max);
    put(object, "receive_max", properties.receive_max);
    put(object, "session_expiry_s", properties.session_expiry_s);
    put(object, "keep_alive_s", properties.keep_alive.as_secs());
    put(object, "topic_aliases_max", properties.topic_aliases_max);
    put(object, "wildcard_subscriptions", properties.wildcards);
    put(object, "subscription_ids", properties.subscription_ids);
    put(object, "shared_subscriptions", properties.shared_subscriptions);
}
