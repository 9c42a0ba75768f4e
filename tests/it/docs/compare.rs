//! What a page shows, compared with what a program prints.
//!
//! A page may leave out what it does not need: `…` in a line stands for any text, and a line that is `…` for any lines.
//! Times, durations in ms, versions, names of changes and the numbers of client ids differ in each run, and are the same
//! to a comparison.

/// What stands for the parts of a line that differ in each run. `0` is a digit, `x` a hexadecimal one, `*` a node's name.
const TEMPLATES: [(&str, &str); 8] = [
    ("0000-00-00T00:00:00.000Z", "TIME"),
    ("0000-00-00T00:00:00Z", "TIME"),
    ("0000-00-00 00:00:00", "TIME"),
    ("000000000000000:00000:*", "VERSION"),
    ("00:00:00.000", "TIME"),
    ("00:00:00", "TIME"),
    ("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "HEX"),
    ("-xxxxxxxx", "-ID"),
];

/// Returns whether the output is what the page shows.
pub fn is_as_shown(shown: &[String], output: &[String], numbers_vary: bool) -> bool {
    let comparable = |lines: &[String]| -> Vec<String> {
        let lines = lines.iter().map(|line| comparable(line, numbers_vary));
        let mut lines: Vec<String> = lines.filter(|line| !is_about_jobs(line)).collect();
        if numbers_vary {
            // A table may have any number of rows that are equal but for their numbers.
            lines.dedup();
        }
        lines
    };
    lines_match(&comparable(shown), &comparable(output))
}

/// Returns whether a line is output of a shell about its jobs, which has process ids.
fn is_about_jobs(line: &str) -> bool {
    line.strip_prefix('[').is_some_and(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.starts_with(']') && rest[1..].starts_with([' ', '+', '-'])
    })
}

fn lines_match(shown: &[String], output: &[String]) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=output.len()).any(|skipped| lines_match(rest, &output[skipped..]))
        }
        Some((first, rest)) => output
            .split_first()
            .is_some_and(|(line, others)| text_matches(first, line) && lines_match(rest, others)),
    }
}

/// Returns whether a line is as shown; `…` matches any text.
pub fn text_matches(shown: &str, line: &str) -> bool {
    match shown.split_once('…') {
        None => shown == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| text_matches(after, &rest[at..]))
        }),
    }
}

/// Returns a line without what differs in each run.
pub fn comparable(line: &str, numbers_vary: bool) -> String {
    let line = without_templates(line.trim_end());
    let line = without_time_left(&without_durations(&line));
    if numbers_vary { without_numbers(&line) } else { line }
}

/// Returns a record with another time to live.
fn without_time_left(line: &str) -> String {
    const MEMBER: &str = "\"ttl_ms\":";
    match line.split_once(MEMBER) {
        Some((before, ms)) => {
            format!("{before}{MEMBER}MS{}", ms.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line.to_owned(),
    }
}

fn without_templates(line: &str) -> String {
    let mut result = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        // A number or a word is replaced as a whole or not at all.
        let is_inside = result.chars().last().is_some_and(|c| c.is_ascii_alphanumeric()) && c != '-';
        let found = TEMPLATES.iter().find_map(|(template, name)| Some((end_of(template, rest)?, *name)));
        match found.filter(|_| !is_inside) {
            Some((end, name)) => {
                result.push_str(name);
                rest = &rest[end..];
            }
            None => {
                result.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    result
}

/// Returns where a text ends that begins with something of this form.
fn end_of(template: &str, text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().peekable();
    for form in template.bytes() {
        if form == b'*' {
            return text[bytes.peek()?.0..]
                .find(|c: char| !c.is_alphanumeric() && c != '-')
                .map_or(Some(text.len()), |length| Some(bytes.peek()?.0 + length));
        }
        let (_, byte) = bytes.next()?;
        let is_of_form = match form {
            b'0' => byte.is_ascii_digit(),
            b'x' => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            other => byte == other,
        };
        if !is_of_form {
            return None;
        }
    }
    match bytes.peek() {
        Some((_, byte)) if byte.is_ascii_alphanumeric() => None,
        Some((at, _)) => Some(*at),
        None => Some(text.len()),
    }
}

/// Replaces a number before a unit of milliseconds or less.
fn without_durations(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_number =
        |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.parse::<f64>().is_ok();
    let unit = |word: &str| word.trim_end_matches([',', ';', ')', ':']).to_owned();
    let replaced = words.iter().enumerate().map(|(at, word)| {
        let is_duration = words.get(at + 1).is_some_and(|next| ["ms", "µs"].contains(&unit(next).as_str()));
        let (opening, number) = word.strip_prefix('(').map_or(("", *word), |number| ("(", number));
        match is_duration && is_number(number.trim_start_matches('<')) {
            true => format!("{opening}N"),
            false => (*word).to_owned(),
        }
    });
    replaced.collect::<Vec<_>>().join(" ").replace(" µs", " ms")
}

/// Replaces each number, bars of a chart, and blanks between columns.
fn without_numbers(line: &str) -> String {
    let mut result = String::new();
    for c in line.chars() {
        let c = match c {
            '0'..='9' => 'N',
            '#' => continue,
            c => c,
        };
        let is_repeated = result.ends_with(c) && (c == 'N' || c == ' ');
        if !is_repeated {
            result.push(c);
        }
    }
    result.replace("N.N", "N").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn is_equal(shown: &str, output: &str) -> bool {
        is_as_shown(&lines(shown), &lines(output), false)
    }

    #[test]
    fn times_versions_and_ids_are_equal_and_other_numbers_are_not() {
        assert!(is_equal("14:05:21.904  SET  k  21.5", "00:00:00.001  SET  k  21.5"));
        assert!(!is_equal("14:05:21.904  SET  k  21.5", "00:00:00.001  SET  k  21.6"));
        let record = |version: &str| format!("{{\"version\":\"{version}\"}}");
        assert!(is_equal(
            &record("001763669639958:00000:StateStore"),
            &record("001763669640000:00012:StateStore")
        ));
        assert!(!is_equal(
            &record("001763669639958:00000:StateStore"),
            &record("1763669640000:12:StateStore")
        ));
        assert!(is_equal(
            "connected in 1.2 ms, as mqkv-desk-3d31927e",
            "connected in 30 ms, as mqkv-desk-00000000"
        ));
        assert!(!is_equal("expires in 30s", "expires in 31s"));
        assert!(is_equal(
            "change id: 2bb018ea5fda8cb70000000000000001",
            "change id: 00000000000000000000000000000002"
        ));
        assert!(!is_equal("4 bytes", "5 bytes"));
    }

    #[test]
    fn an_ellipsis_is_any_text_of_a_line_or_any_lines() {
        assert!(is_equal("a … c", "a b c") && is_equal("a…", "a") && !is_equal("a … c", "a b"));
        assert!(is_equal("a\n…\nd", "a\nb\nc\nd") && is_equal("a\n…", "a") && !is_equal("a\n…\nd", "a\nb"));
        assert!(!is_equal("", "a") && !is_equal("a", ""));
    }

    #[test]
    fn where_numbers_vary_words_count() {
        let is_equal = |shown: &str, output: &str| is_as_shown(&lines(shown), &lines(output), true);
        assert!(is_equal("mix  363239  0.165  ##", "mix 9    10.1 #######"));
        assert!(!is_equal("mix  363239", "set  363239"));
    }

    #[test]
    fn lines_about_jobs_of_the_shell_do_not_count() {
        assert!(is_equal("[1] 4711", "") && is_equal("", "[1]+  Done  mqkv serve"));
        assert!(!is_equal("[]", ""));
    }
}
