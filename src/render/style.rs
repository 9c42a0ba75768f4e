//! Colors. The callers decide whether a stream is colored.

use colored::{Color, ColoredString, Colorize};

/// The role of a text, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Secondary information.
    Dim,
    Success,
    Warning,
    Error,
    Hint,
}

/// A color of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomColor(Color);

impl CustomColor {
    /// Parses one of the sixteen names of terminal colors, or `#rrggbb`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        // The crate panics if it slices a name within a character.
        if !name.is_ascii() {
            return None;
        }
        name.replace(['_', '-'], " ").parse().ok().map(Self)
    }

    /// Returns the name that [`CustomColor::parse`] accepts.
    #[must_use]
    pub fn name(self) -> String {
        match self.0 {
            Color::TrueColor { r, g, b } => format!("#{r:02x}{g:02x}{b:02x}"),
            named => {
                // `BrightRed` is `bright red`.
                let name = format!("{named:?}");
                let words = name.strip_prefix("Bright").map_or(name.clone(), |rest| format!("bright {rest}"));
                words.to_lowercase()
            }
        }
    }
}

/// Returns text in a color of the configuration; unchanged if `color` is false.
#[must_use]
pub fn shade(text: &str, shade: CustomColor, color: bool) -> String {
    if !color {
        return text.to_owned();
    }
    colored::control::set_override(true);
    text.color(shade.0).to_string()
}

/// Returns text in the color of its role; unchanged if `color` is false.
#[must_use]
pub fn paint(text: &str, paint: Paint, color: bool) -> String {
    if !color {
        return text.to_owned();
    }
    // By default the crate decides by standard output and the environment; the caller has decided by stream.
    colored::control::set_override(true);
    let painted: ColoredString = match paint {
        Paint::Dim => text.dimmed(),
        Paint::Success => text.green(),
        Paint::Warning => text.yellow().bold(),
        Paint::Error => text.red().bold(),
        Paint::Hint => text.cyan(),
    };
    painted.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_decides_about_color() {
        assert_eq!(paint("error:", Paint::Error, false), "error:");
        assert_eq!(paint("error:", Paint::Error, true), "\x1b[1;31merror:\x1b[0m");
        assert_eq!(paint("", Paint::Dim, false), "");
    }

    #[test]
    fn a_color_has_a_known_name() {
        let red = CustomColor::parse("red").unwrap();
        assert_eq!(shade("prod", red, true), "\x1b[31mprod\x1b[0m");
        assert_eq!(shade("prod", red, false), "prod");
        assert!(CustomColor::parse("bright_blue").is_some() && CustomColor::parse("#ff8800").is_some());
        for name in ["red", "bright blue", "#ff8800"] {
            assert_eq!(CustomColor::parse(name).unwrap().name(), name);
        }
        for name in ["", "reddish", "#", "#ff", "#éé", "31"] {
            assert_eq!(CustomColor::parse(name), None, "{name}");
        }
    }
}
