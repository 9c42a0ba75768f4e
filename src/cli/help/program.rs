//! The help of the program itself: its verbs in groups, and the topics.

use super::page::{Page, Row, Table};
use super::topics::TOPICS;
use crate::commands::HELP_GROUPS;

/// What to type first.
const FIRST: &[(&str, &str)] = &[
    ("mqkv serve", "A store on this machine, for a first try"),
    ("mqkv set line1/temp 21.5", "Write a key"),
    ("mqkv get line1/temp", "Print its value"),
];

/// The verbs of the process edge.
const PROCESS: &[(&str, &str)] = &[
    ("shell", "Open an interactive prompt, as does no verb"),
    ("context, config", "Name the settings of brokers, show those in effect"),
    ("completions, man, help", "Print scripts for shells, manual pages, help"),
];

/// The verbs that run a store.
const STORE: &[(&str, &str)] = &[
    ("serve, store, data", "Run a store, repair its files"),
    ("exchange", "Show and control the exchange between stores"),
];

/// Adds what no definition of clap contains.
pub fn complete(page: &mut Page) {
    let row = |(names, about): &(&str, &str)| Row {
        names: vec![(*names).to_owned()],
        about: (*about).to_owned(),
        ..Row::default()
    };
    for group in [FIRST, &[HELP_GROUPS, PROCESS].concat(), STORE] {
        if !page.overview.is_empty() {
            // An empty line.
            page.overview.push(Row::default());
        }
        page.overview.extend(group.iter().map(row));
    }
    let topics = TOPICS.iter().map(|topic| row(&(topic.name, topic.about)));
    page.tables.insert(1, Table { heading: "Topics".to_owned(), rows: topics.collect() });
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn every_verb_is_in_one_group() {
        let groups = [HELP_GROUPS, PROCESS, STORE].concat();
        let mut grouped: Vec<_> = groups.iter().flat_map(|(names, _)| names.split(", ")).collect();
        grouped.sort_unstable();
        let definition = Cli::command();
        let mut verbs: Vec<_> = definition.get_subcommands().map(clap::Command::get_name).collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }
}
