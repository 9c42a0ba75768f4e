//! The help of a verb as data, from its definition.

use clap::{Arg, ArgAction, Command};

use super::text::{Block, Content, Section, sections};
use crate::cli::options::{CONNECTION, OUTPUT, has_connection};
use crate::commands::args::kind::{OtherForm, ValueKind};
use crate::shell::definition::{self, is_command, is_many};

/// The help of the program or of a verb.
#[derive(Debug)]
pub struct Page {
    /// The program and the verbs, for example `mqkv context add`.
    pub path: String,
    pub about: String,
    /// Without the word `Usage`.
    pub usages: Vec<String>,
    pub examples: Vec<Block>,
    pub description: Vec<Block>,
    /// What the summary lists instead of the tables.
    pub overview: Vec<Row>,
    /// Verbs, arguments and own options, each under a heading.
    pub tables: Vec<Table>,
    /// The other sections of the text.
    pub sections: Vec<Section>,
    /// Whether the verb has the options of connections.
    pub has_connection: bool,
    /// The options that verbs share, under their headings.
    pub shared: Vec<Table>,
}

/// Rows under a heading.
#[derive(Debug)]
pub struct Table {
    pub heading: String,
    pub rows: Vec<Row>,
}

/// A verb, an argument or an option.
#[derive(Debug, Default)]
pub struct Row {
    /// `-k` and `--key`, or the name of a verb; empty for an argument.
    pub names: Vec<String>,
    /// What follows the names, for example ` KEY` or `[=DIR]`.
    pub value: String,
    /// One line, with the default.
    pub about: String,
    pub details: Vec<String>,
    /// Possible values that have a description.
    pub values: Vec<(String, String)>,
    pub aliases: Vec<String>,
    /// Whether the summary leaves it out.
    pub is_minor: bool,
}

const EXAMPLES: &str = "Examples";

impl Page {
    /// Returns the page of a command, which must have been built.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let mut page = Self {
            path: command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned(),
            about: command.get_about().map(ToString::to_string).unwrap_or_default(),
            usages: Vec::new(),
            examples: Vec::new(),
            description: Vec::new(),
            overview: Vec::new(),
            tables: tables(command, |heading| ![CONNECTION, OUTPUT].contains(&heading)),
            sections: Vec::new(),
            has_connection: has_connection(command),
            shared: tables(command, |heading| [CONNECTION, OUTPUT].contains(&heading)),
        };
        if let Some(path) = command.get_bin_name() {
            path.clone_into(&mut page.path);
        }
        page.usages = usages(command, &page.path);
        if let Some(long) = command.get_long_about().map(ToString::to_string) {
            // Its first paragraph is the short one.
            let rest = long.split_once("\n\n").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
            page.description = sections(&rest).into_iter().flat_map(|section| section.blocks).collect();
        }
        let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        for section in sections(&text) {
            if section.heading != EXAMPLES {
                page.sections.push(section);
                continue;
            }
            let is_line = |block: &Block| matches!(block.content, Content::Lines(_));
            let (lines, others): (Vec<_>, Vec<_>) = section.blocks.into_iter().partition(is_line);
            page.examples.extend(lines);
            page.description.extend(others);
        }
        page
    }
}

/// Returns the verbs and options of a command under those headings that `is_wanted` accepts.
fn tables(command: &Command, is_wanted: fn(&str) -> bool) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut add = |heading: &str, row: Row| {
        if !is_wanted(heading) {
            return;
        }
        match tables.iter_mut().find(|table| table.heading == heading) {
            Some(table) => table.rows.push(row),
            None => tables.push(Table { heading: heading.to_owned(), rows: vec![row] }),
        }
    };
    let verbs_heading = command.get_subcommand_help_heading().unwrap_or("Verbs");
    for verb in definition::verbs(command) {
        add(verbs_heading, verb_row(verb));
    }
    definition::operands(command).for_each(|operand| add("Arguments", row(operand)));
    for option in definition::options(command) {
        add(option.get_help_heading().unwrap_or("Options"), row(option));
    }
    tables
}

fn verb_row(verb: &Command) -> Row {
    Row {
        names: vec![verb.get_name().to_owned()],
        about: verb.get_about().map(ToString::to_string).unwrap_or_default(),
        aliases: verb.get_visible_aliases().map(str::to_owned).collect(),
        ..Row::default()
    }
}

fn row(arg: &Arg) -> Row {
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let help = match arg.get_action() {
        ArgAction::Help => "Print a summary (-h) or all of the help (--help)".to_owned(),
        _ => arg.get_help().map(ToString::to_string).unwrap_or_default(),
    };
    let long_help = arg.get_long_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let has_default =
        !defaults.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values();
    let is_shown = !arg.is_hide_possible_values_set();
    let possible = arg.get_possible_values().into_iter().filter(|value| is_shown && !value.is_hide_set());
    Row {
        names: short.into_iter().chain(long).collect(),
        value: value(arg),
        about: if has_default { format!("{help} [default: {}]", defaults.join(",")) } else { help },
        details: long_help.split("\n\n").skip(1).map(str::to_owned).collect(),
        values: possible
            .filter_map(|value| Some((value.get_name().to_owned(), value.get_help()?.to_string())))
            .collect(),
        aliases: arg
            .get_visible_aliases()
            .unwrap_or_default()
            .into_iter()
            .map(|alias| format!("--{alias}"))
            .collect(),
        is_minor: arg.is_hide_short_help_set(),
    }
}

/// Returns what follows the names of an option, or the name of an argument.
fn value(arg: &Arg) -> String {
    /// Longer lists of values stand in the description.
    const LEN_MAX: usize = 16;
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map(ToString::to_string).unwrap_or_default();
    let possible: Vec<_> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let possible = possible.join("|");
    let has_short_list = !possible.is_empty() && possible.len() <= LEN_MAX;
    let name = if has_short_list && !arg.is_hide_possible_values_set() { possible } else { name };
    if arg.is_positional() {
        return if is_many(arg) { format!("{name}...") } else { name };
    }
    match (arg.is_require_equals_set(), arg.get_num_args().is_some_and(|range| range.min_values() == 0)) {
        (true, true) => format!("[={name}]"),
        (true, false) => format!("={name}"),
        _ => format!(" {name}"),
    }
}

fn usages(command: &Command, path: &str) -> Vec<String> {
    let own = usage(command, path);
    if !command.has_subcommands() {
        return vec![own];
    }
    let name = command.get_subcommand_value_name().unwrap_or("VERB");
    if command.is_args_conflicts_with_subcommands_set() {
        let below = command.get_subcommands().map(|below| format!("{path} {} ...", below.get_name()));
        return std::iter::once(own).chain(below).collect();
    }
    vec![format!("{path} {name} [options]")]
}

fn usage(command: &Command, path: &str) -> String {
    let mut usage = path.to_owned();
    // A command of the system stands last, so that its options are its own.
    for arg in definition::operands(command).filter(|arg| !is_command(arg)) {
        let name = value(arg);
        let is_key = arg.get::<ValueKind>() == Some(&ValueKind::Key);
        // A key or a value can also be an option, but it is always there.
        let is_required = arg.is_required_set() || is_key || arg.get::<OtherForm>().is_some();
        usage.push_str(&if is_required { format!(" {name}") } else { format!(" [{name}]") });
        if is_key && command.get_arguments().any(|arg| arg.get_long() == Some("prefix")) {
            usage.push_str(" | --prefix P");
        }
    }
    usage.push_str(" [options]");
    if definition::operands(command).any(is_command) {
        usage.push_str(" [-- CMD ARG...]");
    }
    usage
}
