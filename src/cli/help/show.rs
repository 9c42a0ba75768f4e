//! Help of a verb or a topic as text.

use std::ffi::OsString;

use clap::Command;

use super::page::Page;
use super::program;
use super::terminal::{Screen, Writer};
use super::text::sections;
use super::topics::{TOPICS, Topic};
use crate::commands::CommandError;
use crate::commands::similarity::closest;
use crate::shell::definition::{self, Expected};

/// Returns the help of a topic, or of the verb with these names in the definition, which must have been built.
///
/// # Errors
/// There is no such verb or topic.
pub fn text(names: &[String], definition: &Command, screen: Screen) -> Result<String, CommandError> {
    if let [name] = names
        && let Some(topic) = TOPICS.iter().find(|topic| topic.name == name)
    {
        return Ok(topic_text(topic, screen));
    }
    let mut command = definition;
    for (index, name) in names.iter().enumerate() {
        let above = names.get(..index).unwrap_or_default();
        command =
            command.find_subcommand(name).ok_or_else(|| unknown(name, command, above, screen.program()))?;
    }
    Ok(page(command, true, names.is_empty(), screen))
}

/// Returns the error for a name that is neither a verb below `command` nor a topic.
fn unknown(name: &str, command: &Command, above: &[String], program: &str) -> CommandError {
    let verbs = command.get_subcommands().map(Command::get_name);
    let topics = TOPICS.iter().filter(|_| above.is_empty()).map(|topic| topic.name);
    let mut error = CommandError::usage(format!("unknown verb or topic: {name}"));
    let help = |names: &[String]| format!("{program}help {}", names.join(" "));
    error.hints.extend(closest(name, verbs.chain(topics).map(str::to_owned)).map(|name| {
        let names = above.iter().cloned().chain([name]).collect::<Vec<_>>();
        format!("did you mean '{}'?", help(&names))
    }));
    error.hint(help(above).trim_end())
}

/// Returns the help that the words behind the program request with an option, as clap has found. The definition must have been
/// built.
///
/// Clap's own help cannot begin with examples or leave out the options that verbs share.
#[must_use]
pub fn requested(words: &[OsString], definition: &Command, screen: Screen) -> String {
    let (verb, is_long) = requested_by(words, definition).unwrap_or((definition, true));
    page(verb, is_long, verb.get_name() == definition.get_name(), screen)
}

/// Returns the verb whose help is requested first, and whether it is `--help`, not the summary.
fn requested_by<'a>(words: &[OsString], definition: &'a Command) -> Option<(&'a Command, bool)> {
    let words: Vec<_> = words.iter().map(|word| word.as_encoded_bytes().to_vec()).collect();
    words.iter().enumerate().filter(|(_, word)| word.starts_with(b"-")).find_map(|(at, word)| {
        let is_long = word.starts_with(b"--");
        if !(word == b"--help" || !is_long && word.contains(&b'h')) {
            return None;
        }
        let parsed = definition::parse(definition, words.get(..at)?)?;
        let is_value = match parsed.expected {
            Expected::Word { has_dashes, .. } => has_dashes,
            Expected::Value(option) => option.is_allow_hyphen_values_set(),
            Expected::Argument(_) => true,
        };
        let cluster = definition::cluster(parsed.verb, word)?;
        let is_help = !is_value && cluster.options().any(|option| option.get_id() == "help");
        is_help.then_some((parsed.verb, is_long))
    })
}

fn page(command: &Command, is_long: bool, is_program: bool, screen: Screen) -> String {
    let mut page = Page::of(command);
    if is_program {
        program::complete(&mut page);
    }
    let mut writer = Writer::new(screen);
    if is_long {
        writer.all(&page)
    } else {
        writer.summary(&page)
    }
    writer.finish()
}

fn topic_text(topic: &Topic, screen: Screen) -> String {
    let mut writer = Writer::new(screen);
    writer.sections(&sections(&(topic.text)()));
    (topic.tables)().iter().for_each(|table| writer.table(table));
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::definition;
    use crate::cli::help::terminal::NARROW;
    use crate::cli::help::text::Content;

    const PLAIN: Screen = Screen { width: NARROW, has_color: false, is_prompt: false };

    fn shown(names: &[&str]) -> Result<String, CommandError> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        text(&names, &definition(), PLAIN)
    }

    #[test]
    fn every_verb_and_topic_has_help() {
        assert!(shown(&[]).unwrap().contains("--embedded"));
        assert!(shown(&["get"]).unwrap().contains("mqkv get"));
        assert!(shown(&["rm"]).unwrap().contains("Delete keys"));
        assert!(shown(&["decode", "frame"]).unwrap().contains("--hex"));
        assert!(shown(&["exit-codes"]).unwrap().contains("  124  no answer"));
        assert!(shown(&["config"]).unwrap().contains("read_only = true"));
        assert!(shown(&["environment"]).unwrap().contains("MQKV_CONNECT_TIMEOUT"));
        assert!(shown(&["locks"]).unwrap().contains("--fence-env"));
        assert!(shown(&["environment"]).unwrap().contains("MQKV_LOCK_HOLDER"));
        let options = shown(&["options"]).unwrap();
        assert!(options.contains("Connection options:") && options.contains("--keep-alive DURATION"));
        assert!(options.contains("Output options:") && !options.contains("Usage:"));
        assert!(shown(&["unknown"]).is_err());
        let hints = |names: &[&str]| shown(names).unwrap_err().hints;
        assert_eq!(hints(&["lokcs"]), ["did you mean 'mqkv help locks'?", "mqkv help"]);
        assert_eq!(
            hints(&["decode", "fraem"]),
            ["did you mean 'mqkv help decode frame'?", "mqkv help decode"]
        );
    }

    #[test]
    fn the_summary_of_every_verb_fits_on_a_screen_of_24_lines_and_80_columns() {
        for_every_verb(|verb| {
            // On a wide terminal nothing is wrapped, so that a row that is too long is found.
            let wide = Screen { width: 200, has_color: false, is_prompt: false };
            let summary = page(verb, false, verb.get_name() == "mqkv", wide);
            let name = Page::of(verb).path;
            let lines: Vec<_> = summary.lines().collect();
            assert!(lines.len() <= 24, "{name} has {} lines:\n{summary}", lines.len());
            assert!(lines.iter().all(|line| line.len() <= 80), "{name}:\n{summary}");
            assert!(lines.iter().any(|line| line.contains("mqkv help options")), "{name}:\n{summary}");
        });
    }

    #[test]
    fn help_is_that_of_the_verb_in_front_of_its_option() {
        let definition = definition();
        let requested = |line: &str| {
            let words: Vec<_> = line.split(' ').map(Into::into).collect();
            requested_by(&words, &definition).map(|(verb, is_long)| (verb.get_name(), is_long))
        };
        for (line, verb, is_long) in [
            ("-h", "mqkv", false),
            ("--help", "mqkv", true),
            ("get -h", "get", false),
            ("get k -jh --help", "get", false),
            ("-b mqtt://h context add --help", "add", true),
            ("rm --help", "del", true),
            ("-h get", "mqkv", false),
            ("get -b --help", "get", true),
            ("set k --value -h --help", "set", true),
            ("lock k --help -- cmd -h", "lock", true),
        ] {
            assert_eq!(requested(line), Some((verb, is_long)), "{line}");
        }
        for line in ["lock k cmd -h", "get -- -h", "get k"] {
            assert_eq!(requested(line), None, "{line}");
        }
    }

    /// Asserts something about every verb, at every level.
    fn for_every_verb(check: impl Fn(&Command)) {
        fn visit(command: &Command, check: &impl Fn(&Command)) {
            check(command);
            command.get_subcommands().for_each(|below| visit(below, check));
        }
        visit(&definition(), &check);
    }

    fn for_every_page(check: impl Fn(&Page)) {
        for_every_verb(|verb| check(&Page::of(verb)));
    }

    #[test]
    fn verbs_and_options_are_described_in_one_short_line() {
        for_every_page(|page| {
            let rows = page.tables.iter().chain(&page.shared).flat_map(|table| &table.rows);
            for about in rows.map(|row| &row.about).chain([&page.about]) {
                let is_short = !about.is_empty() && about.len() <= 60;
                assert!(is_short && !about.ends_with('.'), "{}: {about}", page.path);
            }
        });
    }

    #[test]
    fn lines_that_are_not_filled_fit_into_a_narrow_terminal_and_a_manual_page() {
        for_every_page(|page| {
            let blocks = page.sections.iter().flat_map(|section| &section.blocks);
            for block in blocks.chain(&page.examples) {
                let Content::Lines(lines) = &block.content else { continue };
                for line in lines {
                    // A manual page indents them by five columns more.
                    assert!(line.len() <= NARROW - 5, "{}: {line}", page.path);
                }
            }
        });
        for topic in TOPICS {
            let shown = topic_text(topic, PLAIN);
            assert!(shown.lines().all(|line| line.len() <= NARROW), "{}:\n{shown}", topic.name);
        }
    }

    #[test]
    fn all_of_the_help_begins_with_examples_and_refers_to_the_shared_options() {
        for verb in ["get", "set", "watch", "lock", "serve", "batch", "context"] {
            let help = shown(&[verb]).unwrap();
            let headings: Vec<_> =
                help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
            assert_eq!(headings[0], "Examples:", "{verb}");
            assert!(!help.contains("--keep-alive "), "{verb}");
            assert!(help.trim_end().ends_with("options: mqkv help options"), "{verb}");
        }
    }
}
