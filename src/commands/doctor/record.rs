//! Records of `doctor`: one for each check, and all of them at the end.

use std::time::Duration;

use serde::Serialize;

use super::check::{CheckResult, Detail, Status};
use super::text::{self, hints, message};
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths};

/// The results of all checks.
#[derive(Debug)]
pub struct CheckSummary(pub Vec<CheckResult>);

/// The result of a check as an object.
#[derive(Serialize)]
#[serde(tag = "op", rename = "doctor")]
struct Object<'a> {
    check: &'static str,
    status: &'static str,
    #[serde(rename = "ms", skip_serializing_if = "Option::is_none", serialize_with = "json::ms")]
    elapsed: Option<Duration>,
    message: String,
    /// The kind of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// The exit status of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    causes: &'a [String],
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Detail>,
}

impl<'a> From<&'a CheckResult> for Object<'a> {
    fn from(checked: &'a CheckResult) -> Self {
        let status = match &checked.status {
            Status::Ok => "ok",
            Status::Warn(_) => "warn",
            Status::Fail(_) => "fail",
            Status::Skipped(_) => "skipped",
        };
        let causes = match &checked.status {
            Status::Fail(error) => error.causes.as_slice(),
            _ => &[],
        };
        Self {
            check: checked.check.name(),
            status,
            elapsed: checked.elapsed,
            message: message(checked),
            kind: checked.failure().map(|kind| kind.name()),
            code: checked.failure().map(|kind| kind.code()),
            causes,
            hint: hints(&checked.status).join("; "),
            details: checked.detail.as_ref(),
        }
    }
}

/// As text: JSON is one array at the end.
impl Record for CheckResult {
    fn json(&self, _: &Json<'_>) -> Rendered {
        Rendered::default()
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        text::text(self, style)
    }
}

/// As JSON; with --quiet, only the failures.
impl Record for CheckSummary {
    fn json(&self, json: &Json<'_>) -> Rendered {
        let shown = self.0.iter().filter(|checked| !json.quiet || checked.failure().is_some());
        json.array(shown.map(Object::from))
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::default()
    }
}
