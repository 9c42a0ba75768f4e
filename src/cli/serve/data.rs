//! `serve --data`: what is kept in the folder, and what can be done with it while nobody serves it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::exit::Exit;
use crate::cli::options::DisplayArgs;
use crate::cli::report::{self, Reporter};
use crate::clock;
use crate::commands::encoding::{Encoded, parse_base64, parse_hex};
use crate::commands::{CommandError, Kind, duration, more_of};
use crate::protocol::{Key, Timestamp};
use crate::render::escape::escape;
use crate::render::log::{Field, answer};
use crate::server::offline::{self, ClearFenceOutcome, Integrity, VerifyReport};
use crate::server::{Persistence, StorageError, StorageErrorKind};

/// The folder, and what to do with it.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Keep everything in this folder, or what --persist says
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What is kept in the folder of --data
    #[arg(long, value_name = "WHAT", requires = "data")]
    persist: Option<Persist>,
    /// Say what is in the folder of --data and whether it is whole, and end; nothing is changed
    #[arg(long, requires = "data", group = "offline")]
    verify: bool,
    /// Write what can be read of a damaged file to a new one, in DIR/salvaged, and end; the damaged one stays as it is
    #[arg(long, requires = "data", group = "offline")]
    salvage: bool,
    /// Take the fencing token from a key in the folder of --data, and end: for one that nobody holds any more
    #[arg(long, value_name = "KEY", num_args = 0..=1, requires = "data", group = "offline", allow_hyphen_values = false)]
    clear_fence: Option<Option<OsString>>,
    /// The key of --clear-fence in hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = parse_hex, requires = "clear_fence", conflicts_with = "key_base64")]
    key_hex: Option<Encoded>,
    /// The key of --clear-fence in base64
    #[arg(long, value_name = "BASE64", value_parser = parse_base64, requires = "clear_fence")]
    key_base64: Option<Encoded>,
}

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Persist {
    /// Every key; the default
    All,
    /// The keys whose SET asked for it once (`mqkv set --persist`), until they are gone
    Custom,
}

impl DataArgs {
    /// What goes to the disk.
    pub fn persistence(&self) -> Persistence {
        match (&self.data, self.persist) {
            (Some(folder), Some(Persist::Custom)) => Persistence::Custom(folder.clone()),
            (folder, _) => keep_all(folder.as_deref()),
        }
    }

    /// What is kept, in words.
    pub fn describe(&self) -> String {
        let Some(folder) = &self.data else {
            return "in memory".to_owned();
        };
        let folder = shown(folder);
        match self.persist {
            Some(Persist::Custom) => format!("what is asked for is kept in {folder}"),
            None | Some(Persist::All) => format!("everything is kept in {folder}"),
        }
    }

    /// Does what is to be done instead of serving, if anything is.
    ///
    /// # Errors
    /// The folder cannot be used, or what is in it.
    pub fn run(&self, display: &DisplayArgs, reporter: &mut Reporter) -> Option<Result<Exit, CommandError>> {
        let folder = self.data.as_deref()?;
        if self.verify {
            Some(verify(folder, reporter))
        } else if self.salvage {
            Some(salvage(folder, display, reporter))
        } else if self.clear_fence.is_some() {
            Some(self.key().and_then(|key| clear_fence(folder, &key, display, reporter)))
        } else {
            None
        }
    }

    fn key(&self) -> Result<Key, CommandError> {
        let word = self.clear_fence.clone().flatten().map(OsString::into_encoded_bytes);
        let encoded = self.key_hex.clone().or_else(|| self.key_base64.clone()).map(|encoded| encoded.0);
        let bytes = match (word, encoded) {
            (Some(key), None) | (None, Some(key)) => key,
            (Some(_), Some(_)) => return Err(CommandError::usage("the key is given twice")),
            (None, None) => {
                let hint = "--clear-fence KEY, or --clear-fence with --key-hex or --key-base64";
                return Err(CommandError::usage("which key? --clear-fence needs one").hint(hint));
            }
        };
        Key::new(bytes).map_err(|error| CommandError::usage(error.to_string()))
    }
}

/// Everything in a folder; in memory without one.
pub fn keep_all(folder: Option<&Path>) -> Persistence {
    folder.map_or(Persistence::None, |folder| Persistence::All(folder.to_owned()))
}

/// Why the file cannot be used, for the user.
pub fn failure(error: &StorageError) -> CommandError {
    let hint = match &error.kind {
        StorageErrorKind::InUse => {
            "-b mqtt://HOST:PORT of the `mqkv serve` that keeps it, or end that".to_owned()
        }
        StorageErrorKind::Corrupt(_) | StorageErrorKind::CorruptWal(_) => {
            let folder = folder(&error.path);
            format!("{}, or what `mqkv serve --data {folder} --verify` finds in it", backup(&folder))
        }
        StorageErrorKind::NotAFile(_) => "move it away, or another folder".to_owned(),
        StorageErrorKind::UnsupportedFormat(_) => {
            "another folder, or the version of mqkv that wrote it".to_owned()
        }
        StorageErrorKind::Missing => "the folder that `mqkv serve --data` was given".to_owned(),
        StorageErrorKind::Io(cause) if let Some(more) = more_of(cause) => more.to_owned(),
        StorageErrorKind::Io(cause) if is_full(cause) => "a disk with more room".to_owned(),
        StorageErrorKind::Io(_) | StorageErrorKind::Other(_) => "a folder that you may write to".to_owned(),
    };
    CommandError::new(Kind::File, error.to_string()).hint(hint)
}

fn is_full(cause: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(cause.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn verify(folder: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let report = offline::verify(folder, clock::wall_ms()).map_err(|error| offline_failure(&error))?;
    let told = if reporter.is_json() { answer("verify", fields(&report)) } else { describe(&report) };
    reporter.data(told.as_bytes())?;
    match corruption(&report) {
        None => Ok(Exit::Yes),
        Some(corruption) => {
            let folder = shown(folder);
            let backup = backup(&folder);
            Err(CommandError::new(Kind::File, corruption).hint(if report.keys == 0 {
                format!("{backup}: no key in them can be read")
            } else {
                format!("{backup}, or `mqkv serve --data {folder} --salvage`")
            }))
        }
    }
}

fn salvage(folder: &Path, display: &DisplayArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let (report, to) = offline::recover(folder, clock::wall_ms()).map_err(|error| offline_failure(&error))?;
    if reporter.is_json() {
        let to = to.map(|to| ("salvaged", Field::Text(to.to_string_lossy().into_owned())));
        reporter.data(answer("salvage", fields(&report).into_iter().chain(to)).as_bytes())?;
        return Ok(Exit::Yes);
    }
    reporter.data(describe(&report).as_bytes())?;
    if !display.quiet {
        let Some(to) = to else {
            report::log("it is whole: nothing was written");
            return Ok(Exit::Yes);
        };
        let (keys, to) = (report.keys, shown(&to));
        report::log(&format!("saved {} to {to}; the damaged file is as it was", counted(keys, "key")));
        report::log(&format!("  go on with: mqkv serve --data {to}"));
    }
    Ok(Exit::Yes)
}

fn clear_fence(
    folder: &Path,
    key: &Key,
    display: &DisplayArgs,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let cleared = offline::clear_fence(folder, key).map_err(|error| failure(&error))?;
    if reporter.is_json() {
        let (token, exit) = match &cleared {
            ClearFenceOutcome::Cleared(token) => (Some(token.to_string()), Exit::Yes),
            ClearFenceOutcome::NotFenced => (None, Exit::Yes),
            ClearFenceOutcome::KeyNotFound => (None, Exit::No),
        };
        let found = ("found", Field::Switch(cleared != ClearFenceOutcome::KeyNotFound));
        let fields = [("key", Field::Bytes(key.as_bytes().to_vec())), found];
        let token = token.map(|token| ("cleared", Field::Text(token)));
        reporter.data(answer("clear-fence", fields.into_iter().chain(token)).as_bytes())?;
        return Ok(exit);
    }
    let key = escape(key.as_bytes());
    let (words, exit) = match cleared {
        ClearFenceOutcome::Cleared(token) => (format!("{key} is protected by {token} no more"), Exit::Yes),
        ClearFenceOutcome::NotFenced => (format!("{key} is not protected; nothing was changed"), Exit::Yes),
        ClearFenceOutcome::KeyNotFound => (format!("no such key: {key}"), Exit::No),
    };
    if !display.quiet {
        report::log(&words);
    }
    Ok(exit)
}

/// For what only reads: no folder need be writable.
fn offline_failure(error: &StorageError) -> CommandError {
    match &error.kind {
        StorageErrorKind::InUse => {
            CommandError::new(Kind::File, error.to_string()).hint("end the `mqkv serve` that keeps it first")
        }
        StorageErrorKind::Corrupt(_) | StorageErrorKind::CorruptWal(_) => {
            CommandError::new(Kind::File, error.to_string()).hint(backup(&folder(&error.path)))
        }
        StorageErrorKind::Io(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
            let path = error.path.display();
            CommandError::new(Kind::File, format!("{path} is there already; nothing was written"))
                .hint(format!("move {path} away"))
        }
        StorageErrorKind::Io(cause) if more_of(cause).is_none() => {
            CommandError::new(Kind::File, error.to_string())
        }
        _ => failure(error),
    }
}

/// What to go back to: a log that belongs to other tables would be taken for an empty one.
fn backup(folder: &str) -> String {
    format!("the files of {folder} from one backup")
}

fn folder(file: &Path) -> String {
    file.parent().map(shown).unwrap_or_default()
}

fn corruption(report: &VerifyReport) -> Option<String> {
    let (path, corruption) = match &report.integrity {
        Integrity::Intact => return None,
        // It is not this file that is damaged.
        Integrity::IncompleteWal { corruption } => (report.path.parent().unwrap_or(&report.path), corruption),
        Integrity::Gap { corruption, .. } | Integrity::Unordered { corruption } => {
            (report.path.as_path(), corruption)
        }
    };
    Some(format!("{} is corrupt: {corruption}", path.display()))
}

/// What there is to say, for programs.
fn fields(report: &VerifyReport) -> Vec<(&'static str, Field)> {
    let text = |text: &str| Field::Text(text.to_owned());
    let number = |number: usize| Field::Number(u64::try_from(number).unwrap_or(u64::MAX));
    let version = |version| Field::Text(Timestamp::from(version).to_string());
    let mut fields = vec![
        ("file", Field::Text(report.path.to_string_lossy().into_owned())),
        ("file_bytes", Field::Number(report.file_bytes)),
    ];
    fields.extend(report.wal_bytes.map(|bytes| ("log_bytes", Field::Number(bytes))));
    match &report.integrity {
        Integrity::Intact => fields.push(("condition", text("whole"))),
        Integrity::Gap { corruption, recovered, lost } => {
            fields.extend([("condition", text("gap")), ("damage", text(corruption))]);
            fields.push(("doubtful", number(*recovered)));
            fields.extend(lost.map(|lost| ("lost", number(lost))));
        }
        Integrity::IncompleteWal { corruption } => {
            fields.extend([("condition", text("late")), ("damage", text(corruption))]);
        }
        Integrity::Unordered { corruption } => {
            fields.extend([("condition", text("loose")), ("damage", text(corruption))]);
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
    if let Some((least, most)) = report.versions {
        fields.extend([("version_min", version(least)), ("version_max", version(most))]);
    }
    fields.extend(greatest(report).map(|greatest| ("greatest", Field::Text(greatest))));
    fields.extend(written(report).map(|written| ("written", Field::Text(written))));
    fields
}

/// The greatest version ever given out, if one is known.
fn greatest(report: &VerifyReport) -> Option<String> {
    (report.greatest != Default::default()).then(|| Timestamp::from(report.greatest).to_string())
}

/// When it was written last, if that is known.
fn written(report: &VerifyReport) -> Option<String> {
    duration::rfc3339(report.written_ms).filter(|_| report.written_ms > 0)
}

/// Lines of a name and what there is to say.
fn describe(report: &VerifyReport) -> String {
    let log = report.wal_bytes.map(|bytes| format!("; store.log beside it, {bytes} bytes"));
    let mut lines = vec![
        ("file", format!("{}, {} bytes{}", shown(&report.path), report.file_bytes, log.unwrap_or_default())),
        ("condition", condition(report)),
        ("keys", report.keys.to_string()),
        ("bytes", format!("{} in keys, {} in values", report.key_bytes, report.value_bytes)),
        ("fenced", report.fenced.to_string()),
        ("expiring", format!("{}, of which {} have expired", report.expiring, report.expired)),
    ];
    let text = |version| Timestamp::from(version).to_string();
    if let Some((least, most)) = report.versions {
        lines.push(("versions", format!("{} to {}", text(least), text(most))));
    }
    if let Some(greatest) = greatest(report) {
        lines.push(("greatest", format!("{greatest} of all that were ever given out")));
    }
    if let Some(written) = written(report) {
        let age = match clock::wall_ms().checked_sub(report.written_ms) {
            Some(age_ms) => format!("{} s ago", age_ms.div_euclid(1_000)),
            None => "in the future, by this machine's clock".to_owned(),
        };
        lines.push(("written", format!("{written}, {age}")));
    }
    lines.into_iter().map(|(name, value)| format!("{:11}{value}\n", format!("{name}:"))).collect()
}

fn condition(report: &VerifyReport) -> String {
    match &report.integrity {
        Integrity::Intact => "whole".to_owned(),
        Integrity::Gap { recovered, lost, .. } => {
            let lost = lost.map_or_else(|| "some keys".to_owned(), |lost| counted(lost, "key"));
            let mut words = format!("damaged; {lost} cannot be read");
            if *recovered > 0 {
                let found = counted(*recovered, "key");
                words.push_str(&format!(
                    "; {found} below may be older than they should be, or deleted long ago"
                ));
            }
            words
        }
        Integrity::IncompleteWal { .. } => {
            "damaged; what was written last cannot be read, or not all of it: keys below may be older than they should \
             be, or deleted"
                .to_owned()
        }
        Integrity::Unordered { .. } => {
            "damaged; keys can be found one by one only, those that had been deleted among them".to_owned()
        }
    }
}

fn counted(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes()).to_string()
}
