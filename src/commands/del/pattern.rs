//! `del --pattern`: deletes the keys that match, after a question.

use bytes::Bytes;
use serde::Serialize;

use super::args::DelArgs;
use super::many;
use super::record::{Deleted, Shown};
use crate::client::{Client, DeleteOutcome, Error};
use crate::commands::error::CommandError;
use crate::commands::exit::Exit;
use crate::commands::output::{Emit, Hint};
use crate::commands::scan::{self, Pages};
use crate::commands::session::Session;
use crate::protocol::Key;
use crate::render::cut::cut;
use crate::render::escape::{escape, spell};
use crate::render::json::{self, Json};
use crate::render::{Progress, Record, Rendered, Style, Widths, counted, name, negative, notice};

const USAGE: &str = "mqkv del --pattern PATTERN...";

/// The keys that the question names.
const NAMES_MAX: usize = 3;
/// The most columns of a name there, so that the question fits two rows of a terminal.
const NAME_COLUMNS_MAX: usize = 30;

pub async fn run(args: DelArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let (asks, dry_run) = (args.asks(), args.dry_run);
    let patterns = args.keys.resolve_patterns(USAGE)?;
    let patterns = patterns.into_iter().map(|word| scan::pattern(Some(word)));
    let patterns = patterns.collect::<Result<Vec<_>, _>>()?;
    let fence = args.fence.resolve(session)?;
    if asks {
        session.check_question().map_err(|cause| {
            let message = format!("cannot ask whether to delete the keys: {cause}");
            CommandError::usage(message).hint("--yes deletes without a question, --dry-run prints the keys")
        })?;
    }
    let client = session.bulk_client().await?;
    let (keys, limit_hint) = list(client, &patterns).await?;
    let mut summary = Summary { matched: keys.len(), dry_run, ..Summary::of(&patterns, args.ignore_missing) };
    if keys.is_empty() {
        emit(&summary)?;
        let literal = patterns.iter().find_map(|pattern| scan::literal_hint(pattern, "del --pattern"));
        literal.map(Hint).into_iter().chain(limit_hint).try_for_each(|hint| emit(&hint))?;
        return Ok(if args.ignore_missing { Exit::Yes } else { Exit::No });
    }
    // Before the question: it is about less than the pattern seems to mean.
    limit_hint.map_or(Ok(()), |hint| emit(&hint))?;
    if dry_run {
        keys.into_iter().try_for_each(|key| emit(&Matched { key, deleted: 0, dry_run }))?;
        emit(&summary)?;
        return Ok(Exit::Yes);
    }
    if asks && !confirm(&question(&keys, &patterns), session, emit).await? {
        emit(&summary)?;
        return Ok(Exit::No);
    }
    let total = u64::try_from(keys.len()).ok();
    emit(&Progress { done: 0, total, text: &"0 keys" })?;
    let deleted = many::delete(client, keys, fence, |answer| {
        let Some((key, outcome)) = answer else {
            let text = &format_args!("{} keys", summary.deleted);
            return Ok(emit(&Progress { done: summary.answered(), total, text })?);
        };
        summary.count(&outcome);
        Ok(emit(&Deleted::new("del", key, outcome).shown(Shown::IfVerbose))?)
    });
    let result = deleted.await;
    emit(&summary)?;
    result.map(|()| Exit::Yes)
}

/// Returns the keys that match, each once and in order, and a hint if keys were left out.
async fn list(client: &Client, patterns: &[Bytes]) -> Result<(Vec<Key>, Option<Hint>), CommandError> {
    let (mut keys, mut hint) = (Vec::new(), None);
    for pattern in patterns {
        let mut pages = Pages::request(client, pattern.clone());
        while let Some(page) = pages.next().await.map_err(without_scan)? {
            keys.extend(page);
        }
        hint = hint.or(pages.limit_hint());
    }
    keys.sort_unstable_by(|one: &Key, other| one.as_bytes().cmp(other.as_bytes()));
    keys.dedup();
    Ok((keys, hint))
}

/// Replaces the hint of a listing that the store does not support by what works here.
fn without_scan(error: CommandError) -> CommandError {
    match error.message == scan::UNSUPPORTED {
        true => CommandError { hints: vec!["name the keys: mqkv del KEY...".to_owned()], ..error },
        false => error,
    }
}

/// Asks on the terminal.
///
/// # Errors
/// A signal came instead of the answer, or the terminal cannot be read.
async fn confirm(question: &str, session: &Session, emit: Emit<'_>) -> Result<bool, CommandError> {
    emit(&Question(question))?;
    let answer = session.answer().await?;
    if answer.as_ref().is_none_or(|answer| !answer.ends_with(b"\n")) {
        emit(&Question("\n"))?;
    }
    let answer = answer.ok_or(Error::Closed)?;
    let answer = answer.trim_ascii();
    Ok([&b"y"[..], b"yes"].iter().any(|yes| answer.eq_ignore_ascii_case(yes)))
}

/// Returns the question, with the number of keys and the first names.
fn question(keys: &[Key], patterns: &[Bytes]) -> String {
    let names = keys.iter().take(NAMES_MAX).map(|key| cut(&[(name(key), None)], NAME_COLUMNS_MAX, false));
    let more = (keys.len() > NAMES_MAX).then(|| "…".to_owned());
    let names: Vec<_> = names.chain(more).collect();
    // `**` is the same as `*`.
    let is_all = patterns.iter().any(|pattern| pattern.iter().all(|byte| *byte == b'*'));
    let all = if is_all { "ALL " } else { "" };
    format!("delete {all}{} ({})? [y/N] ", counted(keys.len(), "key"), names.join(", "))
}

/// A question on standard error, which neither --quiet nor a format changes.
#[derive(Debug)]
struct Question<'a>(&'a str);

/// A key that would be deleted.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "del")]
struct Matched {
    #[serde(flatten, serialize_with = "json::key")]
    key: Key,
    deleted: u8,
    dry_run: bool,
}

/// The numbers of keys.
#[derive(Debug, Default, Serialize)]
#[serde(tag = "op", rename = "del")]
struct Summary {
    matched: usize,
    deleted: u64,
    /// Keys that another client has deleted, or that have expired, since they were listed.
    missing: u64,
    dry_run: bool,
    #[serde(skip)]
    patterns: String,
    #[serde(skip)]
    is_missing_ignored: bool,
}

impl Summary {
    fn of(patterns: &[Bytes], is_missing_ignored: bool) -> Self {
        let patterns: Vec<_> = patterns.iter().map(|pattern| escape(pattern)).collect();
        Self { patterns: patterns.join(", "), is_missing_ignored, ..Self::default() }
    }

    fn count(&mut self, outcome: &DeleteOutcome) {
        let count = match outcome {
            DeleteOutcome::Deleted { .. } => &mut self.deleted,
            DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. } => &mut self.missing,
        };
        *count = count.saturating_add(1);
    }

    fn answered(&self) -> u64 {
        self.deleted.saturating_add(self.missing)
    }
}

impl Record for Question<'_> {
    fn json(&self, _: &Json<'_>) -> Rendered {
        Rendered::stderr(self.0.to_owned())
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::stderr(self.0.to_owned())
    }
}

impl Record for Matched {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(spell(self.key.as_bytes()) + "\n")
    }

    fn key(&self) -> Option<&Key> {
        Some(&self.key)
    }
}

impl Record for Summary {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let Self { matched, deleted, missing, dry_run, .. } = *self;
        if matched == 0 && !self.is_missing_ignored {
            return negative(&format!("no key matches: {}", self.patterns), style);
        }
        let done = if dry_run { "would delete" } else { "deleted" };
        let gone = match missing {
            0 => String::new(),
            1 => "; 1 key was deleted meanwhile".to_owned(),
            missing => format!("; {missing} keys were deleted meanwhile"),
        };
        let count = if dry_run { counted(matched, "key") } else { counted(deleted, "key") };
        notice(&format!("{done} {count}{gone}"), style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn asked(keys: &[&'static str], pattern: &'static str) -> String {
        let keys: Vec<_> = keys.iter().map(|key| Key::new(*key).unwrap()).collect();
        question(&keys, &[Bytes::from(pattern)])
    }

    #[test]
    fn the_question_shows_the_number_and_three_names() {
        assert_eq!(asked(&["a"], "a"), "delete 1 key (a)? [y/N] ");
        assert_eq!(asked(&["a", "b", "c"], "?"), "delete 3 keys (a, b, c)? [y/N] ");
        assert_eq!(asked(&["a", "b", "c", "d"], "?"), "delete 4 keys (a, b, c, …)? [y/N] ");
        let long = asked(&["line1/a-rather-long-name-of-a-key\x1b[2J"], "l*");
        assert_eq!(long, "delete 1 key (line1/a-rather-long-name-of-a…)? [y/N] ");
        assert_eq!(asked(&["\x1b[2J"], "l*"), "delete 1 key (\\x1B[2J)? [y/N] ");
    }

    #[test]
    fn the_question_says_that_all_keys_are_meant() {
        assert_eq!(asked(&["a", "b"], "*"), "delete ALL 2 keys (a, b)? [y/N] ");
        assert_eq!(asked(&["a", "b"], "**"), "delete ALL 2 keys (a, b)? [y/N] ");
        assert_eq!(asked(&["a", "b"], "*b*"), "delete 2 keys (a, b)? [y/N] ");
    }

    #[test]
    fn the_summary_counts_what_was_deleted_and_what_had_gone() {
        let summary = |matched, deleted, missing, dry_run| {
            let patterns = [Bytes::from("a*"), Bytes::from("b")];
            Summary { matched, deleted, missing, dry_run, ..Summary::of(&patterns, false) }
        };
        let text = |summary: &Summary| shown(summary, &Style::LINES);
        let message = |text: &str| (String::new(), format!("{text}\n"));
        assert_eq!(text(&summary(2, 2, 0, false)), message("deleted 2 keys"));
        assert_eq!(text(&summary(3, 1, 2, false)), message("deleted 1 key; 2 keys were deleted meanwhile"));
        assert_eq!(text(&summary(3, 0, 0, true)), message("would delete 3 keys"));
        assert_eq!(text(&summary(0, 0, 0, false)), message("error: no key matches: a*, b"));
        let ignored = Summary { is_missing_ignored: true, ..summary(0, 0, 0, false) };
        assert_eq!(text(&ignored), message("deleted 0 keys"));
        let json = "{\"v\":1,\"op\":\"del\",\"matched\":3,\"deleted\":1,\"missing\":2,\"dry_run\":false}\n";
        assert_eq!(shown(&summary(3, 1, 2, false), &Style::JSON).0, json);
    }
}
