//! What verbs emit, and the records that several of them have.

use std::io;

use serde::Serialize;

use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::{Record, Rendered, Style, Widths, hint};

/// Takes the records of a verb, each as soon as it exists.
pub type Emit<'a> = &'a mut dyn FnMut(&dyn Record) -> io::Result<()>;

/// A hint about the arguments of a verb that succeeded.
#[derive(Debug)]
pub struct Hint(pub String);

impl Record for Hint {
    fn json(&self, json: &Json<'_>) -> Rendered {
        #[derive(Serialize)]
        struct Object<'a> {
            hint: Message<'a>,
        }
        #[derive(Serialize)]
        struct Message<'a> {
            message: &'a str,
        }
        json.message(&Object { hint: Message { message: &self.0 } })
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        hint(&escape(self.0.as_bytes()), style)
    }

    fn hint(&self) -> Option<&str> {
        Some(&self.0)
    }
}
