//! Results of `doctor`, one line per check (pure).

use super::check::{CheckResult, Detail, Status, Warning};
use super::members::name_text;
use crate::client::probe::{AddressSource, ConnackProperties};
use crate::client::{Certificate, TlsHandshake, TrustedRoots};
use crate::commands::token_text;
use crate::render::duration::ms_text;
use crate::render::escape::escape;
use crate::render::style::{Paint, paint};
use crate::render::wrap::wrapped;
use crate::render::{Format, Rendered, Style};

/// The maximum number of names in a list; the others are counted.
const NAMES_MAX: usize = 5;

/// The column in which the message of a check begins on a terminal.
const MESSAGE_COLUMN: usize = 36;

/// Formats the result of a check with its hints; with --quiet only failures.
pub fn text(checked: &CheckResult, style: &Style) -> Rendered {
    if style.quiet && checked.failure().is_none() {
        return Rendered::default();
    }
    let (glyph, word, color) = match &checked.status {
        Status::Ok => ("✓", "ok", Paint::Success),
        Status::Warn(_) => ("!", "warn", Paint::Warning),
        Status::Fail(_) => ("✗", "FAIL", Paint::Error),
        Status::Skipped(_) => ("–", "skipped", Paint::Dim),
    };
    let name = checked.check.name();
    let elapsed = checked.elapsed.map(ms_text);
    let words = line(checked);
    let columns = style.stdout_columns().filter(|_| style.format == Format::Text);
    let mut out = if style.format == Format::Text {
        let judged = paint(&format!("{glyph} {word:<7}"), color, style.color_stdout);
        let words = wrapped(&words, columns, MESSAGE_COLUMN);
        format!("{judged} {name:<13} {:>10}  {words}\n", elapsed.unwrap_or_default())
    } else {
        format!("{word}\t{name}\t{}\t{words}\n", elapsed.unwrap_or_else(|| "-".to_owned()))
    };
    if let Status::Fail(error) = &checked.status {
        for cause in &error.causes {
            out.push_str(&format!("  {}\n", wrapped(&escape(cause.as_bytes()), columns, 2)));
        }
    }
    for hint in hints(&checked.status) {
        let hint = wrapped(&escape(hint.as_bytes()), columns, 8);
        out.push_str(&format!("  {} {hint}\n", paint("hint:", Paint::Hint, style.color_stdout)));
    }
    Rendered::stdout(out)
}

/// Returns the message of a check: the detail if it passed, else the warning, the error or the reason.
pub fn message(checked: &CheckResult) -> String {
    match &checked.status {
        Status::Ok => checked.detail.as_ref().and_then(detail).unwrap_or_default(),
        Status::Warn(advice) => joined(advice.iter().map(|Warning { message, .. }| message.as_str())),
        Status::Fail(error) => error.message.clone(),
        Status::Skipped(why) => why.clone(),
    }
}

pub fn hints(status: &Status) -> Vec<&str> {
    match status {
        Status::Warn(advice) => advice.iter().map(|Warning { hint, .. }| hint.as_str()).collect(),
        Status::Fail(error) => error.hints.iter().map(String::as_str).collect(),
        Status::Ok | Status::Skipped(_) => Vec::new(),
    }
}

/// Returns the line of a check, escaped.
fn line(checked: &CheckResult) -> String {
    let message = message(checked);
    let detail = match checked.status {
        Status::Warn(_) | Status::Fail(_) => checked.detail.as_ref().and_then(detail),
        Status::Ok | Status::Skipped(_) => None,
    };
    let parts = [Some(message), detail];
    escape(joined(parts.iter().flatten().map(String::as_str)).as_bytes())
}

fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.collect::<Vec<_>>().join("; ")
}

fn detail(detail: &Detail) -> Option<String> {
    Some(match detail {
        Detail::Token(token) => token_text::summary(token),
        Detail::Addresses { addresses, source } => addresses_text(addresses, *source),
        Detail::Tcp { reached: Some(reached), failed } if failed.is_empty() => format!("{reached} answers"),
        // The error has the addresses already.
        Detail::Tcp { reached: None, failed } if failed.len() < 2 => return None,
        Detail::Tcp { reached, failed } => {
            let failed: Vec<_> =
                failed.iter().map(|(address, cause)| format!("{address} failed: {cause}")).collect();
            let reached = reached.as_ref().map(|reached| format!("{reached} answers"));
            joined(reached.iter().chain(&failed).map(String::as_str))
        }
        Detail::Tls { handshake, now_s } => tls_text(handshake, *now_s),
        Detail::WebSocket { path } => format!("MQTT over WebSocket at {path}"),
        Detail::Connack { client_id, properties } => connack_text(client_id, properties),
        Detail::Subscription { qos, .. } => format!("QoS {qos} for replies"),
        Detail::Answer { .. } => "the store answers".to_owned(),
        Detail::Clock { ahead_ms, margin_ms } => clock_text(*ahead_ms, *margin_ms),
        Detail::Early { is_answered: true } => "packets before the CONNACK are answered".to_owned(),
        Detail::Etcd { text } if text.is_empty() => return None,
        Detail::Etcd { text } | Detail::Prepared { text } => text.clone(),
        // The warning has it.
        Detail::Early { is_answered: false } => return None,
        Detail::Notified { set, delete } => {
            format!("SET after {}, DEL after {}", ms_text(*set), ms_text(*delete))
        }
    })
}

fn addresses_text(addresses: &[String], source: AddressSource) -> String {
    match source {
        AddressSource::Given => format!("{} (an address, not a name)", addresses.join(" and ")),
        AddressSource::Loopback => format!("{} (localhost)", addresses.join(" and ")),
        AddressSource::Resolver => listed(addresses.to_vec()),
    }
}

fn tls_text(handshake: &TlsHandshake, now_s: u64) -> String {
    let TlsHandshake { version, cipher, roots, chain, requests_client_certificate, client_certificate } =
        handshake;
    let mut parts = Vec::new();
    if let Some(version) = version {
        let cipher = cipher.as_ref().map_or_else(String::new, |cipher| format!(", {cipher}"));
        parts.push(format!("TLS {version}{cipher}"));
    }
    if !chain.is_empty() {
        parts.push(chain_text(chain));
    }
    if let Some(Ok(own)) = chain.first() {
        let names =
            if own.host_names.is_empty() { "no host".to_owned() } else { listed(own.host_names.clone()) };
        parts.push(format!("for {names}"));
        parts.push(days_text(own, now_s));
    }
    parts.push(match roots {
        TrustedRoots::Platform { count: 1 } => "trusted: 1 CA of this machine".to_owned(),
        TrustedRoots::Platform { count } => format!("trusted: {count} CAs of this machine"),
        TrustedRoots::File(path) => format!("trusted: {}", path.display()),
        TrustedRoots::Any => "trusted: any certificate".to_owned(),
    });
    parts.extend(match (client_certificate, requests_client_certificate) {
        // Not reached.
        (_, false) if version.is_none() => None,
        (None, false) => Some("no client certificate requested".to_owned()),
        (None, true) => Some("client certificate requested, none configured".to_owned()),
        (Some(Err(error)), _) => Some(format!("client certificate: {error}")),
        (Some(Ok(own)), asked) => {
            let sent = if *asked { "sent" } else { "not requested" };
            let name = name_text(&own.subject);
            Some(format!("client certificate {name} {sent}, {}", days_text(own, now_s)))
        }
    });
    joined(parts.iter().map(String::as_str))
}

/// Formats the chain as `subject ← issuer ← issuer`, as far as it was sent.
fn chain_text(chain: &[Result<Certificate, impl std::fmt::Display>]) -> String {
    let mut names = Vec::new();
    for certificate in chain {
        match certificate {
            Ok(certificate) => {
                let subject = name_text(&certificate.subject);
                if names.last() != Some(&subject) {
                    names.push(subject);
                }
                names.push(name_text(&certificate.issuer));
            }
            Err(error) => names.push(error.to_string()),
        }
    }
    // A self-signed certificate is listed once.
    names.dedup();
    names.join(" ← ")
}

fn days_text(certificate: &Certificate, now_s: u64) -> String {
    match certificate.days_left(now_s) {
        ..=-1 => "expired".to_owned(),
        1 => "1 day left".to_owned(),
        days => format!("{days} days left"),
    }
}

fn connack_text(client_id: &str, properties: &ConnackProperties) -> String {
    let ConnackProperties { qos_max, packet_bytes_max, receive_max, session_expiry_s, .. } = properties;
    let id = properties.assigned_id.as_deref().unwrap_or(client_id);
    let mut parts = vec![
        format!("accepted as {id}"),
        format!("QoS {qos_max}"),
        packet_bytes_max
            .map_or_else(|| "packets of any size".to_owned(), |max| format!("packets up to {max} bytes")),
        format!("{receive_max} unacknowledged"),
        format!("session expiry {session_expiry_s} s"),
        match properties.keep_alive.as_secs() {
            0 => "no keep-alive".to_owned(),
            seconds => format!("keep-alive {seconds} s"),
        },
        match properties.topic_aliases_max {
            0 => "no topic aliases".to_owned(),
            max => format!("{max} topic aliases"),
        },
    ];
    // Most brokers support these features, so only a missing one is reported.
    let features = [
        (properties.retain, "no retained messages"),
        (properties.wildcards, "no wildcards"),
        (properties.shared_subscriptions, "no shared subscriptions"),
        (properties.subscription_ids, "no subscription ids"),
    ];
    parts.extend(features.iter().filter(|(is_there, _)| !is_there).map(|(_, what)| (*what).to_owned()));
    parts.join(", ")
}

fn clock_text(ahead_ms: i64, margin_ms: u64) -> String {
    const MS_AS_SUCH: u64 = 1000;
    let ahead = if ahead_ms.unsigned_abs() < MS_AS_SUCH {
        format!("{ahead_ms:+} ms")
    } else {
        format!("{:+.1} s", ahead_ms as f64 / 1000.0)
    };
    format!("{ahead} ± {margin_ms} ms against this machine")
}

fn listed(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let mut list: Vec<_> = names.into_iter().take(NAMES_MAX).collect();
    if more > 0 {
        list.push(format!("{more} more"));
    }
    list.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commands::doctor::check::Check;
    use crate::commands::{CommandError, Kind};

    const DAY_S: u64 = 86_400;

    fn formatted(status: Status, detail: Option<Detail>, style: &Style) -> String {
        let elapsed = Some(Duration::from_micros(1234));
        let record = CheckResult { check: Check::Tls, elapsed, detail, status };
        String::from_utf8(text(&record, style).stdout.to_vec()).unwrap()
    }

    fn certificate(subject: &str, issuer: &str) -> Certificate {
        let name = |text: &str| vec![("CN".to_owned(), text.to_owned())];
        Certificate {
            subject_alt_names: Vec::new(),
            subject: name(subject),
            issuer: name(issuer),
            host_names: vec!["a.example".to_owned()],
            not_before_s: 0,
            not_after_s: 12 * DAY_S,
            is_ca: false,
            is_for_servers: true,
        }
    }

    fn handshake() -> TlsHandshake {
        TlsHandshake {
            version: Some("1.3"),
            cipher: Some("SUITE".to_owned()),
            roots: TrustedRoots::Platform { count: 2 },
            chain: vec![Ok(certificate("a\x1b[2J", "mid")), Ok(certificate("mid", "root"))],
            requests_client_certificate: true,
            client_certificate: Some(Ok(certificate("me", "root"))),
        }
    }

    #[test]
    fn a_failure_has_its_hints_and_is_escaped() {
        let error = CommandError::new(Kind::Unavailable, "bad\n").cause("\r").hint("-T FILE");
        let status = Status::Fail(Box::new(error));
        let lines = Style { format: Format::Lines, ..Style::PLAIN };
        assert_eq!(
            formatted(status.clone(), None, &Style::PLAIN),
            "✗ FAIL    tls               1.2 ms  bad\\x0A\n  \\x0D\n  hint: -T FILE\n"
        );
        assert_eq!(
            formatted(status, None, &lines),
            "FAIL\ttls\t1.2 ms\tbad\\x0A\n  \\x0D\n  hint: -T FILE\n"
        );
    }

    #[test]
    fn with_quiet_only_failures_are_printed() {
        let quiet = Style { quiet: true, ..Style::PLAIN };
        let advice = Warning { message: "m".to_owned(), hint: "h".to_owned() };
        assert_eq!(formatted(Status::Ok, None, &quiet), "");
        assert_eq!(formatted(Status::Warn(vec![advice]), None, &quiet), "");
        assert_eq!(formatted(Status::Skipped("why".to_owned()), None, &quiet), "");
        let error = CommandError::new(Kind::Unavailable, "m");
        assert!(formatted(Status::Fail(Box::new(error)), None, &quiet).contains("FAIL"));
    }

    #[test]
    fn a_handshake_has_its_chain_and_the_days_left() {
        let detail = Detail::Tls { handshake: Box::new(handshake()), now_s: 2 * DAY_S };
        let advice = Warning { message: "old".to_owned(), hint: "new".to_owned() };
        assert_eq!(
            formatted(Status::Warn(vec![advice]), Some(detail), &Style::PLAIN),
            "! warn    tls               1.2 ms  old; TLS 1.3, SUITE; CN=a\\x1B[2J ← CN=mid ← CN=root; \
             for a.example; 10 days left; trusted: 2 CAs of this machine; \
             client certificate CN=me sent, 10 days left\n  hint: new\n"
        );
    }

    #[test]
    fn a_long_message_continues_in_its_column_on_a_narrow_terminal() {
        let detail = || Some(Detail::Tls { handshake: Box::new(handshake()), now_s: 2 * DAY_S });
        let narrow = Style { columns: Some(80), ..Style::PLAIN };
        let shown = formatted(Status::Ok, detail(), &narrow);
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
        let indent = " ".repeat(MESSAGE_COLUMN);
        assert!(lines[1..].iter().all(|line| line.starts_with(&indent)), "{shown}");
        assert_eq!(
            lines[0].chars().take(MESSAGE_COLUMN).collect::<String>(),
            "✓ ok      tls               1.2 ms  "
        );
        let in_a_pipe = Style { stdout_is_terminal: false, ..narrow };
        assert_eq!(formatted(Status::Ok, detail(), &in_a_pipe).lines().count(), 1);
    }

    #[test]
    fn a_clock_has_its_margin() {
        assert_eq!(clock_text(-3, 2), "-3 ms ± 2 ms against this machine");
        assert_eq!(clock_text(89_950, 51), "+90.0 s ± 51 ms against this machine");
    }
}
