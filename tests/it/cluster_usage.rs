//! `--etcd`: options that contradict each other, and an etcd that cannot be used.

use super::common::Place;

#[test]
fn etcd_and_a_data_directory_exclude_each_other() {
    let place = Place::new();
    for verb in ["serve", "store"] {
        let shown = place.run(&[verb, "--etcd", "http://127.0.0.1:1", "--data", "state"]);
        assert!(shown.contains("--etcd") && shown.contains("--data"), "{shown}");
        assert!(shown.ends_with("--- exit 2\n"), "{shown}");
    }
    let alone = place.run(&["serve", "--cluster", "prod"]);
    assert!(alone.contains("--etcd") && alone.ends_with("--- exit 2\n"), "{alone}");
}

#[test]
fn options_of_a_cluster_require_the_urls_of_etcd() {
    let place = Place::new();
    for words in
        [&["serve", "--instance", "a"][..], &["store", "--failover", "1s"], &["serve", "--etcd-user", "u"]]
    {
        let shown = place.run(words);
        assert!(shown.contains(" requires --etcd\n") && shown.ends_with("--- exit 2\n"), "{shown}");
    }
    for words in [&["store", "status"][..], &["store", "status", "--cluster", "prod"]] {
        let shown = place.run(words);
        assert!(shown.contains("etcd") && shown.ends_with("--- exit 2\n"), "{shown}");
    }
    let shown = place.run(&["store", "status", "-b", "mqtt://localhost"]);
    assert!(shown.contains("unexpected argument '-b'") && shown.ends_with("--- exit 2\n"), "{shown}");
}

#[cfg(not(feature = "cluster"))]
#[test]
fn a_build_without_the_feature_names_the_way_to_it_before_it_tries_anything() {
    let place = Place::new();
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    for verb in [&["serve", "--listen", &address][..], &["store"], &["store", "status"]] {
        assert_eq!(
            place.run(&[verb, &["--etcd", "http://127.0.0.1:1"]].concat()),
            "--- stderr\nerror: --etcd: this mqkv was built without support for etcd\n\
             hint: in a clone of mqkv: cargo install --path . --locked --features cluster\n--- exit 2\n",
            "{verb:?}"
        );
    }
}

#[cfg(feature = "cluster")]
mod with_etcd {
    use super::super::common::Place;
    use super::super::common::etcd::EtcdCluster;
    use super::super::common::pki::Ca;

    fn failure(place: &Place, words: &[&str]) -> String {
        let listen = ["serve", "--listen", "127.0.0.1:0"];
        place.run_bounded(&[&listen, words].concat())
    }

    #[test]
    #[ignore = "waits for an etcd that is not there"]
    fn an_etcd_that_is_not_there_ends_the_start_with_its_cause() {
        let place = Place::new();
        let shown = failure(&place, &["--etcd", "http://127.0.0.1:1"]);
        assert!(shown.contains("connection refused: ") && shown.contains("hint: "), "{shown}");
        assert!(shown.ends_with("--- exit 69\n"), "{shown}");
        let shown = failure(&place, &["--etcd", "ftp://127.0.0.1:1"]);
        assert!(shown.contains("is not of the form https://HOST:PORT"), "{shown}");
        assert!(shown.ends_with("--- exit 2\n"), "{shown}");
        let shown = failure(&place, &["--etcd", "http://127.0.0.1:1", "--cluster", "a/b"]);
        assert!(
            shown.contains("without / and control characters") && shown.ends_with("--- exit 2\n"),
            "{shown}"
        );
    }

    #[test]
    #[ignore = "needs Debian's etcd-server"]
    fn an_etcd_that_cannot_be_trusted_ends_the_start_with_its_cause() {
        let place = Place::new();
        Ca::new(&place, "ca.pem").issue(&place, "server", &["127.0.0.1"]);
        Ca::new(&place, "other.pem");
        let file = |name: &str| place.path(name).display().to_string();
        let (certificate, key) = (file("server.pem"), file("server.key"));
        let etcd =
            EtcdCluster::start_with(&place, 1, "https", &["--cert-file", &certificate, "--key-file", &key]);
        let url = etcd.urls().remove(0);
        let shown = failure(&place, &["--etcd", &url, "--etcd-ca", "other.pem"]);
        assert!(
            shown.contains("unknown CA") && shown.contains("hint: ") && shown.contains("--etcd-ca"),
            "{shown}"
        );
        assert!(shown.ends_with("--- exit 69\n"), "{shown}");
        let shown = failure(&place, &["--etcd", &url, "--etcd-ca", "absent.pem"]);
        assert!(shown.contains("absent.pem") && shown.ends_with("--- exit 74\n"), "{shown}");
    }
}
