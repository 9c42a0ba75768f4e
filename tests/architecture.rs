//! Holds the source tree against the rules of the house: who may import whom, what is pure, who owns a crate,
//! first lines, lengths, and the clocks. To allow an exception, add a row with its reason to [`EXCEPTIONS`].
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic here is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

/// Which module of the library may import which; each may import itself. The entry points are named like files.
const IMPORTS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("clock", &[]),
    ("chance", &[]),
    ("store", &["protocol"]),
    ("exchange", &["protocol", "store"]),
    ("client", &["protocol", "clock", "chance"]),
    ("server", &["protocol", "clock", "chance", "store", "exchange", "client"]),
    ("commands", &["protocol", "client"]),
    ("render", &["protocol", "commands"]),
    ("shell", &["protocol", "client", "commands", "render"]),
    ("cli", &["protocol", "clock", "chance", "client", "server", "commands", "render", "shell"]),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// Files and folders that know no socket, no clock, no thread, no chance and no terminal.
const PURE: &[&str] = &[
    "src/protocol/",
    "src/store/",
    "src/exchange/",
    "src/render/",
    "src/client/session.rs",
    "src/client/session/",
    "src/client/watch.rs",
    "src/client/lock.rs",
    "src/broker/topic_aliases.rs",
    "src/broker/filter.rs",
    "src/broker/busy_poll.rs",
    "src/broker/mqtt311.rs",
    "src/broker/publish.rs",
    "src/broker/retained.rs",
    "src/broker/session.rs",
    "src/broker/shared_subscriptions.rs",
    "src/broker/strict.rs",
    "src/broker/subscriptions.rs",
    "src/commands/monitor/tracker.rs",
    "src/commands/line.rs",
    "src/commands/error_policy.rs",
    "src/commands/doctor/check.rs",
    "src/cli/config/document.rs",
    "src/cli/config/file.rs",
    "src/cli/config/layers.rs",
    "src/cli/config/suggestions.rs",
    "src/cli/config/origin.rs",
    "src/cli/config/setting.rs",
    "src/cli/config/typed.rs",
    "src/cli/config/variables.rs",
    "src/cli/serve/misplaced.rs",
    "src/server/operations/metrics.rs",
    "src/shell/complete.rs",
    "src/shell/definition.rs",
    "src/shell/rate_limit.rs",
    "src/shell/hint.rs",
    "src/shell/line.rs",
    "src/shell/backslash.rs",
    "src/shell/prompt.rs",
    "src/shell/redact.rs",
    "src/shell/text.rs",
];

/// Crates that can be replaced, and the only files that may name them: each entry is a place, a file or a
/// folder, within which [`Owner::files_max`] files may.
const OWNERS: &[(&str, &[Owner])] = &[
    ("rumqttc", &[any_of("src/client/transport"), only("src/broker/codec.rs")]),
    ("tokio_rustls", &[any_of("src/client/tls"), only("src/net/tls/server.rs")]),
    ("x509_cert", &[only("src/net/certificate.rs")]),
    ("rustls_native_certs", &[only("src/net/tls.rs")]),
    ("pkcs8", &[only("src/net/tls/files.rs")]),
    ("zeroize", &[only("src/net/secret.rs")]),
    ("rpassword", &[only("src/cli/password.rs")]),
    ("tokio_tungstenite", &[any_of("src/client/websocket")]),
    ("futures_util", &[any_of("src/client/websocket")]),
    ("argon2", &[only("src/server/identity/users.rs")]),
    ("subtle", &[only("src/server/identity/tokens.rs")]),
    ("hyper", &[only("src/server/operations/admin.rs")]),
    ("hyper_util", &[only("src/server/operations/admin.rs")]),
    ("http_body_util", &[only("src/server/operations/admin.rs")]),
    ("sd_notify", &[only("src/cli/serve/systemd.rs")]),
    ("redb", &[any_of("src/server/journal")]),
    ("rustyline", &[only("src/shell/editor.rs")]),
    ("serde_json", &[only("src/render/json.rs"), only("src/commands/records.rs")]),
    ("hex", &[only("src/protocol/topic.rs"), one_of("src/commands/")]),
    ("clap", &[any_of("src/commands/"), any_of("src/cli/")]),
    ("foldhash", &[only("src/store/entries.rs")]),
    ("getrandom", &[only("src/random.rs")]),
    (
        "nix",
        &[
            only("src/commands/child.rs"),
            only("src/cli/password.rs"),
            only("src/cli/descriptors.rs"),
            only("src/clock.rs"),
            only("src/broker/busy_poll_stream.rs"),
        ],
    ),
    ("colored", &[one_of("src/")]),
    ("anstream", &[one_of("src/")]),
    ("base64", &[only("src/commands/encoding.rs"), only("src/server/authorization/policy.rs")]),
    ("saphyr_parser", &[only("src/server/authorization/yaml.rs")]),
    ("humantime", &[one_of("src/")]),
    ("strsim", &[only("src/cli/config/suggestions.rs")]),
    ("terminal_size", &[only("src/cli/terminal.rs")]),
    ("toml_edit", &[only("src/cli/config/document.rs")]),
    ("clap_complete", &[one_of("src/")]),
    ("clap_mangen", &[one_of("src/")]),
];

/// What a file may do against a rule, and why: the path, the rule, what the report names, the reason.
const EXCEPTIONS: &[(&str, Rule, &str, &str)] = &[];

const CLOCK_OWNER: &str = "src/clock.rs";
const ENVIRONMENT_OWNER: &str = "src/cli/resolve.rs";
const LINES_MAX: usize = 600;
/// Far fewer files than there are: a scan that finds less has looked in the wrong place.
const FILES_MIN: usize = 20;

#[derive(Clone, Copy)]
struct Owner {
    place: &'static str,
    files_max: usize,
}

const fn only(place: &'static str) -> Owner {
    Owner { place, files_max: 1 }
}

/// For a crate whose owner is not decided: at most one file, wherever it is.
const fn one_of(place: &'static str) -> Owner {
    Owner { place, files_max: 1 }
}

const fn any_of(place: &'static str) -> Owner {
    let files_max = usize::MAX;
    Owner { place, files_max }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Import,
    Purity,
    Owner,
    FirstLine,
    Length,
    Clock,
    Environment,
    Terminal,
    Thread,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    rule: Rule,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, what } = self;
        write!(out, "{path}:{line}: {rule:?}: {what}")
    }
}

/// The checker: all that is wrong with a tree of (path, text) pairs.
fn violations(files: &[(String, String)]) -> Vec<Violation> {
    let sources: Vec<_> = files.iter().map(|(path, text)| Source::read(path, text)).collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(Source::test_files).collect();
    let mut found = Vec::new();
    let mut named = BTreeMap::<&str, BTreeMap<&str, usize>>::new();
    for ((path, text), source) in files.iter().zip(&sources) {
        let is_test = tests.contains(path);
        let mut report = |line, rule, what: String| {
            let path = path.clone();
            found.push(Violation { path, line, rule, what });
        };
        if !text.starts_with("//! ") {
            report(1, Rule::FirstLine, "the first line is no `//! …`".to_owned());
        }
        if !path.starts_with("src/") {
            continue;
        }
        let lines = text.lines().count().saturating_sub(source.test_lines());
        if lines > LINES_MAX && !is_test {
            report(lines, Rule::Length, format!("{lines} lines, over {LINES_MAX}"));
        }
        for name in &source.names {
            if let Some(what) = bad_import(path, name) {
                report(name.line, Rule::Import, what);
            }
            for (owned, _) in OWNERS {
                if name.is_of_crate(owned) {
                    named.entry(owned).or_default().entry(path.as_str()).or_insert(name.line);
                }
            }
            if !name.in_test && !is_test {
                for (rule, what) in bad_names(path, name) {
                    report(name.line, rule, what);
                }
            }
        }
    }
    for (owned, owners) in OWNERS {
        found.extend(strangers(owned, owners, named.get(owned)));
    }
    found.sort();
    found.dedup();
    found
}

/// Imports that the table does not allow.
fn bad_import(path: &str, name: &Name) -> Option<String> {
    let from = top_module(path);
    let Some((_, allowed)) = IMPORTS.iter().find(|(module, _)| *module == from) else {
        return Some(format!("{from} is no module of the table"));
    };
    let to = name.top_module_of_library(path)?;
    let fine = to == from || allowed.contains(&to.as_str());
    (!fine).then(|| format!("{from} may not import {to}"))
}

/// `src/store/mod.rs` is in `store`, `src/clock.rs` in `clock`.
fn top_module(path: &str) -> &str {
    let path = path.strip_prefix("src/").unwrap_or(path);
    path.split(['/', '.']).next().unwrap_or(path)
}

/// Names that only an owner or nobody may use, and those that a pure file may not.
fn bad_names(path: &str, name: &Name) -> Vec<(Rule, String)> {
    let has = |words: &[&str]| name.path.windows(words.len()).any(|window| window == words);
    let text = name.path.join("::");
    let mut found = Vec::new();
    let reads_clock = has(&["SystemTime", "now"]) || has(&["Instant", "now"]) || name.is_call(".elapsed");
    if reads_clock && path != CLOCK_OWNER {
        found.push((Rule::Clock, text.clone()));
    }
    let reads_environment = ["var", "var_os", "vars", "vars_os"].iter().any(|read| has(&["env", read]));
    if reads_environment && path != ENVIRONMENT_OWNER {
        found.push((Rule::Environment, text.clone()));
    }
    let prints = name.bang && ["print", "println", "eprint", "eprintln", "dbg"].contains(&name.last());
    if prints || has(&["process", "exit"]) {
        found.push((Rule::Terminal, text.clone()));
    }
    // It panics where the system has no thread to give.
    if has(&["thread", "spawn"]) {
        found.push((Rule::Thread, text.clone()));
    }
    if PURE.iter().any(|place| path.starts_with(place)) {
        let outside = ["env", "fs", "net", "process", "thread"].iter().any(|module| has(&["std", module]));
        let foreign = ["tokio", "rand", "getrandom"].iter().any(|foreign| name.is_of_crate(foreign));
        let foreign = foreign || name.last() == "async";
        if outside || foreign || prints || reads_clock || has(&["SystemTime"]) {
            found.push((Rule::Purity, text));
        }
    }
    found
}

/// Files that name a crate and do not own it.
fn strangers(owned: &str, owners: &[Owner], named: Option<&BTreeMap<&str, usize>>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut rooms: Vec<_> = owners.iter().map(|owner| (owner.place, Vec::new())).collect();
    let mut report = |path: &str, line: usize, what: String| {
        let (path, rule) = (path.to_owned(), Rule::Owner);
        found.push(Violation { path, line, rule, what });
    };
    for (path, line) in named.into_iter().flatten() {
        match rooms.iter_mut().find(|(place, _)| path.starts_with(place)) {
            Some((_, files)) => files.push((*path, *line)),
            None => {
                let places: Vec<_> = owners.iter().map(|owner| owner.place).collect();
                report(path, *line, format!("{owned} belongs to {}", places.join(", ")));
            }
        }
    }
    for ((place, files), owner) in rooms.iter().zip(owners) {
        if files.len() > owner.files_max {
            let paths: Vec<_> = files.iter().map(|(path, _)| *path).collect();
            for (path, line) in files {
                let what = format!("{owned} is named in more than one file of {place}: {}", paths.join(", "));
                report(path, *line, what);
            }
        }
    }
    found
}

/// A path in the code, with the groups of a `use` taken apart; or a method called without arguments, as `.method`.
#[derive(Debug)]
struct Name {
    path: Vec<String>,
    line: usize,
    /// Whether it stands in a `use`.
    imported: bool,
    /// Whether it is a macro's.
    bang: bool,
    /// Whether it stands in an item under `#[cfg(test)]`.
    in_test: bool,
    /// The modules that are written out around it in its file.
    inside: Vec<String>,
}

impl Name {
    fn last(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Whether it is a call of this method, without arguments.
    fn is_call(&self, method: &str) -> bool {
        self.path.len() == 1 && self.last() == method
    }

    fn is_of_crate(&self, name: &str) -> bool {
        let is_first = self.path.first().is_some_and(|first| first == name);
        is_first && (self.imported || self.path.len() > 1)
    }

    /// The module directly below the crate's root that the path leads to, if it is one of this crate.
    fn top_module_of_library(&self, path: &str) -> Option<String> {
        let after = |count: usize| Some(self.path.get(count).map_or("*", String::as_str).to_owned());
        match self.path.first()?.as_str() {
            "crate" | "mqkv" if self.path.len() > 1 || self.imported => after(1),
            "super" | "self" => {
                let own = path.strip_prefix("src/").unwrap_or(path);
                let own = own.strip_suffix(".rs").unwrap_or(own);
                let file = own.split('/').filter(|part| !["mod", "lib", "main"].contains(part));
                let mut around: Vec<&str> = file.chain(self.inside.iter().map(String::as_str)).collect();
                let leading = self.path.iter().take_while(|part| ["super", "self"].contains(&part.as_str()));
                let leading = leading.count();
                for part in self.path.iter().take(leading) {
                    if part == "super" {
                        around.pop();
                    }
                }
                match around.first() {
                    Some(top) => Some((*top).to_owned()),
                    None => after(leading),
                }
            }
            _ => None,
        }
    }
}

/// A file as the rules see it: its names, without comments and texts.
struct Source {
    path: String,
    names: Vec<Name>,
    /// Files' modules that are declared under `#[cfg(test)]`.
    test_modules: Vec<String>,
    /// First and last lines of items under `#[cfg(test)]`.
    test_ranges: Vec<(usize, usize)>,
}

impl Source {
    fn read(path: &str, text: &str) -> Self {
        let tokens = tokens(text);
        let mut source = Self {
            path: path.to_owned(),
            names: Vec::new(),
            test_modules: Vec::new(),
            test_ranges: Vec::new(),
        };
        let mut test_until = 0;
        // A written-out module and the depth of braces within it.
        let mut modules: Vec<(String, usize)> = Vec::new();
        let mut depth: usize = 0;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = &tokens[at..];
            if at >= test_until && begins(rest, &["#", "[", "cfg", "(", "test", ")", "]"]) {
                let len = item_len(rest);
                test_until = at + len;
                source.note_test(&rest[..len]);
            }
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    modules.pop_if(|(_, inside)| *inside > depth);
                }
                "mod" if rest.get(2).is_some_and(|next| next.text == "{") => {
                    modules.push((rest[1].text.clone(), depth + 1));
                }
                _ => {}
            }
            let before = at
                .checked_sub(1)
                .and_then(|before| tokens.get(before))
                .map_or("", |token| token.text.as_str());
            let imported = ["use", "crate"].contains(&before);
            let starts =
                (token.is_word() || token.text == "::" || (imported && token.text == "{")) && before != "::";
            if !starts {
                at += 1;
                continue;
            }
            let mut paths = Vec::new();
            let len = read_path(rest, &[], &mut paths).max(1);
            let bang = rest.get(len).is_some_and(|next| next.text == "!")
                && rest.get(len + 1).is_none_or(|next| next.text != "=");
            let called = before == "." && begins(&rest[len..], &["(", ")"]);
            for mut found in paths {
                if called && let Some(first) = found.path.first_mut() {
                    first.insert(0, '.');
                }
                source.names.push(Name {
                    imported,
                    bang,
                    in_test: at < test_until,
                    inside: modules.iter().map(|(name, _)| name.clone()).collect(),
                    ..found
                });
            }
            at += len;
        }
        source
    }

    fn note_test(&mut self, item: &[Token]) {
        if let [first, .., last] = item {
            self.test_ranges.push((first.line, last.line));
        }
        if let [.., keyword, name, end] = item
            && (keyword.text.as_str(), end.text.as_str()) == ("mod", ";")
        {
            self.test_modules.push(name.text.clone());
        }
    }

    /// The files of modules that exist for tests only.
    fn test_files(&self) -> Vec<String> {
        let path = &self.path;
        let folder = ["/mod.rs", "/lib.rs", "/main.rs"].iter().find_map(|end| path.strip_suffix(end));
        let folder = folder.or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
        let both = |name: &String| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        self.test_modules.iter().flat_map(both).collect()
    }

    fn test_lines(&self) -> usize {
        let lines = |(first, last): &(usize, usize)| last.saturating_sub(*first).saturating_add(1);
        self.test_ranges.iter().map(lines).sum()
    }
}

fn begins(tokens: &[Token], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(token, text)| token.text == *text)
}

/// How many tokens an item has, its attributes included: it ends with its braces or a semicolon.
fn item_len(tokens: &[Token]) -> usize {
    let mut depth: usize = 0;
    for (token, len) in tokens.iter().zip(1..) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return len;
                }
            }
            ";" if depth == 0 => return len,
            _ => {}
        }
    }
    tokens.len()
}

/// Words after which a path may begin with `::`, so that they are no part of it.
const KEYWORDS: &[&str] = &[
    "as", "break", "const", "dyn", "else", "for", "if", "impl", "in", "let", "match", "move", "mut",
    "return", "type", "use", "where", "while",
];

/// Reads `a::b`, `a::{b, c::d}`, `a::*`; gives how many tokens that was.
fn read_path(tokens: &[Token], prefix: &[String], out: &mut Vec<Name>) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    let line = tokens.first().map_or(0, |token| token.line);
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while let Some(token) = tokens.get(at).filter(|token| token.text != "}") {
                    let inner = token.is_word() || ["{", "::", "*"].contains(&token.text.as_str());
                    let step = match token.text.as_str() {
                        "as" => 2,
                        _ if inner => read_path(&tokens[at..], &path, out),
                        _ => 1,
                    };
                    at += step;
                }
                return at + 1;
            }
            text if token.is_word() || text == "*" => {
                path.push(text.to_owned());
                at += 1;
                if KEYWORDS.contains(&text) || tokens.get(at).is_none_or(|next| next.text != "::") {
                    break;
                }
                // A turbofish ends the path: what follows is a type's own.
                let next = tokens.get(at + 1);
                if next.is_none_or(|next| !next.is_word() && !["{", "*"].contains(&next.text.as_str())) {
                    break;
                }
            }
            _ => break,
        }
    }
    out.push(Name { path, line, imported: false, bang: false, in_test: false, inside: Vec::new() });
    at
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

impl Token {
    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Words and marks of Rust code, without comments, texts, characters and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped(rest);
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = if skipped > 0 {
            skipped
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (taken, after) = rest.split_at(len);
        if skipped == 0 {
            let text = taken.to_owned();
            found.push(Token { text, line });
        }
        line = line.saturating_add(taken.matches('\n').count());
        rest = after;
    }
    found
}

/// How many bytes here are a blank, a comment, a text, a character or a lifetime; 0: code begins.
fn skipped(rest: &str) -> usize {
    let upto = |end: Option<usize>, more: usize| end.map_or(rest.len(), |end| end + more);
    if rest.starts_with("//") {
        return upto(rest.find('\n'), 0);
    }
    if rest.starts_with("/*") {
        return comment_len(rest);
    }
    // Texts may begin with b, c or r, the raw ones with any number of #.
    let quoted = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len().saturating_sub(quoted.len());
    if prefix <= 1 {
        if let Some(raw) = quoted.strip_prefix('r') {
            let body = raw.trim_start_matches('#');
            let hashes = raw.len().saturating_sub(body.len());
            if let Some(body) = body.strip_prefix('"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let head = rest.len().saturating_sub(body.len());
                let len = body.find(&end).map_or(body.len(), |at| at.saturating_add(end.len()));
                return head + len;
            }
        }
        if quoted.starts_with('"') {
            return prefix.saturating_add(text_len(quoted, '"'));
        }
        if quoted.starts_with('\'') {
            let mut chars = quoted.chars().skip(1);
            let (second, third) = (chars.next(), chars.next());
            if second == Some('\\') || third == Some('\'') {
                return prefix.saturating_add(text_len(quoted, '\''));
            }
            // A lifetime: `'` and a word.
            let word = quoted.get(1..).unwrap_or("");
            let end = word.find(|c: char| !c.is_alphanumeric() && c != '_');
            return end.unwrap_or(word.len()).saturating_add(1);
        }
    }
    if rest.starts_with(char::is_whitespace) {
        return upto(rest.find(|c: char| !c.is_whitespace()), 0);
    }
    0
}

/// The length of a text with its quotes; a backslash takes the next character with it.
fn text_len(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// The length of a block comment, with those inside it.
fn comment_len(rest: &str) -> usize {
    let mut depth: usize = 0;
    let mut at = 0;
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        let step = if here.starts_with("/*") {
            depth += 1;
            2
        } else if here.starts_with("*/") {
            depth = depth.saturating_sub(1);
            2
        } else {
            here.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Every file below a folder of the package with this ending, by its path from the package.
fn files_below(folder: &str, ending: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().is_none_or(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_source_tree_keeps_the_rules() {
    let files = [files_below("src", "rs"), files_below("tests", "rs")].concat();
    assert!(files.len() >= FILES_MIN, "only {} files scanned", files.len());
    for entry in ["src/lib.rs", "src/main.rs", "src/protocol/frame.rs", file!()] {
        assert!(files.iter().any(|(path, _)| path == entry), "{entry} was not scanned");
    }
    let (excused, left): (Vec<_>, Vec<_>) = violations(&files).into_iter().partition(|found| {
        let excuses = |(path, rule, what, _): &(&str, Rule, &str, &str)| {
            found.path == *path && found.rule == *rule && found.what.contains(what)
        };
        EXCEPTIONS.iter().any(excuses)
    });
    let left: Vec<_> = left.iter().map(Violation::to_string).collect();
    assert!(left.is_empty(), "\n{}", left.join("\n"));
    for (path, rule, what, reason) in EXCEPTIONS {
        assert!(!reason.is_empty(), "{path}: an exception needs a reason");
        let needed = excused
            .iter()
            .any(|found| found.path == *path && found.rule == *rule && found.what.contains(what));
        assert!(needed, "{path}: the exception to {rule:?} ({what}) is needed no more");
    }
}

#[test]
fn every_vector_file_is_read_by_a_test() {
    let vectors = files_below("tests/vectors", "txt");
    assert!(vectors.len() >= 7, "only {} vector files", vectors.len());
    let sources = files_below("src", "rs");
    for (path, _) in vectors {
        let include = format!("include_str!(\"../../{path}\")");
        let readers = sources.iter().filter(|(_, text)| text.contains(&include));
        assert_eq!(readers.count(), 1, "{path} is not read by exactly one file");
    }
}

/// What the checker says of one file that holds this code below its first line.
fn said_of(path: &str, code: &str) -> Vec<(Rule, usize)> {
    said_of_all(&[(path, code)])
}

fn said_of_all(files: &[(&str, &str)]) -> Vec<(Rule, usize)> {
    let files: Vec<_> =
        files.iter().map(|(path, code)| ((*path).to_owned(), format!("//! Injected.\n{code}"))).collect();
    violations(&files).into_iter().map(|found| (found.rule, found.line)).collect()
}

#[test]
fn an_import_against_the_table_is_reported() {
    let import = vec![(Rule::Import, 2)];
    for (path, code) in [
        ("src/protocol/frame.rs", "use crate::store::Store;"),
        ("src/protocol/frame.rs", "fn f() { crate::clock::now(); }"),
        ("src/protocol/frame.rs", "use super::super::store;"),
        ("src/protocol/mod.rs", "use super::store;"),
        ("src/protocol/frame.rs", "use crate::{protocol::key, store::Store};"),
        ("src/protocol/frame.rs", "use {std::fmt, crate::store};"),
        ("src/protocol/frame.rs", "mod a { mod b { use super::super::super::super::store; } }"),
        ("src/protocol/frame.rs", "pub(in crate::store) fn f() {}"),
        ("src/protocol/frame.rs", "use crate::*;"),
        ("src/protocol/frame.rs", "use crate as root;"),
        ("src/protocol/frame.rs", "use mqkv::store;"),
        ("src/protocol/frame.rs", "#[cfg(test)]\nmod tests { use crate::store; }"),
        ("src/clock.rs", "use crate::protocol::Key;"),
        ("src/store/mod.rs", "use crate::client::Client;"),
        ("src/exchange/mod.rs", "use crate::server::Server;"),
        ("src/client/mod.rs", "use crate::server::Server;"),
        ("src/server/service.rs", "use crate::render::text;"),
        ("src/server/service.rs", "use crate::commands::Output;"),
        ("src/commands/get.rs", "use crate::clock;"),
        ("src/render/text.rs", "use crate::client::Client;"),
        ("src/shell/backslash.rs", "use crate::server::Server;"),
        ("src/cli/serve.rs", "use crate::store::Store;"),
        ("src/main.rs", "fn main() { mqkv::server::start() }"),
        ("src/lib.rs", "pub use crate::protocol::Key;"),
    ] {
        let expected = if code.starts_with("#[cfg") { vec![(Rule::Import, 3)] } else { import.clone() };
        assert_eq!(said_of(path, code), expected, "{path}: {code}");
    }
}

#[test]
fn an_import_by_the_table_is_not_reported() {
    for (path, code) in [
        ("src/protocol/frame.rs", "use super::key::Key; use crate::protocol::message;"),
        ("src/protocol/frame.rs", "mod tests { use super::super::generators; use super::*; }"),
        (
            "src/protocol/frame.rs",
            "pub(crate) fn f() {} pub(super) fn g() {} pub(in crate::protocol) fn h() {}",
        ),
        ("src/protocol/frame.rs", "// use crate::store;\n/* /* crate::store */ crate::store */"),
        (
            "src/protocol/frame.rs",
            "const A: &str = \"crate::store::\\\"\"; const B: &str = r#\"\"crate::store\"#;",
        ),
        (
            "src/protocol/frame.rs",
            "fn f<'a>(x: &'a str) -> char { '\"' } // crate::store\"\nconst C: u8 = b'\\'';",
        ),
        ("src/store/mod.rs", "use crate::protocol::{Key as K, Value}; use crate::{protocol as wire};"),
        ("src/server/service.rs", "use crate::{client::a, clock, exchange::b, protocol::c, store::d};"),
        ("src/cli/serve.rs", "use crate::server::Server; use crate::protocol::Key;"),
        ("src/render/text.rs", "use crate::protocol::Key; use crate::commands::output::Output;"),
        ("src/main.rs", "fn main() -> std::process::ExitCode { mqkv::cli::main() }"),
    ] {
        assert_eq!(said_of(path, code), [], "{path}: {code}");
    }
}

#[test]
fn a_module_outside_the_table_is_reported() {
    assert_eq!(said_of("src/util/mod.rs", "fn f() {}"), [(Rule::Import, 2)]);
}

#[test]
fn an_impure_name_in_a_pure_file_is_reported() {
    let pure = [
        "src/protocol/frame.rs",
        "src/store/mod.rs",
        "src/exchange/star.rs",
        "src/render/text.rs",
        "src/client/session.rs",
        "src/client/watch.rs",
        "src/client/lock.rs",
        "src/commands/line.rs",
        "src/shell/complete.rs",
    ];
    for code in [
        "use tokio::sync::mpsc;",
        "async fn f() {}",
        "use std::fs;",
        "use std::{fmt, net::TcpStream};",
        "fn f() { std::thread::yield_now(); }",
        "fn f() { ::std::process::id(); }",
        "use std::env::args;",
        "fn f(now: SystemTime) {}",
        "use std::time::{Duration, SystemTime};",
        "use rand::Rng;",
    ] {
        for path in pure {
            assert_eq!(said_of(path, code), [(Rule::Purity, 2)], "{path}: {code}");
        }
        let elsewhere = said_of("src/server/service.rs", code);
        assert_eq!(elsewhere, [], "{code}");
    }
    let random = said_of("src/store/mod.rs", "fn f() { rand::random(); }");
    assert_eq!(random, [(Rule::Purity, 2)]);
}

#[test]
fn what_is_pure_is_not_reported() {
    let code = "use std::time::{Duration, Instant};\nfn f(now: Instant) { let rand = now; let environment = 1; window.elapsed(now); }";
    assert_eq!(said_of("src/client/session.rs", code), []);
}

#[test]
fn a_test_module_of_a_pure_file_may_do_impure_things() {
    let code = "#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\nuse std::fs;\nfn f() { println!() }\n}";
    assert_eq!(said_of("src/store/mod.rs", code), []);
    let after = format!("{code}\nuse std::fs;");
    assert_eq!(said_of("src/store/mod.rs", &after), [(Rule::Purity, 8)]);
}

#[test]
fn a_file_that_is_a_test_module_may_do_impure_things() {
    let parent = "#[cfg(test)]\nmod simulation;\n#[cfg(not(test))]\nmod plain;";
    let code = "use std::fs;";
    let said = said_of_all(&[
        ("src/store/mod.rs", parent),
        ("src/store/simulation.rs", code),
        ("src/store/plain.rs", code),
    ]);
    assert_eq!(said, [(Rule::Purity, 2)]);
}

#[test]
fn a_crate_outside_its_owner_is_reported() {
    for (path, code) in [
        ("src/server/service.rs", "use rumqttc::Client;"),
        ("src/client/mod.rs", "fn f(x: rumqttc::Client) {}"),
        ("src/client/mod.rs", "use rumqttc as mqtt;"),
        ("src/client/mod.rs", "extern crate rumqttc;"),
        ("src/client/mod.rs", "fn f(x: &mut ::rumqttc::Client) {}"),
        ("src/server/mod.rs", "use {redb::Database, std::fmt};"),
        ("src/shell/mod.rs", "pub use ::rustyline::Editor;"),
        ("src/cli/args.rs", "fn f() { serde_json::to_string(&1); }"),
        ("src/render/text.rs", "fn f() { hex::encode([]); }"),
        ("src/shell/backslash.rs", "use clap::Parser;"),
        ("src/server/service.rs", "#[cfg(test)] mod tests { use redb::Database; }"),
    ] {
        assert_eq!(said_of(path, code), [(Rule::Owner, 2)], "{path}: {code}");
    }
}

#[test]
fn a_crate_in_more_than_one_file_is_reported_in_each() {
    for name in ["colored", "anstream", "humantime", "clap_complete", "clap_mangen"] {
        let code = format!("use {name}::f;");
        let twice = said_of_all(&[("src/cli/a.rs", &code), ("src/commands/b.rs", &code)]);
        assert_eq!(twice, [(Rule::Owner, 2), (Rule::Owner, 2)], "{name}");
        assert_eq!(said_of("src/cli/a.rs", &code), [], "{name}");
    }
    let hex = "use hex::encode;";
    let twice = said_of_all(&[("src/commands/a.rs", hex), ("src/commands/b.rs", hex)]);
    assert_eq!(twice, [(Rule::Owner, 2), (Rule::Owner, 2)]);
}

#[test]
fn a_crate_in_its_owner_is_not_reported() {
    let said = said_of_all(&[
        ("src/client/transport.rs", "use rumqttc::Client;"),
        ("src/broker/codec.rs", "use rumqttc::mqttbytes;"),
        ("src/server/storage.rs", "use redb::Database;"),
        ("src/render/json.rs", "use serde_json::Value;"),
        ("src/protocol/topic.rs", "use hex::encode;"),
        ("src/commands/get.rs", "use clap::Args; use hex::encode;"),
        ("src/commands/set.rs", "#[derive(clap::Args)] struct Set { hex: bool, base64: bool }"),
        ("src/cli/args.rs", "use clap::Parser; fn f() { let colored = args.base64; }"),
    ]);
    assert_eq!(said, []);
}

#[test]
fn a_file_without_a_first_line_is_reported() {
    for (path, text) in [
        ("src/store/mod.rs", "use crate::protocol;\n"),
        ("tests/it/main.rs", "// not this\n//! a doc\n"),
        ("src/store/scan.rs", ""),
        ("src/store/limits.rs", "//!\n"),
    ] {
        let found = violations(&[(path.to_owned(), text.to_owned())]);
        let rules: Vec<_> = found.iter().map(|found| found.rule).collect();
        assert_eq!(rules, [Rule::FirstLine], "{path}: {text}");
    }
}

#[test]
fn a_file_over_its_length_is_reported_with_its_length_and_tests_do_not_count() {
    let long = |lines: usize| format!("//! Long.\n{}", "fn f() {}\n".repeat(lines.saturating_sub(1)));
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(LINES_MAX));
    let path = "src/store/mod.rs".to_owned();
    assert_eq!(violations(&[(path.clone(), long(LINES_MAX) + &tests)]), []);
    assert_eq!(violations(&[("tests/it.rs".to_owned(), long(LINES_MAX + 1))]), []);
    let found = violations(&[(path, long(LINES_MAX + 1))]);
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.to_string(), "src/store/mod.rs:601: Length: 601 lines, over 600");
}

#[test]
fn a_reading_of_the_clock_outside_its_owner_is_reported() {
    for code in [
        "fn f() { SystemTime::now(); }",
        "fn f() { std::time::Instant::now(); }",
        "fn f() { tokio::time::Instant::now(); }",
        "fn f() { since.elapsed(); }",
        "fn f(x: Option<u8>) { x.map_or_else(Instant::now, g); }",
    ] {
        assert_eq!(said_of("src/server/service.rs", code), [(Rule::Clock, 2)], "{code}");
        assert_eq!(said_of("src/clock.rs", code), [], "{code}");
    }
}

#[test]
fn a_reading_of_the_environment_outside_its_owner_is_reported() {
    for code in [
        "fn f() { std::env::var(\"A\"); }",
        "use std::env::{args, var_os};",
        "fn f() { env::vars(); }",
        "fn f() { env::vars_os(); }",
    ] {
        let said = said_of("src/cli/args.rs", code);
        assert_eq!(said, [(Rule::Environment, 2)], "{code}");
        assert_eq!(said_of("src/cli/resolve.rs", code), [], "{code}");
    }
    assert_eq!(said_of("src/cli/args.rs", "const A: &str = env!(\"A\");"), []);
}

#[test]
fn a_thread_that_panics_where_there_is_none_to_be_had_is_reported() {
    for code in ["fn f() { thread::spawn(g); }", "use std::thread::spawn;", "use std::thread::{self, spawn};"]
    {
        assert_eq!(said_of("src/cli/resolve.rs", code), [(Rule::Thread, 2)], "{code}");
    }
    let fine = "fn f() { thread::Builder::new().spawn(g); tokio::spawn(h); }\n#[cfg(test)] mod tests { use std::thread::spawn; }";
    assert_eq!(said_of("src/cli/resolve.rs", fine), []);
}

#[test]
fn a_print_or_an_exit_is_reported_wherever_it_is() {
    for code in [
        "fn f() { println!(\"a\"); }",
        "fn f() { print!(\"a\"); }",
        "fn f() { eprintln!(\"a\"); }",
        "fn f() { eprint!(\"a\"); }",
        "fn f() { std::println!(); }",
        "fn f() { dbg!(1); }",
        "fn f() { std::process::exit(1); }",
        "use std::process::exit;",
    ] {
        assert_eq!(said_of("src/cli/exit.rs", code), [(Rule::Terminal, 2)], "{code}");
    }
    let fine =
        "fn f() { writeln!(out, \"a\"); if print != 1 { } let code = std::process::ExitCode::SUCCESS; }";
    assert_eq!(said_of("src/cli/exit.rs", fine), []);
}

#[test]
fn tokens_know_texts_comments_characters_and_lifetimes() {
    let code = "a /* b /* c */ */ \"d \\\" // e\" 'f' '\\'' b'\"' br##\"g\"#\"## &'h i // j\nr#k::l 'm: loop";
    let found: Vec<_> = tokens(code).into_iter().map(|token| (token.text, token.line)).collect();
    let expected = [
        ("a", 1),
        ("&", 1),
        ("i", 1),
        ("r", 2),
        ("#", 2),
        ("k", 2),
        ("::", 2),
        ("l", 2),
        (":", 2),
        ("loop", 2),
    ];
    let expected: Vec<_> = expected.iter().map(|(text, line)| ((*text).to_owned(), *line)).collect();
    assert_eq!(found, expected);
}
