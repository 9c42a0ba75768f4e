//! What the files of a store contain: the records of `data verify` and `data recover`.

use std::path::PathBuf;

use serde::Serialize;

use crate::ledger::offline::{Integrity, VerifyReport};
use crate::protocol::Timestamp;
use crate::render::duration::rfc3339;
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::table::{PROPERTY_INDENT, properties};
use crate::render::wrap::wrapped;
use crate::render::{Record, Rendered, Style, Widths, counted, notice};

/// The result of `verify`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "verify")]
pub struct Verified {
    #[serde(flatten)]
    pub contents: Contents,
}

/// The result of `recover`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "recover")]
pub struct Recovered {
    #[serde(flatten)]
    contents: Contents,
    /// The directory of the new store; `None`: the files are intact.
    #[serde(
        rename = "recovered",
        skip_serializing_if = "Option::is_none",
        serialize_with = "json::path_if_any"
    )]
    to: Option<PathBuf>,
    /// Whether the old store takes part in an exchange: the new one joins it anew.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    left_exchange: bool,
}

/// Contents and integrity of the files.
#[derive(Debug, Serialize)]
pub struct Contents {
    #[serde(rename = "file", serialize_with = "json::path")]
    pub directory: PathBuf,
    #[serde(rename = "file_bytes")]
    snapshot_bytes: u64,
    log_bytes: u64,
    condition: Condition,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corruption: Option<String>,
    /// Number of records of the snapshot that are missing, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<usize>,
    pub keys: usize,
    key_bytes: u64,
    value_bytes: u64,
    fenced: usize,
    expiring: usize,
    expired: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version_min: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version_max: Option<Timestamp>,
    /// The version that no assigned version exceeds, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    greatest: Option<Timestamp>,
    /// The time of the last commit, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
    /// The time since then; `None`: it is in the future.
    #[serde(skip)]
    age_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Condition {
    Intact,
    SnapshotCorrupt,
    LogCorrupt,
}

impl Contents {
    /// Returns what a report says, at this time of the wall clock.
    pub fn of(report: VerifyReport, now_ms: u64) -> Self {
        let (condition, corruption, lost) = match report.integrity {
            Integrity::Intact => (Condition::Intact, None, None),
            Integrity::IncompleteSnapshot { corruption, lost } => {
                (Condition::SnapshotCorrupt, Some(corruption), lost)
            }
            Integrity::IncompleteLog { corruption } => (Condition::LogCorrupt, Some(corruption), None),
        };
        let (least, most) = report.versions.unzip();
        let is_known = report.greatest != Default::default();
        Self {
            directory: report.path,
            snapshot_bytes: report.snapshot_bytes,
            log_bytes: report.log_bytes,
            condition,
            corruption,
            lost,
            keys: report.keys,
            key_bytes: report.key_bytes,
            value_bytes: report.value_bytes,
            fenced: report.fenced,
            expiring: report.expiring,
            expired: report.expired,
            rows: report.rows,
            version_min: least.map(Timestamp::from),
            version_max: most.map(Timestamp::from),
            greatest: is_known.then(|| report.greatest.into()),
            written: rfc3339(report.written_ms).filter(|_| report.written_ms > 0),
            age_ms: now_ms.checked_sub(report.written_ms),
        }
    }

    /// Formats one property per line.
    fn text(&self, style: &Style) -> String {
        let Self { snapshot_bytes, log_bytes, key_bytes, value_bytes, expiring, expired, .. } = self;
        let directory = escape(self.directory.as_os_str().as_encoded_bytes());
        let mut lines = vec![
            ("files", format!("{directory}, snapshot {snapshot_bytes} bytes, log {log_bytes} bytes")),
            ("condition", wrapped(&self.condition(), style.stdout_columns(), PROPERTY_INDENT)),
            ("keys", self.keys.to_string()),
            ("bytes", format!("{key_bytes} in keys, {value_bytes} in values")),
            ("fenced", self.fenced.to_string()),
            ("expiring", format!("{expiring}, of which {expired} have expired")),
        ];
        lines.extend(self.rows.map(|rows| ("rows", format!("{rows}, of an exchange"))));
        if let (Some(least), Some(most)) = (&self.version_min, &self.version_max) {
            lines.push(("versions", format!("{least} to {most}")));
        }
        if let Some(greatest) = &self.greatest {
            lines.push(("greatest", format!("{greatest}, no assigned version is greater")));
        }
        if let Some(written) = &self.written {
            let age = match self.age_ms {
                Some(age_ms) => format!("{} s ago", age_ms.div_euclid(1_000)),
                None => "in the future by the clock of this machine".to_owned(),
            };
            lines.push(("written", format!("{written}, {age}")));
        }
        properties(&lines)
    }

    /// Returns the condition as in JSON, and what it means for the keys.
    fn condition(&self) -> String {
        match self.condition {
            Condition::Intact => "intact".to_owned(),
            Condition::SnapshotCorrupt => {
                let lost = self.lost.map_or_else(|| "some records".to_owned(), |lost| counted(lost, "record"));
                format!("snapshot-corrupt; {lost} of the snapshot cannot be read, but for those that the log has")
            }
            Condition::LogCorrupt => {
                "log-corrupt; the last writes cannot be read, or not all of them: keys below can have an old value or have \
                 been deleted"
                    .to_owned()
            }
        }
    }
}

impl Record for Verified {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(self.contents.text(style))
    }
}

impl Recovered {
    pub fn new(contents: Contents, to: Option<PathBuf>) -> Self {
        let left_exchange = to.is_some() && contents.rows.is_some();
        Self { contents, to, left_exchange }
    }

    /// Returns where the keys are, and how to continue with them.
    fn result(&self) -> String {
        let Some(to) = &self.to else { return "the files are intact: nothing was written".to_owned() };
        let (keys, to) = (counted(self.contents.keys, "key"), escape(to.as_os_str().as_encoded_bytes()));
        let (rows, exchange) = match self.left_exchange {
            true => {
                ("the rows of the exchange were not recovered: the store joins it anew\n", " --exchange FILE")
            }
            false => ("", ""),
        };
        format!(
            "recovered {keys} to {to}; the corrupt files were not changed\n{rows}  continue with: mqkv serve --data {to}{exchange}"
        )
    }
}

impl Record for Recovered {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        Rendered { stdout: self.contents.text(style).into(), ..notice(&self.result(), style) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    fn verified(integrity: Integrity, rows: Option<usize>) -> Verified {
        let report = VerifyReport {
            path: "kept".into(),
            snapshot_bytes: 1,
            log_bytes: 0,
            integrity,
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
        };
        Verified { contents: Contents::of(report, 0) }
    }

    #[test]
    fn a_report_has_rows_only_if_the_store_takes_part_in_an_exchange() {
        let [without, with] = [None, Some(12)].map(|rows| verified(Integrity::Intact, rows));
        let text = |record| shown(record, &Style::PLAIN).0;
        assert_eq!(text(&with).lines().last(), Some("rows:      12, of an exchange"));
        assert_eq!(text(&without).lines().count() + 1, text(&with).lines().count());
        assert!(shown(&with, &Style::JSON).0.ends_with("\"expired\":0,\"rows\":12}\n"));
        assert!(shown(&without, &Style::JSON).0.ends_with("\"expired\":0}\n"));
    }

    #[test]
    fn a_corrupt_snapshot_and_a_corrupt_log_are_reported_as_different_conditions() {
        let corruption = "snapshot-3: damaged at byte 4096".to_owned();
        let snapshot = verified(Integrity::IncompleteSnapshot { corruption, lost: Some(7) }, None);
        let text = shown(&snapshot, &Style::PLAIN).0;
        assert!(text.contains("condition: snapshot-corrupt; 7 records of the snapshot cannot"), "{text}");
        let json = shown(&snapshot, &Style::JSON).0;
        let expected = "\"condition\":\"snapshot-corrupt\",\"corruption\":\"snapshot-3: damaged at byte 4096\",\"lost\":7";
        assert!(json.contains(expected), "{json}");
        let corruption = "log-3 is missing".to_owned();
        let log = verified(Integrity::IncompleteLog { corruption }, None);
        assert!(shown(&log, &Style::JSON).0.contains("\"condition\":\"log-corrupt\""));
    }

    #[test]
    fn the_condition_of_a_corrupt_store_fits_a_terminal() {
        let log = verified(Integrity::IncompleteLog { corruption: String::new() }, None);
        let text = |style: &Style| shown(&log, style).0;
        let on_terminal = text(&Style { columns: Some(80), ..Style::PLAIN });
        assert!(on_terminal.lines().all(|line| line.len() <= 80), "{on_terminal}");
        assert!(on_terminal.contains("\ncondition: log-corrupt; the last writes"), "{on_terminal}");
        let in_a_pipe = text(&Style { stdout_is_terminal: false, columns: Some(80), ..Style::LINES });
        assert_eq!(in_a_pipe.lines().filter(|line| line.len() > 80).count(), 1, "{in_a_pipe}");
    }

    #[test]
    fn a_recovered_store_that_takes_part_in_an_exchange_joins_it_anew() {
        let corrupt = || Integrity::IncompleteLog { corruption: String::new() };
        let recovered = |rows, to: Option<&str>| {
            Recovered::new(verified(corrupt(), rows).contents, to.map(PathBuf::from))
        };
        let left = recovered(Some(1), Some("kept/recovered"));
        assert_eq!(
            shown(&left, &Style::PLAIN).1,
            "recovered 2 keys to kept/recovered; the corrupt files were not changed\n\
             the rows of the exchange were not recovered: the store joins it anew\n  \
             continue with: mqkv serve --data kept/recovered --exchange FILE\n"
        );
        let json = |record| shown(record, &Style::JSON).0;
        assert!(
            json(&left).ends_with("\"rows\":1,\"recovered\":\"kept/recovered\",\"left_exchange\":true}\n")
        );
        assert!(json(&recovered(None, None)).ends_with("\"expired\":0}\n"));
    }
}
