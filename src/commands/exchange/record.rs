//! Records of the verbs of `exchange` that change something, and what its records share (pure).

use serde::Serialize;

use crate::protocol::exchange::Origin;
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::{Record, Rendered, Style, Widths, confirmation, counted, negative};

/// The result of `clear`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-clear")]
pub struct Cleared {
    pub cleared: u64,
}

impl Record for Cleared {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        done(&format!("cleared {}", counted(self.cleared, "conflict")), style)
    }
}

/// The result of `add-leaf`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-add-leaf")]
pub struct LeafAdded {
    #[serde(rename = "leaf")]
    pub name: String,
    /// Whether it could join before.
    #[serde(rename = "known")]
    pub is_known: bool,
}

impl Record for LeafAdded {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let result = if self.is_known { "is known already" } else { "may join" };
        done(&format!("{} {result}", shown(&self.name)), style)
    }
}

/// The result of `drop-leaf`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-drop-leaf")]
pub struct LeafDropped {
    #[serde(rename = "leaf")]
    pub name: String,
    pub found: bool,
}

impl Record for LeafDropped {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        match self.found {
            true => done(&format!("dropped {}", shown(&self.name)), style),
            false => no_leaf(&self.name, style),
        }
    }
}

/// The result of `resync`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-resync")]
pub struct Resync {
    /// `None`: all leaves of a root, or the leaf itself.
    #[serde(rename = "leaf", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of leaves.
    pub leaves: u64,
    /// Whether the leaf leaves its root, to join a new one.
    #[serde(rename = "new_root", skip_serializing_if = "std::ops::Not::not")]
    pub is_new_root: bool,
    /// Whether there is a leaf of this name.
    #[serde(skip)]
    pub found: bool,
}

impl Record for Resync {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        if self.is_new_root {
            return done("the leaf joins the root that it reaches next, and offers its keys", style);
        }
        let leaves = match (&self.name, self.leaves) {
            (None, _) if !self.found => return Rendered::default(),
            (Some(name), _) if !self.found => return no_leaf(name, style),
            (Some(name), _) => format!(": {}", shown(name)),
            (None, 0) => return done("there is no leaf", style),
            // The root may have one leaf, or the broker is a leaf.
            (None, 1) => String::new(),
            (None, count) => format!(": {}", counted(count, "leaf")),
        };
        done(&format!("all records are sent again{leaves}"), style)
    }
}

/// The result of `reconnect`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "exchange-reconnect")]
pub struct Reconnected {
    /// Whether the leaf had a link.
    #[serde(rename = "connected")]
    pub was_connected: bool,
}

impl Record for Reconnected {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let result = if self.was_connected { "the leaf is connected" } else { "the leaf connects now" };
        done(result, style)
    }
}

fn done(text: &str, style: &Style) -> Rendered {
    confirmation(|| text.to_owned(), None, style)
}

/// Formats the message that there is no leaf of a name.
pub fn no_leaf(name: &str, style: &Style) -> Rendered {
    negative(&format!("leaf not found: {}", shown(name)), style)
}

/// The member `by` of an object: the origin of a change.
#[derive(Serialize)]
pub struct By<'a> {
    /// Null for the root: no leaf has an empty name, and one may be called root.
    by: Option<&'a str>,
}

impl<'a> By<'a> {
    /// Returns the member, unless the origin is unknown.
    pub fn of(origin: &'a Origin) -> Option<Self> {
        match origin {
            Origin::Unknown => None,
            Origin::Root => Some(Self { by: None }),
            Origin::Leaf(leaf) => Some(Self { by: Some(leaf) }),
        }
    }
}

/// Returns the origin of a change as text.
pub fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Unknown => "?".to_owned(),
        Origin::Root => "the root".to_owned(),
        Origin::Leaf(name) => shown(name),
    }
}

/// Returns the text of another node, escaped.
pub fn shown(text: &str) -> String {
    escape(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render;

    #[test]
    fn a_resync_is_confirmed_for_its_leaves() {
        let resync = |name: Option<&str>, count: Option<u64>, is_new_root| {
            let (name, found) = (name.map(str::to_owned), count.is_some());
            let record = Resync { name, leaves: count.unwrap_or(0), is_new_root, found };
            let (stdout, stderr) = render::shown(&record, &Style::PLAIN);
            stdout + &stderr
        };
        let again = "all records are sent again";
        assert_eq!(resync(None, Some(2), false), format!("{again}: 2 leaves\n"));
        assert_eq!(resync(None, Some(1), false), format!("{again}\n"));
        assert_eq!(resync(None, Some(0), false), "there is no leaf\n");
        assert_eq!(resync(Some("mill"), Some(1), false), format!("{again}: mill\n"));
        assert_eq!(resync(Some("mill"), None, false), "error: leaf not found: mill\n");
        let joins = "the leaf joins the root that it reaches next, and offers its keys\n";
        assert_eq!(resync(None, Some(1), true), joins);
    }
}
