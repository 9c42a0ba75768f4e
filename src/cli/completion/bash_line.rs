//! A command line as bash hands it to a completion function (pure).
//!
//! bash splits words at the characters of COMP_WORDBREAKS as well, so that `--output=js` and `mqtt://host` are several
//! words in COMP_WORDS, and it does not remove their quotes. The line itself is unambiguous, so it is split here; what
//! goes back to bash is in its terms again: the part of the word that readline replaces, and indices of COMP_WORDS.

/// A command line up to the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BashLine {
    /// The whole words behind the program's name, without quotes and redirections.
    pub words: Vec<Vec<u8>>,
    /// What precedes the cursor in its word, without quotes.
    pub current: Vec<u8>,
    /// Where in `current` the text begins that readline replaces with a candidate.
    pub replaced_from: usize,
    /// The quote that is open at the cursor.
    pub quote: Option<u8>,
    /// Whether the word at the cursor is the file of a redirection.
    pub is_redirection: bool,
    /// For each of `words` and for the word at the cursor: how many words precede it in COMP_WORDS.
    pub preceding: Vec<usize>,
}

impl BashLine {
    /// Splits a line that ends at the cursor; `breaks` is COMP_WORDBREAKS. Returns `None` within the program's name.
    #[must_use]
    pub fn parse(line: &[u8], breaks: &[u8]) -> Option<Self> {
        let mut scan = Scan { line, breaks, at: 0 };
        let mut parsed = Self::default();
        let mut is_redirection = false;
        loop {
            let word = scan.word();
            let preceding = count_comp_words(line.get(..word.start)?, breaks);
            let Some(separator) = scan.next() else {
                parsed.preceding.push(preceding);
                let Word { text: current, replaced_from, quote, .. } = word;
                let line = Self { current, replaced_from, quote, is_redirection, ..parsed };
                return line.without_program();
            };
            let is_operator = !separator.is_ascii_whitespace();
            // The number in front of `2>` is a part of the redirection.
            let is_descriptor = is_operator && word.text.iter().all(u8::is_ascii_digit);
            if word.is_there && !is_redirection && !is_descriptor {
                parsed.words.push(word.text);
                parsed.preceding.push(preceding);
            }
            // Blanks may separate a redirection from its file.
            is_redirection = is_operator || is_redirection && !word.is_there;
        }
    }

    fn without_program(mut self) -> Option<Self> {
        if self.words.is_empty() {
            return None;
        }
        self.words.remove(0);
        self.preceding.remove(0);
        Some(self)
    }
}

struct Word {
    text: Vec<u8>,
    start: usize,
    replaced_from: usize,
    quote: Option<u8>,
    /// An empty word is there if it is quoted.
    is_there: bool,
}

struct Scan<'a> {
    line: &'a [u8],
    breaks: &'a [u8],
    at: usize,
}

impl Iterator for Scan<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let byte = self.line.get(self.at).copied()?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }
}

impl Scan<'_> {
    /// Reads up to a blank, an operator, or the end.
    fn word(&mut self) -> Word {
        let mut word =
            Word { text: Vec::new(), start: self.at, replaced_from: 0, quote: None, is_there: false };
        while let Some(byte) = self.line.get(self.at).copied() {
            if byte.is_ascii_whitespace() || b"<>|&;()".contains(&byte) {
                break;
            }
            self.next();
            word.is_there = true;
            match byte {
                b'\'' | b'"' => {
                    word.replaced_from = word.text.len();
                    self.quoted(byte, &mut word);
                }
                b'\\' => word.text.extend(self.next()),
                _ => {
                    // readline completes a host's name from its @ on.
                    let is_host = byte == b'@';
                    word.text.push(byte);
                    if self.breaks.contains(&byte) {
                        word.replaced_from = word.text.len().saturating_sub(usize::from(is_host));
                    }
                }
            }
        }
        word
    }

    /// Reads behind an opening quote, up to the closing one.
    fn quoted(&mut self, quote: u8, word: &mut Word) {
        while let Some(byte) = self.next() {
            match byte {
                byte if byte == quote => {
                    if self.breaks.contains(&quote) {
                        word.replaced_from = word.text.len();
                    }
                    return;
                }
                b'\\' if quote == b'"' => match self.next() {
                    Some(escaped @ (b'"' | b'\\' | b'$' | b'`')) => word.text.push(escaped),
                    other => word.text.extend(std::iter::once(byte).chain(other)),
                },
                byte => word.text.push(byte),
            }
        }
        word.quote = Some(quote);
    }
}

/// Counts the words that bash makes of a text: runs of break characters are words of their own.
fn count_comp_words(text: &[u8], breaks: &[u8]) -> usize {
    #[derive(PartialEq, Eq, Clone, Copy)]
    enum Run {
        Blank,
        Break,
        Word,
    }
    let mut count = 0_usize;
    let mut last = Run::Blank;
    let mut scan = Scan { line: text, breaks, at: 0 };
    while let Some(byte) = scan.next() {
        let run = match byte {
            b'\'' | b'"' => {
                let mut word =
                    Word { text: Vec::new(), start: 0, replaced_from: 0, quote: None, is_there: true };
                scan.quoted(byte, &mut word);
                Run::Word
            }
            b'\\' => {
                scan.next();
                Run::Word
            }
            byte if byte.is_ascii_whitespace() => Run::Blank,
            byte if breaks.contains(&byte) => Run::Break,
            _ => Run::Word,
        };
        if run != last && run != Run::Blank {
            count = count.saturating_add(1);
        }
        last = run;
    }
    count
}

/// Writes a part of a word so that bash reads it back as it is, within the quote that is open.
#[must_use]
pub fn quote(text: &str, quote: Option<u8>) -> String {
    let escaped = |special: fn(char) -> bool| {
        text.chars().fold(String::new(), |mut out, c| {
            out.extend(special(c).then_some('\\'));
            out.push(c);
            out
        })
    };
    match quote {
        Some(b'\'') => text.replace('\'', "'\\''"),
        Some(_) => escaped(|c| "\"\\$`".contains(c)),
        None => escaped(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"_./:=@%+,-".contains(c)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BREAKS: &[u8] = b" \t\n\"'@><=;|&(:";

    fn parsed(line: &str) -> BashLine {
        BashLine::parse(line.as_bytes(), BREAKS).unwrap()
    }

    fn words(line: &str) -> Vec<String> {
        parsed(line).words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    /// The word at the cursor: what stays, and what readline replaces.
    fn current(line: &str) -> (String, String) {
        let BashLine { current, replaced_from, .. } = parsed(line);
        let (kept, replaced) = current.split_at(replaced_from);
        (String::from_utf8(kept.to_vec()).unwrap(), String::from_utf8(replaced.to_vec()).unwrap())
    }

    #[test]
    fn words_are_split_at_blanks_alone_and_lose_their_quotes() {
        assert_eq!(
            words("mqkv -b mqtt://h:1 get --output=json "),
            ["-b", "mqtt://h:1", "get", "--output=json"]
        );
        assert_eq!(
            words(r#"mqkv get 'a b' "c \" d" e\ f g"h"'i' '' "#),
            ["get", "a b", "c \" d", "e f", "ghi", ""]
        );
        assert_eq!(words("mqkv get"), [""; 0]);
        assert_eq!(BashLine::parse(b"mqk", BREAKS), None);
    }

    /// Each of these was observed in bash 5.2, as the second argument of a completion function.
    #[test]
    fn readline_replaces_the_word_behind_the_last_break_or_quote() {
        let observed = [
            ("mqkv get 'lin e", "", "lin e"),
            ("mqkv get \"a b", "", "a b"),
            ("mqkv get a\\ b", "", "a b"),
            ("mqkv get --o=j", "--o=", "j"),
            ("mqkv -b mqtt://h", "mqtt:", "//h"),
            ("mqkv get --o='a b", "--o=", "a b"),
            ("mqkv 'a'\"b c", "a", "b c"),
            ("mqkv a=b:c=", "a=b:c=", ""),
            ("mqkv 'x=y':z", "x=y:", "z"),
            ("mqkv a@b", "a", "@b"),
            ("mqkv \"a:b", "", "a:b"),
        ];
        for (line, kept, replaced) in observed {
            assert_eq!(current(line), (kept.to_owned(), replaced.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_redirection_is_no_operand() {
        let line = parsed("mqkv get k > out");
        assert_eq!((line.words.len(), line.is_redirection), (2, true));
        assert!(parsed("mqkv get k 2>").is_redirection);
        assert!(!parsed("mqkv get k > out ").is_redirection);
        assert_eq!(words("mqkv get 2>out k >out "), ["get", "k"]);
        assert_eq!(words("mqkv get k 2>&1 "), ["get", "k"]);
    }

    #[test]
    fn words_are_counted_as_in_comp_words() {
        assert_eq!(parsed("mqkv lock d -- l").preceding, [1, 2, 3, 4]);
        assert_eq!(parsed("mqkv --o=j -b mqtt://h lock d -- l").preceding, [1, 4, 5, 8, 9, 10, 11]);
        assert_eq!(parsed("mqkv 'x=y':z a").preceding, [1, 4]);
    }

    #[test]
    fn a_candidate_is_quoted_as_its_place_asks() {
        assert_eq!(quote("a b/c:d", None), "a\\ b/c:d");
        assert_eq!(quote("it's", Some(b'\'')), "it'\\''s");
        assert_eq!(quote("$5 \"x\"", Some(b'"')), "\\$5 \\\"x\\\"");
        assert_eq!(quote("äö", None), "äö");
    }

    proptest! {
        #[test]
        fn quoted_words_are_read_back(text in "[ -~äö]{1,12}", open in prop::sample::select(vec![None, Some(b'\''), Some(b'"')])) {
            let mark = open.map_or_else(String::new, |quote| char::from(quote).to_string());
            let line = format!("mqkv get {mark}{}{mark} ", quote(&text, open));
            prop_assert_eq!(words(&line), ["get".to_owned(), text]);
        }

        #[test]
        fn any_line_is_parsed(line in "[ a'\"\\\\=:@<>0-9]{0,20}") {
            if let Some(parsed) = BashLine::parse(format!("mqkv {line}").as_bytes(), BREAKS) {
                prop_assert!(parsed.replaced_from <= parsed.current.len());
                prop_assert_eq!(parsed.preceding.len(), parsed.words.len() + 1);
            }
        }
    }
}
