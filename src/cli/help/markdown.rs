//! The help of all verbs as one page in Markdown (pure).

use std::fmt::Write;

use clap::Command;

use super::page::{Page, Row, Table};
use super::text::{Block, Content};
use super::topics;
use crate::shell::definition::verbs;

/// Options of a code block with commands: `tests/it/docs` runs the blocks of pages that do not say why not.
const COMMANDS: &str = "sh no-run: examples of the help, whose verbs and options a test checks";

/// Returns the page. The program must have been built.
#[must_use]
pub fn page(program: &Command) -> String {
    let mut out = Markdown::default();
    out.line("# Verbs and options");
    out.paragraph(
        "All verbs with all their options. This page, the manual pages and `mqkv help VERB` have one source. \
         A test generates the page and compares it.",
    );
    out.blank();
    for verb in verbs(program) {
        let name = verb.get_name();
        let about = escape(&Page::of(verb).about);
        out.line(&format!("- [{name}](#{name}): {about}"));
    }
    out.line("- [Shared options](#shared-options)");
    for verb in verbs(program) {
        out.verb(verb, 2);
    }
    out.line("\n## Shared options");
    out.paragraph("Verbs that connect to a broker have both groups, all others the second one.");
    topics::shared_options().iter().for_each(|table| out.table(table));
    out.text
}

#[derive(Default)]
struct Markdown {
    text: String,
}

impl Markdown {
    fn line(&mut self, line: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn blank(&mut self) {
        self.line("");
    }

    fn paragraph(&mut self, text: &str) {
        self.blank();
        self.line(&escape(text));
    }

    /// Adds a verb and the verbs below it, each under a heading of this level or a lower one.
    fn verb(&mut self, command: &Command, level: usize) {
        let page = Page::of(command);
        let path = page.path.strip_prefix("mqkv ").unwrap_or(&page.path);
        self.blank();
        self.line(&format!("{} {path}", "#".repeat(level)));
        self.paragraph(&format!("{}.", page.about));
        self.blank();
        self.line("```text");
        page.usages.iter().for_each(|usage| self.line(&format!("Usage: {usage}")));
        self.line("```");
        if !page.examples.is_empty() {
            self.blocks(&page.examples);
        }
        self.blocks(&page.description);
        // The verbs below have headings.
        let tables =
            page.tables.iter().filter(|table| !command.has_subcommands() || table.heading != "Verbs");
        tables.for_each(|table| self.table(table));
        for section in &page.sections {
            self.title(&section.heading);
            self.blocks(&section.blocks);
        }
        if page.has_connection {
            self.line("\nAlso: the [connection options](#shared-options).");
        }
        verbs(command).for_each(|below| self.verb(below, level.saturating_add(1)));
    }

    /// A title that is not a heading, because each verb has the same ones.
    fn title(&mut self, title: &str) {
        if !title.is_empty() {
            self.blank();
            self.line(&format!("**{}**", escape(title)));
        }
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            match &block.content {
                Content::Paragraph(text) => self.paragraph(text),
                Content::Item(text) => {
                    if !block.is_tight {
                        self.blank();
                    }
                    self.line(&format!("- {}", escape(text)));
                }
                Content::Lines(lines) => {
                    let lines: Vec<_> =
                        lines.iter().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
                    let has_command = lines.iter().any(|line| line.starts_with("mqkv"));
                    self.blank();
                    self.line(&format!("```{}", if has_command { COMMANDS } else { "text" }));
                    lines.iter().for_each(|line| self.line(line));
                    self.line("```");
                }
            }
        }
    }

    fn table(&mut self, table: &Table) {
        let rows: Vec<_> = table.rows.iter().filter(|row| !row.is_help()).collect();
        if rows.is_empty() {
            return;
        }
        self.title(&table.heading);
        self.blank();
        rows.iter().for_each(|row| self.row(row));
    }

    fn row(&mut self, row: &Row) {
        self.line(&format!("- `{}`: {}", row.term().trim_start(), escape(&row.about)));
        if !row.aliases.is_empty() {
            self.line(&format!("  Also `{}`.", row.aliases.join("`, `")));
        }
        for paragraph in &row.details {
            self.blank();
            self.line(&format!("  {}", escape(paragraph)));
        }
        if !row.values.is_empty() {
            self.blank();
            row.values.iter().for_each(|(value, about)| {
                self.line(&format!("  - `{value}`: {}", escape(about)));
            });
        }
    }
}

/// Escapes the characters that have a meaning in Markdown, outside of code.
fn escape(text: &str) -> String {
    let mut out = String::new();
    let mut is_code = false;
    for c in text.chars() {
        is_code ^= c == '`';
        if !is_code && "\\*_<>[]|#".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_be_taken_for_markup() {
        assert_eq!(escape("a*b_c <d> [e](f) `*g_`"), "a\\*b\\_c \\<d\\> \\[e\\](f) `*g_`");
    }
}
