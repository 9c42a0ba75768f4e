//! Precedence and errors of settings: options, contexts in a file, variables.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::common::{Place, Server};

const FILE: &str = ".config/mqkv/config.toml";

/// A directory with a configuration file.
fn configured(text: impl AsRef<[u8]>) -> Place {
    let place = Place::new();
    write(&place, text);
    place
}

fn write(place: &Place, text: impl AsRef<[u8]>) {
    fs::create_dir_all(place.path(".config/mqkv")).unwrap();
    place.write(FILE, text);
}

/// A server that stores its name under the key `name`.
fn server(place: &Place, name: &str) -> Server {
    let server = Server::start(place, &[]);
    assert_eq!(place.run(&["-b", &server.url(), "set", "name", name]), "--- exit 0\n");
    server
}

/// Reads the name of the server that the settings lead to.
fn get_name(place: &Place, words: &[&str]) -> String {
    place.run(&[&["get", "name"], words].concat())
}

fn is(name: &str) -> String {
    format!("--- stdout\n{name}(no line feed)\n--- exit 0\n")
}

/// Runs a verb and removes the path of the directory from its output.
fn run(place: &Place, words: &[&str]) -> String {
    place.run(words).replace(&format!("{}/", place.folder().display()), "")
}

#[test]
fn the_broker_comes_from_the_highest_layer_that_sets_it() {
    let servers = Place::new();
    let (one, other) = (server(&servers, "one"), server(&servers, "other"));
    let file = format!(
        "default_context = 'one'\n[context.one]\nbroker = '{}'\n[context.other]\nbroker = '{}'\n",
        one.url(),
        other.url()
    );
    let (one_port, other_port) = (one.port().to_string(), other.port().to_string());
    let place = || configured(&file);
    let pod = |place: Place, port: &str| {
        place
            .with_variable("AIO_BROKER_HOSTNAME", "127.0.0.1")
            .with_variable("AIO_BROKER_TCP_PORT", port)
            .with_variable("AIO_MQTT_USE_TLS", "false")
    };
    assert_eq!(get_name(&place(), &[]), is("one"), "the default context");
    assert_eq!(get_name(&pod(place(), &other_port), &[]), is("other"), "AIO_* over the default context");
    let named = |place: Place, name| place.with_variable("MQKV_CONTEXT", name);
    assert_eq!(get_name(&named(pod(place(), &other_port), "one"), &[]), is("one"), "MQKV_CONTEXT over AIO_*");
    let broker = |place: Place, server: &Server| place.with_variable("MQKV_BROKER", &server.url());
    let place_of = || broker(named(pod(place(), &one_port), "one"), &other);
    assert_eq!(get_name(&place_of(), &[]), is("other"), "MQKV_BROKER over MQKV_CONTEXT");
    assert_eq!(get_name(&place_of(), &["-x", "one"]), is("one"), "-x over MQKV_BROKER");
    assert_eq!(get_name(&place_of(), &["-x", "one", "-b", &other.url()]), is("other"), "-b over -x");
    assert_eq!(
        get_name(&place_of(), &["-x", "one", "-p", &other_port]),
        is("other"),
        "-p is another port of it"
    );
    assert_eq!(get_name(&broker(named(place(), "one"), &other), &["--no-context"]), is("other"));
}

#[test]
fn inside_a_pod_no_option_is_needed() {
    let servers = Place::new();
    let server = server(&servers, "pod");
    let place = Place::new()
        .with_variable("AIO_BROKER_HOSTNAME", "127.0.0.1")
        .with_variable("AIO_BROKER_TCP_PORT", &server.port().to_string())
        .with_variable("AIO_MQTT_USE_TLS", "false")
        .with_variable("AIO_MQTT_CLIENT_ID", "application")
        .with_variable("AIO_MQTT_SESSION_EXPIRY", "3600");
    assert_eq!(get_name(&place, &[]), is("pod"));
}

#[test]
fn the_default_context_is_ignored_if_the_command_line_has_a_broker() {
    let servers = Place::new();
    let server = server(&servers, "typed");
    let place = configured("default_context = 'a'\n[context.a]\nread_only = true\noutput = 'hex'\n");
    assert_eq!(get_name(&place, &["-b", &server.url()]), is("typed"));
    assert_eq!(place.run(&["set", "k", "v", "-b", &server.url()]), "--- exit 0\n");
    // A file whose settings cannot apply is not read.
    write(&place, "nonsense");
    assert_eq!(get_name(&place, &["-b", &server.url()]), is("typed"));
    assert_eq!(
        get_name(&place, &["-n", "127.0.0.1", "-p", &server.port().to_string(), "--notls"]),
        is("typed")
    );
}

#[test]
fn the_output_format_is_resolved_like_the_connection() {
    let hlc = ["decode", "hlc", "1:2:n"];
    let json = "{\"v\":1,\"op\":\"decode\",\"kind\":\"hlc\",\"time\":\"1970-01-01T00:00:00.001Z\",\"ms\":1,\"counter\":2,\"node\":\"n\"}\n";
    let expected = format!("--- stdout\n{json}--- exit 0\n");
    assert_eq!(Place::new().with_variable("MQKV_OUTPUT", "json").run(&hlc), expected);
    assert_eq!(Place::new().with_variable("MQKV_JSON", "yes").run(&hlc), expected);
    let text = Place::new().run(&hlc);
    assert_eq!(Place::new().with_variable("MQKV_JSON", "1").run(&[&hlc[..], &["-o", "text"]].concat()), text);
    assert_eq!(Place::new().with_variable("MQKV_JSON", "").run(&hlc), text, "an empty variable is none");
}

#[test]
fn an_invalid_value_of_a_variable_is_reported_with_its_name() {
    let place = Place::new().with_variable("MQKV_PORT", "1883a");
    assert_eq!(
        place.run(&["get", "k"]),
        "--- stderr\nerror: MQKV_PORT: expected a number from 1 to 65535, found 1883a\n--- exit 78\n"
    );
    let quoted = Place::new().with_variable("MQKV_BROKER", "\"mqtt://h\"");
    assert_eq!(
        quoted.run(&["get", "k"]),
        "--- stderr\nerror: MQKV_BROKER: unknown scheme \"mqtt://\n\
         hint: remove the quotes: they are part of the value\n--- exit 78\n"
    );
    let place = place.with_variable("MQKV_JSON", "1");
    assert!(place.run(&["get", "k"]).contains("MQKV_PORT"));
    let place = Place::new().with_variable("MQKV_BROKER", "mqtt://ann:hunter2@h");
    let shown = place.run(&["get", "k"]);
    assert!(
        shown.contains("MQKV_BROKER") && shown.ends_with("--- exit 78\n") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn a_mistyped_variable_is_reported_and_variables_of_other_programs_are_not() {
    let hlc = ["decode", "hlc", "1:2:n"];
    let place =
        Place::new().with_variable("MQKV_BROCKER", "mqtt://h").with_variable("MQKV_PASSWORD", "hunter2");
    let shown = place.run(&hlc);
    assert!(shown.contains("warning: unknown variable MQKV_BROCKER; did you mean MQKV_BROKER?\n"), "{shown}");
    assert!(shown.contains("did you mean MQKV_PASSWORD_FILE?") && !shown.contains("hunter2"), "{shown}");
    assert!(!place.run(&["decode", "hlc", "1:2:n", "-q"]).contains("stderr"));
    let names = ["MQKV_KEY", "MQKV_EVENT", "MQKV_SEQ", "MQKV_LOCK_KEY", "MQKV_FENCING_TOKEN", "MQKV_SITE"];
    let place = names.iter().fold(Place::new(), |place, name| place.with_variable(name, "1"));
    assert!(!place.run(&hlc).contains("stderr"), "{}", place.run(&hlc));
}

#[test]
fn an_invalid_setting_in_the_file_is_reported_with_its_line() {
    for (text, message) in [
        ("[context.a]\nread_onyl = true\n", "2: unknown setting read_onyl\nhint: read_only\n"),
        ("[context.a]\nnotls = 'yes'\n", "2: notls: expected true or false, found a text\n"),
        ("[context.a]\nport = 0\n", "2: port: expected a number from 1 to 65535, found 0\n"),
        ("[context.a]\nbroker = 'a/h'\n", "2: broker: the broker is not a URL\n"),
        (
            "[context.a]\nprompt_color = 'reddish'\n",
            "2: prompt_color: expected one of black, red, green, yellow, blue, magenta, cyan, white, one of these \
             after \"bright \", or \"#rrggbb\"\n",
        ),
        (
            "[context.a]\npassword = 'hunter2'\n",
            "2: password: secrets are not accepted in this file\nhint: password_file = \"FILE\"\n",
        ),
    ] {
        let place = configured(text);
        assert_eq!(
            run(&place, &["get", "k"]),
            format!("--- stderr\nerror: {FILE}:{message}--- exit 78\n"),
            "{text}"
        );
    }
    let shown = run(&configured("[context.a]\nbroker = mqtt://h\n"), &["get", "k"]);
    assert!(shown.contains(&format!("error: {FILE}:2:10: ")), "{shown}");
    assert!(shown.contains("\n  broker = mqtt://h\n           ^\n"), "{shown}");
    let shown = run(&configured(b"\n# \xff\n"), &["get", "k", "-j"]);
    assert!(shown.contains("config.toml:2: invalid UTF-8") && shown.contains("\"code\":78"), "{shown}");
}

#[test]
fn a_configuration_file_that_is_a_directory_is_a_file_error() {
    let place = Place::new();
    fs::create_dir_all(place.path(FILE)).unwrap();
    let shown = run(&place, &["get", "k"]);
    assert_eq!(
        shown,
        format!("--- stderr\nerror: cannot read {FILE}: Is a directory (os error 21)\n--- exit 74\n")
    );
}

#[test]
fn an_unknown_context_is_reported_with_the_configuration_file() {
    let place = Place::new();
    assert_eq!(
        run(&place, &["get", "k", "-x", "prod"]),
        format!(
            "--- stderr\nerror: unknown context prod: cannot read {FILE}: No such file or directory (os error 2)\n\
             hint: mqkv context add prod -b URL\n--- exit 78\n"
        )
    );
    write(&place, "[context.prod]\n[context.lab]\n");
    assert_eq!(
        run(&place, &["get", "k", "-x", "prdo"]),
        format!(
            "--- stderr\nerror: unknown context prdo in {FILE}\n  contexts: prod, lab\nhint: prod\n--- exit 78\n"
        )
    );
    let place = place.with_variable("MQKV_CONTEXT", "lba");
    let shown = run(&place, &["get", "k"]);
    assert!(shown.contains("\n  set by MQKV_CONTEXT\nhint: lab\n--- exit 78\n"), "{shown}");
    write(&place, "default_context = 'gone'\n");
    let shown = Place::new();
    write(&shown, "default_context = 'gone'\n");
    assert!(run(&shown, &["get", "k"]).contains("\n  set by default_context\n"));
    assert!(!run(&shown, &["get", "k", "--no-context", "--timeout", "1s"]).contains("gone"));
}

#[test]
fn the_path_of_the_file_comes_from_options_and_variables() {
    let path = |place: &Place, words: &[&str]| {
        let shown = run(place, &[&["config", "path"], words].concat());
        shown.replace("--- stdout\n", "").replace("\n--- exit 0\n", "")
    };
    let place = Place::new();
    assert_eq!(path(&place, &[]), FILE);
    assert_eq!(path(&place, &["--config", "mine.toml"]), "mine.toml");
    let place = place.with_variable("XDG_CONFIG_HOME", "/xdg");
    assert_eq!(path(&place, &[]), "/xdg/mqkv/config.toml");
    let place = place.with_variable("MQKV_CONFIG", "named.toml");
    assert_eq!(path(&place, &[]), "named.toml");
    assert_eq!(
        place.run(&["get", "k"]),
        "--- stderr\nerror: cannot read named.toml: No such file or directory (os error 2)\n  set by MQKV_CONFIG\n--- exit 78\n"
    );
    let shown = place.run(&["config", "path", "-j"]);
    assert_eq!(
        shown,
        "--- stdout\n{\"v\":1,\"op\":\"config\",\"file\":\"named.toml\",\"exists\":false}\n--- exit 0\n"
    );
}

#[test]
fn paths_in_the_file_are_relative_to_its_directory_or_to_home() {
    let place =
        configured("[context.a]\nbroker='mqtts://h'\ncafile='ca'\ncertfile='~/crt'\nkeyfile='/key'\n");
    let shown = run(&place, &["config", "show", "-x", "a"]);
    assert!(shown.contains("cafile\t.config/mqkv/ca\ncertfile\tcrt\nkeyfile\t/key\n"), "{shown}");
}

#[test]
fn every_setting_is_shown_with_its_origin() {
    let place =
        configured("[context.lab]\nhostname = 'h'\nport = 1\nusername = 'ann'\npassword_file = '/p'\n")
            .with_variable("MQKV_RETRIES", "3")
            .with_variable("MQKV_CONTEXT", "lab");
    let shown = run(&place, &["config", "show", "--origin", "-t", "3s"]);
    let expected = format!(
        "--- stdout\nbroker\tmqtts://h:1\tcontext lab, {FILE}:2\n\
         username\tann\tcontext lab, {FILE}:4\n\
         password_file\t/p\tcontext lab, {FILE}:5\n\
         client_id\tmqkv-HOST-RANDOM\tbuilt in\n\
         timeout\t3s\t-t\n\
         connect_timeout\t3s\t-t\n\
         retries\t3\tMQKV_RETRIES\n\
         keep_alive\t10s\tbuilt in\n\
         output\tauto\tbuilt in\n\
         color\tauto\tbuilt in\n--- exit 0\n"
    );
    assert_eq!(shown, expected);
    let shown = run(&place, &["config", "show", "-j"]);
    assert!(shown.contains("{\"v\":1,\"op\":\"config\",\"context\":\"lab\",\"file\":"), "{shown}");
    assert!(shown.contains("\"retries\":{\"value\":3,\"origin\":\"MQKV_RETRIES\"}"), "{shown}");
}

#[test]
fn verbs_without_a_broker_ignore_an_invalid_file() {
    let place = configured("nonsense");
    for words in [
        &["help"][..],
        &["decode", "hlc", "1:2:n"],
        &["config", "path"],
        &["completions", "bash"],
        &["help", "config"],
    ] {
        assert!(place.run(words).ends_with("--- exit 0\n"), "{words:?}");
    }
    assert!(place.run(&["config", "show"]).ends_with("--- exit 78\n"));
    let place = Place::new().with_variable("MQKV_PORT", "x");
    assert!(place.run(&["help"]).ends_with("--- exit 0\n"));
}

#[test]
fn a_secret_file_that_other_users_can_read_is_reported_once() {
    let servers = Place::new();
    let server = server(&servers, "open");
    let place = Place::new();
    place.write("password", "x");
    let words = ["-b", &server.url(), "-u", "ann", "--password-file", "password"];
    let warning = "warning: password contains a secret, and other users can access it (mode 0644): chmod 600 password\n";
    let mode = |mode| fs::set_permissions(place.path("password"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    assert_eq!(get_name(&place, &words).matches(warning).count(), 1, "{}", get_name(&place, &words));
    assert!(!get_name(&place, &[&words[..], &["-q"]].concat()).contains("warning"));
    for json in [&["-j"][..], &["-o", "jsonl"]] {
        let shown = get_name(&place, &[&words[..], json].concat());
        assert!(shown.starts_with("--- stdout\n{") && !shown.contains("warning"), "{shown}");
    }
    mode(0o600);
    assert!(!get_name(&place, &words).contains("warning"));
}
