//! The records of `batch` and `import` for a line of their input.

use super::records::Id;
use crate::commands::error::{CommandError, Place};
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::style::{Paint, paint};
use crate::render::{Record, Rendered, Style, Widths, rendered};

/// A record of the verb on a line.
#[derive(Debug)]
pub struct Answered<'a> {
    pub place: &'a Place,
    /// The id that the request has given itself.
    pub id: Option<&'a Id>,
    pub record: &'a dyn Record,
}

/// A line that failed.
#[derive(Debug)]
pub struct FailedLine<'a> {
    /// As for [`Answered`].
    pub id: Option<&'a Id>,
    pub place: &'a Place,
    pub error: &'a CommandError,
    /// Whether the whole verb fails with this error or an earlier one, which is reported at the end.
    pub is_end: bool,
}

/// Returns the format of a record about a line.
fn marked<'a>(json: &Json<'a>, id: Option<&'a Id>, place: &Place) -> Json<'a> {
    json.of_line(id.map(Id::value), place.line)
}

impl Record for Answered<'_> {
    fn json(&self, json: &Json<'_>) -> Rendered {
        self.record.json(&marked(json, self.id, self.place))
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let rendered = rendered(self.record, style, &mut Widths::default());
        if rendered.stderr.is_empty() {
            return rendered;
        }
        let place = escape(self.place.to_string().as_bytes());
        let label = paint("error:", Paint::Error, style.color_stderr);
        let stderr = match rendered.stderr.strip_prefix(&label) {
            Some(message) => format!("{label} {place}:{message}"),
            None => format!("{place}: {}", rendered.stderr),
        };
        Rendered { stderr, ..rendered }
    }
}

impl Record for FailedLine<'_> {
    fn json(&self, json: &Json<'_>) -> Rendered {
        marked(json, self.id, self.place).data(&self.error.object())
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        if self.is_end { Rendered::default() } else { Rendered::stderr(self.error.rendered(style)) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::records;
    use super::*;
    use crate::commands::Kind;
    use crate::render::{negative, shown};

    /// The answer no.
    #[derive(Debug)]
    struct No;

    impl Record for No {
        fn json(&self, json: &Json<'_>) -> Rendered {
            json.data(&std::collections::BTreeMap::from([("op", "no")]))
        }

        fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
            Rendered { stdout: "\n".into(), ..negative("key not found: k", style) }
        }
    }

    fn place(line: u64) -> Place {
        Place { file: Path::new("f").into(), line }
    }

    #[test]
    fn a_no_has_its_line_on_a_terminal_and_in_a_pipe() {
        let answered = Answered { place: &place(3), id: None, record: &No };
        let no = ("\n".to_owned(), "error: f:3: key not found: k\n".to_owned());
        assert_eq!(shown(&answered, &Style::PLAIN), no);
        assert_eq!(shown(&answered, &Style::LINES), no);
        assert_eq!(shown(&answered, &Style::JSON).0, "{\"v\":1,\"line\":3,\"op\":\"no\"}\n");
    }

    #[test]
    fn an_answer_has_its_id_and_an_error_is_printed_once() {
        let id = records::Members::parse(b"{\"id\":[7]}").unwrap().id();
        let answered = Answered { place: &place(1), id: id.as_ref(), record: &No };
        assert_eq!(shown(&answered, &Style::JSON).0, "{\"v\":1,\"id\":[7],\"line\":1,\"op\":\"no\"}\n");
        let error = CommandError::new(Kind::Data, "no JSON").with_place(place(2));
        let failed = |is_end, style: &Style| {
            shown(&FailedLine { place: &place(2), id: id.as_ref(), error: &error, is_end }, style)
        };
        assert_eq!(failed(false, &Style::LINES), (String::new(), "error: f:2: no JSON\n".to_owned()));
        assert_eq!(failed(true, &Style::LINES), Default::default());
        assert_eq!(
            failed(true, &Style::JSON).0,
            "{\"v\":1,\"id\":[7],\"line\":2,\"error\":{\"kind\":\"data\",\"code\":65,\
             \"message\":\"line 2: no JSON\",\"file\":\"f\",\"line\":2,\"retryable\":false}}\n"
        );
    }
}
