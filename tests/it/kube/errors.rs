//! Errors on the way to a broker in a cluster: what has failed, why, what to do, and the exit code.

use std::fs;

use super::*;

/// The transcript of a command whose kubectl fails.
fn failed(verb: &str, said: &str) -> String {
    let cluster = Cluster::new();
    cluster.fail(verb, Some(said));
    let shown = cluster.run(&["get", "k", "-b", "kube://plant"]);
    cluster.nothing_runs();
    shown
}

fn forbidden(verb: &str, resource: &str) -> String {
    let object = resource.split('/').next().unwrap();
    format!(
        "{object} \"x\" is forbidden: User \"ann\" cannot {verb} resource \"{resource}\" in API group \"\" in the namespace \
         \"azure-iot-operations\"\n"
    )
}

#[test]
fn a_missing_permission_is_named_with_the_command_that_checks_it() {
    let shown = failed(
        "create",
        &format!("error: failed to create token: {}", forbidden("create", "serviceaccounts/token")),
    );
    assert_eq!(
        shown,
        "--- stderr\n\
         error: forbidden: create serviceaccounts/token in the namespace azure-iot-operations\n  \
         failed to create token: serviceaccounts \"x\" is forbidden: User \"ann\" cannot create resource \
         \"serviceaccounts/token\" in API group \"\" in the namespace \"azure-iot-operations\"\n\
         hint: kubectl auth can-i create serviceaccounts --subresource token --namespace azure-iot-operations --context plant\n\
         hint: without a new token: --sat-file FILE, or -C FILE -K FILE\n\
         --- exit 77\n"
    );
    let shown = failed("get", &format!("Error from server (Forbidden): {}", forbidden("get", "configmaps")));
    assert!(shown.contains("error: forbidden: get configmaps in the namespace"), "{shown}");
    assert!(shown.contains("hint: without the configmap: -T FILE\n--- exit 77\n"), "{shown}");
    for (verb, resource) in [("get", "services"), ("list", "pods"), ("create", "pods/portforward")] {
        let shown = failed(
            "port-forward",
            &format!("error: error upgrading connection: {}", forbidden(verb, resource)),
        );
        assert!(shown.contains(&format!("error: forbidden: {verb} {resource} in the namespace")), "{shown}");
        assert!(shown.ends_with("--- exit 77\n"), "{shown}");
    }
}

#[test]
fn all_permissions_that_are_missing_are_named_at_once() {
    let cluster = Cluster::new();
    cluster.fail("get", Some(&forbidden("get", "configmaps")));
    cluster.fail("create", Some(&forbidden("create", "serviceaccounts/token")));
    cluster.fail("port-forward", Some(&forbidden("create", "pods/portforward")));
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    for missing in ["pods/portforward", "configmaps", "serviceaccounts/token"] {
        assert!(shown.contains(&format!("{missing} in the namespace azure-iot-operations\n")), "{shown}");
    }
    assert!(shown.starts_with("--- stderr\nerror: forbidden: create pods/portforward"), "{shown}");
}

#[test]
fn what_does_not_exist_is_named_with_the_command_that_lists_it() {
    let context = "error: context \"plant\" does not exist\n";
    let cluster = Cluster::new();
    for verb in ["get", "create", "port-forward"] {
        cluster.fail(verb, Some(context));
    }
    assert_eq!(
        cluster.run(&["get", "k", "-b", "kube://plant"]),
        "--- stderr\nerror: kubectl has no context plant\n  context \"plant\" does not exist\nhint: kubectl config get-contexts\n--- exit 78\n"
    );
    for (verb, said, message) in [
        (
            "port-forward",
            "Error from server (NotFound): services \"aio-broker\" not found\n",
            "no service aio-broker",
        ),
        (
            "port-forward",
            "error: Service aio-broker does not have a service port 18883\n",
            "the service aio-broker has no port 18883",
        ),
        (
            "get",
            "Error from server (NotFound): configmaps \"c\" not found\n",
            "no configmap azure-iot-operations-aio",
        ),
        (
            "create",
            "error: failed to create token: serviceaccounts \"default\" not found\n",
            "no service account default",
        ),
    ] {
        let shown = failed(verb, said);
        assert!(
            shown.contains(&format!("error: {message}")) && shown.contains("hint: kubectl get "),
            "{shown}"
        );
        assert!(shown.ends_with("--- exit 69\n"), "{shown}");
    }
    let cluster = Cluster::new();
    cluster.inside.write("ca.pem", "");
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(
        shown.contains("error: the configmap azure-iot-operations-aio-ca-trust-bundle has no ca.crt\n"),
        "{shown}"
    );
    cluster.inside.write("ca.pem", "no certificate\n");
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(
        shown.contains(
            "error: the configmap azure-iot-operations-aio-ca-trust-bundle contains no certificate\n"
        ),
        "{shown}"
    );
}

#[test]
fn without_kubectl_the_error_names_the_variable() {
    let place = Place::new().with_variable("PATH", "/nowhere");
    assert_eq!(
        place.run_bounded(&["get", "k", "-b", "kube:"]),
        "--- stderr\nerror: kubectl not found\nhint: install kubectl, or name the program: MQKV_KUBECTL=FILE\n--- exit 78\n"
    );
    let place = Place::new().with_variable("MQKV_KUBECTL", "/");
    let shown = place.run_bounded(&["get", "k", "-b", "kube:"]);
    assert!(
        shown.starts_with("--- stderr\nerror: cannot run /: ") && shown.ends_with("--- exit 78\n"),
        "{shown}"
    );
}

#[test]
fn a_sign_in_that_is_waited_for_is_shown_at_the_end_of_the_time_limit() {
    let cluster = Cluster::new();
    cluster
        .inside
        .write("slow-create", "To sign in, open https://login.example and enter the code \x1b[2JABCD\n");
    let shown = cluster.run(&["get", "k", "-b", "kube:", "--connect-timeout", "3s"]);
    assert_eq!(
        shown,
        "--- stderr\n\
         error: no answer from kubectl create token within 3s\n  \
         To sign in, open https://login.example and enter the code \\x1B[2JABCD\n\
         hint: to sign in once: kubectl get namespaces\n\
         hint: increase --connect-timeout\n\
         hint: without a new token: --sat-file FILE, or -C FILE -K FILE\n\
         --- exit 124\n"
    );
    let waiting = fs::read_to_string(cluster.inside.path("waiting")).unwrap();
    wait_until("the end of kubectl", || (!is_running(waiting.trim())).then_some(()));
    cluster.nothing_runs();
}

#[test]
fn a_token_that_the_broker_refuses_is_explained_by_account_and_audience() {
    let cluster = Cluster::new();
    cluster.inside.write("token", token_issued_at(mqkv::clock::wall_ms() / 1000, 7200));
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(
        shown.contains("error: aio-broker:18883 rejected the connection: not authorized (0x87)"),
        "{shown}"
    );
    let hint = "hint: check whether the broker accepts the account azure-iot-operations/default: the token is valid for ";
    assert!(shown.contains(hint) && shown.ends_with("--- exit 77\n"), "{shown}");
    let claims = URL_SAFE_NO_PAD.encode(r#"{"aud":"other","sub":"system:serviceaccount:ns:default"}"#);
    cluster.inside.write("token", format!("e30.{claims}.e30"));
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    let hint = "hint: the token is for the audience other; the broker of Azure IoT Operations requires aio-internal\n";
    assert!(shown.contains(hint), "{shown}");
    cluster.inside.write("token", "opaque");
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(
        shown.contains("hint: the token is no JSON Web Token (JWT), as Kubernetes issues them\n"),
        "{shown}"
    );
    // One that no CONNECT can carry.
    cluster.inside.write("token", "x".repeat(70_000));
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(shown.contains("error: kubectl create token has printed no token\n"), "{shown}");
    cluster.inside.write("token", "");
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(shown.contains("error: kubectl create token has printed no token\n"), "{shown}");
}

#[test]
fn a_forward_that_leads_nowhere_is_an_error_of_the_connection() {
    let cluster = Cluster::new();
    cluster.inside.write("server", "1");
    let shown = cluster.run(&["get", "k", "-b", "kube:"]);
    assert!(shown.contains("aio-broker:18883") && shown.ends_with("--- exit 69\n"), "{shown}");
    cluster.nothing_runs();
}

#[test]
fn what_cannot_be_combined_with_a_cluster_is_refused() {
    let cluster = Cluster::new();
    for (words, message) in [
        (&["get", "k", "-b", "kube:", "--notls"][..], "error: kube:// contradicts --notls\n"),
        (&["get", "k", "-b", "kube:plant"], "error: two slashes are missing after kube:\n"),
        (&["get", "k", "-b", "kube://p/ns/svc/more"], "error: more than three parts in the URL kube://…\n"),
        (&["store", "-b", "kube:"], "error: store needs a broker that this machine reaches, not kube:\n"),
    ] {
        let shown = cluster.run(words);
        assert!(shown.contains(message) && shown.ends_with("--- exit 2\n"), "{shown}");
    }
    assert_eq!(cluster.calls(), Vec::<String>::new());
}
