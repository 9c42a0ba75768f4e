//! The query of the page's address: filters, orders and places in the lists.

use std::collections::BTreeMap;

use super::text;

/// The parameters of the page, in the order in which links contain them.
pub const CLIENTS: ListNames =
    ListNames { filter: "clients", sort: "clients-sort", skip: "clients-skip", from: "" };
pub const LEAVES: ListNames =
    ListNames { filter: "leaves", sort: "leaves-sort", skip: "leaves-skip", from: "" };
pub const KEYS: ListNames =
    ListNames { filter: "keys", sort: "keys-sort", skip: "keys-skip", from: "keys-from" };
/// The key of the page with its value.
pub const KEY: &str = "key";

/// The most bytes of a filter.
const FILTER_BYTES_MAX: usize = 256;
/// The most bytes of any other parameter, but the key.
const OTHER_BYTES_MAX: usize = 32;

/// The parameters of one list.
#[derive(Clone, Copy, Debug)]
pub struct ListNames {
    pub filter: &'static str,
    pub sort: &'static str,
    /// Number of rows before the first one that is shown.
    pub skip: &'static str,
    /// Where the walk through a large store begins.
    pub from: &'static str,
}

impl ListNames {
    fn all(self) -> impl Iterator<Item = &'static str> {
        [self.filter, self.sort, self.skip, self.from].into_iter().filter(|name| !name.is_empty())
    }
}

/// The parameters of the page, without unknown and empty ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<&'static str, String>);

impl Query {
    #[must_use]
    pub fn parse(query: &str) -> Self {
        let mut values = BTreeMap::new();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let lists = [LEAVES, CLIENTS, KEYS];
            let mut known = lists.into_iter().flat_map(ListNames::all);
            let Some(name) = known.find(|known| *known == name) else { continue };
            let is_filter = lists.iter().any(|list| list.filter == name);
            let bytes_max = if is_filter { FILTER_BYTES_MAX } else { OTHER_BYTES_MAX };
            let value = decode(value);
            let value = String::from_utf8_lossy(text::beginning(&value, bytes_max)).trim().to_owned();
            if !value.is_empty() {
                values.insert(name, value);
            }
        }
        Self(values)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    /// Returns the name of the column that a list is ordered by, and whether in descending order.
    #[must_use]
    pub fn order(&self, names: ListNames) -> (&str, bool) {
        let sort = self.get(names.sort);
        sort.strip_prefix('-').map_or((sort, false), |name| (name, true))
    }

    /// Returns the address of the page with these parameters instead, as an attribute's value. An empty value removes a
    /// parameter.
    #[must_use]
    pub fn link(&self, changes: &[(&'static str, &str)], fragment: &str) -> String {
        let mut values: BTreeMap<&str, &str> =
            self.0.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for (name, value) in changes {
            values.insert(name, value);
        }
        let pairs: Vec<String> = values
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}={}", encode(value.as_bytes())))
            .collect();
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("/{mark}{}#{fragment}", pairs.join("&amp;"))
    }

    /// Returns hidden fields of a list's form: what a new filter leaves as it is.
    #[must_use]
    pub fn hidden_fields(&self, names: ListNames) -> String {
        let is_kept = |name: &str| ![names.filter, names.skip, names.from].contains(&name);
        let kept = self.0.iter().filter(|(name, _)| is_kept(name));
        kept.map(|(name, value)| {
            format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", text::escape(value.as_bytes()))
        })
        .collect()
    }
}

/// Returns the key that a query names.
#[must_use]
pub fn key(query: &str) -> Option<Vec<u8>> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == KEY).map(|(_, value)| decode(value))
}

/// Encodes bytes for a query. The result needs no escapes in HTML.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Decodes what a form or [`encode`] has encoded. An incomplete escape stands for itself.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let escaped = || {
            let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        match (first, escaped()) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_the_known_parameters_decoded_and_bounded() {
        let long = "x".repeat(1_000);
        let query =
            Query::parse(&format!("keys=a%2Fb+c%ff&keys-skip=7&other=1&clients=&clients-sort={long}"));
        assert_eq!((query.get("keys"), query.number("keys-skip")), ("a/b c\u{fffd}", 7));
        assert_eq!((query.get("other"), query.get("clients"), query.get("clients-sort").len()), ("", "", 32));
        assert_eq!(Query::parse("keys-skip=-1").number("keys-skip"), 0);
        for text in ["", "&&", "=", "%", "keys", "keys=%", "keys=%f", "keys=%+1"] {
            let _ = Query::parse(text);
        }
    }

    #[test]
    fn a_link_keeps_the_other_parameters_and_reads_back() {
        let query = Query::parse("clients=%22%3E%3Cb%3E&keys=%26%3D%25&keys-skip=100");
        let link = query.link(&[("keys-skip", ""), ("keys-sort", "-size")], "keys");
        assert!(!link.contains(['"', '<', '>', '\'']), "{link}");
        let (path, rest) = link.split_once('?').unwrap();
        let (again, fragment) = rest.split_once('#').unwrap();
        let again = Query::parse(&again.replace("&amp;", "&"));
        assert_eq!((path, fragment), ("/", "keys"));
        assert_eq!((again.get("clients"), again.get("keys")), ("\"><b>", "&=%"));
        assert_eq!((again.get("keys-skip"), again.get("keys-sort")), ("", "-size"));
        assert_eq!(Query::default().link(&[], "keys"), "/#keys");
    }

    #[test]
    fn a_form_keeps_the_order_and_the_other_list_but_not_the_place() {
        let query = Query::parse("clients=%22&keys=old&keys-sort=size&keys-skip=100&keys-from=5");
        assert_eq!(
            query.hidden_fields(KEYS),
            "<input type=\"hidden\" name=\"clients\" value=\"&quot;\">\
             <input type=\"hidden\" name=\"keys-sort\" value=\"size\">"
        );
    }

    #[test]
    fn a_key_of_any_bytes_survives_a_link() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(key(&format!("a=b&key={}", encode(&bytes))), Some(bytes));
        assert_eq!(key("other=1"), None);
    }
}
