//! Parts that several sections of the page have.

use super::text;

pub fn section(id: &str, title: &str, contents: &str) -> String {
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n{contents}</section>\n"
    )
}

/// Marks a part of the page that the script replaces.
pub fn live(id: &str, contents: &str) -> String {
    format!("<div id=\"{id}\" data-live>{contents}</div>\n")
}

/// Returns cards with a title and rows of names and values.
pub fn cards(cards: Vec<(&str, Vec<(&str, String)>)>) -> String {
    let card = |(title, rows): (&str, Vec<(&str, String)>)| {
        let rows: String =
            rows.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>")).collect();
        format!("<div class=\"card\"><h3>{title}</h3><dl>{rows}</dl></div>\n")
    };
    format!("<div class=\"cards\">\n{}</div>\n", cards.into_iter().map(card).collect::<String>())
}

pub fn number_of(number: usize) -> u64 {
    number as u64
}

/// Returns what is used of a limited number of bytes.
pub fn share(used: u64, max: u64) -> String {
    format!(
        "{} of {}</dd><dd class=\"meter\"><meter value=\"{used}\" max=\"{max}\" high=\"{}\" aria-hidden=\"true\"></meter>",
        text::bytes(used),
        text::bytes(max),
        max.saturating_sub(max / 10),
    )
}
