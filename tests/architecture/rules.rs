//! Tables of the architecture: allowed imports, pure files, owners of crates, what is known to break the rules.

/// The modules that each top module may import, besides itself. The entry points are named after their files.
pub const IMPORTS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("mqtt", &["protocol"]),
    ("platform", &[]),
    ("clock", &["platform"]),
    ("random", &[]),
    ("files", &["platform", "random"]),
    ("store", &["protocol"]),
    ("exchange", &["protocol", "store"]),
    ("ledger", &["protocol", "store", "exchange", "platform", "clock", "random"]),
    ("net", &["files", "platform", "clock"]),
    ("client", &["protocol", "mqtt", "files", "net", "platform", "clock", "random"]),
    ("broker", &["protocol", "mqtt", "net", "platform", "clock", "random"]),
    (
        "server",
        &[
            "protocol", "mqtt", "files", "platform", "clock", "random", "store", "exchange", "ledger", "net",
            "broker",
        ],
    ),
    ("render", &["protocol"]),
    ("commands", &["protocol", "files", "client", "platform", "clock", "random", "render"]),
    ("shell", &["protocol", "client", "commands", "render", "platform", "clock", "random"]),
    (
        "cli",
        &[
            "protocol", "mqtt", "files", "platform", "clock", "random", "store", "exchange", "ledger", "net",
            "client", "broker", "server", "commands", "render", "shell",
        ],
    ),
    // A server for the tests of applications, whose own client reads and writes keys, and sets those of a seed.
    ("testing", &["protocol", "net", "client", "server", "commands"]),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// Folders that may import another top module besides: a server is a client where it connects to another one.
pub const FOLDER_IMPORTS: &[(&str, &str)] =
    &[("core/src/server/exchange/", "client"), ("core/src/server/external/", "client")];

/// Files in an import cycle. This list only shrinks: a row that is no longer needed fails the test.
pub const KNOWN_CYCLES: &[&str] = &[];

/// Files and the top modules that they import against [`IMPORTS`]. This list only shrinks.
pub const KNOWN_IMPORTS: &[(&str, &str)] = &[];

/// Files and folders without I/O, clock, threads, randomness, environment and terminal.
pub const PURE: &[&str] = &[
    "core/src/protocol/",
    "core/src/mqtt/",
    "core/src/store/",
    "core/src/exchange/",
    "core/src/files/text.rs",
    "core/src/ledger/file/codec.rs",
    "core/src/ledger/file/entry.rs",
    "core/src/ledger/file/frame.rs",
    "core/src/ledger/file/mark.rs",
    "core/src/ledger/file/policy.rs",
    "core/src/ledger/group.rs",
    "core/src/ledger/key_state.rs",
    "core/src/ledger/lowering.rs",
    "core/src/ledger/queue.rs",
    "core/src/ledger/record.rs",
    "src/render/",
    "core/src/client/token_claims.rs",
    "core/src/client/outgoing_request.rs",
    "core/src/client/session.rs",
    "core/src/client/session/",
    "core/src/client/service/session.rs",
    "core/src/client/service/window.rs",
    "core/src/client/watch.rs",
    "core/src/client/watch/",
    "core/src/client/lock.rs",
    "core/src/broker/wire/topic_aliases.rs",
    "core/src/broker/wire/busy_poll.rs",
    "core/src/broker/wire/unfinished_logins.rs",
    "core/src/broker/routing/retained.rs",
    "core/src/broker/routing/route.rs",
    "core/src/broker/session/state_machine.rs",
    "core/src/broker/routing/shared_subscriptions.rs",
    "core/src/broker/routing/subscriptions.rs",
    "core/src/broker/routing/registry.rs",
    "core/src/broker/routing/registry/",
    "core/src/broker/publication.rs",
    "core/src/broker/principal.rs",
    "core/src/broker/event.rs",
    "core/src/server/event/",
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
    "src/commands/token_text.rs",
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
    "core/src/ledger/etcd/",
    "core/src/server/cluster/",
    "core/src/server/etcd/assembly.rs",
    "core/src/server/etcd/version.rs",
    "core/src/server/metrics.rs",
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
    ("mqkv_core", &["src/lib.rs"]),
    (
        "rumqttc",
        &[
            "core/src/client/transport.rs",
            "core/src/client/transport/",
            "core/src/mqtt/oracle.rs",
            "core/src/mqtt/encode/tests.rs",
            "core/src/broker/test_client.rs",
        ],
    ),
    ("tokio_rustls", &["core/src/net/tls/"]),
    ("x509_cert", &["core/src/net/certificate.rs"]),
    ("rustls_native_certs", &["core/src/net/tls/client.rs"]),
    ("pkcs8", &["core/src/net/tls/files.rs"]),
    ("zeroize", &["core/src/net/secret.rs"]),
    ("rpassword", &["src/cli/password.rs"]),
    ("tokio_tungstenite", &["core/src/net/websocket/"]),
    ("futures_util", &["core/src/net/websocket/stream.rs"]),
    ("argon2", &["core/src/server/identity/users.rs", "core/src/server/identity/verified_passwords.rs"]),
    ("subtle", &["core/src/server/identity/tokens.rs", "core/src/server/identity/verified_passwords.rs"]),
    ("hyper", &["core/src/server/operations/admin.rs"]),
    ("hyper_util", &["core/src/server/etcd/channel.rs", "core/src/server/operations/admin.rs"]),
    ("http_body_util", &["core/src/server/operations/admin.rs"]),
    (
        "etcd_client",
        &[
            "core/src/server/etcd/client.rs",
            "core/src/server/etcd/error.rs",
            "core/src/server/etcd/member.rs",
            "core/src/server/etcd/watch.rs",
        ],
    ),
    ("tonic", &["core/src/server/etcd/channel.rs", "core/src/server/etcd/error.rs"]),
    ("sd_notify", &["core/src/platform/unix/"]),
    ("rustyline", &["src/shell/editor.rs"]),
    ("serde", &["src/render/", "src/commands/", "src/cli/"]),
    ("serde_json", &["core/src/client/token_claims.rs", "src/render/json/", "src/commands/lines/records.rs"]),
    ("hex", &["core/src/protocol/topic.rs", "src/render/encoding.rs"]),
    ("clap", &["src/commands/", "src/cli/", "src/shell/"]),
    ("jiff", &["core/src/clock.rs"]),
    ("foldhash", &["core/src/store/entries.rs"]),
    ("sha2", &["core/src/exchange/fingerprint.rs"]),
    ("hdrhistogram", &["src/commands/bench/histogram.rs"]),
    ("getrandom", &["core/src/random.rs"]),
    ("nix", &["core/src/platform/"]),
    ("colored", &["src/render/style.rs"]),
    ("anstream", &["src/cli/report.rs"]),
    (
        "base64",
        &[
            "core/src/client/token_claims.rs",
            "core/src/server/authorization/policy.rs",
            "src/render/encoding.rs",
        ],
    ),
    ("saphyr_parser", &["core/src/server/authorization/yaml.rs"]),
    ("humantime", &["src/commands/duration.rs", "src/render/duration.rs"]),
    ("strsim", &["src/commands/similarity.rs"]),
    ("rustix", &["core/src/platform/unix/"]),
    ("windows_sys", &["core/src/platform/windows/"]),
    ("terminal_size", &["src/commands/process/stdout.rs"]),
    ("indicatif", &["src/cli/progress.rs"]),
    ("toml_edit", &["src/cli/config/document.rs"]),
];

/// Places that the tables mention before they exist.
pub const PLANNED: &[&str] = &[];

/// What depends on the operating system.
pub const PLATFORM: &str = "core/src/platform/";
pub const CLOCK_OWNER: &str = "core/src/clock.rs";
pub const ENVIRONMENT_OWNER: &str = "src/cli/environment.rs";

/// Packages that the default build compiles into the binary, on x86_64, and with the feature `cluster`. One more is a decision:
/// see `cargo tree --edges normal`.
pub const PACKAGES_DEFAULT_MAX: usize = 156;
pub const PACKAGES_WITH_CLUSTER_MAX: usize = 189;

/// How far a number of packages may be below its bound: another architecture needs some packages less.
pub const PACKAGES_MAX_SLACK: usize = 3;
