//! Tables of the page: headings that order the rows, and what stands above and below them.

use super::query::{ListNames, Query};
use super::text;

/// The most rows of a list on one page.
pub const ROWS_PER_PAGE: usize = 50;
/// The most rows of a list on all pages: the memory of a selection.
const ROWS_MAX: usize = 1_000;

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column<C: 'static> {
    /// The name in the query; empty if the list cannot be ordered by the column.
    pub name: &'static str,
    pub title: &'static str,
    pub column: C,
    pub is_number: bool,
}

/// What a list is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order<C> {
    pub column: C,
    pub is_descending: bool,
}

/// A list with a filter, an order and pages.
#[derive(Clone, Debug)]
pub struct List<'a, C: 'static> {
    pub query: &'a Query,
    pub names: ListNames,
    /// The fragment of links to the list, and the start of the ids of its parts.
    pub id: &'static str,
    pub columns: &'static [Column<C>],
    pub order: Order<C>,
}

impl<'a, C: Copy + PartialEq> List<'a, C> {
    /// Returns a list, ordered by `default` unless the query has the name of another column.
    pub fn new(
        query: &'a Query,
        (names, id): (ListNames, &'static str),
        columns: &'static [Column<C>],
        default: C,
    ) -> Self {
        let (name, is_descending) = query.order(names);
        let column = columns.iter().find(|column| !name.is_empty() && column.name == name);
        let order = match column {
            Some(column) => Order { column: column.column, is_descending },
            None => Order { column: default, is_descending: false },
        };
        Self { query, names, id, columns, order }
    }

    /// Returns the number of rows before the first one on the page.
    pub fn skip(&self) -> usize {
        let skip = usize::try_from(self.query.number(self.names.skip)).unwrap_or(0);
        skip.min(ROWS_MAX.saturating_sub(ROWS_PER_PAGE))
    }

    /// Returns the form of the filter. It is outside of what updates replace, so that typing is not disturbed.
    pub fn form(&self, label: &str, hint: &str) -> String {
        let Self { query, names, id, .. } = self;
        let value = text::escape(query.get(names.filter).as_bytes());
        format!(
            "<form role=\"search\" action=\"/#{id}\" data-list=\"{id}\">{}\
             <label for=\"{id}-filter\">{label}</label>\
             <input type=\"search\" id=\"{id}-filter\" name=\"{}\" value=\"{value}\" maxlength=\"256\" \
             autocomplete=\"off\" autocapitalize=\"off\" spellcheck=\"false\" placeholder=\"{hint}\">\
             <button>Filter</button></form>\n",
            query.hidden_fields(*names),
            names.filter,
        )
    }

    /// Returns the start of the table, up to its rows.
    pub fn head(&self, caption: &str) -> String {
        let headings: String = self.columns.iter().map(|column| self.heading(column)).collect();
        format!(
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table of {caption}\"><table>\n\
             <caption class=\"hidden\">{caption}</caption>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n"
        )
    }

    fn heading(&self, column: &Column<C>) -> String {
        let Self { query, names, order, .. } = self;
        let class = if column.is_number { " class=\"n\"" } else { "" };
        if column.name.is_empty() {
            return format!("<th scope=\"col\"{class}>{}</th>", column.title);
        }
        let is_current = column.column == order.column;
        // The first click on a number shows the greatest ones.
        let is_descending = if is_current { !order.is_descending } else { column.is_number };
        let sort = format!("{}{}", if is_descending { "-" } else { "" }, column.name);
        let (state, arrow) = match (is_current, order.is_descending) {
            (false, _) => ("", ""),
            (true, false) => (" aria-sort=\"ascending\"", " <span aria-hidden=\"true\">↑</span>"),
            (true, true) => (" aria-sort=\"descending\"", " <span aria-hidden=\"true\">↓</span>"),
        };
        let link = query.link(&[(names.sort, &sort), (names.skip, "")], self.id);
        format!(
            "<th scope=\"col\"{class}{state}><a id=\"{}-{}\" href=\"{link}\">{}{arrow}</a></th>",
            self.id, column.name, column.title,
        )
    }

    /// Returns the end of the table with links to other pages. `shown` rows are on this page, `all` match, and a walk
    /// through a large store goes on at `next_part`.
    pub fn foot(&self, shown: usize, all: usize, next_part: Option<u64>) -> String {
        let Self { query, names, id, .. } = self;
        let skip = self.skip();
        let end = skip.saturating_add(shown);
        let number = |number: usize| text::count(number as u64);
        let range = match (shown, all) {
            (0, _) => format!("no {id}"),
            _ if skip == 0 && end >= all => format!("{} {id}", number(all)),
            _ => format!("{}–{} of {} {id}", number(skip.saturating_add(1)), number(end), number(all)),
        };
        let mut links = Vec::new();
        if skip > 0 {
            let before = skip.saturating_sub(ROWS_PER_PAGE);
            let before = if before == 0 { String::new() } else { before.to_string() };
            links.push(("Previous", query.link(&[(names.skip, &before)], id)));
        }
        if end < all && end < ROWS_MAX {
            links.push(("Next", query.link(&[(names.skip, &end.to_string())], id)));
        } else if end < all {
            links.push(("First page: filter to see others", query.link(&[(names.skip, "")], id)));
        }
        if !names.from.is_empty() {
            if query.number(names.from) > 0 {
                links.push(("First part", query.link(&[(names.from, ""), (names.skip, "")], id)));
            }
            if let Some(next) = next_part {
                let changes = [(names.from, next.to_string()), (names.skip, String::new())];
                let changes = changes.each_ref().map(|(name, value)| (*name, value.as_str()));
                links.push(("Next part", query.link(&changes, id)));
            }
        }
        let links: String =
            links.into_iter().map(|(title, link)| format!(" <a href=\"{link}\">{title}</a>")).collect();
        format!("</tbody>\n</table></div>\n<p class=\"pages\"><span>{range}</span>{links}</p>\n")
    }
}

/// Returns how many rows must be selected for a page that begins after `skip` rows.
#[must_use]
pub fn selected(skip: usize) -> usize {
    skip.saturating_add(ROWS_PER_PAGE)
}

#[cfg(test)]
mod tests {
    use super::super::query::KEYS;
    use super::*;

    const COLUMNS: &[Column<u8>] = &[
        Column { name: "key", title: "Key", column: 0, is_number: false },
        Column { name: "size", title: "Size", column: 1, is_number: true },
    ];

    fn list(query: &Query) -> List<'_, u8> {
        List::new(query, (KEYS, "keys"), COLUMNS, 0)
    }

    #[test]
    fn a_heading_orders_by_its_column_and_turns_the_order_around() {
        let head = list(&Query::default()).head("Keys");
        assert!(
            head.contains(
                "<th scope=\"col\" aria-sort=\"ascending\"><a id=\"keys-key\" href=\"/?keys-sort=-key#keys\">"
            ),
            "{head}"
        );
        assert!(
            head.contains(
                "<th scope=\"col\" class=\"n\"><a id=\"keys-size\" href=\"/?keys-sort=-size#keys\">Size</a>"
            ),
            "{head}"
        );
        let head = list(&Query::parse("keys-sort=-size&keys-skip=100")).head("Keys");
        assert!(
            head.contains("aria-sort=\"descending\"><a id=\"keys-size\" href=\"/?keys-sort=size#keys\">"),
            "{head}"
        );
        assert_eq!(head.matches("aria-sort").count(), 1);
        let unknown = Query::parse("keys-sort=-nonsense");
        assert_eq!(list(&unknown).order, Order { column: 0, is_descending: false });
    }

    #[test]
    fn all_pages_of_a_list_can_be_reached_up_to_the_most_rows() {
        let foot = |query: &str, shown, all| list(&Query::parse(query)).foot(shown, all, None);
        assert!(foot("", 7, 7).contains("<span>7 keys</span></p>"));
        assert!(foot("", 0, 0).contains("<span>no keys</span></p>"));
        let first = foot("", 50, 1_234);
        assert!(first.contains("1–50 of 1,234 keys") && first.contains("keys-skip=50"), "{first}");
        assert!(!first.contains("Previous"), "{first}");
        let second = foot("keys-skip=50", 50, 100);
        assert!(
            second.contains("51–100 of 100") && second.contains("<a href=\"/#keys\">Previous</a>"),
            "{second}"
        );
        assert!(!second.contains("Next"), "{second}");
        let last = foot("keys-skip=950", 50, 1_234);
        assert!(
            last.contains("951–1,000 of 1,234") && last.contains("filter") && !last.contains("Next"),
            "{last}"
        );
        assert_eq!(list(&Query::parse("keys-skip=4000000000")).skip(), 950);
    }

    #[test]
    fn the_parts_of_a_large_store_are_linked() {
        let query = Query::parse("keys-from=262144&keys-skip=100");
        let foot = list(&query).foot(100, 500, Some(524_288));
        assert!(foot.contains("keys-from=524288#keys\">Next part"));
        assert!(foot.contains("<a href=\"/#keys\">First part</a>"), "{foot}");
    }
}
