//! Colour, where the stream takes it; the only user of the `colored` crate, which decides nothing here.

use colored::{ColoredString, Colorize};

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Said beside the matter.
    Dim,
    /// The word that says that all is well.
    Good,
    /// The word that says that something may go wrong.
    Doubtful,
    /// The word that says that something went wrong.
    Wrong,
    /// The word before what to try next.
    Next,
}

/// Paints text, or leaves it as it is.
#[must_use]
pub fn paint(text: &str, paint: Paint, color: bool) -> String {
    if !color {
        return text.to_owned();
    }
    // The crate would look at standard output and the environment; both streams have been judged already.
    colored::control::set_override(true);
    let painted: ColoredString = match paint {
        Paint::Dim => text.dimmed(),
        Paint::Good => text.green(),
        Paint::Doubtful => text.yellow().bold(),
        Paint::Wrong => text.red().bold(),
        Paint::Next => text.cyan(),
    };
    painted.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_told_never_guessed() {
        assert_eq!(paint("error:", Paint::Wrong, false), "error:");
        assert_eq!(paint("error:", Paint::Wrong, true), "\x1b[1;31merror:\x1b[0m");
        assert_eq!(paint("", Paint::Dim, false), "");
    }
}
