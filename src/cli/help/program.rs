//! The help of the program itself: its verbs in groups, and the topics.

use super::page::{Page, Row, Table};
use super::topics::TOPICS;

/// The verbs in groups that fit on one screen.
const GROUPS: &[(&str, &str)] = &[
    ("get, set, edit, del, vdel", "Read, write and delete keys"),
    ("keys, watch", "List keys, print their changes"),
    ("lock, unlock, holder", "Hold a lock while a command runs"),
    ("export, import, batch", "Read and write many keys"),
    ("ping, bench, doctor", "Measure the store, diagnose the connection"),
    ("monitor, decode, raw", "Look at requests, replies and notifications"),
    ("shell", "Open an interactive prompt, as does no verb"),
    ("serve, store, data", "Run a state store, repair its files"),
    ("exchange", "Show and control the exchange between stores"),
    ("context, config", "Name the settings of brokers, show those in effect"),
    ("completions, man, help", "Print scripts for shells, manual pages, help"),
];

/// Adds what no definition of clap contains.
pub fn complete(page: &mut Page) {
    let row = |(names, about): &(&str, &str)| Row {
        names: vec![(*names).to_owned()],
        about: (*about).to_owned(),
        ..Row::default()
    };
    page.overview = GROUPS.iter().map(row).collect();
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
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(names, _)| names.split(", ")).collect();
        grouped.sort_unstable();
        let definition = Cli::command();
        let mut verbs: Vec<_> = definition.get_subcommands().map(clap::Command::get_name).collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }
}
