//! `data`: offline work on the files of a store that no process uses.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};

use super::report::{self, Reporter};
use super::storage_error::{of_read, of_start, restore};
use crate::clock;
use crate::commands::args::kind::{OtherForm, ValueKind};
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::LoweredVersions;
use crate::ledger::offline::{self, ClearFenceOutcome, Integrity, VerifyReport};
use crate::protocol::{Key, Timestamp};
use crate::render::counted;
use crate::render::duration::rfc3339;
use crate::render::encoding::{Encoded, parse_base64, parse_hex};
use crate::render::escape::escape;
use crate::render::log::{Field, answer};

const EXAMPLES: &str = "\
Examples:
  mqkv data verify ./state              print content and corruption
  mqkv data recover ./state             save the readable keys
  mqkv serve --data ./state/recovered   continue with the recovered keys
  mqkv data clear-fence ./state line1/recipe
  mqkv data lower-versions ./state      repair after a wrong clock

DIR is the directory of `mqkv serve --data DIR`. The server must not be running.";

/// Verify, recover or repair the files of a store
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, arg_required_else_help = false, disable_help_subcommand = true)]
pub struct DataArgs {
    #[command(subcommand)]
    pub verb: DataVerb,
}

/// The verbs below `data`.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub enum DataVerb {
    /// Print the content of the files and whether they are intact
    ///
    /// Changes nothing. Exit status: 0 if the files are intact, 74 if they are corrupt.
    Verify {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Write the readable keys of a corrupt store to a new one
    ///
    /// The new store is in DIR/recovered. The corrupt files are not changed. Of intact files nothing is written.
    ///
    /// The new store has no rows of an exchange: a store that takes part in one joins it anew.
    Recover {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Remove the fencing token from a key
    ///
    /// For a key that no client can write any more, because the last fencing token is lost.
    ClearFence(ClearFenceArgs),
    /// Lower versions that are more than 60 s ahead of the clock
    ///
    /// For a store whose versions clients refuse, because a clock was ahead when it was written. Versions and fencing
    /// tokens that are more than 60 s ahead become the present time. Set the clock first, and stop all clients that use a
    /// lock: a token from before is greater than the new ones.
    LowerVersions {
        /// Directory of the store
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct ClearFenceArgs {
    /// Directory of the store
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// The key, any bytes
    #[arg(value_name = "KEY", add = ValueKind::Key, required_unless_present_any = ["key_hex", "key_base64"], conflicts_with_all = ["key_hex", "key_base64"])]
    key: Option<OsString>,
    /// The key in hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = parse_hex, add = OtherForm::OfOperand, conflicts_with = "key_base64")]
    key_hex: Option<Encoded>,
    /// The key in base64
    #[arg(long, value_name = "BASE64", value_parser = parse_base64, add = OtherForm::OfOperand)]
    key_base64: Option<Encoded>,
}

impl ClearFenceArgs {
    fn key(&self) -> Result<Key, CommandError> {
        let word = self.key.clone().map(OsString::into_encoded_bytes);
        let encoded = self.key_hex.clone().or_else(|| self.key_base64.clone()).map(|encoded| encoded.0);
        // One of them is there: the definition requires it.
        let bytes = word.or(encoded).unwrap_or_default();
        Key::new(bytes).map_err(|error| CommandError::usage(error.to_string()))
    }
}

/// Runs the verb.
///
/// # Errors
/// The files are missing, in use or corrupt, or cannot be read or written.
pub fn run(args: &DataArgs, quiet: bool, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    match &args.verb {
        DataVerb::Verify { directory } => verify(directory, reporter),
        DataVerb::Recover { directory } => recover(directory, quiet, reporter),
        DataVerb::ClearFence(args) => clear_fence(args, quiet, reporter),
        DataVerb::LowerVersions { directory } => lower_versions(directory, quiet, reporter),
    }
}

fn verify(directory: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let report = offline::verify(directory, clock::wall_ms()).map_err(|error| of_read(&error))?;
    let text = if reporter.is_json() { answer("verify", fields(&report)) } else { describe(&report) };
    reporter.data(text.as_bytes())?;
    match corruption(&report) {
        None => Ok(Exit::Yes),
        Some(corruption) => {
            let directory = shown(directory);
            let restore = restore(&directory);
            Err(CommandError::new(Kind::File, corruption).hint(if report.keys == 0 {
                format!("{restore}: no key can be recovered")
            } else {
                format!("{restore}, or recover the readable keys: mqkv data recover {directory}")
            }))
        }
    }
}

fn recover(directory: &Path, quiet: bool, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let (report, to) = offline::recover(directory, clock::wall_ms()).map_err(|error| of_read(&error))?;
    if reporter.is_json() {
        let left = (to.is_some() && report.rows.is_some()).then_some(("left_exchange", Field::Switch(true)));
        let to = to.map(|to| ("recovered", Field::Text(to.to_string_lossy().into_owned())));
        reporter.data(answer("recover", fields(&report).into_iter().chain(to).chain(left)).as_bytes())?;
        return Ok(Exit::Yes);
    }
    reporter.data(describe(&report).as_bytes())?;
    if !quiet {
        let Some(to) = to else {
            report::log("the files are intact: nothing was written");
            return Ok(Exit::Yes);
        };
        let (keys, to) = (report.keys, shown(&to));
        report::log(&format!(
            "recovered {} to {to}; the corrupt files were not changed",
            counted(keys, "key")
        ));
        let exchange = if report.rows.is_some() { " --exchange FILE" } else { "" };
        if report.rows.is_some() {
            report::log("the rows of the exchange were not recovered: the store joins it anew");
        }
        report::log(&format!("  continue with: mqkv serve --data {to}{exchange}"));
    }
    Ok(Exit::Yes)
}

fn clear_fence(args: &ClearFenceArgs, quiet: bool, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let key = args.key()?;
    let outcome =
        offline::clear_fence(&args.directory, &key, clock::wall_ms()).map_err(|error| of_start(&error))?;
    if reporter.is_json() {
        let (token, exit) = match &outcome {
            ClearFenceOutcome::Cleared(token) => (Some(token.to_string()), Exit::Yes),
            ClearFenceOutcome::NotFenced => (None, Exit::Yes),
            ClearFenceOutcome::KeyNotFound => (None, Exit::No),
        };
        let found = ("found", Field::Switch(outcome != ClearFenceOutcome::KeyNotFound));
        let fields = [("key", Field::Bytes(key.as_bytes().to_vec())), found];
        let token = token.map(|token| ("cleared", Field::Text(token)));
        reporter.data(answer("clear-fence", fields.into_iter().chain(token)).as_bytes())?;
        return Ok(exit);
    }
    let key = escape(key.as_bytes());
    let message = match outcome {
        ClearFenceOutcome::Cleared(token) => format!("removed the fencing token {token} from {key}"),
        ClearFenceOutcome::NotFenced => format!("{key} has no fencing token; nothing was changed"),
        ClearFenceOutcome::KeyNotFound => {
            reporter.negative(&format!("key not found: {key}"));
            return Ok(Exit::No);
        }
    };
    if !quiet {
        report::log(&message);
    }
    Ok(Exit::Yes)
}

fn lower_versions(directory: &Path, quiet: bool, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let lowered = offline::lower_versions(directory, clock::wall_ms()).map_err(|error| of_start(&error))?;
    report_lowered(lowered, "lower-versions", quiet, reporter)?;
    Ok(Exit::Yes)
}

/// Prints what was lowered, as the answer of a verb.
///
/// # Errors
/// The output cannot be written.
pub fn report_lowered(
    lowered: LoweredVersions,
    verb: &str,
    quiet: bool,
    reporter: &mut Reporter,
) -> Result<(), CommandError> {
    let LoweredVersions { keys, fences, floor } = lowered;
    if reporter.is_json() {
        let fields = [("keys", number(keys)), ("fences", number(fences)), ("floor", Field::Switch(floor))];
        reporter.data(answer(verb, fields).as_bytes())?;
    } else if !quiet {
        report::log(&if lowered == LoweredVersions::default() {
            "no version is more than 60 s ahead of the clock; nothing was changed".to_owned()
        } else {
            let (keys, fences) = (counted(keys, "key"), counted(fences, "fencing token"));
            let floor = if floor { ", the version that new keys start from" } else { "" };
            format!("lowered to the present time: the versions of {keys}, {fences}{floor}")
        });
    }
    Ok(())
}

fn number(number: usize) -> Field {
    // usize has at most 64 bits.
    Field::Number(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Returns the message about a corrupt store.
fn corruption(report: &VerifyReport) -> Option<String> {
    match &report.integrity {
        Integrity::Intact => None,
        Integrity::IncompleteSnapshot { corruption, .. } | Integrity::IncompleteLog { corruption } => {
            Some(format!("{} is corrupt: {corruption}", report.path.display()))
        }
    }
}

/// Returns the fields of the JSON record.
fn fields(report: &VerifyReport) -> Vec<(&'static str, Field)> {
    let text = |text: &str| Field::Text(text.to_owned());
    let version = |version| Field::Text(Timestamp::from(version).to_string());
    let mut fields = vec![
        ("file", Field::Text(report.path.to_string_lossy().into_owned())),
        ("file_bytes", Field::Number(report.snapshot_bytes)),
        ("log_bytes", Field::Number(report.log_bytes)),
    ];
    match &report.integrity {
        Integrity::Intact => fields.push(("condition", text("intact"))),
        Integrity::IncompleteSnapshot { corruption, lost } => {
            fields.extend([("condition", text("snapshot-corrupt")), ("corruption", text(corruption))]);
            fields.extend(lost.map(|lost| ("lost", number(lost))));
        }
        Integrity::IncompleteLog { corruption } => {
            fields.extend([("condition", text("log-corrupt")), ("corruption", text(corruption))]);
        }
    }
    fields.extend([
        ("keys", number(report.keys)),
        ("key_bytes", Field::Number(report.key_bytes)),
        ("value_bytes", Field::Number(report.value_bytes)),
        ("fenced", number(report.fenced)),
        ("expiring", number(report.expiring)),
        ("expired", number(report.expired)),
    ]);
    fields.extend(report.rows.map(|rows| ("rows", number(rows))));
    if let Some((least, most)) = report.versions {
        fields.extend([("version_min", version(least)), ("version_max", version(most))]);
    }
    fields.extend(greatest(report).map(|greatest| ("greatest", Field::Text(greatest))));
    fields.extend(written(report).map(|written| ("written", Field::Text(written))));
    fields
}

/// Returns the version that no assigned version exceeds, if it is known.
fn greatest(report: &VerifyReport) -> Option<String> {
    (report.greatest != Default::default()).then(|| Timestamp::from(report.greatest).to_string())
}

/// Returns the time of the last write, if it is known.
fn written(report: &VerifyReport) -> Option<String> {
    rfc3339(report.written_ms).filter(|_| report.written_ms > 0)
}

/// Formats the report as text: one property per line.
fn describe(report: &VerifyReport) -> String {
    let VerifyReport { path, snapshot_bytes, log_bytes, .. } = report;
    let mut lines = vec![
        ("files", format!("{}, snapshot {snapshot_bytes} bytes, log {log_bytes} bytes", shown(path))),
        ("condition", condition(report)),
        ("keys", report.keys.to_string()),
        ("bytes", format!("{} in keys, {} in values", report.key_bytes, report.value_bytes)),
        ("fenced", report.fenced.to_string()),
        ("expiring", format!("{}, of which {} have expired", report.expiring, report.expired)),
    ];
    lines.extend(report.rows.map(|rows| ("rows", format!("{rows}, of an exchange"))));
    let text = |version| Timestamp::from(version).to_string();
    if let Some((least, most)) = report.versions {
        lines.push(("versions", format!("{} to {}", text(least), text(most))));
    }
    if let Some(greatest) = greatest(report) {
        lines.push(("greatest", format!("{greatest}, no assigned version is greater")));
    }
    if let Some(written) = written(report) {
        let age = match clock::wall_ms().checked_sub(report.written_ms) {
            Some(age_ms) => format!("{} s ago", age_ms.div_euclid(1_000)),
            None => "in the future by the clock of this machine".to_owned(),
        };
        lines.push(("written", format!("{written}, {age}")));
    }
    lines.into_iter().map(|(name, value)| format!("{:11}{value}\n", format!("{name}:"))).collect()
}

fn condition(report: &VerifyReport) -> String {
    match &report.integrity {
        Integrity::Intact => "intact".to_owned(),
        Integrity::IncompleteSnapshot { lost, .. } => {
            let lost = lost.map_or_else(|| "some records".to_owned(), |lost| counted(lost, "record"));
            format!("corrupt; {lost} of the snapshot cannot be read, but for those that the log has")
        }
        Integrity::IncompleteLog { .. } => {
            "corrupt; the last writes cannot be read, or not all of them: keys below can have an old value or have been \
             deleted"
                .to_owned()
        }
    }
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: Option<usize>) -> VerifyReport {
        VerifyReport {
            path: "kept".into(),
            snapshot_bytes: 1,
            log_bytes: 0,
            integrity: Integrity::Intact,
            keys: 2,
            key_bytes: 3,
            value_bytes: 4,
            fenced: 0,
            expiring: 0,
            expired: 0,
            rows,
            versions: None,
            greatest: Default::default(),
            written_ms: 0,
        }
    }

    #[test]
    fn a_report_has_rows_only_if_the_store_takes_part_in_an_exchange() {
        let [without, with] = [None, Some(12)].map(report);
        assert_eq!(describe(&with).lines().last(), Some("rows:      12, of an exchange"));
        assert_eq!(describe(&without).lines().count() + 1, describe(&with).lines().count());
        assert!(answer("verify", fields(&with)).ends_with("\"expired\":0,\"rows\":12}\n"));
        assert!(answer("verify", fields(&without)).ends_with("\"expired\":0}\n"));
    }

    #[test]
    fn a_corrupt_snapshot_and_a_corrupt_log_are_reported_as_different_conditions() {
        let corruption = "snapshot-3: damaged at byte 4096".to_owned();
        let integrity = Integrity::IncompleteSnapshot { corruption, lost: Some(7) };
        let snapshot = VerifyReport { integrity, ..report(None) };
        assert!(describe(&snapshot).contains("corrupt; 7 records of the snapshot cannot be read"));
        let json = answer("verify", fields(&snapshot));
        let expected = "\"condition\":\"snapshot-corrupt\",\"corruption\":\"snapshot-3: damaged at byte 4096\",\"lost\":7";
        assert!(json.contains(expected), "{json}");
        let message = "kept is corrupt: snapshot-3: damaged at byte 4096";
        assert_eq!(super::corruption(&snapshot).as_deref(), Some(message));
        let integrity = Integrity::IncompleteLog { corruption: "log-3 is missing".to_owned() };
        let log = VerifyReport { integrity, ..report(None) };
        assert!(answer("verify", fields(&log)).contains("\"condition\":\"log-corrupt\""));
    }
}
