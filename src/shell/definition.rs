//! The definition of the command line as data: what completion and hints go by (pure).

/// Everything that can be typed.
#[derive(Clone, Debug, Default)]
pub struct Definition {
    /// The verbs.
    pub verbs: Vec<Verb>,
    /// What `help` knows beside the verbs.
    pub topics: Vec<String>,
}

/// A verb.
#[derive(Clone, Debug, Default)]
pub struct Verb {
    /// Its name.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// What it does, in one sentence.
    pub about: String,
    /// Its options.
    pub options: Vec<Choice>,
    /// The words that follow it, in their order.
    pub operands: Vec<Operand>,
    /// The verbs below it.
    pub below: Vec<Verb>,
}

/// An option.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Its long names, without the dashes.
    pub longs: Vec<String>,
    /// Its short names.
    pub shorts: Vec<char>,
    /// What stands behind it.
    pub takes: Option<Operand>,
    /// Whether it is one of the verb's own, and worth a hint.
    pub is_own: bool,
}

/// A word that is to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// What it is called.
    pub name: String,
    /// What it may be, where that is a matter of choice.
    pub values: Vec<String>,
    /// Whether there may be more than one.
    pub is_many: bool,
}

impl Definition {
    /// The verb of this name, in any case.
    #[must_use]
    pub fn verb(&self, word: &[u8]) -> Option<&Verb> {
        find(&self.verbs, word)
    }

    /// The verb that the words begin with, the one below it where they name one, and the words behind both.
    #[must_use]
    pub fn resolve<'a, 'w>(&'a self, words: &'w [Vec<u8>]) -> Option<(&'a Verb, &'w [Vec<u8>])> {
        let (first, mut rest) = words.split_first()?;
        let mut verb = self.verb(first)?;
        while let Some((next, behind)) = rest.split_first()
            && let Some(below) = find(&verb.below, next)
        {
            (verb, rest) = (below, behind);
        }
        Some((verb, rest))
    }
}

impl Verb {
    /// The option that a word names, if it is one: `--long`, `--long=…`, `-s` or `-s…`.
    #[must_use]
    pub fn option(&self, word: &[u8]) -> Option<&Choice> {
        let text = std::str::from_utf8(word).ok()?;
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next()?;
            return self.options.iter().find(|option| option.longs.iter().any(|long| long == name));
        }
        let short = text.strip_prefix('-')?.chars().next()?;
        self.options.iter().find(|option| option.shorts.contains(&short))
    }
}

/// What the next word would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// The value of the option before it.
    Value(&'a Operand),
    /// An operand, if there is one left; or an option, unless a `--` has ended them.
    Word {
        /// How many operands there have been.
        count: usize,
        /// Whether it may be an option.
        may_be_option: bool,
    },
}

impl Verb {
    /// What follows on these words behind the verb.
    #[must_use]
    pub fn expects(&self, words: &[Vec<u8>]) -> Expected<'_> {
        let mut count: usize = 0;
        let mut may_be_option = true;
        let mut value = None;
        for word in words {
            if value.take().is_some() {
                continue;
            }
            let named = if may_be_option { self.option(word) } else { None };
            match named {
                _ if may_be_option && word == b"--" => may_be_option = false,
                Some(option) if option.wants_next(word) => value = option.takes.as_ref(),
                // A key that is given as an option is a word less.
                Some(option) if option.takes.as_ref().is_some_and(|taken| taken.name == KEY) => {
                    count = count.saturating_add(1);
                }
                Some(_) => {}
                None => count = count.saturating_add(1),
            }
        }
        value.map_or(Expected::Word { count, may_be_option }, Expected::Value)
    }

    /// The operand at this place; the last one, where that may be many.
    #[must_use]
    pub fn operand(&self, at: usize) -> Option<&Operand> {
        self.operands.get(at).or_else(|| self.operands.last().filter(|last| last.is_many))
    }
}

/// What operands that are keys are called.
pub const KEY: &str = "KEY";

impl Choice {
    /// Whether its value is the next word, and not part of this one.
    #[must_use]
    pub fn wants_next(&self, word: &[u8]) -> bool {
        let joined = if word.starts_with(b"--") { word.contains(&b'=') } else { word.len() > 2 };
        self.takes.is_some() && !joined
    }
}

fn find<'a>(verbs: &'a [Verb], word: &[u8]) -> Option<&'a Verb> {
    let is = |name: &String| name.as_bytes().eq_ignore_ascii_case(word);
    verbs.iter().find(|verb| is(&verb.name) || verb.aliases.iter().any(is))
}

#[cfg(test)]
pub mod sample {
    //! A small definition for tests.

    use super::{Choice, Definition, Operand, Verb};

    fn operand(name: &str) -> Operand {
        Operand { name: name.to_owned(), values: Vec::new(), is_many: false }
    }

    fn option(long: &str, short: Option<char>, takes: Option<&str>) -> Choice {
        Choice {
            longs: vec![long.to_owned()],
            shorts: short.into_iter().collect(),
            takes: takes.map(operand),
            is_own: true,
        }
    }

    fn verb(name: &str, operands: &[&str], options: Vec<Choice>) -> Verb {
        let operands = operands.iter().map(|name| operand(name)).collect();
        Verb { name: name.to_owned(), operands, options, ..Verb::default() }
    }

    /// `get`, `set`, `vdel`, `del` (also `rm`), `raw`, `unlock`, `decode topic`, `help`.
    pub fn definition() -> Definition {
        let key = || option("key", Some('k'), Some("KEY"));
        let value = || {
            ["value", "hex", "base64"].map(|long| option(long, None, Some("STR"))).into_iter().chain([
                option("file", Some('f'), Some("FILE")),
                option("fence", None, Some("TOKEN")),
                key(),
            ])
        };
        let ttl = [option("ttl", None, Some("DURATION")), option("nx", None, None)];
        let mut output = option("output", Some('o'), Some("FORMAT"));
        output.is_own = false;
        output.takes = Some(Operand { values: vec!["raw".into(), "json".into()], ..operand("FORMAT") });
        let mut del = verb("del", &["KEY"], vec![key()]);
        del.aliases = vec!["rm".to_owned()];
        del.operands[0].is_many = true;
        let mut decode = verb("decode", &[], vec![]);
        decode.below = vec![verb("topic", &["TOPIC"], vec![])];
        Definition {
            verbs: vec![
                verb("get", &["KEY"], vec![key(), option("file", Some('f'), Some("FILE")), output]),
                verb("set", &["KEY", "VALUE"], value().chain(ttl).collect()),
                verb("vdel", &["KEY", "VALUE"], value().collect()),
                del,
                verb("raw", &["WORD"], vec![]),
                verb("unlock", &["KEY"], vec![]),
                decode,
                verb("help", &["VERB|TOPIC"], vec![]),
            ],
            topics: vec!["locks".to_owned()],
        }
    }
}
