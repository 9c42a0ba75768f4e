//! Help on a terminal (pure).

use std::fmt::Write;

use super::page::{Page, Row, Table};
use super::text::{Block, Content, Section};

/// The columns of a narrow terminal, which summaries are written for.
pub const NARROW: usize = 80;

/// The topic of the options that verbs share.
const SHARED: &str = "help options";

/// The screen that help is written for.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// In columns.
    pub width: usize,
    pub has_color: bool,
    /// Whether it shows the prompt, where a verb has no program before it, and the connection is open.
    pub is_prompt: bool,
}

impl Screen {
    /// Returns what stands before a verb.
    #[must_use]
    pub fn program(self) -> &'static str {
        if self.is_prompt { "" } else { "mqkv " }
    }
}

/// Writes help.
#[derive(Debug)]
pub struct Writer {
    text: String,
    screen: Screen,
}

impl Writer {
    /// Creates a writer.
    #[must_use]
    pub fn new(screen: Screen) -> Self {
        Self { text: String::new(), screen }
    }

    /// Returns what was written.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    /// Writes the summary of a verb, which fits on a screen of 24 lines.
    pub fn summary(&mut self, page: &Page) {
        self.line(&page.about);
        self.blank();
        self.usages(page);
        self.blank();
        let rows = page.tables.iter().flat_map(|table| &table.rows).filter(|row| !row.is_help());
        let rows: Vec<_> =
            if page.overview.is_empty() { rows.collect() } else { page.overview.iter().collect() };
        let shown: Vec<_> = rows.iter().copied().filter(|row| !row.is_minor).collect();
        let is_complete = shown.len() == rows.len();
        self.rows(&shown, false);
        if !shown.is_empty() {
            self.blank();
        }
        self.reference(page, if is_complete { "Examples" } else { "More options, examples" });
    }

    /// Writes all of the help of a verb.
    pub fn all(&mut self, page: &Page) {
        self.line(&page.about);
        self.blank();
        self.usages(page);
        let example = ("Examples", &page.examples);
        let description = ("Description", &page.description);
        for (heading, blocks) in [example, description].into_iter().filter(|(_, blocks)| !blocks.is_empty()) {
            self.blank();
            self.heading(heading);
            self.blocks(blocks);
        }
        let is_own = |table: &&Table| table.rows.iter().any(|row| !row.is_help());
        for table in page.tables.iter().filter(is_own) {
            self.table(table);
        }
        self.sections(&page.sections);
        self.blank();
        self.reference(page, "");
    }

    /// Writes sections, each after an empty line.
    pub fn sections(&mut self, sections: &[Section]) {
        for section in sections {
            self.blank();
            if !section.heading.is_empty() {
                self.heading(&section.heading);
            }
            self.blocks(&section.blocks);
        }
    }

    /// Writes a table under its heading, after an empty line.
    pub fn table(&mut self, table: &Table) {
        self.blank();
        self.heading(&table.heading);
        let rows: Vec<_> = table.rows.iter().filter(|row| !row.is_help()).collect();
        self.rows(&rows, true);
    }

    /// Writes where the options of every verb are described, and, with a word, where the rest of this help is.
    fn reference(&mut self, page: &Page, rest: &str) {
        let has_connection = page.has_connection && !self.screen.is_prompt;
        let which = if has_connection { "Connection and output options" } else { "Output options" };
        let shared = format!("{which}: {}{SHARED}", self.screen.program());
        let path = if self.screen.is_prompt { page.path.trim_start_matches("mqkv ") } else { &page.path };
        let own = format!("{rest}: {path} --help");
        if rest.is_empty() {
            self.line(&shared);
        } else if shared.len().saturating_add(own.len()).saturating_add(2) <= self.screen.width.min(NARROW) {
            self.line(&format!("{shared}. {own}"));
        } else {
            self.line(&shared);
            self.line(&own);
        }
    }

    fn usages(&mut self, page: &Page) {
        for (index, usage) in page.usages.iter().enumerate() {
            let label = if index == 0 { self.bold("Usage:") } else { "      ".to_owned() };
            self.line(&format!("{label} {usage}"));
        }
    }

    fn rows(&mut self, rows: &[&Row], has_details: bool) {
        /// Longer terms do not move the column of the descriptions.
        const TERM_MAX: usize = 30;
        /// Of the blanks before a term and behind it.
        const MARGINS: usize = 4;
        let lengths = rows.iter().map(|row| row.term().chars().count()).filter(|length| *length <= TERM_MAX);
        let column = lengths.max().unwrap_or(0).saturating_add(MARGINS);
        for row in rows {
            let term = row.term();
            let length = term.chars().count().saturating_add(MARGINS);
            let padding = " ".repeat(column.saturating_sub(length));
            let mut about = row.about.clone();
            if has_details && !row.aliases.is_empty() {
                let plural = if row.aliases.len() == 1 { "" } else { "es" };
                let _ = write!(about, " [alias{plural}: {}]", row.aliases.join(", "));
            }
            let start = format!("  {}{padding}  ", self.bold(&term));
            self.filled(&start, length.max(column), column, &about);
            if !has_details {
                continue;
            }
            let indent = " ".repeat(column);
            for paragraph in &row.details {
                self.filled(&indent, column, column, paragraph);
            }
            let width = row.values.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, about) in &row.values {
                let start = format!("{indent}  {name:<width$}  ");
                let column = column.saturating_add(width).saturating_add(4);
                self.filled(&start, column, column, about);
            }
        }
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for (index, block) in blocks.iter().enumerate() {
            if index > 0 && !block.is_tight {
                self.blank();
            }
            match &block.content {
                Content::Paragraph(text) => self.filled("", 0, 0, text),
                Content::Item(text) => self.filled("- ", 2, 2, text),
                Content::Lines(lines) => lines.iter().for_each(|line| self.line(line)),
            }
        }
    }

    /// Writes words behind `start`, which ends before the column `from`; further lines begin at the column `indent`.
    fn filled(&mut self, start: &str, from: usize, indent: usize, text: &str) {
        let mut line = start.to_owned();
        let mut at = from;
        let mut is_first = true;
        for word in text.split_whitespace() {
            let length = word.chars().count();
            let end = at.saturating_add(length).saturating_add(usize::from(!is_first));
            if end > self.screen.width && !is_first {
                self.line(line.trim_end());
                line = " ".repeat(indent);
                at = indent;
            } else if !is_first {
                line.push(' ');
                at = at.saturating_add(1);
            }
            line.push_str(word);
            at = at.saturating_add(length);
            is_first = false;
        }
        self.line(line.trim_end());
    }

    fn heading(&mut self, heading: &str) {
        let heading = self.bold(&format!("{heading}:"));
        self.line(&heading);
    }

    fn bold(&self, text: &str) -> String {
        if self.screen.has_color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn blank(&mut self) {
        // A text without a heading stands at the beginning.
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }
}

impl Row {
    /// Whether it is one of the options that print help.
    #[must_use]
    pub fn is_help(&self) -> bool {
        self.names.iter().any(|name| name == "--help")
    }

    /// Returns names and value; without a short name there is room for one.
    pub fn term(&self) -> String {
        let names = self.names.join(", ");
        let has_room = names.starts_with("--");
        format!("{}{names}{}", if has_room { "    " } else { "" }, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help::text::sections;

    fn written(width: usize, write: impl Fn(&mut Writer)) -> String {
        let mut writer = Writer::new(Screen { width, has_color: false, is_prompt: false });
        write(&mut writer);
        writer.finish()
    }

    #[test]
    fn paragraphs_and_items_are_filled_to_the_width_and_other_lines_are_kept() {
        let text =
            sections("Output:\none two\nthree four:\n  a    b    c    d    e\n\n- one two three\n- four");
        assert_eq!(
            written(12, |writer| writer.sections(&text)),
            "Output:\none two\nthree four:\n  a    b    c    d    e\n\n- one two\n  three\n- four\n"
        );
    }

    #[test]
    fn a_description_continues_in_its_column() {
        let row = |names: &[&str], value: &str, about: &str| Row {
            names: names.iter().map(ToString::to_string).collect(),
            value: value.into(),
            about: about.into(),
            ..Row::default()
        };
        let details = vec!["When.".to_owned()];
        let rows = vec![
            Row { details, ..row(&["-c", "--count"], " N", "Exit after N changes") },
            row(&["--nx"], "", "No"),
        ];
        let table = Table { heading: "Options".into(), rows };
        assert_eq!(
            written(32, |writer| writer.table(&table)),
            "Options:\n  -c, --count N  Exit after N\n                 changes\n                 When.\n      --nx       No\n"
        );
    }
}
