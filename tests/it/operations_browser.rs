//! The admin page in Debian's headless Chromium.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use super::common::chromium::Browser;
use super::common::{Place, StreamedProcess};
use super::operations_admin::serve;

/// Returns the names of the listed keys, separated by blanks.
const KEYS: &str =
    "[...document.querySelectorAll('#keys-list tbody th')].map(th => th.textContent).join(' ')";

/// Starts a server with these keys and values.
fn serve_seeded(
    place: &Place,
    pairs: impl IntoIterator<Item = (String, String)>,
) -> (StreamedProcess, String, String) {
    let lines: Vec<String> =
        pairs.into_iter().map(|(key, value)| format!("{}\n", json!({"key": key, "value": value}))).collect();
    place.write("seed", lines.concat());
    let (server, url, port) = serve(place, &["--seed", "seed"]);
    (server, url, format!("http://127.0.0.1:{port}/"))
}

fn three_keys() -> [(String, String); 3] {
    [("line1/temp", 10), ("line2/temp", 30), ("line1/speed", 20)]
        .map(|(key, len)| (key.to_owned(), "v".repeat(len)))
}

#[test]
#[ignore = "needs Debian's chromium"]
fn a_browser_shows_keys_as_text_and_runs_no_script_in_them() {
    let place = Place::new();
    let evil = "<script>document.title='taken'</script>";
    let value = "<img src=x onerror=\"document.title='taken'\">";
    let (_server, _, page) = serve_seeded(&place, [(evil.to_owned(), value.to_owned())]);
    let mut browser = Browser::start(&place);
    browser.open(&page);
    assert_eq!(browser.get(KEYS), json!(evil));
    browser.loaded_by(|browser| {
        browser.get("document.querySelector('#keys-list tbody a').click()");
    });
    assert_eq!(browser.get("document.querySelector('h2.key').textContent"), json!(evil));
    assert_eq!(browser.get("document.querySelector('pre').textContent"), json!(value));
    assert_eq!(browser.get("document.title"), json!("Key – mqkv"));
    assert_eq!(browser.complaints, [] as [&str; 0]);
}

#[test]
#[ignore = "needs Debian's chromium"]
fn the_page_updates_filters_and_sorts_without_a_reload() {
    let place = Place::new();
    let (_server, url, page) = serve_seeded(&place, three_keys());
    let mut browser = Browser::start(&place);
    browser.open(&page);
    assert_eq!(browser.get(KEYS), json!("line1/speed line1/temp line2/temp"));
    // A heading has the focus, and keeps it.
    browser.get("document.getElementById('keys-size').focus()");
    assert_eq!(place.run_at(&url, &["set", "line3/temp", "new"]), "--- exit 0\n");
    browser.wait_for(&format!("{KEYS} === 'line1/speed line1/temp line2/temp line3/temp'"));
    assert_eq!(browser.get("document.activeElement.id"), json!("keys-size"));
    browser.get("document.activeElement.click()");
    browser.wait_for(&format!("{KEYS} === 'line2/temp line1/speed line1/temp line3/temp'"));
    assert_eq!(browser.get("document.activeElement.id"), json!("keys-size"));
    assert_eq!(browser.get("location.search"), json!("?keys-sort=-size"));
    // What is typed filters at once; the order stays.
    browser.get("document.getElementById('keys-filter').focus()");
    browser.call("Input.insertText", json!({"text": "/temp"}));
    browser.wait_for(&format!("{KEYS} === 'line2/temp line1/temp line3/temp'"));
    assert_eq!(browser.get("document.activeElement.value"), json!("/temp"));
    browser.get("history.back()");
    browser.wait_for(&format!("{KEYS} === 'line1/speed line1/temp line2/temp line3/temp'"));
    assert_eq!(browser.loads(), 1, "the page was not loaded again");
    assert_eq!(browser.complaints, [] as [&str; 0]);
}

#[test]
#[ignore = "needs Debian's chromium"]
fn updates_can_be_paused_and_a_lost_server_is_shown() {
    let place = Place::new();
    let (server, url, page) = serve_seeded(&place, three_keys());
    let mut browser = Browser::start(&place);
    browser.open(&page);
    browser.get("document.getElementById('pause').click()");
    assert_eq!(place.run_at(&url, &["del", "line2/temp"]), "--- exit 0\n");
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(browser.get(KEYS), json!("line1/speed line1/temp line2/temp"));
    browser.get("document.getElementById('pause').click()");
    browser.wait_for(&format!("{KEYS} === 'line1/speed line1/temp'"));
    drop(server);
    browser.wait_for("document.getElementById('updates').textContent.startsWith('no answer since')");
}

#[test]
#[ignore = "needs Debian's chromium"]
fn the_page_filters_and_sorts_without_script() {
    let place = Place::new();
    let (_server, _, page) = serve_seeded(&place, three_keys());
    let mut browser = Browser::start(&place);
    browser.allow_scripts(false);
    browser.open(&page);
    assert_eq!(browser.get("document.getElementById('pause').hidden"), json!(true));
    let click = |browser: &mut Browser, selector: &str| {
        browser.loaded_by(|browser| {
            browser.get(&format!("document.querySelector(\"{selector}\").click()"));
        });
    };
    click(&mut browser, "#keys-size");
    assert_eq!(browser.get(KEYS), json!("line2/temp line1/speed line1/temp"));
    browser.get("document.getElementById('keys-filter').value = 'line1/*'");
    click(&mut browser, "#keys button");
    assert_eq!(browser.get(KEYS), json!("line1/speed line1/temp"));
    assert_eq!(browser.get("document.getElementById('keys-filter').value"), json!("line1/*"));
    click(&mut browser, "#keys-size");
    assert_eq!(browser.get(KEYS), json!("line1/temp line1/speed"));
    click(&mut browser, "#keys-list tbody a");
    assert_eq!(browser.get("document.querySelector('pre').textContent"), json!("v".repeat(10)));
}

/// Returns the texts whose contrast is less than WCAG 2 demands (4.5:1).
const LOW_CONTRAST: &str = "(() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const color = channels(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')]
    .filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((element) => element.checkVisibility() && !element.closest('svg, script, noscript'))
    .filter((element) => {
      const both = [channels(getComputedStyle(element).color), ground(element)].map(luminance).sort();
      return (both[1] + 0.05) / (both[0] + 0.05) < 4.5;
    })
    .map((element) => element.outerHTML.slice(0, 200));
})()";

/// Returns what a reader who does not see the page would miss: names of fields, tables and pictures, scopes of headings.
const UNNAMED: &str = "[
  ...[...document.querySelectorAll('input:not([type=hidden])')].filter((input) => !input.labels.length),
  ...[...document.querySelectorAll('table')].filter((table) => !table.caption),
  ...document.querySelectorAll('th:not([scope])'),
  ...[...document.querySelectorAll('svg:not([aria-hidden])')].filter((svg) => !svg.querySelector('title')?.textContent),
  ...[...document.querySelectorAll('section')].filter((part) => !document.getElementById(part.getAttribute('aria-labelledby'))),
  ...[...document.querySelectorAll('[id]')].filter((one) => document.querySelectorAll('#' + one.id).length > 1),
  ...(document.querySelectorAll('main').length === 1 && document.documentElement.lang ? [] : [document.body]),
].map((element) => element.outerHTML.slice(0, 200))";

/// The pictures are for a person to look at.
#[test]
#[ignore = "needs Debian's chromium"]
fn the_page_can_be_read_in_light_and_dark_wide_and_narrow() {
    let place = Place::new();
    let pairs = (0..150)
        .map(|number| (format!("line{}/machine{number}/temperature", number % 4), "21.5".repeat(number + 1)));
    let (_server, url, page) = serve_seeded(&place, pairs);
    let long = "ü".repeat(400);
    let watched = ["line1/machine1/temperature", "line2/machine2/temperature", long.as_str()];
    let mut number = 0;
    let watchers = watched.map(|key| {
        number += 1;
        let words = ["watch", key, "-b", &url, "-i", &format!("dashboard-{number}")];
        let mut command = place.command(&words);
        StreamedProcess::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    });
    for number in 0..20 {
        let value = format!("{{\n\t\"temperature\": {number},\n\t\"unit\": \"°C\u{202e}\"\n}}");
        place.run_at(&url, &["set", "line1/machine1/temperature", &value, "--ttl", "3h"]);
    }
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("admin-page");
    let mut browser = Browser::start(&place);
    for (width, scheme) in [(1_280, "light"), (1_280, "dark"), (390, "light"), (390, "dark")] {
        browser.look(width, scheme);
        for (name, path) in [("page", ""), ("key", "key?key=line1/machine1/temperature")] {
            browser.open(&format!("{page}{path}"));
            if name == "page" {
                browser.wait_for("document.querySelectorAll('#clients-list tbody tr').length >= 3");
            }
            browser.picture(&pictures.join(format!("{name}-{width}-{scheme}.png")));
            let what = format!("{name}, {width} pixels, {scheme}");
            assert_eq!(browser.get(LOW_CONTRAST), json!([]), "{what}");
            assert_eq!(browser.get(UNNAMED), json!([]), "{what}");
            let is_overflowing = browser.get("document.documentElement.scrollWidth > innerWidth");
            assert_eq!(is_overflowing, json!(false), "{what}");
        }
    }
    drop(watchers);
    assert_eq!(browser.complaints, [] as [&str; 0]);
    eprintln!("pictures: {}", pictures.display());
}
