//! Invalid command lines: their messages and exit code 2.

use super::common::Place;

/// Runs a command line, split at white space.
fn run(line: &str) -> String {
    Place::new().run(&line.split_whitespace().collect::<Vec<_>>())
}

#[track_caller]
fn assert_usage(line: &str, words: &str) {
    assert_eq!(run(line), format!("--- stderr\n{words}--- exit 2\n"), "mqkv {line}");
}

#[test]
fn a_missing_value_does_not_wait_for_input() {
    assert_usage(
        "set k",
        "error: VALUE is missing\nhint: mqkv set KEY VALUE\n\
         hint: - in place of VALUE reads standard input; '' is the empty value\n",
    );
}

#[test]
fn redis_style_arguments_cause_a_hint() {
    for (word, option) in [("NX", "--nx"), ("nex", "--nex"), ("EX", "--ttl 5s"), ("PX", "--ttl 5000ms")] {
        let words =
            format!("error: unexpected argument '{word}' found\nhint: {option}\nhint: mqkv set --help\n");
        assert_usage(&format!("set k v {word}"), &words);
    }
    assert_usage("holder k NX", "error: unexpected argument 'NX' found\nhint: mqkv holder --help\n");
}

#[test]
fn a_secret_in_a_url_is_not_printed() {
    for line in [
        "serve --listen mqtt://127.0.0.1:0?password=SECRET",
        "serve --listen mqtt://u:SECRET@127.0.0.1:0",
        "serve --listen u:SECRET@127.0.0.1:0",
        "get k -b mqtt://h?password=SECRET",
        "get k -b u:SECRET@h",
        "holder k mqtt://u:SECRET@h",
        "mqtt://u:SECRET@h get k",
        "get k -n u:SECRET@h",
    ] {
        let shown = run(line);
        assert!(shown.ends_with("--- exit 2\n") && !shown.contains("SECRET"), "{line}: {shown}");
    }
}

#[test]
fn an_invalid_number_is_refused_in_plain_words() {
    assert_usage(
        "keys --limit x",
        "error: invalid value 'x' for '--limit <N>': expected a number from 1 to 18446744073709551615\nhint: mqkv keys --help\n",
    );
    assert_usage(
        "watch k -c 0",
        "error: invalid value '0' for '--count <N>': expected a number from 1 to 18446744073709551615\nhint: mqkv watch --help\n",
    );
}

#[test]
fn a_value_that_is_too_large_is_refused_with_its_range() {
    for (line, range) in [
        ("get k --retries 99999999999", "expected a number from 0 to 4294967295"),
        ("serve --connections-max 99999999999999999999", "expected a number from 1 to 4294967295"),
        (
            "set k v --ttl 99999999999999999999s",
            "a time to live is at most 100 years; without --ttl the key does not expire",
        ),
        ("get k --timeout 99999999999999999999s", "a duration is from 1ns to 18446744073709551615s"),
        ("bench --size 999999999999999999999G", "a size is at most 18446744073709551615 bytes"),
    ] {
        let shown = run(line);
        assert!(shown.contains(&format!(": {range}\n")), "{line}: {shown}");
    }
}

#[test]
fn an_option_is_taken_for_a_value_only_where_a_value_can_stand() {
    let tip = "\n  to pass '--x' as a value, use '-- --x'\n";
    for line in ["set k --x", "vdel k --x", "raw SET k --x"] {
        assert!(run(line).contains(tip), "{line}");
    }
    for line in ["get k --x", "set --x", "set k v --x", "keys --x", "watch k --x", "serve --x", "lock k --x"]
    {
        assert!(!run(line).contains("to pass"), "{line}");
    }
}

#[test]
fn the_hint_for_what_another_tool_or_verb_has_works_here() {
    for (line, hint) in [
        ("get --prefix line1/", "a pattern has the keys with a prefix: mqkv export 'line1/*'"),
        ("keys --prefix=line1/", "a pattern has the keys with a prefix: mqkv keys 'line1/*'"),
        ("del --prefix it's", "a pattern has the keys with a prefix: mqkv keys 'PREFIX*'"),
        ("get k --embedded ./dir", "--embedded=./dir"),
        ("set k v --embedded ./dir", "--embedded=./dir"),
        ("version", "mqkv --version"),
        ("decode 1:2:n", "mqkv decode hlc 1:2:n"),
        (
            "decode statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke",
            "mqkv decode topic statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke",
        ),
        ("decode -", "mqkv decode frame -"),
        ("serve 127.0.0.1:1884", "mqkv serve --listen 127.0.0.1:1884"),
        ("set k v EX 30", "--ttl 30s"),
        ("vdel k {\"a\": 1}", "vdel takes one KEY and one VALUE; quote those with blanks"),
        ("serve --listen 127.0.0.1:9 --admin 127.0.0.1:9", "--admin HOST:PORT with another port"),
    ] {
        let shown = run(line);
        assert!(
            shown.contains(&format!("\nhint: {hint}\n")) && shown.ends_with("--- exit 2\n"),
            "{line}: {shown}"
        );
    }
}

#[test]
fn a_host_with_a_port_causes_a_hint() {
    assert_usage("get k -n broker:1883", "error: -n takes a host without a port\nhint: -n broker -p 1883\n");
}

#[test]
fn a_missing_key_argument_is_reported_with_the_usage() {
    assert_usage("get", "error: KEY is missing\nhint: mqkv get KEY...\n");
    assert_usage("del", "error: KEY is missing\nhint: mqkv del KEY...\n");
    assert_usage("", "error: a verb is missing\nhint: mqkv help\n");
}

#[test]
fn missing_arguments_are_named_with_the_usage() {
    let raw = "error: WORD is missing\nhint: mqkv raw WORD...\nhint: mqkv raw --help\n";
    assert_usage("raw", raw);
    assert_usage(
        "serve user add",
        "error: FILE and NAME are missing\nhint: mqkv serve user add FILE NAME\nhint: mqkv serve user add --help\n",
    );
    assert_usage(
        "serve user rm users",
        "error: NAME is missing\nhint: mqkv serve user rm FILE NAME\nhint: mqkv serve user rm --help\n",
    );
}

#[test]
fn serve_refuses_client_options() {
    let listen = "hint: --listen HOST:PORT sets where to listen\n";
    let users = "hint: --users FILE requires a user of this file; mqkv serve user add FILE NAME adds one\n";
    for (typed, option, long, hint) in [
        ("-b mqtt://h:1", "-b", "--broker", listen),
        ("-p 1884", "-p", "--port", listen),
        ("-x prod", "-x", "--context", listen),
        ("-C me.pem", "-C", "--certfile", "hint: --tls-cert FILE sets the server's certificate\n"),
        ("--embedded=d", "--embedded", "--embedded", "hint: --data DIR stores the data in DIR\n"),
        ("--trace", "--trace", "--trace", "hint: --log text logs each connection\n"),
        ("--password-file p", "--password-file", "--password-file", users),
    ] {
        let words = |option: &str, verb: &str| {
            format!("error: unexpected argument '{option}' found\n{hint}hint: mqkv {verb} --help\n")
        };
        // The definition of all verbs parses the options before the verb, the definition of `serve` those after it.
        assert_usage(&format!("serve {typed} --listen 127.0.0.1:0"), &words(option, "serve"));
        assert_usage(&format!("{typed} serve --listen 127.0.0.1:0"), &words(long, "serve"));
        assert_usage(&format!("serve user ls users {typed}"), &words(option, "serve user ls"));
        assert_usage(&format!("serve {typed} --data d --authz a"), &words(option, "serve"));
    }
    for (typed, option) in [("-t 5s", "--timeout"), ("--force-write", "--force-write")] {
        let words = format!("error: unexpected argument '{option}' found\nhint: mqkv serve --help\n");
        assert_usage(&format!("{typed} serve"), &words);
        assert_usage(&format!("{typed} serve --data d --authz a"), &words);
        let shown = run(&format!("serve {typed}"));
        let begin = typed.split(' ').next().unwrap();
        let words = format!("error: unexpected argument '{begin}' found\n");
        assert!(
            shown.contains(&words) && shown.ends_with("hint: mqkv serve --help\n--- exit 2\n"),
            "{shown}"
        );
    }
}

#[test]
fn offline_options_of_serve_name_the_verbs_that_replace_them() {
    for (options, option, hint) in [
        ("--verify", "--verify", "mqkv data verify DIR"),
        ("--salvage", "--salvage", "mqkv data recover DIR"),
        ("--clear-fence k", "--clear-fence", "mqkv data clear-fence DIR KEY"),
        ("--clear-fence --key-hex 6b", "--clear-fence", "mqkv data clear-fence DIR KEY"),
    ] {
        let words =
            format!("error: unexpected argument '{option}' found\nhint: {hint}\nhint: mqkv serve --help\n");
        assert_usage(&format!("serve --data d {options}"), &words);
        assert_usage(&format!("serve {options} --data d"), &words);
    }
}

#[test]
fn verbs_that_do_not_connect_have_no_connection_options() {
    for (line, option, verb) in [
        ("man -b mqtt://h", "-b", "man"),
        ("-b mqtt://h man", "--broker", "man"),
        ("-x prod completions bash", "--context", "completions"),
        ("--insecure help", "--insecure", "help"),
    ] {
        let shown = run(line);
        assert!(
            shown.starts_with(&format!("--- stderr\nerror: unexpected argument '{option}' found\n")),
            "{shown}"
        );
        assert!(shown.ends_with(&format!("hint: mqkv {verb} --help\n--- exit 2\n")), "{shown}");
    }
}

#[test]
fn options_that_exclude_each_other_are_rejected_on_both_sides_of_the_verb() {
    for (line, message) in [
        ("-b mqtt://h get k -n h", "--hostname cannot be used with --broker"),
        ("--embedded get k -p 1", "--embedded cannot be used with --port"),
        ("-x a get k --no-context", "--context cannot be used with --no-context"),
        ("-j get k -o text", "--json cannot be used with --output"),
        ("--sat-file f get k -u u", "--username cannot be used with --sat-file"),
        ("--sat-file f get k -b mqtt://u@h", "--sat-file cannot be used with a user name in the URL"),
    ] {
        let shown = run(line);
        assert!(shown.contains(&format!("error: {message}\n")), "{line}: {shown}");
        assert!(shown.ends_with("--- exit 2\n"), "{line}: {shown}");
    }
}

#[test]
fn an_empty_key_is_refused() {
    let place = Place::new();
    assert_eq!(place.run(&["get", ""]), "--- stderr\nerror: the key is empty\n--- exit 2\n");
}

#[test]
fn a_value_given_twice_is_refused() {
    assert_usage("set -k a b c", "error: more than one value\nhint: mqkv set KEY VALUE\n");
    assert_usage(
        "set a b --value c",
        "error: the argument '[VALUE]' cannot be used with '--value <STR>'\nhint: mqkv set --help\n",
    );
    assert_usage("holder -k a b", "error: more than one key\nhint: mqkv holder KEY\n");
}

#[test]
fn a_host_after_h_is_not_taken_for_help() {
    let words = "error: -h prints help; the host is -n HOST or -b mqtt://HOST\n\
                 hint: mqkv get KEY -n HOST --notls\n";
    assert_usage("-h localhost get k", words);
    assert_usage("get k -h broker.example", words);
    let words = "error: -h prints help; where to listen is --listen HOST:PORT\n\
                 hint: mqkv serve --listen HOST:PORT\n";
    assert_usage("serve -h localhost", words);
}

#[test]
fn an_unknown_verb_gets_a_suggestion() {
    assert_usage("gte k", "error: unknown command 'gte'\nhint: did you mean 'mqkv get'?\nhint: mqkv help\n");
    assert_usage(
        "put k v",
        "error: unknown command 'put'\nhint: did you mean 'mqkv set'?\nhint: mqkv help\n",
    );
    assert_usage("nonsense", "error: unknown command 'nonsense'\nhint: mqkv help\n");
}

#[test]
fn a_time_to_live_needs_a_unit_and_is_not_zero() {
    assert_usage(
        "set k v --ttl 30",
        "error: invalid value '30' for '--ttl <DURATION>': a duration needs a unit, for example 30s\n\
         hint: mqkv set --help\n",
    );
    assert_usage(
        "set k v --ttl 0s",
        "error: invalid value '0s' for '--ttl <DURATION>': a duration must be longer than zero\n\
         hint: mqkv set --help\n",
    );
    assert_usage(
        "set k v --ttl 1us",
        "error: invalid value '1us' for '--ttl <DURATION>': a time to live must be a whole number of milliseconds\n\
         hint: mqkv set --help\n",
    );
}

#[test]
fn conditions_exclude_each_other() {
    assert_usage(
        "set k v --nx --nex",
        "error: the argument '--nx' cannot be used with '--nex'\nhint: mqkv set --help\n",
    );
}

#[test]
fn a_fencing_token_is_parsed_before_connecting() {
    assert_usage(
        "set k v --fence 5",
        "error: invalid value '5' for '--fence <TOKEN>': a timestamp has three parts, \
         MILLISECONDS:COUNTER:NODE\nhint: mqkv set --help\n",
    );
    assert_usage(
        "set k v --fence-env",
        "error: no fencing token for --fence-env: neither MQKV_FENCING_TOKEN_FILE nor MQKV_FENCING_TOKEN is set\n\
         hint: --fence TOKEN\n",
    );
    let place = Place::new().with_variable("MQKV_FENCING_TOKEN", "5");
    assert_eq!(
        place.run(&["del", "k", "--fence-env"]),
        "--- stderr\nerror: invalid fencing token in MQKV_FENCING_TOKEN: a timestamp has three parts, \
         MILLISECONDS:COUNTER:NODE\n--- exit 2\n"
    );
}

#[test]
fn invalid_watch_options_name_the_valid_ones() {
    assert_usage("watch", "error: KEY is missing\nhint: mqkv watch KEY...\n");
    assert_usage(
        "watch k --until gone",
        "error: invalid value for --until: expected set, del or value=STR\n",
    );
    assert_usage(
        "watch k --only set -- cat",
        "error: the argument '--only <KIND>' cannot be used with '[CMD]...'\nhint: mqkv watch --help\n",
    );
    assert_usage(
        "watch k --keep-alive 500ms",
        "error: invalid value '500ms' for '--keep-alive <DURATION>': a keep-alive interval is 1 to 65535 whole seconds\n\
         hint: mqkv watch --help\n",
    );
}

#[test]
fn an_odd_number_of_hexadecimal_digits_is_refused() {
    assert_usage(
        "set k --hex abc",
        "error: invalid value 'abc' for '--hex <HEX>': invalid hexadecimal: the number of digits must be even\n\
         hint: mqkv set --help\n",
    );
}

#[test]
fn a_password_is_never_repeated() {
    assert_usage(
        "get k -b mqtt://user:hunter2@host",
        "error: a password in the URL is not accepted: other users can see it\n",
    );
    assert_usage(
        "get k -n host -P hunter2",
        "error: the file of -P does not exist (its name is not printed: it can be a password)\n",
    );
}

#[test]
fn contradicting_tls_options_are_refused() {
    assert_usage(
        "get k -b mqtts://host --notls",
        "error: mqtts:// contradicts --notls\nhint: -b mqtt://HOST[:PORT] for plain MQTT\n",
    );
    for line in ["get k -T ca", "get k -n host --notls --insecure", "get k --embedded -C c -K k"] {
        assert_usage(
            line,
            "error: -T, -C, -K, -P, --server-name and --insecure require TLS\n\
             hint: -b mqtts://HOST[:PORT], or -n HOST without --notls\n",
        );
    }
    assert_usage(
        "get k -u ann -P secret",
        "error: -T, -C, -K, -P, --server-name and --insecure require TLS\n\
         hint: -P FILE is the password of the key; the password of -u NAME is --password-file FILE\n",
    );
    assert_usage("get k -n host -C c", "error: -C requires its key: -K FILE\n");
    assert_usage("get k -n host -K k", "error: -K requires its certificate: -C FILE\n");
}

#[test]
fn errors_are_json_with_json() {
    assert_usage(
        "set k -j",
        "{\"v\":1,\"error\":{\"kind\":\"usage\",\"code\":2,\"message\":\"VALUE is missing\",\"hints\":\
         [\"mqkv set KEY VALUE\",\"- in place of VALUE reads standard input; '' is the empty value\"],\
         \"retryable\":false}}\n",
    );
    assert_usage(
        "gte -j",
        "{\"v\":1,\"error\":{\"kind\":\"usage\",\"code\":2,\"message\":\"unknown command 'gte'\",\
         \"hints\":[\"did you mean 'mqkv get'?\",\"mqkv help\"],\"retryable\":false}}\n",
    );
}

#[test]
fn an_error_cannot_control_the_terminal() {
    let place = Place::new();
    assert_eq!(
        place.run(&["decode", "topic", "\x1b[2Jx"]),
        "--- stderr\nerror: not a topic of the state store: \\x1B[2Jx\n--- exit 65\n"
    );
}

#[test]
fn an_unreadable_file_exits_with_74() {
    assert_eq!(
        run("set k -f missing"),
        "--- stderr\nerror: cannot read missing: No such file or directory (os error 2)\n--- exit 74\n"
    );
}

#[test]
fn hints_are_about_what_was_typed() {
    assert_usage(
        "set k v EX 10",
        "error: unexpected argument 'EX' found\nhint: --ttl 10s\nhint: mqkv set --help\n",
    );
    let quote = "set takes one KEY and one VALUE; quote those with blanks";
    for (line, found, hint) in [
        ("set my key v", "v", quote),
        ("set a 1 b 2", "b", quote),
        ("set k v --ex=10", "--ex", "--ttl 10s"),
        ("set k v --expire 10m", "--expire", "--ttl DURATION"),
        ("set EX 5 EX 10", "EX", "--ttl 10s"),
        ("watch k --limit 3", "--limit", "use --count N"),
        ("lock k --nowait ./x", "--nowait", "use -w 0 to try once"),
    ] {
        let verb = line.split(' ').next().unwrap();
        let expected =
            format!("error: unexpected argument '{found}' found\nhint: {hint}\nhint: mqkv {verb} --help\n");
        assert_usage(line, &expected);
    }
    assert_usage("set k v XX", "error: unexpected argument 'XX' found\nhint: mqkv set --help\n");
    assert_usage(
        "ttl k",
        "error: unknown command 'ttl'\nhint: the protocol does not report a remaining time; see mqkv help ttl\nhint: mqkv help\n",
    );
    assert_usage("scan", "error: unknown command 'scan'\nhint: did you mean 'mqkv keys'?\nhint: mqkv help\n");
    assert_usage("frobnicate", "error: unknown command 'frobnicate'\nhint: mqkv help\n");
    assert_usage(
        "config set timeout",
        "error: unknown command 'set'\nhint: mqkv context edit, or mqkv context set NAME, changes the file\nhint: mqkv config --help\n",
    );
    assert_usage(
        "batch - --formt jsonl",
        "error: unexpected argument '--formt' found\nhint: did you mean --format?\nhint: mqkv batch --help\n",
    );
    assert_usage(
        "get k --frobnicate",
        "error: unexpected argument '--frobnicate' found\nhint: mqkv get --help\n",
    );
    for format in ["--formt", "--format=json"] {
        let option = format.split('=').next().unwrap();
        assert_usage(
            &format!("get k {format}"),
            &format!(
                "error: unexpected argument '{option}' found\nhint: did you mean --output?\nhint: mqkv get --help\n"
            ),
        );
    }
    assert_usage(
        "context",
        "error: a verb is missing\nhint: mqkv context ls|add|set|rename|use|show|edit|rm|test\nhint: mqkv context --help\n",
    );
    assert_usage(
        "exit-codes",
        "error: unknown command 'exit-codes'\nhint: mqkv help exit-codes\nhint: mqkv help\n",
    );
    assert_usage(
        "help lokcs",
        "error: unknown verb or topic: lokcs\nhint: did you mean 'mqkv help locks'?\nhint: mqkv help\n",
    );
    let place = Place::new();
    let shown = place.run(&["get", "k", "-b", "127.0.0.1:1"]);
    assert!(
        shown.contains("hint: check the port, or start a broker with `mqkv serve --listen 127.0.0.1:1`"),
        "{shown}"
    );
    assert!(place.run(&["help", "ttl"]).contains("no request for it, so other stores do not"));
}

#[test]
fn the_n_of_flock_is_not_taken_for_a_host_silently() {
    let once = "hint: use -w 0 to try once";
    assert_usage(
        "lock -n deploy ./x",
        &format!(
            "error: ./x would be the lock, at the host deploy\n{once}: mqkv lock deploy -w 0 -- ./x\n\
             hint: if it is the lock: mqkv lock -k ./x -n deploy\n"
        ),
    );
    let meaning = "; -n names the host of the broker\n";
    assert_usage(
        "lock -n deploy",
        &format!("error: KEY is missing\n{once}{meaning}hint: mqkv lock KEY [options] [-- CMD ARG...]\n"),
    );
    assert_usage(
        "lock --nonblock deploy ./x",
        &format!("error: unexpected argument '--nonblock' found\n{once}\nhint: mqkv lock --help\n"),
    );
    let place = Place::new();
    for host in ["deploy.invalid", "127.0.0.1"] {
        let shown = place.run(&["lock", "-n", host, "-p", "1", "echo", "hi"]);
        assert!(shown.contains(&format!("\n{once}{meaning}")) && shown.ends_with("exit 69\n"), "{shown}");
        let shown = place.run(&["lock", "--hostname", host, "-p", "1", "echo", "hi"]);
        assert!(!shown.contains(once) && shown.ends_with("exit 69\n"), "{shown}");
    }
}
