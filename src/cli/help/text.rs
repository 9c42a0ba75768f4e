//! Help texts as sections and blocks (pure).
//!
//! A text is written as it is read in the source: a heading is a short line that ends with a colon, an indented line is kept
//! as it is, a line after `- ` is an item of a list, and other lines are paragraphs, which are filled to the width.

/// Blocks under a heading; without one at the beginning of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Without the colon.
    pub heading: String,
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub content: Content,
    /// Whether no empty line precedes it.
    pub is_tight: bool,
}

/// The content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Paragraph(String),
    Item(String),
    /// Indented lines, for example commands.
    Lines(Vec<String>),
}

/// Splits a text into its sections.
#[must_use]
pub fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut section = Section::default();
    let mut is_after_blank = true;
    for line in text.lines() {
        if line.trim().is_empty() {
            is_after_blank = true;
            continue;
        }
        if let Some(heading) = heading(line).filter(|_| is_after_blank) {
            sections.extend(Some(std::mem::take(&mut section)).filter(|section| !section.is_empty()));
            heading.clone_into(&mut section.heading);
        } else {
            section.add(line, is_after_blank);
        }
        is_after_blank = false;
    }
    sections.extend(Some(section).filter(|section| !section.is_empty()));
    sections
}

/// Returns the heading that a line after an empty line is.
fn heading(line: &str) -> Option<&str> {
    /// Longer lines are sentences.
    const LEN_MAX: usize = 30;
    let heading = line.strip_suffix(':')?;
    let is_name = heading.starts_with(|c: char| c.is_ascii_uppercase()) && heading.len() <= LEN_MAX;
    is_name.then_some(heading)
}

impl Section {
    fn is_empty(&self) -> bool {
        self.heading.is_empty() && self.blocks.is_empty()
    }

    fn add(&mut self, line: &str, is_after_blank: bool) {
        if !is_after_blank && self.continues(line) {
            return;
        }
        let content = if line.starts_with(' ') {
            Content::Lines(vec![line.to_owned()])
        } else if let Some(item) = line.strip_prefix("- ") {
            Content::Item(item.to_owned())
        } else {
            Content::Paragraph(line.to_owned())
        };
        self.blocks.push(Block { content, is_tight: !is_after_blank });
    }

    /// Adds a line to the last block, if it belongs there.
    fn continues(&mut self, line: &str) -> bool {
        let is_item = line.starts_with("- ");
        match self.blocks.last_mut().map(|block| &mut block.content) {
            Some(Content::Lines(lines)) if line.starts_with(' ') => lines.push(line.to_owned()),
            Some(Content::Item(text)) if line.starts_with(' ') => {
                text.push(' ');
                text.push_str(line.trim_start());
            }
            Some(Content::Paragraph(text)) if !line.starts_with(' ') && !is_item => {
                text.push(' ');
                text.push_str(line);
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_its_headings() {
        let parsed =
            sections("one\ntwo\n\nExamples:\n  a\n    b\n\nOutput:\nThis follows:\n  c\n\n- d\n  e\n- f\n");
        let block = |content, is_tight| Block { content, is_tight };
        let lines = |lines: &[&str]| Content::Lines(lines.iter().map(ToString::to_string).collect());
        assert_eq!(
            parsed,
            [
                Section {
                    heading: String::new(),
                    blocks: vec![block(Content::Paragraph("one two".into()), false)]
                },
                Section { heading: "Examples".into(), blocks: vec![block(lines(&["  a", "    b"]), true)] },
                Section {
                    heading: "Output".into(),
                    blocks: vec![
                        block(Content::Paragraph("This follows:".into()), true),
                        block(lines(&["  c"]), true),
                        block(Content::Item("d e".into()), false),
                        block(Content::Item("f".into()), true),
                    ]
                },
            ]
        );
    }
}
