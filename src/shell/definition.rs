//! Definition of the command line: its verbs, options and operands, and what the words of a line are by it (pure).
//!
//! A definition is clap's, and must have been built. Hidden verbs and options are not part of a line.

use clap::{Arg, ArgAction, Command, ValueHint};

use crate::commands::args::kind::OtherForm;

/// The words of a command line before the cursor, by a definition.
#[derive(Clone, Debug)]
pub struct Parsed<'a> {
    /// The innermost verb.
    pub verb: &'a Command,
    /// The words that were operands of it, by their index.
    pub operands: Vec<usize>,
    pub given: Vec<Given<'a>>,
    pub expected: Expected<'a>,
}

/// An option that was given.
#[derive(Clone, Debug)]
pub struct Given<'a> {
    pub option: &'a Arg,
    pub value: Option<Vec<u8>>,
}

/// What the next word is.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// The value of the option before it.
    Value(&'a Arg),
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

/// Follows the words to their end. Returns `None` if a word should be a verb, but is none.
#[must_use]
pub fn parse<'a>(definition: &'a Command, words: &[Vec<u8>]) -> Option<Parsed<'a>> {
    let mut verb = definition;
    let mut operands = Vec::new();
    let mut given: Vec<Given<'_>> = Vec::new();
    let mut pending: Option<&Arg> = None;
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
        if !has_dashes && let Some(cluster) = cluster(verb, word) {
            replaced = replaced.max(cluster.replaced());
            given.extend(cluster.given);
            pending = cluster.pending;
            continue;
        }
        let count = operands.len().saturating_add(replaced);
        if count == 0 && verb.has_subcommands() {
            verb = below(verb, word)?;
            continue;
        }
        if operand(verb, count, has_dashes).is_some_and(is_command) {
            return Some(Parsed { verb, operands, given, expected: Expected::Argument(index) });
        }
        operands.push(index);
    }
    let count = operands.len().saturating_add(replaced);
    let word = Expected::Word { count, has_dashes };
    Some(Parsed { verb, operands, given, expected: pending.map_or(word, Expected::Value) })
}

pub fn verbs(verb: &Command) -> impl Iterator<Item = &Command> {
    verb.get_subcommands().filter(|below| !below.is_hide_set())
}

/// Returns the verb below another one that has this name or alias.
#[must_use]
pub fn below<'a>(verb: &'a Command, word: &[u8]) -> Option<&'a Command> {
    verbs(verb).find(|below| below.get_name_and_visible_aliases().iter().any(|name| name.as_bytes() == word))
}

pub fn options(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set())
}

/// Returns the operands of a verb, in the order of the command line.
pub fn operands(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_positionals().filter(|arg| !arg.is_hide_set())
}

/// Returns the operand at this place; the last one again, where it may be repeated.
#[must_use]
pub fn operand(verb: &Command, count: usize, has_dashes: bool) -> Option<&Arg> {
    let behind_dashes = operands(verb).find(|operand| operand.is_last_set());
    if has_dashes && behind_dashes.is_some() {
        return behind_dashes;
    }
    let mut others = operands(verb).filter(|operand| !operand.is_last_set());
    let last = operands(verb).filter(|operand| !operand.is_last_set()).last().filter(|last| is_many(last));
    others.nth(count).or(last)
}

/// Returns whether more than one operand may be given.
#[must_use]
pub fn is_many(operand: &Arg) -> bool {
    operand.get_num_args().is_some_and(|range| range.max_values() > 1)
        || matches!(operand.get_action(), ArgAction::Append)
}

/// Returns whether an operand is a command of the system, whose arguments are the words behind it.
#[must_use]
pub fn is_command(operand: &Arg) -> bool {
    operand.get_value_hint() == ValueHint::CommandWithArguments
}

/// Returns the name of an operand, or of the value of an option.
#[must_use]
pub fn value_name(arg: &Arg) -> String {
    let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    name.unwrap_or_else(|| arg.get_id().to_string().to_uppercase())
}

/// Returns the long names of an option, without dashes; the first one is offered.
#[must_use]
pub fn longs(option: &Arg) -> Vec<&str> {
    option.get_long_and_visible_aliases().unwrap_or_default()
}

/// Returns the one-letter names of an option, without dashes.
#[must_use]
pub fn shorts(option: &Arg) -> Vec<char> {
    option.get_short_and_visible_aliases().unwrap_or_default()
}

/// The options that one word names: `--ttl`, `--ttl=5s`, `-q`, `-qo`, `-ojson`.
#[derive(Debug)]
pub struct Cluster<'a> {
    pub given: Vec<Given<'a>>,
    /// The last option, if its value is the next word.
    pub pending: Option<&'a Arg>,
    /// Where the value of the last option begins in the word, if it stands there.
    pub value_at: Option<usize>,
}

/// Returns the options that a word names, or `None` if the word is an operand.
#[must_use]
pub fn cluster<'a>(verb: &'a Command, word: &[u8]) -> Option<Cluster<'a>> {
    let text = std::str::from_utf8(word).ok()?;
    if let Some(long) = text.strip_prefix("--") {
        let name = long.split('=').next()?;
        let option = options(verb).find(|option| longs(option).contains(&name))?;
        let value_at = text.find('=').map(|at| at.saturating_add(1));
        return Some(Cluster::of(Vec::new(), option, text, value_at));
    }
    let letters = text.strip_prefix('-').filter(|letters| !letters.is_empty())?;
    let mut given = Vec::new();
    let mut last = None;
    for (at, letter) in letters.char_indices() {
        let option = options(verb).find(|option| shorts(option).contains(&letter))?;
        if let Some(flag) = last.replace(option) {
            given.push(Given { option: flag, value: None });
        }
        if option.get_action().takes_values() {
            // Of the dash and the name.
            let behind = at.saturating_add(1).saturating_add(letter.len_utf8());
            return Some(Cluster::of(given, option, text, (behind < text.len()).then_some(behind)));
        }
    }
    Some(Cluster::of(given, last?, text, None))
}

impl<'a> Cluster<'a> {
    fn of(mut given: Vec<Given<'a>>, last: &'a Arg, text: &str, value_at: Option<usize>) -> Self {
        if value_at.is_none() && last.get_action().takes_values() && !last.is_require_equals_set() {
            return Self { given, pending: Some(last), value_at };
        }
        let value = value_at.and_then(|at| text.get(at..)).map(|value| value.as_bytes().to_owned());
        given.push(Given { option: last, value });
        Self { given, pending: None, value_at }
    }

    /// Returns all options that the word names.
    pub fn options(&self) -> impl Iterator<Item = &'a Arg> {
        self.given.iter().map(|given| given.option).chain(self.pending)
    }

    /// 1 if one of the options replaces an operand.
    fn replaced(&self) -> usize {
        let is_operand = |option: &Arg| option.get::<OtherForm>() == Some(&OtherForm::OfOperand);
        usize::from(self.options().any(is_operand))
    }
}

#[cfg(test)]
pub mod sample {
    //! A small definition for tests.

    use clap::{Arg, ArgAction, Command, ValueHint};

    use crate::commands::args::kind::{HelpSubject, OtherForm, ValueKind};

    fn option(long: &'static str, value: &'static str) -> Arg {
        let arg = Arg::new(long).long(long).help("An option");
        match value {
            "" => arg.action(ArgAction::SetTrue),
            "KEY" => arg.value_name(value).add(ValueKind::Key).add(OtherForm::OfOperand),
            "FILE" => arg.value_name(value).value_hint(ValueHint::FilePath),
            value => arg.value_name(value),
        }
    }

    fn key() -> Arg {
        option("key", "KEY").short('k')
    }

    fn operand(name: &'static str) -> Arg {
        let arg = Arg::new(name).value_name(name);
        if name == "KEY" { arg.add(ValueKind::Key) } else { arg }
    }

    fn command() -> Arg {
        Arg::new("CMD").num_args(1..).value_hint(ValueHint::CommandWithArguments)
    }

    fn shared() -> [Arg; 5] {
        [
            option("output", "FORMAT").short('o').value_parser(["raw", "json"]).help_heading("Shared"),
            option("context", "CONTEXT").short('x').add(ValueKind::Context).help_heading("Shared"),
            option("embedded", "DIR").value_hint(ValueHint::DirPath).require_equals(true),
            option("quiet", "").short('q'),
            option("timeout", "DURATION").short('u').hide(true),
        ]
    }

    fn value() -> [Arg; 6] {
        [
            option("value", "STR"),
            option("hex", "STR"),
            option("base64", "STR"),
            option("file", "FILE").short('f'),
            option("fence", "TOKEN"),
            key(),
        ]
    }

    fn verb(name: &'static str) -> Command {
        Command::new(name).disable_help_flag(true)
    }

    /// `get`, `set`, `vdel`, `del` (also `rm`), `raw`, `watch`, `lock`, `unlock`, `decode topic`, `help`; `serve` is hidden.
    pub fn definition() -> Command {
        let only = option("only", "KIND")
            .value_parser(["set", "del"])
            .value_delimiter(',')
            .action(ArgAction::Append);
        let set = [option("ttl", "DURATION"), option("nx", ""), option("quiet", "").short('q')];
        let topics = || vec![("locks", "Leases")];
        let mut definition = verb("mqkv").disable_help_subcommand(true).args(shared()).subcommands([
            verb("get").arg(operand("KEY")).args([key(), option("file", "FILE").short('f')]).args(shared()),
            verb("set").args([operand("KEY"), operand("VALUE")]).args(value()).args(set),
            verb("vdel").args([operand("KEY"), operand("VALUE")]).args(value()),
            verb("del").visible_alias("rm").arg(operand("KEY").action(ArgAction::Append)).arg(key()),
            verb("raw").arg(operand("WORD")),
            verb("watch").arg(operand("KEY").action(ArgAction::Append)).arg(command().last(true)).arg(only),
            verb("lock")
                .arg(operand("KEY"))
                .arg(command().trailing_var_arg(true))
                .args([key(), option("once", "")]),
            verb("unlock").arg(operand("KEY")),
            verb("decode").subcommand(verb("topic").arg(operand("TOPIC"))),
            verb("help").arg(operand("VERB|TOPIC").action(ArgAction::Append).add(HelpSubject(topics))),
            verb("serve").hide(true),
        ]);
        definition.build();
        definition
    }
}
