//! Tables with aligned columns (pure).

use super::cut::width_of;

/// The column in which the values of properties begin.
pub const PROPERTY_INDENT: usize = 11;

/// Returns one property per line, with all values in the same column.
#[must_use]
pub fn properties(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{:PROPERTY_INDENT$}{value}\n", format!("{name}:"))).collect()
}

/// Returns a table: the first `words` columns and the last one begin at the left, the others end at the right.
#[must_use]
pub fn table(rows: &[Vec<String>], words: usize) -> String {
    let wide =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| width_of(cell)).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let blanks = " ".repeat(wide(at).saturating_sub(width_of(cell)));
            let is_last = at.saturating_add(1) == row.len();
            line.push_str(&match at {
                at if at < words => format!("{cell}{blanks}  "),
                _ if is_last => cell.clone(),
                _ => format!("{blanks}{cell}  "),
            });
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_at_the_left_and_numbers_end_at_the_right() {
        let rows = [["NAME", "COUNT", "SEEN"], ["温", "7", "now"], ["abcdef", "12345678", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let expected = "NAME       COUNT  SEEN\n温             7  now\nabcdef  12345678\n";
        assert_eq!(table(&rows, 1), expected);
    }
}
