//! What verbs emit, and the records that several of them have.

use std::io;

use serde::Serialize;

use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::style::{Paint, paint};
use crate::render::wrap::wrapped;
use crate::render::{Record, Rendered, Style, Widths, notice};

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
        /// Of the text behind its label.
        const INDENT: usize = 6;
        let label = paint("hint:", Paint::Hint, style.color_stderr);
        let hint = wrapped(&escape(self.0.as_bytes()), style.stderr_columns(), INDENT);
        notice(&format!("{label} {hint}"), style)
    }

    fn hint(&self) -> Option<&str> {
        Some(&self.0)
    }
}
