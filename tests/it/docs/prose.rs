//! Links of the pages, and the verbs and options that they name outside of their code blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use mqkv::cli::generate::man_pages;

use super::{pages_of_repository, root};

/// Returns the lines of a page without its code blocks, with their numbers.
fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let lines = page.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|(at, line)| (at + 1, line)).collect()
}

/// Splits a line at its backticks; every other part is code.
fn parts(line: &str) -> impl Iterator<Item = (bool, &str)> {
    line.split('`').enumerate().map(|(at, part)| (at % 2 == 1, part))
}

/// Returns the targets of the links and pictures of a page.
fn links(page: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(page) {
        let without_code: String =
            parts(line).map(|(is_code, part)| if is_code { "code" } else { part }).collect();
        for rest in without_code.split("](").skip(1) {
            links.push((number, rest.split(')').next().unwrap().to_owned()));
        }
    }
    links
}

/// Returns the anchors of the headings of a page, as GitHub and mdbook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter_map(|(_, line)| {
        let text = line.strip_prefix('#')?.trim_start_matches('#');
        Some(text.strip_prefix(' ')?.trim())
    });
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let letters = heading.to_lowercase();
        let kept = letters.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let anchor = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
        anchors.insert(anchor.unwrap());
    }
    anchors
}

/// Returns a path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Returns what is wrong with the links of a page.
fn broken_links(name: &str, page: &str) -> Vec<String> {
    let folder = root().join(name).parent().unwrap().to_owned();
    let mut broken = Vec::new();
    for (number, link) in links(page) {
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let path = normal(&folder.join(file));
        let is_there = match (file.is_empty(), file.ends_with(".md"), anchor.is_empty()) {
            (true, ..) => anchors(page).contains(anchor),
            (false, true, false) => {
                fs::read_to_string(path).is_ok_and(|page| anchors(&page).contains(anchor))
            }
            (false, _, true) => path.exists(),
            (false, false, false) => false,
        };
        if !is_there {
            broken.push(format!("{name}:{number}: {link}"));
        }
    }
    broken
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut names = pages_of_repository();
    names.extend(["docs/SUMMARY.md", "CHANGELOG.md", "examples/cluster/README.md"].map(str::to_owned));
    let broken = names.iter().flat_map(|name| {
        let page = fs::read_to_string(root().join(name)).unwrap();
        broken_links(name, &page)
    });
    let broken: Vec<String> = broken.collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_link_to_a_missing_file_or_heading_is_found() {
    let page = "# Top\n[a](prompt.md) [b](#top) [c](prompt.md#quotes) `[d](no)` [e](https://example.org/no#no)\n\
                [f](missing.md) [g](#missing) [h](prompt.md#missing) [i](../src/missing.rs)\n";
    let expected = ["missing.md", "#missing", "prompt.md#missing", "../src/missing.rs"];
    assert_eq!(broken_links("docs/x.md", page), expected.map(|link| format!("docs/x.md:3: {link}")));
}

#[test]
fn each_page_is_in_the_contents() {
    let contents = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> =
        links(&contents).iter().map(|(_, link)| normal(&Path::new("docs").join(link))).collect();
    let missing: Vec<String> =
        pages_of_repository().into_iter().filter(|name| !listed.contains(Path::new(name))).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

/// Returns the manual pages by their verb, such as `serve user add`, without their markup of hyphens.
pub(super) fn manual() -> BTreeMap<String, String> {
    let page = |(name, text): (std::ffi::OsString, Vec<u8>)| {
        let name = name.into_string().unwrap();
        let verb = name.strip_prefix("mqkv").unwrap().strip_suffix(".1").unwrap();
        let verb = verb.trim_start_matches('-').to_owned();
        (verb, String::from_utf8(text).unwrap().replace("\\-", "-"))
    };
    man_pages().into_iter().map(page).collect()
}

/// Returns what is wrong with a command: a verb or an option that does not exist.
pub(super) fn unknown_word(command: &str, manual: &BTreeMap<String, String>) -> Option<String> {
    let ends = ["|", ">", "<", "&&", "||", ";", "--", "&", "#"];
    let words: Vec<&str> =
        command.split_whitespace().skip(1).take_while(|word| !ends.contains(word)).collect();
    // An option before the verb may have a value.
    let begins_with_option = words.first().is_some_and(|word| word.starts_with('-'));
    let verb: Vec<&str> = words
        .iter()
        .copied()
        .skip_while(|word| begins_with_option && !manual.contains_key(*word))
        .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    let named = (0..=verb.len()).rev().map(|length| verb[..length].join("-"));
    let (name, page) = named.filter_map(|name| manual.get_key_value(&name)).next().unwrap();
    if name.is_empty() && !verb.is_empty() {
        return Some(verb[0].to_owned());
    }
    let option = |word: &&str| -> Option<String> {
        let name = word.trim_end_matches([',', ']']).split(['=', '[']).next()?;
        let names = |page: &str| {
            let mut ends = page.match_indices(name).map(|(at, _)| &page[at + name.len()..]);
            ends.any(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
        };
        let is_known = names(page) || names(&manual[""]);
        (name.starts_with("--") && !is_known).then(|| name.to_owned())
    };
    words.iter().find_map(option)
}

#[test]
fn verbs_and_options_in_the_text_exist() {
    let manual = manual();
    let mut unknown = Vec::new();
    for name in pages_of_repository() {
        let page = fs::read_to_string(root().join(&name)).unwrap();
        for (number, line) in prose(&page) {
            let commands = parts(line).filter(|(is_code, part)| *is_code && part.starts_with("mqkv "));
            let wrong = commands.filter_map(|(_, command)| unknown_word(command, &manual));
            unknown.extend(wrong.map(|word| format!("{name}:{number}: {word}")));
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn a_verb_or_an_option_that_does_not_exist_is_found() {
    let manual = manual();
    for known in
        ["mqkv get KEY", "mqkv -x prod serve user add FILE", "mqkv lock k --ttl 3s -- foo --bar", "mqkv VERB"]
    {
        assert_eq!(unknown_word(known, &manual), None, "{known}");
    }
    for (command, word) in
        [("mqkv gett KEY", "gett"), ("mqkv get --ttl 3s", "--ttl"), ("mqkv set k --no=1", "--no")]
    {
        assert_eq!(unknown_word(command, &manual).as_deref(), Some(word), "{command}");
    }
}
