//! Manual pages in the language of man(7) (pure).

use clap::Command;

use super::page::{Page, Row, Table};
use super::program;
use super::text::{Block, Content};
use super::topics;

/// The date of the pages: they must not depend on the day on which they are generated.
const DATE: &str = "2026-11-22";

/// The longest line of text; a checker of manual pages reports lines above 80 bytes.
const LINE_MAX: usize = 78;

/// Returns the pages of a command, which must have been built, and of all commands below it; each with its name.
#[must_use]
pub fn pages(program: &Command) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    add(program, None, &mut pages);
    pages
}

fn add(command: &Command, above: Option<&Command>, pages: &mut Vec<(String, String)>) {
    let mut page = Page::of(command);
    if above.is_none() {
        program::complete(&mut page);
    }
    let name = name_of(command);
    pages.push((format!("{name}.1"), render(command, above, &page)));
    command.get_subcommands().for_each(|below| add(below, Some(command), pages));
}

fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn render(command: &Command, above: Option<&Command>, page: &Page) -> String {
    let name = name_of(command);
    let mut out = Roff::default();
    let title = escape(&name.to_uppercase());
    out.line(&format!(".TH {title} 1 {DATE} \"mqkv {}\" mqkv", env!("CARGO_PKG_VERSION")));
    out.section("NAME");
    out.text(&format!("{name} - {}", page.about));
    out.section("SYNOPSIS");
    for (index, usage) in page.usages.iter().enumerate() {
        if index > 0 {
            out.line(".br");
        }
        let rest = usage.strip_prefix(&page.path).unwrap_or_default();
        out.line(&format!("\\fB{}\\fR{}", escape(&page.path), escape(rest)));
    }
    if !page.examples.is_empty() {
        out.section("EXAMPLES");
        out.blocks(&page.examples);
    }
    out.section("DESCRIPTION");
    out.text(&format!("{}.", page.about));
    if !page.description.is_empty() {
        out.line(".PP");
        out.blocks(&page.description);
    }
    for table in &page.tables {
        out.table(table, name);
    }
    if above.is_none() {
        page.shared.iter().for_each(|table| out.table(table, name));
    } else {
        let kinds = if page.has_connection { "connection and output options" } else { "output options" };
        out.line(".PP");
        out.line(&format!("The {kinds} are described in"));
        out.line(".BR mqkv (1).");
    }
    for section in &page.sections {
        out.section(&section.heading.to_uppercase());
        out.blocks(&section.blocks);
    }
    if above.is_none() {
        out.table(&Table { heading: "Exit status".to_owned(), ..topics::exit_codes() }, name);
    }
    out.see_also(command, above);
    out.text
}

#[derive(Default)]
struct Roff {
    text: String,
}

impl Roff {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn section(&mut self, heading: &str) {
        self.line(&format!(".SH \"{}\"", escape(heading)));
    }

    /// Adds filled text, in lines that are not too long.
    fn text(&mut self, text: &str) {
        let mut line = String::new();
        for word in marked(text).split(' ') {
            if !line.is_empty() && line.len().saturating_add(word.len()) >= LINE_MAX {
                self.words(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.words(&line);
    }

    /// Adds a line that is not a request, whatever its first character.
    fn words(&mut self, line: &str) {
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        self.line(&format!("{guard}{line}"));
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for (index, block) in blocks.iter().enumerate() {
            let is_item = matches!(block.content, Content::Item(_));
            if index > 0 && !block.is_tight && !is_item {
                self.line(".PP");
            }
            match &block.content {
                Content::Paragraph(text) => self.text(text),
                Content::Item(text) => {
                    self.line(".IP \\(bu 2");
                    self.text(text);
                }
                Content::Lines(lines) => {
                    self.line(".EX");
                    for line in lines {
                        // The page indents all of its text.
                        self.words(&escape(line.strip_prefix("  ").unwrap_or(line)));
                    }
                    self.line(".EE");
                }
            }
        }
    }

    fn table(&mut self, table: &Table, name: &str) {
        self.section(&table.heading.to_uppercase());
        let is_program = name == "mqkv";
        for row in &table.rows {
            self.line(".TP");
            if is_program && table.heading == "Verbs" {
                self.line(&format!(".BR mqkv\\-{} (1)", escape(&row.names.concat())));
            } else {
                self.line(&term(row));
            }
            self.text(&row.about);
            if !row.aliases.is_empty() {
                self.line(".IP");
                self.text(&format!("Also {}.", row.aliases.join(", ")));
            }
            for paragraph in &row.details {
                self.line(".IP");
                self.text(paragraph);
            }
            for (value, about) in &row.values {
                self.line(".RS");
                self.line(".TP");
                self.line(&format!("\\fB{}\\fR", escape(value)));
                self.text(about);
                self.line(".RE");
            }
        }
    }

    fn see_also(&mut self, command: &Command, above: Option<&Command>) {
        let mut names: Vec<&str> = above.map(name_of).into_iter().collect();
        names.extend(above.is_some_and(|above| name_of(above) != "mqkv").then_some("mqkv"));
        names.extend(command.get_subcommands().map(name_of));
        self.section("SEE ALSO");
        for (index, name) in names.iter().enumerate() {
            let comma = if index.saturating_add(1) < names.len() { "," } else { "" };
            self.line(&format!(".BR {} (1){comma}", escape(name)));
        }
    }
}

/// Names in bold, the value in italics.
fn term(row: &Row) -> String {
    let names: Vec<_> = row.names.iter().map(|name| format!("\\fB{}\\fR", escape(name))).collect();
    let value = match row.value.trim_start_matches(['[', '=', ' ']).trim_end_matches(']') {
        "" => String::new(),
        name => escape(&row.value).replace(&escape(name), &format!("\\fI{}\\fR", escape(name))),
    };
    format!("{}{value}", names.join(", "))
}

/// Escapes text and prints what stands between backquotes in bold.
fn marked(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index > 0 {
            out.push_str(if index % 2 == 1 { "\\fB" } else { "\\fR" });
        }
        out.push_str(&escape(part));
    }
    out
}

/// Escapes the characters that have a meaning in roff, or would be printed as others.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '"' => out.push_str("\\(dq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::definition;

    fn every_page() -> Vec<(String, String)> {
        pages(&definition())
    }

    #[test]
    fn every_option_of_every_page_has_its_text() {
        for (name, page) in every_page() {
            let mut lines = page.lines();
            while let Some(line) = lines.next() {
                if line == ".TP" {
                    let term = lines.next().unwrap();
                    let text = lines.next().unwrap();
                    assert!(!text.is_empty() && !text.starts_with('.'), "{name}: {term} has no text");
                }
            }
        }
    }

    #[test]
    fn the_shared_options_stand_once() {
        for (name, page) in every_page() {
            let is_program = name == "mqkv.1";
            assert_eq!(
                page.contains("\\-\\-keepalive") || page.contains("\\-\\-keep\\-alive"),
                is_program,
                "{name}"
            );
            assert_eq!(page.contains("\n.BR mqkv (1).\n"), !is_program, "{name}");
            let synopsis = page.split(".SH \"SYNOPSIS\"\n").nth(1).unwrap();
            let synopsis = synopsis.split("\n.SH").next().unwrap();
            assert!(synopsis.len() < 200, "{name}: {synopsis}");
        }
    }

    #[test]
    fn text_cannot_be_taken_for_a_request() {
        let mut out = Roff::default();
        out.text("'.a' \\b `c-d`");
        out.words(".e");
        assert_eq!(out.text, "\\(aq.a\\(aq \\eb \\fBc\\-d\\fR\n\\&.e\n");
    }
}
