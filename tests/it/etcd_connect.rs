//! First connections with a real etcd: TLS, users, and what is reported if they fail.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use mqkv::ledger::etcd::operation::EtcdError;
use mqkv::net::{IdentityFiles, Secret, TlsOptions};
use mqkv::server::etcd::{ConnectError, Etcd, EtcdSettings};

use super::common::etcd::{EtcdCluster, connect};
use super::common::pki::Ca;
use super::common::{Place, reserved_port};
use super::etcd_requests::{chained, put, revision_of_applied};

fn settings(endpoints: Vec<String>) -> EtcdSettings {
    EtcdSettings { endpoints, ..EtcdSettings::default() }
}

/// Returns the error and its hint, without the port of the only endpoint.
async fn failure(settings: &EtcdSettings) -> String {
    let error = Etcd::connect(settings).await.unwrap_err();
    let address = settings.endpoints[0].split("//").nth(1).unwrap_or("no address");
    let hint = error.hint().unwrap_or("none");
    format!("{error}; hint: {hint}").replace(address, "ETCD")
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn failed_tls_connections_have_a_cause_and_a_next_step() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    ca.issue(&place, "me", &["me"]);
    Ca::new(&place, "other.pem").issue(&place, "untrusted", &["me"]);
    let file = |name: &str| place.path(name).display().to_string();
    let options = ["--cert-file", &file("server.pem"), "--key-file", &file("server.key")].map(str::to_owned);
    let more = ["--trusted-ca-file", &file("ca.pem"), "--client-cert-auth"].map(str::to_owned);
    let options: Vec<_> = options.iter().chain(&more).map(String::as_str).collect();
    let cluster = EtcdCluster::start_with(&place, 1, "https", &options);
    let with = |ca: &str, identity: Option<&str>| {
        let identity = identity.map(|name| IdentityFiles {
            certfile: place.path(&format!("{name}.pem")),
            keyfile: place.path(&format!("{name}.key")),
            keypasswordfile: None,
        });
        let tls = TlsOptions { cafile: Some(place.path(ca)), identity, ..TlsOptions::default() };
        EtcdSettings { tls, ..settings(cluster.urls()) }
    };
    let etcd = connect(&with("ca.pem", Some("me"))).await;
    revision_of_applied(etcd.txn(&chained("h", 0, vec![put("h", "1")])).await);
    for (settings, expected) in [
        (with("other.pem", Some("me")), "other.pem has signed it; hint: trust the CA"),
        (with("ca.pem", None), "ETCD requires a client certificate; hint: give a client certificate"),
        (with("ca.pem", Some("untrusted")), "ETCD rejected the client certificate: "),
    ] {
        let shown = failure(&settings).await;
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    // Without TLS.
    let plain = settings(vec![cluster.urls()[0].replace("https", "http")]);
    let shown = failure(&plain).await;
    assert!(shown.starts_with("no etcd at ETCD: ") && shown.contains("https://"), "{shown}");
    let contradiction = EtcdSettings { tls: with("ca.pem", None).tls, ..plain };
    assert!(failure(&contradiction).await.contains("has no TLS, but TLS options are given"));
    let missing = failure(&with("missing.pem", None)).await;
    assert!(missing.contains("missing.pem"), "{missing}");
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn endpoints_that_are_no_etcd_are_reported_as_such() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    drop(cluster.client().await);
    // An etcd without TLS closes a connection that begins with a TLS handshake.
    let shown = failure(&settings(vec![cluster.urls()[0].replace("http", "https")])).await;
    assert!(
        shown.starts_with("TLS handshake with ETCD failed: ") && shown.contains("hint: use http://"),
        "{shown}"
    );
    for greeting in ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(greeting.as_bytes());
            }
        });
        let shown = failure(&settings(vec![url])).await;
        assert!(shown.starts_with("no etcd at ETCD: ") && shown.contains("client URL"), "{shown}");
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let impatient = EtcdSettings { request_timeout: Duration::from_millis(300), ..settings(vec![url]) };
    let shown = failure(&impatient).await;
    assert!(shown.contains("etcd at ETCD: no answer after 300ms; hint: check that a majority"), "{shown}");
    let shown = failure(&settings(vec![format!("http://127.0.0.1:{}", reserved_port())])).await;
    assert!(shown.starts_with("connection refused: ETCD; hint: "), "{shown}");
    assert!(
        failure(&settings(vec!["etcd:2379".to_owned()]))
            .await
            .contains("is not of the form https://HOST:PORT")
    );
    assert!(failure(&settings(vec!["http://no-such-host.invalid".to_owned()])).await.contains("hint: check"));
}

#[tokio::test]
#[ignore = "needs Debian's etcd-server"]
async fn users_that_etcd_does_not_accept_are_reported() {
    let place = Place::new();
    let cluster = EtcdCluster::start(&place, 1);
    let etcd = cluster.client().await;
    let as_user = |name: &str, password: &str| {
        let user = Some((name.to_owned(), Secret::new(password.as_bytes().to_vec())));
        EtcdSettings { user, ..settings(cluster.urls()) }
    };
    let shown = failure(&as_user("root", "right")).await;
    assert!(shown.contains("authentication is not enabled; hint: connect without a user"), "{shown}");
    let mut admin = etcd_client::Client::connect(cluster.urls(), None).await.unwrap();
    for user in ["root", "reader"] {
        admin.user_add(user, "right", None).await.unwrap();
    }
    admin.user_grant_role("root", "root").await.unwrap();
    admin.auth_enable().await.unwrap();
    let root = connect(&as_user("root", "right")).await;
    revision_of_applied(root.txn(&chained("h", 0, vec![put("h", "1")])).await);
    for (settings, expected) in [
        (
            as_user("root", "wrong"),
            "authentication failed, invalid user ID or password; hint: check user and password",
        ),
        (as_user("unknown", "right"), "authentication failed, invalid user ID or password; hint: check user"),
        (settings(cluster.urls()), "user name is empty; hint: give a user"),
    ] {
        let shown = failure(&settings).await;
        assert!(shown.starts_with("etcd at ETCD refused the authentication: "), "{shown}");
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    // A user without permissions is accepted; its requests are refused.
    let reader = Etcd::connect(&as_user("reader", "right")).await.unwrap();
    let error = reader.txn(&chained("h", 0, vec![put("h", "2")])).await.unwrap_err();
    assert!(error.to_string().ends_with("permission denied"), "{error}");
    // The client from before has no user.
    let error = etcd.txn(&chained("h", 0, vec![put("h", "2")])).await.unwrap_err();
    assert!(error.to_string().ends_with("user name is empty"), "{error}");
    assert!(matches!(error, EtcdError::Unknown { .. }), "a token may have expired");
    let mut refused = false;
    for _ in 0..20 {
        let error = etcd.txn(&chained("h", 0, vec![put("h", "2")])).await.unwrap_err();
        assert!(error.to_string().ends_with("user name is empty"), "{error}");
        refused |= matches!(error, EtcdError::Refused { .. });
    }
    assert!(refused, "it is reported in the end");
    assert!(matches!(Etcd::connect(&as_user("root", "x")).await, Err(ConnectError::Authentication { .. })));
}
