//! Content of an exchange file (`serve --exchange FILE`), validated (pure).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::cli::config::document::{Content, Node, Position};
use crate::cli::config::file::{meant, parse, secret_file_of};
use crate::cli::config::origin::{Line, Origin, Rank, Source};
use crate::cli::config::setting::{Setting, Settings};
use crate::cli::config::value::{PathBases, RawValue, Shown};
use crate::cli::connection::{Connection, Process};
use crate::commands::{CommandError, Kind};
use crate::exchange::leaf::{BeforeJoin, JoinPolicy, OnJoin};
use crate::exchange::names::Name;
use crate::exchange::rules::{self, Patterns, RuleError, RuleSource, Rules, Text};

/// A valid exchange file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeFile {
    pub exchange: Name,
    pub node: Name,
    pub role: FileRole,
}

/// The settings of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRole {
    Root {
        rules: Rules,
        /// The lines of the rules.
        lines: Vec<usize>,
        admit: Patterns,
    },
    Leaf {
        /// The connection with the root.
        connection: Box<Connection>,
        join: JoinPolicy,
    },
}

/// A mistake in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mistake {
    /// `None`: something is missing in the whole file.
    at: Option<(usize, usize)>,
    message: String,
}

/// Settings of the connection with the root. The others are those of a verb.
const CONNECTION: [Setting; 12] = [
    Setting::Cafile,
    Setting::Certfile,
    Setting::Keyfile,
    Setting::Keypasswordfile,
    Setting::ServerName,
    Setting::Insecure,
    Setting::Username,
    Setting::PasswordFile,
    Setting::SatFile,
    Setting::Timeout,
    Setting::ConnectTimeout,
    Setting::KeepAlive,
];

const OF_BOTH: [&str; 3] = ["exchange", "node", "role"];
const OF_ROOT: [&str; 2] = ["admit", "rule"];
const OF_LEAF: [&str; 3] = ["root", "on_join", "before_join"];
const OF_RULE: [&str; 3] = ["keys", "change", "leaves"];

impl ExchangeFile {
    /// Parses and validates the text of a file.
    ///
    /// # Errors
    /// All mistakes, each with its line and column.
    pub fn read(path: &Path, text: &[u8], home: Option<&Path>) -> Result<Self, CommandError> {
        let nodes = parse(path, text)?;
        let mut reading = Reading { file: Rc::new(path.to_owned()), home, mistakes: Vec::new() };
        let file = reading.file(&nodes);
        match (file, reading.mistakes.is_empty()) {
            (Some(file), true) => Ok(file),
            _ => Err(of_mistakes(path, reading.mistakes)),
        }
    }
}

/// Reports all mistakes in the order of the file: the first one as the message, the others as causes.
fn of_mistakes(path: &Path, mut mistakes: Vec<Mistake>) -> CommandError {
    mistakes.sort_by(|one, other| (one.at.is_none(), one).cmp(&(other.at.is_none(), other)));
    mistakes.dedup();
    let mut lines = mistakes.into_iter().map(|Mistake { at, message }| match at {
        Some((line, column)) => format!("{}:{line}:{column}: {message}", path.display()),
        None => format!("{}: {message}", path.display()),
    });
    let first = lines.next().unwrap_or_default();
    lines.fold(configuration(first), CommandError::cause)
}

fn configuration(message: String) -> CommandError {
    CommandError::new(Kind::Configuration, message)
}

struct Reading<'a> {
    file: Rc<PathBuf>,
    home: Option<&'a Path>,
    mistakes: Vec<Mistake>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RoleName {
    Root,
    Leaf,
}

impl Reading<'_> {
    fn file(&mut self, nodes: &[Node]) -> Option<ExchangeFile> {
        let role = self.role(nodes);
        for node in nodes {
            self.check_key(node, role);
        }
        let exchange = self.name(nodes, "exchange");
        let node = self.name(nodes, "node");
        let role = match role? {
            RoleName::Root => self.root(nodes),
            RoleName::Leaf => self.leaf(nodes),
        };
        Some(ExchangeFile { exchange: exchange?, node: node?, role: role? })
    }

    fn mistake(&mut self, at: Position, message: impl Into<String>) {
        self.mistakes.push(Mistake { at: Some((at.line, at.column)), message: message.into() });
    }

    fn missing(&mut self, key: &str) {
        self.mistakes.push(Mistake { at: None, message: format!("{key} is missing") });
    }

    fn role(&mut self, nodes: &[Node]) -> Option<RoleName> {
        let node = find(nodes, "role");
        let Some(node) = node else {
            self.missing("role");
            return None;
        };
        match &node.content {
            Content::Text(text) if text == "root" => Some(RoleName::Root),
            Content::Text(text) if text == "leaf" => Some(RoleName::Leaf),
            _ => {
                self.mistake(node.value_at, "role is \"root\" or \"leaf\"");
                None
            }
        }
    }

    /// Rejects a key that the role does not have.
    fn check_key(&mut self, node: &Node, role: Option<RoleName>) {
        let key = node.key.as_str();
        let setting = Setting::of_key(key);
        let is_connection = setting.is_some_and(|setting| CONNECTION.contains(&setting));
        let is_of_leaf = OF_LEAF.contains(&key) || is_connection;
        match role {
            _ if OF_BOTH.contains(&key) => {}
            None if OF_ROOT.contains(&key) || is_of_leaf => {}
            Some(RoleName::Root) if OF_ROOT.contains(&key) => {}
            Some(RoleName::Leaf) if is_of_leaf => {}
            Some(RoleName::Leaf) if OF_ROOT.contains(&key) => {
                self.mistake(
                    node.at,
                    format!("{key} belongs to the file of the root, which sends its rules"),
                );
            }
            Some(RoleName::Root) if is_of_leaf => {
                self.mistake(node.at, format!("{key} belongs to the file of a leaf"));
            }
            _ if secret_file_of(key).is_some() => {
                let file = secret_file_of(key).map(Setting::key).unwrap_or_default();
                let message =
                    format!("{key}: secrets are not accepted in this file; write {file} = \"FILE\"");
                self.mistake(node.at, message);
            }
            _ if matches!(
                setting,
                Some(Setting::Broker | Setting::Hostname | Setting::Port | Setting::Notls)
            ) =>
            {
                self.mistake(
                    node.at,
                    format!("unknown key {key}: root = \"mqtts://HOST[:PORT]\" is the root's address"),
                );
            }
            _ => self.unknown(node, role),
        }
    }

    fn unknown(&mut self, node: &Node, role: Option<RoleName>) {
        let of_role: Vec<String> = match role {
            Some(RoleName::Root) => OF_ROOT.map(str::to_owned).to_vec(),
            Some(RoleName::Leaf) => {
                OF_LEAF.into_iter().chain(CONNECTION.map(Setting::key)).map(str::to_owned).collect()
            }
            None => Vec::new(),
        };
        self.unknown_of(node, of_role.into_iter().chain(OF_BOTH.map(str::to_owned)));
    }

    fn unknown_of(&mut self, node: &Node, names: impl Iterator<Item = String>) {
        let key = node.key.escape_debug();
        let meant =
            meant(&node.key, names).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        self.mistake(node.at, format!("unknown key {key}{meant}"));
    }

    fn name(&mut self, nodes: &[Node], key: &str) -> Option<Name> {
        let Some(node) = find(nodes, key) else {
            self.missing(key);
            return None;
        };
        let name = match &node.content {
            Content::Text(text) => Name::new(text).map_err(|error| error.to_string()),
            other => Err(format!("expected a name, found {}", other.type_name())),
        };
        name.map_err(|error| self.mistake(node.value_at, format!("{key}: {error}"))).ok()
    }

    fn root(&mut self, nodes: &[Node]) -> Option<FileRole> {
        let admit = match find(nodes, "admit") {
            // Mistakes of the rules are reported too.
            Some(node) => self.texts(node).and_then(|texts| {
                let admit = Patterns::parse(&texts, position(node.value_at), "admit");
                admit.map_err(|errors| self.rule_errors(errors)).ok()
            }),
            None => Some(Patterns::default()),
        };
        let (mut sources, mut lines) = (Vec::new(), Vec::new());
        if let Some(node) = find(nodes, "rule") {
            for (at, nodes) in self.tables(node) {
                lines.push(at.line);
                sources.push(self.rule(at, nodes));
            }
        }
        let sources: Vec<RuleSource> = sources.into_iter().flatten().collect();
        let rules = Rules::parse(&sources).map_err(|errors| self.rule_errors(errors)).ok();
        Some(FileRole::Root { rules: rules?, lines, admit: admit? })
    }

    fn rule_errors(&mut self, errors: Vec<RuleError>) {
        for RuleError { at, message } in errors {
            self.mistake(Position { line: at.line, column: at.column }, message);
        }
    }

    /// Returns the tables of an array of tables.
    fn tables<'n>(&mut self, node: &'n Node) -> Vec<(Position, &'n [Node])> {
        let Content::List(elements) = &node.content else {
            self.mistake(node.at, "rule: an array of tables is required: [[rule]]");
            return Vec::new();
        };
        let mut tables = Vec::new();
        for element in elements {
            match &element.content {
                Content::Table(nodes) => tables.push((element.at, nodes.as_slice())),
                other => {
                    self.mistake(element.at, format!("rule: expected a table, found {}", other.type_name()));
                }
            }
        }
        tables
    }

    /// Returns a rule; `None` if it has a mistake that is reported already.
    fn rule(&mut self, at: Position, nodes: &[Node]) -> Option<RuleSource> {
        let before = self.mistakes.len();
        for node in nodes.iter().filter(|node| !OF_RULE.contains(&node.key.as_str())) {
            self.unknown_of(node, OF_RULE.iter().map(ToString::to_string));
        }
        let has_unknown = self.mistakes.len() > before;
        let change = find(nodes, "change").and_then(|node| match &node.content {
            Content::Text(text) => Some(Text { text: text.clone(), at: position(node.value_at) }),
            other => {
                let found = other.type_name();
                self.mistake(node.value_at, format!("change is \"root\" or \"leaves\", found {found}"));
                None
            }
        });
        let keys = find(nodes, "keys").and_then(|node| self.texts(node));
        let leaves = find(nodes, "leaves").map(|node| self.texts(node));
        let has_wrong_type = self.mistakes.len() > before && !has_unknown;
        // A mistyped `keys` is not reported as missing too.
        let is_reported = has_wrong_type || (has_unknown && (keys.is_none() || change.is_none()));
        let source = RuleSource { at: position(at), keys, change, leaves: leaves.flatten() };
        (!is_reported).then_some(source)
    }

    /// Returns the texts of an array.
    fn texts(&mut self, node: &Node) -> Option<Vec<Text>> {
        let key = &node.key;
        let Content::List(elements) = &node.content else {
            let found = node.content.type_name();
            self.mistake(node.value_at, format!("{key}: expected an array of patterns, found {found}"));
            return None;
        };
        let mut texts = Vec::new();
        for element in elements {
            match &element.content {
                Content::Text(text) => texts.push(Text { text: text.clone(), at: position(element.at) }),
                other => {
                    self.mistake(
                        element.at,
                        format!("{key}: expected a pattern, found {}", other.type_name()),
                    );
                }
            }
        }
        (texts.len() == elements.len()).then_some(texts)
    }

    fn leaf(&mut self, nodes: &[Node]) -> Option<FileRole> {
        let mut connection = Settings::default();
        if find(nodes, "root").is_none() {
            self.missing("root");
        }
        for node in nodes {
            let is_root = node.key == "root";
            let setting = if is_root { Some(Setting::Broker) } else { Setting::of_key(&node.key) };
            let Some(setting) = setting.filter(|setting| is_root || CONNECTION.contains(setting)) else {
                continue;
            };
            if let Err(what) = self.setting(setting, node, &mut connection) {
                self.mistake(node.value_at, format!("{}: {what}", node.key));
            }
        }
        let on_join = self.one_of(nodes, "on_join", [("offer", OnJoin::Offer), ("discard", OnJoin::Discard)]);
        let before_join = [("refuse", BeforeJoin::Refuse), ("accept", BeforeJoin::Accept)];
        let before_join = self.one_of(nodes, "before_join", before_join);
        if !self.mistakes.is_empty() {
            return None;
        }
        let connection = self.connection(nodes, connection)?;
        let join = JoinPolicy { on_join, before_join };
        Some(FileRole::Leaf { connection: Box::new(connection), join })
    }

    /// Returns the value of a key that has one of two texts; the default one without the key, and for a mistake.
    fn one_of<T: Copy + Default>(&mut self, nodes: &[Node], key: &str, known: [(&str, T); 2]) -> T {
        let Some(node) = find(nodes, key) else { return T::default() };
        let text = if let Content::Text(text) = &node.content { text.as_str() } else { "" };
        let found = known.iter().find(|(known, _)| *known == text);
        if found.is_none() {
            let [(one, _), (other, _)] = known;
            self.mistake(node.value_at, format!("{key} is \"{one}\" or \"{other}\""));
        }
        found.map_or_else(T::default, |(_, value)| *value)
    }

    fn connection(&mut self, nodes: &[Node], settings: Settings) -> Option<Connection> {
        // The uplink has a client id of its own, and a password is never asked for.
        let process = Process { client_id: String::new, input_is_terminal: || false };
        let settings = Settings::resolve(vec![settings]);
        let error = match settings.and_then(|settings| Connection::of(&settings, process)) {
            Ok(connection) => return Some(connection),
            Err(error) => error,
        };
        // Settings that contradict each other are reported with their line.
        let place = format!("{}:", self.file.display());
        let of_line = error.message.strip_prefix(&place).and_then(|rest| rest.split_once(": "));
        let node = of_line.and_then(|(line, _)| nodes.iter().find(|node| node.at.line.to_string() == line));
        match (of_line, node) {
            (Some((_, message)), Some(node)) => self.mistake(node.at, message),
            _ => self.mistakes.push(Mistake { at: None, message: error.message }),
        }
        None
    }

    fn setting(&self, setting: Setting, node: &Node, settings: &mut Settings) -> Result<(), String> {
        let bases = PathBases { folder: self.file.parent(), home: self.home };
        let line = Line { context: "".into(), file: Rc::clone(&self.file), line: node.at.line };
        let origin = Origin { rank: Rank::DefaultContext, source: Source::File(line) };
        settings.read(setting, RawValue::from(&node.content), bases, &origin)?;
        let root = settings.broker.as_ref().filter(|_| setting == Setting::Broker);
        if root.is_some_and(|url| url.value.broker.kube.is_some()) {
            return Err(
                "kube: is for commands and the prompt; a leaf has to reach its root itself".to_owned()
            );
        }
        match settings.get(setting) {
            Some((Shown::Path(path), _)) if path.as_os_str() == "-" => Err("expected a file name".to_owned()),
            _ => Ok(()),
        }
    }
}

fn find<'n>(nodes: &'n [Node], key: &str) -> Option<&'n Node> {
    nodes.iter().find(|node| node.key == key)
}

fn position(at: Position) -> rules::Position {
    rules::Position { line: at.line, column: at.column }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::cli::connection::Endpoint;
    use crate::exchange::rules::Change;
    use crate::protocol::Key;

    const ROOT: &str = r#"exchange = "plant"
node = "root"
role = "root"
admit = ["press-*"]  # may join unasked
[[rule]]
keys = ["recipe/**"]
change = "root"
[[rule]]
keys = ["line/*/setpoint"]
change = "leaves"
leaves = ["press-*"]
"#;

    const LEAF: &str = r#"exchange = "plant"
node = "press-7"
role = "leaf"
root = "mqtts://plant:8883"
cafile = "ca.crt"
certfile = "press-7.crt"
keyfile = "press-7.key"
on_join = "discard"
"#;

    fn read(text: &str) -> Result<ExchangeFile, CommandError> {
        ExchangeFile::read("/etc/plant.toml".as_ref(), text.as_bytes(), None)
    }

    #[track_caller]
    fn assert_wrong(text: &str, mistakes: &[&str]) {
        let error = read(text).unwrap_err();
        assert_eq!(error.kind, Kind::Configuration);
        let lines: Vec<_> = std::iter::once(&error.message).chain(&error.causes).collect();
        let expected: Vec<_> = mistakes.iter().map(|mistake| format!("/etc/plant.toml:{mistake}")).collect();
        assert_eq!(lines, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_file_of_a_root_has_rules_with_their_lines() {
        let file = read(ROOT).unwrap();
        assert_eq!((file.exchange.as_str(), file.node.as_str()), ("plant", "root"));
        let FileRole::Root { rules, lines, admit } = file.role else { panic!() };
        assert_eq!(lines, [5, 8]);
        assert!(admit.matches("press-7") && !admit.matches("mill"));
        let (index, rule) = rules.find_with_index(&Key::new("line/2/setpoint").unwrap()).unwrap();
        assert_eq!((index, rule.change()), (1, Change::Leaves));
    }

    #[test]
    fn inline_tables_are_rules_too() {
        let text =
            "exchange = 'p'\nnode = 'r'\nrole = 'root'\nrule = [\n  { keys = ['a'], change = 'root' },\n]\n";
        let FileRole::Root { lines, .. } = read(text).unwrap().role else { panic!() };
        assert_eq!(lines, [5]);
    }

    #[test]
    fn the_file_of_a_leaf_has_a_connection_with_paths_relative_to_it() {
        let FileRole::Leaf { connection, join } = read(LEAF).unwrap().role else { panic!() };
        assert_eq!(join, JoinPolicy { on_join: OnJoin::Discard, before_join: BeforeJoin::Refuse });
        assert_eq!(connection.endpoint.url().as_deref(), Some("mqtts://plant:8883"));
        let Endpoint::Network { tls: Some(tls), .. } = connection.endpoint else { panic!() };
        assert_eq!(tls.cafile, Some("/etc/ca.crt".into()));
    }

    #[test]
    fn all_mistakes_are_reported_with_line_and_column() {
        assert_wrong(
            "exchange = \"Plant\"\nnode = 7\nrole = \"root\"\nadmti = [\"a\"]\n[[rule]]\nkeys = [\"a**\", 5]\n\
             change = \"any\"\n[[rule]]\nkeys = [\"b\", \"[\"]\nchagne = \"root\"\n[[rule]]\nchange = \"any\"\n",
            &[
                "1:12: exchange: a name has 1 to 64 of the characters a-z 0-9 . _ -",
                "2:8: node: expected a name, found a number",
                "4:1: unknown key admti; did you mean admit?",
                "6:16: keys: expected a pattern, found a number",
                "10:1: unknown key chagne; did you mean change?",
                "11:1: the rule has no 'keys'",
                "12:10: change is \"root\" or \"leaves\", not \"any\"",
            ],
        );
        assert_wrong(
            "exchange = 'p'\nnode = 'r'\nrole = 'root'\nadmit = 'a'\n[[rule]]\nkeys = ['a']\nchange = 'any'\n",
            &[
                "4:9: admit: expected an array of patterns, found a text",
                "7:10: change is \"root\" or \"leaves\", not \"any\"",
            ],
        );
    }

    #[test]
    fn keys_of_the_other_role_are_rejected() {
        assert_wrong(
            &format!("{LEAF}admit = ['a']\nport = 1\npassword = 'hunter2'\n"),
            &[
                "9:1: admit belongs to the file of the root, which sends its rules",
                "10:1: unknown key port: root = \"mqtts://HOST[:PORT]\" is the root's address",
                "11:1: password: secrets are not accepted in this file; write password_file = \"FILE\"",
            ],
        );
        let root = ROOT
            .replace("[[rule]]\nkeys = [\"rec", "cafile = 'c'\nroot = 'mqtt://h'\n[[rule]]\nkeys = [\"rec");
        assert_wrong(
            &root,
            &["5:1: cafile belongs to the file of a leaf", "6:1: root belongs to the file of a leaf"],
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = read("").unwrap_err();
        assert_eq!(error.message, "/etc/plant.toml: exchange is missing");
        assert_eq!(error.causes, ["/etc/plant.toml: node is missing", "/etc/plant.toml: role is missing"]);
        let error = read("exchange = 'p'\nnode = 'n'\nrole = 'leaf'").unwrap_err();
        assert_eq!(error.message, "/etc/plant.toml: root is missing");
    }

    #[test]
    fn values_of_the_connection_are_validated() {
        assert_wrong(
            "exchange = 'p'\nnode = 'n'\nrole = 'leaf'\nroot = 'http://h'\nkeep_alive = 5\npassword_file = '-'\non_join = 1\n\
             before_join = 'later'",
            &[
                "4:8: root: unknown scheme http://",
                "5:14: keep_alive: expected a duration, for example \"30s\", found 5",
                "6:17: password_file: expected a file name",
                "7:11: on_join is \"offer\" or \"discard\"",
                "8:15: before_join is \"refuse\" or \"accept\"",
            ],
        );
        assert_wrong(
            &LEAF.replace("keyfile = \"press-7.key\"\n", ""),
            &["6:1: certfile: it requires keyfile"],
        );
        assert_wrong(&LEAF.replace("mqtts", "mqtt"), &["5:1: cafile: it requires TLS"]);
        assert_wrong(
            &LEAF.replace("mqtts://plant:8883", "kube://plant"),
            &["4:8: root: kube: is for commands and the prompt; a leaf has to reach its root itself"],
        );
        let error = read("exchange = 'p\n").unwrap_err();
        assert!(error.message.starts_with("/etc/plant.toml:1:"), "{error:?}");
    }

    /// Pieces of a file for the generator.
    const PIECES: [&str; 16] = [
        "exchange",
        "node",
        "role",
        " = ",
        "'root'",
        "'leaf'",
        "'a'",
        "\n",
        "[[rule]]\n",
        "[",
        "]",
        "keys",
        ",",
        "root",
        "{",
        "}",
    ];

    proptest! {
        #[test]
        fn any_file_is_accepted_or_rejected_with_its_name(
            pieces in vec(0..PIECES.len(), 0..24), bytes in vec(any::<u8>(), 0..3), at in 0..64_usize,
        ) {
            let mut text: Vec<u8> = pieces.iter().flat_map(|piece| PIECES[*piece].bytes()).collect();
            let at = at.min(text.len());
            text.splice(at..at, bytes);
            if let Err(error) = ExchangeFile::read("c".as_ref(), &text, None) {
                prop_assert!(error.message.starts_with("c:"), "{error:?}");
                prop_assert_eq!(error.kind, Kind::Configuration);
            }
        }
    }
}
