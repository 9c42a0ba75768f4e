//! Messages on standard error beside the data.

use super::style::{Paint, paint};
use super::{Rendered, Style};

/// Formats a negative result, such as a missing key, on standard error.
#[must_use]
pub fn negative(text: &str, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    Rendered::stderr(format!("{} {text}\n", paint("error:", Paint::Error, style.color_stderr)))
}
