//! Colour, where the stream takes it; the only user of the `colored` crate, which decides nothing here.

use colored::{Color, ColoredString, Colorize};

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

/// A colour that somebody has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shade(Color);

impl Shade {
    /// The colour of this name, of the sixteen that terminals have names for, or `#rrggbb`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        // The crate takes texts apart by bytes.
        if !name.is_ascii() {
            return None;
        }
        name.replace(['_', '-'], " ").parse().ok().map(Self)
    }

    /// The name that [`Shade::parse`] reads.
    #[must_use]
    pub fn name(self) -> String {
        match self.0 {
            Color::TrueColor { r, g, b } => format!("#{r:02x}{g:02x}{b:02x}"),
            named => {
                // `BrightRed` is two words.
                let name = format!("{named:?}");
                let words = name.strip_prefix("Bright").map_or(name.clone(), |rest| format!("bright {rest}"));
                words.to_lowercase()
            }
        }
    }
}

/// Paints text in a colour that somebody has chosen, or leaves it as it is.
#[must_use]
pub fn shade(text: &str, shade: Shade, color: bool) -> String {
    if !color {
        return text.to_owned();
    }
    colored::control::set_override(true);
    text.color(shade.0).to_string()
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

    #[test]
    fn a_colour_has_a_name_that_is_known() {
        let red = Shade::parse("red").unwrap();
        assert_eq!(shade("prod", red, true), "\x1b[31mprod\x1b[0m");
        assert_eq!(shade("prod", red, false), "prod");
        assert!(Shade::parse("bright_blue").is_some() && Shade::parse("#ff8800").is_some());
        for name in ["red", "bright blue", "#ff8800"] {
            assert_eq!(Shade::parse(name).unwrap().name(), name);
        }
        for name in ["", "reddish", "#", "#ff", "#éé", "31"] {
            assert_eq!(Shade::parse(name), None, "{name}");
        }
    }
}
