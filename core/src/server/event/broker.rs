//! Rows of the broker's events.

use super::row::{Row, Subject, failure, note};
use super::shown::{As, Shown};
use crate::broker::{Event, address};

pub(super) fn row(event: &Event) -> Row<'_> {
    match event {
        Event::Connected { client_id, remote, principal, session_present } => {
            let (session, shown) =
                if *session_present { ("resumed", "session resumed") } else { ("new", "new session") };
            let principal = principal.as_deref();
            let row = note("connected").about_client(client_id);
            row.text("remote", remote).text("session", session).principal(principal).line(move |out| {
                write!(out, "{} connected from {remote}{}, {shown}", Shown(client_id), As(principal))
            })
        }
        Event::Reauthenticated { client_id } => {
            let row = note("reauthenticated").about_client(client_id);
            row.line(move |out| write!(out, "{} authenticated again", Shown(client_id)))
        }
        Event::Denied { client_id, remote, principal, reason } => {
            let principal = principal.as_deref();
            let row = failure("denied").about(Subject::Address(address(remote)));
            let row = row.shown("client_id", client_id).text("remote", remote).shown("reason", reason);
            row.principal(principal).line(move |out| {
                let (client_id, reason) = (Shown(client_id), Shown(reason));
                write!(out, "{client_id} from {remote}{} rejected: {reason}", As(principal))
            })
        }
        Event::Disconnected { client_id, reason } => {
            let row = note("disconnected").about_client(client_id);
            row.shown("reason", reason)
                .line(move |out| write!(out, "{} disconnected: {}", Shown(client_id), Shown(reason)))
        }
        // The address without what a host can choose: the port and, with IPv6, 64 bits.
        Event::Refused { remote, reason } => {
            let row = failure("refused").about(Subject::Address(address(remote)));
            row.text("remote", remote)
                .shown("reason", reason)
                .line(move |out| write!(out, "connection from {remote} refused: {}", Shown(reason)))
        }
        Event::NotAuthorized { client_id, principal, what, topic } => {
            let principal = principal.as_deref();
            let row = failure("not-authorized").about_client(client_id);
            row.text("what", *what).shown("topic", topic).principal(principal).line(move |out| {
                let (client_id, topic) = (Shown(client_id), Shown(topic));
                write!(out, "{client_id}{} may not {what} {topic}: no rule allows it", As(principal))
            })
        }
        Event::Dropped { client_id, topic, reason } => {
            let row = failure("dropped").about_client(client_id);
            row.shown("topic", topic).shown("reason", reason).line(move |out| {
                write!(out, "message on {} for {} dropped: {reason}", Shown(topic), Shown(client_id))
            })
        }
        Event::NotRetained { topic } => {
            let row = failure("not-retained").about(Subject::Other("messages that are not retained"));
            row.shown("topic", topic).line(move |out| {
                write!(out, "message on {} not retained: too many retained messages", Shown(topic))
            })
        }
        Event::AcceptFailed { reason } => {
            let subject = Subject::Machine("connections that could not be accepted");
            let row = failure("accept-failed").about(subject).shown("reason", reason);
            row.line(move |out| write!(out, "a connection could not be accepted: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Value;
    use super::super::shown::SHOWN_BYTES_MAX;
    use super::*;

    #[test]
    fn text_from_the_network_is_escaped() {
        let event = Event::Disconnected { client_id: "a\x1b[31m\n".into(), reason: "x\ry".to_owned() };
        assert_eq!(row(&event).to_string(), "a\\u{1b}[31m\\n disconnected: x\\ry");
    }

    #[test]
    fn a_client_without_permission_is_named_with_its_user() {
        let principal = Some("ann\n".to_owned());
        let (topic, remote) = ("t".to_owned(), "192.0.2.1:1024".to_owned());
        let (client_id, what) = ("a".into(), "publish to");
        let events = [
            Event::NotAuthorized { client_id, principal: principal.clone(), what, topic },
            Event::Denied { client_id: "a".into(), remote, principal, reason: "no".to_owned() },
        ];
        let texts = events.each_ref().map(|event| row(event).to_string());
        let expected = [
            "a as ann\\n may not publish to t: no rule allows it",
            "a from 192.0.2.1:1024 as ann\\n rejected: no",
        ];
        assert_eq!(texts, expected);
        for event in events {
            assert!(row(&event).fields.contains(&("principal", Value::Text("ann\n".into()))), "{event:?}");
        }
    }

    #[test]
    fn refused_connections_of_one_ipv6_network_have_one_subject() {
        let subject = |remote: &str| {
            let event = Event::Refused { remote: remote.to_owned(), reason: String::new() };
            row(&event).subject.unwrap()
        };
        assert_eq!(subject("[2001:db8::1]:1"), subject("[2001:db8::2]:2"));
        assert_ne!(subject("[2001:db8::1]:1"), subject("[2001:db8:0:1::1]:1"));
        assert_eq!(subject("192.0.2.1:1").to_string(), "192.0.2.1");
    }

    #[test]
    fn a_long_text_from_the_network_is_shortened_and_so_is_the_subject() {
        let long = "\u{e4}".repeat(30_000);
        let event = Event::Dropped { client_id: long.as_str().into(), topic: long.clone(), reason: "r" };
        let shown = format!("{}… (60000 bytes)", "\u{e4}".repeat(256));
        let row = row(&event);
        assert_eq!(row.to_string(), format!("message on {shown} for {shown} dropped: r"));
        let is_short = |(name, value): &(_, Value<'_>)| {
            *value == Value::Text(shown.as_str().into()) || *name == "reason"
        };
        assert!(row.fields.iter().all(is_short));
        assert!(row.subject.unwrap().to_string().len() <= SHOWN_BYTES_MAX);
    }
}
