//! The record of `exchange key` (pure).

use serde::{Serialize, Serializer};

use super::record::{By, origin, shown};
use crate::protocol::Key;
use crate::protocol::exchange::{KeyReport, Origin, RuleReport};
use crate::render::encoding::to_hex;
use crate::render::json::{self, Json};
use crate::render::table::properties;
use crate::render::{Record, Rendered, Style, Widths, name};

/// The state of a key, and the rule that holds for it.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-key")]
pub struct KeyRecord {
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Key,
    #[serde(flatten, serialize_with = "members")]
    pub report: KeyReport,
}

fn members<S: Serializer>(report: &KeyReport, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Members<'a> {
        state: &'static str,
        #[serde(flatten)]
        rule: Option<Rule<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ver: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        change_id: Option<String>,
        #[serde(flatten)]
        by: Option<By<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pending: Option<String>,
    }
    #[derive(Serialize)]
    struct Rule<'a> {
        #[serde(rename = "rule")]
        number: u64,
        rule_keys: &'a [String],
        change: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        leaves: Option<&'a [String]>,
    }
    let KeyReport { state, rule, ver, change_id, owner, pending } = report;
    let members = Members {
        state: state.as_str(),
        rule: rule.as_ref().map(|rule| Rule {
            number: rule.number,
            rule_keys: &rule.keys,
            change: changed_by(rule),
            leaves: rule.leaves.as_deref(),
        }),
        ver: Some(*ver).filter(|ver| *ver > 0),
        change_id: change_id.map(|change_id| to_hex(&change_id)),
        by: By::of(owner),
        pending: pending.map(|change_id| to_hex(&change_id)),
    };
    members.serialize(serializer)
}

/// Returns who may change the keys of a rule.
fn changed_by(rule: &RuleReport) -> &'static str {
    if rule.is_for_leaves { "leaves" } else { "root" }
}

impl Record for KeyRecord {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(text(&self.key, &self.report))
    }
}

fn text(key: &Key, report: &KeyReport) -> String {
    let mut rows = vec![("key", name(key)), ("state", report.state.as_str().to_owned())];
    match &report.rule {
        None => rows.push(("rule", "none: the key takes no part".to_owned())),
        Some(rule @ RuleReport { number, keys, leaves, .. }) => {
            rows.push(("rule", format!("{number}: {}", patterns(keys))));
            rows.push(("change", changed_by(rule).to_owned()));
            rows.push(("leaves", leaves.as_deref().map_or_else(|| "all".to_owned(), patterns)));
        }
    }
    if report.ver > 0 {
        rows.push(("ver", report.ver.to_string()));
    }
    rows.extend(report.change_id.map(|change_id| ("change id", to_hex(&change_id))));
    match &report.owner {
        Origin::Unknown => {}
        owner => rows.push(("by", origin(owner))),
    }
    rows.extend(report.pending.map(|change_id| ("pending", to_hex(&change_id))));
    properties(&rows)
}

fn patterns(patterns: &[String]) -> String {
    patterns.iter().map(|pattern| shown(pattern)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::exchange::KeyState;
    use crate::render::shown as formatted;

    #[test]
    fn a_key_is_shown_with_its_rule() {
        let report = KeyReport {
            state: KeyState::Replicating,
            rule: Some(RuleReport {
                number: 2,
                keys: vec!["line/*".to_owned(), "state/*".to_owned()],
                is_for_leaves: true,
                leaves: None,
            }),
            ver: 5,
            change_id: Some([1; 16]),
            owner: Origin::Root,
            pending: None,
        };
        let key = Key::new("line/2").unwrap();
        let (stdout, _) = formatted(&KeyRecord { key: key.clone(), report: report.clone() }, &Style::PLAIN);
        assert_eq!(
            stdout,
            "key:       line/2\nstate:     replicating\nrule:      2: line/*, state/*\nchange:    leaves\n\
             leaves:    all\nver:       5\nchange id: 01010101010101010101010101010101\nby:        the root\n"
        );
        let local = KeyReport {
            state: KeyState::Local,
            rule: None,
            ver: 0,
            change_id: None,
            owner: Origin::Unknown,
            ..report
        };
        let (stdout, _) = formatted(&KeyRecord { key, report: local }, &Style::PLAIN);
        assert_eq!(stdout, "key:       line/2\nstate:     local\nrule:      none: the key takes no part\n");
    }
}
