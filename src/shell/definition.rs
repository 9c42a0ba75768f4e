//! Verbs, options and operands of the command line as data, for completion and hints (pure).

/// The command line: the program with its verbs, and the topics of `help`.
#[derive(Clone, Debug, Default)]
pub struct Definition {
    /// The program itself: the options in front of a verb, and the verbs.
    pub root: Verb,
    /// The topics of `help` beside the verbs, each with its description.
    pub topics: Vec<(String, String)>,
    /// Whether a verb may be typed in any case, as at the prompt.
    pub ignores_case: bool,
    /// The options of the program that a line cannot have, with their dashes.
    pub unavailable_options: Vec<String>,
}

/// A verb.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verb {
    pub name: String,
    pub aliases: Vec<String>,
    /// One sentence.
    pub about: String,
    pub options: Vec<VerbOption>,
    /// In the order of the command line.
    pub operands: Vec<Operand>,
    /// The verbs below this one, as `add` is below `context`.
    pub verbs: Vec<Verb>,
}

/// An option of a verb.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerbOption {
    /// Without the dashes; the first one is offered.
    pub longs: Vec<String>,
    pub shorts: Vec<char>,
    /// One sentence.
    pub about: String,
    pub value: Option<Operand>,
    /// Whether a value must stand in the same word, as in `--embedded=DIR`.
    pub needs_equals: bool,
    /// Whether it may be given more than once.
    pub is_repeatable: bool,
    /// Whether it stands for the first operand, as `-k KEY` stands for KEY.
    pub replaces_operand: bool,
    /// Whether hints show it: not an option of every verb, and not a variant of another option.
    pub is_hinted: bool,
}

/// An operand of a verb, or the value of an option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    pub name: String,
    pub kind: ValueKind,
    /// Whether more than one may be given.
    pub is_many: bool,
    /// Whether it can only stand behind `--`.
    pub follows_dashes: bool,
    /// Separates several values in one word.
    pub delimiter: Option<char>,
}

/// What a value is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// One of these values, each with its description.
    Choices(Vec<(String, String)>),
    Key,
    File,
    Directory,
    /// The name of a context.
    Context,
    /// The name of a leaf of an exchange.
    Leaf,
    /// The number of a conflict of an exchange.
    Conflict,
    /// A program; the words behind it are its arguments.
    Command,
    /// A verb or a topic.
    HelpSubject,
    #[default]
    Other,
}

/// The place behind some words of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The innermost verb.
    pub verb: &'a Verb,
    /// The words that were operands of it, by their index.
    pub operands: Vec<usize>,
    pub given: Vec<Given<'a>>,
    pub expected: Expected<'a>,
}

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<'a> {
    pub option: &'a VerbOption,
    pub value: Option<Vec<u8>>,
}

/// What the next word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// The value of the option before it.
    Value(&'a Operand),
    /// An argument of the command that begins with the word of this index.
    Argument(usize),
    /// An operand, a verb, or an option.
    Word {
        /// The number of operands so far, options that replace one included.
        count: usize,
        /// Whether a `--` was given, so that no option can follow.
        has_dashes: bool,
    },
}

impl Definition {
    /// Returns the verb of this name or alias.
    #[must_use]
    pub fn verb(&self, word: &[u8]) -> Option<&Verb> {
        self.root.below(word, self.ignores_case)
    }

    /// Follows the words to their end. Returns `None` if a word should be a verb, but is none.
    #[must_use]
    pub fn place(&self, words: &[Vec<u8>]) -> Option<Place<'_>> {
        let mut verb = &self.root;
        let mut operands = Vec::new();
        let mut given: Vec<Given<'_>> = Vec::new();
        let mut pending: Option<&VerbOption> = None;
        let mut replaced = 0_usize;
        let mut has_dashes = false;
        for (index, word) in words.iter().enumerate() {
            if let Some(option) = pending.take() {
                given.push(Given { option, value: Some(word.clone()) });
                continue;
            }
            if !has_dashes && word == b"--" {
                has_dashes = true;
                continue;
            }
            if !has_dashes && let Some(cluster) = verb.cluster(word) {
                replaced = replaced.max(cluster.replaced());
                given.extend(cluster.given);
                pending = cluster.pending;
                continue;
            }
            let count = operands.len().saturating_add(replaced);
            if count == 0 && !verb.verbs.is_empty() {
                verb = verb.below(word, self.ignores_case)?;
                continue;
            }
            let operand = verb.operand(count, has_dashes);
            if operand.is_some_and(|operand| operand.kind == ValueKind::Command) {
                return Some(Place { verb, operands, given, expected: Expected::Argument(index) });
            }
            operands.push(index);
        }
        let count = operands.len().saturating_add(replaced);
        let word = Expected::Word { count, has_dashes };
        let value = pending.and_then(|option| option.value.as_ref());
        Some(Place { verb, operands, given, expected: value.map_or(word, Expected::Value) })
    }
}

/// The options that one word names: `--ttl`, `--ttl=5s`, `-q`, `-qo`, `-ojson`.
#[derive(Debug)]
pub struct Cluster<'a> {
    pub given: Vec<Given<'a>>,
    /// The last option, if its value is the next word.
    pub pending: Option<&'a VerbOption>,
    /// Where the value of the last option begins in the word, if it stands there.
    pub value_at: Option<usize>,
}

impl Cluster<'_> {
    /// 1 if one of the options replaces an operand.
    fn replaced(&self) -> usize {
        let given = self.given.iter().map(|given| given.option);
        usize::from(given.chain(self.pending).any(|option| option.replaces_operand))
    }
}

impl Verb {
    /// Returns the verb below this one that has this name or alias.
    #[must_use]
    pub fn below(&self, word: &[u8], ignores_case: bool) -> Option<&Verb> {
        let is = |name: &String| match ignores_case {
            true => name.as_bytes().eq_ignore_ascii_case(word),
            false => name.as_bytes() == word,
        };
        self.verbs.iter().find(|verb| is(&verb.name) || verb.aliases.iter().any(is))
    }

    /// Returns the option that a word names first: `--long`, `--long=…`, `-s` or `-s…`.
    #[must_use]
    pub fn option(&self, word: &[u8]) -> Option<&VerbOption> {
        let text = std::str::from_utf8(word).ok()?;
        match text.strip_prefix("--") {
            Some(long) => self.long(long.split('=').next()?),
            None => self.short(text.strip_prefix('-')?.chars().next()?),
        }
    }

    /// Returns the options that a word names, or `None` if the word is an operand.
    #[must_use]
    pub fn cluster(&self, word: &[u8]) -> Option<Cluster<'_>> {
        let text = std::str::from_utf8(word).ok()?;
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next()?;
            let option = self.long(name)?;
            let value_at = text.find('=').map(|at| at.saturating_add(1));
            return Some(Cluster::of(Vec::new(), option, text, value_at));
        }
        let shorts = text.strip_prefix('-').filter(|shorts| !shorts.is_empty())?;
        let mut given = Vec::new();
        let mut last = None;
        for (at, short) in shorts.char_indices() {
            if let Some(flag) = last.replace(self.short(short)?) {
                given.push(Given { option: flag, value: None });
            }
            if let Some(option) = last.filter(|option| option.value.is_some()) {
                // Of the dash and the name.
                let behind = at.saturating_add(1).saturating_add(short.len_utf8());
                return Some(Cluster::of(given, option, text, (behind < text.len()).then_some(behind)));
            }
        }
        Some(Cluster::of(given, last?, text, None))
    }

    /// Returns the operand at this place; the last one again, where it may be repeated.
    #[must_use]
    pub fn operand(&self, count: usize, has_dashes: bool) -> Option<&Operand> {
        let behind_dashes = self.operands.iter().find(|operand| operand.follows_dashes);
        if has_dashes && behind_dashes.is_some() {
            return behind_dashes;
        }
        let mut operands = self.operands.iter().filter(|operand| !operand.follows_dashes);
        let last = operands.clone().next_back().filter(|last| last.is_many);
        operands.nth(count).or(last)
    }

    fn long(&self, name: &str) -> Option<&VerbOption> {
        self.options.iter().find(|option| option.longs.iter().any(|long| long == name))
    }

    fn short(&self, name: char) -> Option<&VerbOption> {
        self.options.iter().find(|option| option.shorts.contains(&name))
    }
}

impl<'a> Cluster<'a> {
    fn of(mut given: Vec<Given<'a>>, last: &'a VerbOption, text: &str, value_at: Option<usize>) -> Self {
        if value_at.is_none() && last.takes_next() {
            return Self { given, pending: Some(last), value_at };
        }
        let value = value_at.and_then(|at| text.get(at..)).map(|value| value.as_bytes().to_owned());
        given.push(Given { option: last, value });
        Self { given, pending: None, value_at }
    }
}

impl VerbOption {
    /// Returns whether its value is the next word, unless it stands in the same one.
    #[must_use]
    pub fn takes_next(&self) -> bool {
        self.value.is_some() && !self.needs_equals
    }
}

#[cfg(test)]
pub mod sample {
    //! A small definition for tests.

    use super::{Definition, Operand, ValueKind, Verb, VerbOption};

    fn operand(name: &str) -> Operand {
        let kind = match name {
            "KEY" => ValueKind::Key,
            "FILE" => ValueKind::File,
            "DIR" => ValueKind::Directory,
            "CONTEXT" => ValueKind::Context,
            "CMD" => ValueKind::Command,
            "VERB|TOPIC" => ValueKind::HelpSubject,
            _ => ValueKind::Other,
        };
        Operand {
            name: name.to_owned(),
            kind,
            is_many: ["CMD", "VERB|TOPIC"].contains(&name),
            ..Operand::default()
        }
    }

    fn choices(names: &[&str]) -> ValueKind {
        ValueKind::Choices(names.iter().map(|name| ((*name).to_owned(), String::new())).collect())
    }

    fn option(long: &str, short: Option<char>, value: Option<&str>) -> VerbOption {
        VerbOption {
            longs: vec![long.to_owned()],
            shorts: short.into_iter().collect(),
            value: value.map(operand),
            is_hinted: true,
            replaces_operand: long == "key",
            ..VerbOption::default()
        }
    }

    fn verb(name: &str, operands: &[&str], options: Vec<VerbOption>) -> Verb {
        let operands = operands.iter().map(|name| operand(name)).collect();
        Verb { name: name.to_owned(), operands, options, ..Verb::default() }
    }

    /// `get`, `set`, `vdel`, `del` (also `rm`), `raw`, `watch`, `lock`, `unlock`, `decode topic`, `help`.
    pub fn definition() -> Definition {
        let key = || option("key", Some('k'), Some("KEY"));
        let value = || {
            ["value", "hex", "base64"].map(|long| option(long, None, Some("STR"))).into_iter().chain([
                option("file", Some('f'), Some("FILE")),
                option("fence", None, Some("TOKEN")),
                key(),
            ])
        };
        let ttl = [
            option("ttl", None, Some("DURATION")),
            option("nx", None, None),
            option("quiet", Some('q'), None),
        ];
        let output = VerbOption {
            value: Some(Operand { kind: choices(&["raw", "json"]), ..operand("FORMAT") }),
            is_hinted: false,
            ..option("output", Some('o'), None)
        };
        let every = || {
            [
                output.clone(),
                VerbOption { is_hinted: false, ..option("context", Some('x'), Some("CONTEXT")) },
                VerbOption { needs_equals: true, ..option("embedded", None, Some("DIR")) },
                option("quiet", Some('q'), None),
            ]
        };
        let get = [key(), option("file", Some('f'), Some("FILE"))].into_iter().chain(every()).collect();
        let mut del = verb("del", &["KEY"], vec![key()]);
        del.aliases = vec!["rm".to_owned()];
        del.operands[0].is_many = true;
        let mut decode = verb("decode", &[], vec![]);
        decode.verbs = vec![verb("topic", &["TOPIC"], vec![])];
        let only = VerbOption {
            value: Some(Operand { kind: choices(&["set", "del"]), delimiter: Some(','), ..operand("KIND") }),
            is_repeatable: true,
            ..option("only", None, None)
        };
        let mut watch = verb("watch", &["KEY", "CMD"], vec![only]);
        watch.operands[0].is_many = true;
        watch.operands[1].follows_dashes = true;
        let verbs = vec![
            verb("get", &["KEY"], get),
            verb("set", &["KEY", "VALUE"], value().chain(ttl).collect()),
            verb("vdel", &["KEY", "VALUE"], value().collect()),
            del,
            verb("raw", &["WORD"], vec![]),
            watch,
            verb("lock", &["KEY", "CMD"], vec![key(), option("once", None, None)]),
            verb("unlock", &["KEY"], vec![]),
            decode,
            verb("help", &["VERB|TOPIC"], vec![]),
        ];
        let root = Verb { options: every().to_vec(), verbs, ..Verb::default() };
        Definition {
            root,
            topics: vec![("locks".to_owned(), "Leases".to_owned())],
            ignores_case: true,
            unavailable_options: vec!["--timeout".to_owned(), "-u".to_owned()],
        }
    }
}
