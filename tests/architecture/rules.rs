//! Tables of the architecture: allowed imports, pure files, owners of crates, what is known to break the rules.

/// The modules that each top module may import, besides itself. The entry points are named after their files.
pub const IMPORTS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("mqtt", &["protocol"]),
    ("clock", &[]),
    ("random", &[]),
    ("store", &["protocol"]),
    ("exchange", &["protocol", "store"]),
    ("ledger", &["protocol", "store", "exchange", "clock", "random"]),
    ("net", &["clock"]),
    ("client", &["protocol", "mqtt", "net", "clock", "random"]),
    ("broker", &["protocol", "mqtt", "net", "clock", "random"]),
    ("server", &["protocol", "mqtt", "clock", "random", "store", "exchange", "ledger", "net", "broker"]),
    ("render", &["protocol"]),
    ("commands", &["protocol", "client", "clock", "random", "render"]),
    ("shell", &["protocol", "client", "commands", "render", "clock", "random"]),
    (
        "cli",
        &[
            "protocol", "mqtt", "clock", "random", "store", "exchange", "ledger", "net", "client", "broker",
            "server", "commands", "render", "shell",
        ],
    ),
    // A server for the tests of applications, whose own client reads and writes keys, and sets those of a seed.
    ("testing", &["protocol", "net", "client", "server", "commands"]),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// Folders that may import another top module besides: a server is a client where it connects to another one.
pub const FOLDER_IMPORTS: &[(&str, &str)] =
    &[("src/server/exchange/", "client"), ("src/server/external/", "client")];

/// Files in an import cycle. This list only shrinks: a row that is no longer needed fails the test.
pub const KNOWN_CYCLES: &[&str] = &[];

/// Files and the top modules that they import against [`IMPORTS`]. This list only shrinks.
pub const KNOWN_IMPORTS: &[(&str, &str)] = &[];

/// Files and folders without I/O, clock, threads, randomness, environment and terminal.
pub const PURE: &[&str] = &[
    "src/protocol/",
    "src/mqtt/",
    "src/store/",
    "src/exchange/",
    "src/ledger/file/codec.rs",
    "src/ledger/file/entry.rs",
    "src/ledger/file/frame.rs",
    "src/ledger/file/mark.rs",
    "src/ledger/file/policy.rs",
    "src/ledger/group.rs",
    "src/ledger/key_state.rs",
    "src/ledger/lowering.rs",
    "src/ledger/queue.rs",
    "src/ledger/record.rs",
    "src/render/",
    "src/client/outgoing_request.rs",
    "src/client/session.rs",
    "src/client/session/",
    "src/client/service/session.rs",
    "src/client/service/window.rs",
    "src/client/watch.rs",
    "src/client/lock.rs",
    "src/broker/wire/topic_aliases.rs",
    "src/broker/wire/busy_poll.rs",
    "src/broker/wire/unfinished_logins.rs",
    "src/broker/routing/retained.rs",
    "src/broker/routing/route.rs",
    "src/broker/session/state_machine.rs",
    "src/broker/routing/shared_subscriptions.rs",
    "src/broker/routing/subscriptions.rs",
    "src/broker/routing/registry.rs",
    "src/broker/routing/registry/",
    "src/broker/publication.rs",
    "src/broker/principal.rs",
    "src/broker/event.rs",
    "src/server/event/",
    "src/commands/bench/bands.rs",
    "src/commands/bench/histogram.rs",
    "src/commands/bench/load.rs",
    "src/commands/bench/record.rs",
    "src/commands/bench/report.rs",
    "src/commands/bench/text.rs",
    "src/commands/monitor/members.rs",
    "src/commands/monitor/record.rs",
    "src/commands/monitor/text.rs",
    "src/commands/monitor/tracker.rs",
    "src/commands/monitor/traffic_event.rs",
    "src/commands/watch/record.rs",
    "src/commands/lock/record.rs",
    "src/commands/exchange/conflict_record.rs",
    "src/commands/exchange/key_record.rs",
    "src/commands/exchange/record.rs",
    "src/commands/exchange/status_record.rs",
    "src/commands/config_record.rs",
    "src/commands/error_text.rs",
    "src/commands/trace.rs",
    "src/commands/trace/",
    "src/commands/lines/answered.rs",
    "src/commands/lines/operators.rs",
    "src/commands/lines/words.rs",
    "src/commands/lines/error_policy.rs",
    "src/commands/lines/window.rs",
    "src/commands/doctor/check.rs",
    "src/commands/doctor/members.rs",
    "src/commands/doctor/record.rs",
    "src/commands/doctor/text.rs",
    "src/cli/config/document.rs",
    "src/cli/config/file.rs",
    "src/cli/config/layers.rs",
    "src/commands/similarity.rs",
    "src/cli/config/origin.rs",
    "src/cli/config/setting.rs",
    "src/cli/config/value.rs",
    "src/cli/config/variables.rs",
    "src/cli/serve/listen_address.rs",
    "src/ledger/etcd/",
    "src/server/cluster/",
    "src/server/etcd/assembly.rs",
    "src/server/etcd/version.rs",
    "src/server/metrics.rs",
    "src/shell/completion/engine.rs",
    "src/shell/completion/line.rs",
    "src/cli/completion/bash_line.rs",
    "src/cli/help/manual.rs",
    "src/cli/help/markdown.rs",
    "src/cli/help/terminal.rs",
    "src/cli/help/text.rs",
    "src/shell/definition.rs",
    "src/shell/rate_limit.rs",
    "src/shell/hint.rs",
    "src/shell/error_hints.rs",
    "src/shell/line.rs",
    "src/shell/backslash.rs",
    "src/shell/prompt.rs",
    "src/shell/redact.rs",
    "src/shell/text.rs",
];

/// Crates that can be replaced, and the only files and folders that may name them.
pub const OWNERS: &[(&str, &[&str])] = &[
    (
        "rumqttc",
        &[
            "src/client/transport.rs",
            "src/client/transport/",
            "src/mqtt/oracle.rs",
            "src/mqtt/encode/tests.rs",
            "src/broker/test_client.rs",
        ],
    ),
    ("tokio_rustls", &["src/net/tls/"]),
    ("x509_cert", &["src/net/certificate.rs"]),
    ("rustls_native_certs", &["src/net/tls/client.rs"]),
    ("pkcs8", &["src/net/tls/files.rs"]),
    ("zeroize", &["src/net/secret.rs"]),
    ("rpassword", &["src/cli/password.rs"]),
    ("tokio_tungstenite", &["src/net/websocket/"]),
    ("futures_util", &["src/net/websocket/stream.rs"]),
    ("argon2", &["src/server/identity/users.rs", "src/server/identity/verified_passwords.rs"]),
    ("subtle", &["src/server/identity/tokens.rs", "src/server/identity/verified_passwords.rs"]),
    ("hyper", &["src/server/operations/admin.rs"]),
    ("hyper_util", &["src/server/etcd/channel.rs", "src/server/operations/admin.rs"]),
    ("http_body_util", &["src/server/operations/admin.rs"]),
    (
        "etcd_client",
        &[
            "src/server/etcd/client.rs",
            "src/server/etcd/error.rs",
            "src/server/etcd/member.rs",
            "src/server/etcd/watch.rs",
        ],
    ),
    ("tonic", &["src/server/etcd/channel.rs", "src/server/etcd/error.rs"]),
    ("sd_notify", &["src/cli/serve/systemd.rs"]),
    ("rustyline", &["src/shell/editor.rs"]),
    ("serde", &["src/render/", "src/commands/", "src/cli/"]),
    ("serde_json", &["src/render/json/", "src/commands/lines/records.rs"]),
    ("hex", &["src/protocol/topic.rs", "src/render/encoding.rs"]),
    ("clap", &["src/commands/", "src/cli/", "src/shell/"]),
    ("jiff", &["src/clock.rs"]),
    ("foldhash", &["src/store/entries.rs"]),
    ("sha2", &["src/exchange/fingerprint.rs"]),
    ("hdrhistogram", &["src/commands/bench/histogram.rs"]),
    ("getrandom", &["src/random.rs"]),
    (
        "nix",
        &[
            "src/commands/process/",
            "src/cli/password.rs",
            "src/cli/descriptors.rs",
            "src/clock.rs",
            "src/broker/wire/busy_poll_stream.rs",
            "src/net/secret.rs",
            "src/net/sent_mark.rs",
        ],
    ),
    ("colored", &["src/render/style.rs"]),
    ("anstream", &["src/cli/report.rs"]),
    ("base64", &["src/render/encoding.rs", "src/server/authorization/policy.rs"]),
    ("saphyr_parser", &["src/server/authorization/yaml.rs"]),
    ("humantime", &["src/commands/duration.rs", "src/render/duration.rs"]),
    ("strsim", &["src/commands/similarity.rs"]),
    ("rustix", &["src/ledger/file/directory.rs", "src/net/detached.rs"]),
    ("terminal_size", &["src/commands/process/stdout.rs"]),
    ("indicatif", &["src/cli/progress.rs"]),
    ("toml_edit", &["src/cli/config/document.rs"]),
];

/// Places that the tables mention before they exist.
pub const PLANNED: &[&str] = &[];

pub const CLOCK_OWNER: &str = "src/clock.rs";
pub const ENVIRONMENT_OWNER: &str = "src/cli/environment.rs";

/// Without tests.
pub const LINES_MAX: usize = 600;

/// Packages that the default build compiles into the binary, on x86_64, and with the feature `cluster`. One more is a decision:
/// see `cargo tree --edges normal`.
pub const PACKAGES_DEFAULT_MAX: usize = 156;
pub const PACKAGES_WITH_CLUSTER_MAX: usize = 189;

/// How far a number of packages may be below its bound: another architecture needs some packages less.
pub const PACKAGES_MAX_SLACK: usize = 3;
