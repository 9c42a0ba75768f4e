//! The definition of the command line for completion and hints, derived from clap's.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::args::Cli;
use super::help::topics::TOPICS;
use super::options::{self, ConnectionArgs, Options};
use crate::shell::definition::{Definition, Operand, ValueKind, Verb, VerbOption};

/// Verbs that the prompt refuses.
pub const NOT_AT_THE_PROMPT: &[&str] =
    &["shell", "serve", "store", "data", "completions", "man", "context", "config"];

/// Returns the definition of the whole command line, as the system's shells complete it.
#[must_use]
pub fn of_command_line() -> Definition {
    define(&Scope { shared: options::ids::<Options>(), left_out: Vec::new() }, &[])
}

/// Returns the definition of a line of the prompt. The connection is open, so its options are left out.
#[must_use]
pub fn of_prompt() -> Definition {
    let scope = Scope { shared: options::ids::<Options>(), left_out: options::ids::<ConnectionArgs>() };
    Definition { ignores_case: true, ..define(&scope, NOT_AT_THE_PROMPT) }
}

/// Identifiers of options, as clap has them.
struct Scope {
    /// Hints do not show these.
    shared: Vec<String>,
    left_out: Vec<String>,
}

impl Scope {
    fn leaves_out(&self, arg: &Arg) -> bool {
        self.left_out.iter().any(|id| id == arg.get_id().as_str())
    }
}

fn define(scope: &Scope, left_out: &[&str]) -> Definition {
    let mut root = Cli::command();
    // Adds the options that verbs share.
    root.build();
    let unavailable_options =
        root.get_arguments().filter(|arg| scope.leaves_out(arg)).flat_map(names_of).collect();
    let mut root = verb(&root, scope);
    root.verbs.retain(|verb| !left_out.contains(&verb.name.as_str()));
    let topics = TOPICS.iter().map(|topic| (topic.name.to_owned(), topic.about.to_owned())).collect();
    Definition { root, topics, ignores_case: false, unavailable_options }
}

/// Returns the names of an option, with their dashes.
fn names_of(arg: &Arg) -> Vec<String> {
    let longs =
        arg.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|long| format!("--{long}"));
    let shorts =
        arg.get_short_and_visible_aliases().unwrap_or_default().into_iter().map(|short| format!("-{short}"));
    longs.chain(shorts).collect()
}

fn verb(command: &Command, scope: &Scope) -> Verb {
    let is_left_out = |arg: &&Arg| arg.is_hide_set() || scope.leaves_out(arg);
    let arguments = || command.get_arguments().filter(|arg| !is_left_out(arg));
    let verbs = command.get_subcommands().filter(|below| !below.is_hide_set());
    Verb {
        name: command.get_name().to_owned(),
        aliases: command.get_visible_aliases().map(str::to_owned).collect(),
        about: command.get_about().map(ToString::to_string).unwrap_or_default(),
        options: arguments().filter(|arg| !arg.is_positional()).map(|arg| option(arg, scope)).collect(),
        operands: arguments().filter(|arg| arg.is_positional()).map(operand).collect(),
        verbs: verbs.map(|below| verb(below, scope)).collect(),
    }
}

fn option(arg: &Arg, scope: &Scope) -> VerbOption {
    let id = arg.get_id().as_str();
    // A hint that named every way to write a key or a value would fill the line.
    let is_variant = id == "help" || id.starts_with("key_") || id.starts_with("value_");
    let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
    VerbOption {
        longs: longs.into_iter().map(str::to_owned).collect(),
        shorts: arg.get_short_and_visible_aliases().unwrap_or_default(),
        about: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        value: arg.get_action().takes_values().then(|| operand(arg)),
        needs_equals: arg.is_require_equals_set(),
        is_repeatable: matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
        replaces_operand: id.starts_with("key_"),
        is_hinted: !is_variant && !scope.shared.iter().any(|other| other == id),
    }
}

fn operand(arg: &Arg) -> Operand {
    let name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let name = name.unwrap_or_else(|| arg.get_id().to_string().to_uppercase());
    let choices: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| {
            let about = value.get_help().map(ToString::to_string).unwrap_or_default();
            (value.get_name().to_owned(), about)
        })
        .collect();
    // The name of a value in the help decides its kind: each kind has one name everywhere.
    let kind = match name.as_str() {
        _ if !choices.is_empty() => ValueKind::Choices(choices),
        "KEY" => ValueKind::Key,
        "FILE" | "FILE|-" => ValueKind::File,
        "DIR" => ValueKind::Directory,
        "CONTEXT" => ValueKind::Context,
        "LEAF" => ValueKind::Leaf,
        "ID" => ValueKind::Conflict,
        "CMD" => ValueKind::Command,
        "VERB|TOPIC" => ValueKind::HelpSubject,
        _ => ValueKind::Other,
    };
    let is_many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    Operand {
        name,
        kind,
        is_many: is_many || matches!(arg.get_action(), ArgAction::Append),
        follows_dashes: arg.is_last_set(),
        delimiter: arg.get_value_delimiter(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(verb: &Verb) -> Vec<&str> {
        verb.operands.iter().map(|operand| operand.name.as_str()).collect()
    }

    #[test]
    fn the_prompt_has_the_verbs_it_runs_without_options_of_the_connection() {
        let definition = of_prompt();
        let set = definition.verb(b"SET").unwrap();
        assert_eq!(names(set), ["KEY", "VALUE"]);
        assert!(set.option(b"--value").is_some_and(VerbOption::takes_next));
        assert!(set.option(b"--nx").is_some_and(|option| option.value.is_none() && option.is_hinted));
        assert!(set.option(b"--broker").is_none());
        let output = set.option(b"-o").unwrap();
        let formats = &output.value.as_ref().unwrap().kind;
        assert!(
            matches!(formats, ValueKind::Choices(choices) if choices.iter().any(|(name, _)| name == "json"))
        );
        assert!(!output.is_hinted);
        assert!(definition.verb(b"rm").is_some_and(|del| del.operands[0].is_many));
        assert!(definition.verb(b"serve").is_none());
        for option in ["-b", "--broker", "--timeout", "-u", "--password-file"] {
            assert!(definition.unavailable_options.iter().any(|name| name == option), "{option}");
        }
        assert!(!definition.unavailable_options.iter().any(|name| name == "--force-write" || name == "-o"));
        assert!(!definition.verb(b"decode").unwrap().verbs.is_empty());
    }

    #[test]
    fn the_command_line_has_the_connection_too_where_a_verb_takes_it() {
        let definition = of_command_line();
        let get = definition.verb(b"get").unwrap();
        assert_eq!(get.option(b"-x").unwrap().value.as_ref().unwrap().kind, ValueKind::Context);
        assert_eq!(get.option(b"-T").unwrap().value.as_ref().unwrap().kind, ValueKind::File);
        assert!(get.option(b"--embedded").is_some_and(|option| !option.takes_next()));
        assert!(definition.root.option(b"-b").is_some());
        let serve = definition.verb(b"serve").unwrap();
        assert!(serve.option(b"-b").is_none() && serve.option(b"--users").is_some());
        let lock = definition.verb(b"lock").unwrap();
        assert_eq!(lock.operand(1, false).unwrap().kind, ValueKind::Command);
        let watch = definition.verb(b"watch").unwrap();
        assert_eq!(watch.operand(5, false).unwrap().kind, ValueKind::Key);
        assert_eq!(watch.operand(5, true).unwrap().kind, ValueKind::Command);
    }

    /// Each verb has operands of the kinds that its help names.
    #[test]
    fn contexts_are_named_so_wherever_one_is_taken() {
        let definition = of_command_line();
        let context = definition.verb(b"context").unwrap();
        for verb in ["use", "show", "rm", "test"] {
            let verb = context.below(verb.as_bytes(), false).unwrap();
            assert_eq!(verb.operands[0].kind, ValueKind::Context, "{}", verb.name);
        }
        assert_eq!(context.below(b"add", false).unwrap().operands[0].kind, ValueKind::Other);
    }
}
