//! The admin page in Debian's headless Chromium.

use std::process::Command;

use super::common::Place;
use super::operations_admin::serve;

#[test]
#[ignore = "needs Debian's chromium"]
fn a_browser_shows_keys_as_text_and_runs_no_script_in_them() {
    let place = Place::new();
    let (_server, url, port) = serve(&place, &[]);
    let evil = "<script>document.title='taken'</script>";
    assert_eq!(place.run_at(&url, &["set", "line1/temp", "21.5"]), "--- exit 0\n");
    assert_eq!(
        place.run_at(&url, &["set", evil, "<img src=x onerror=\"document.title='taken'\">"]),
        "--- exit 0\n"
    );
    let page = format!("http://127.0.0.1:{port}/");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .arg(format!("--user-data-dir={}", place.path("profile").display()))
        .arg(&page)
        .env("HOME", place.folder())
        .output()
        .unwrap_or_else(|error| panic!("{error}: apt-get install chromium"));
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(dom.contains("<title>mqkv</title>"), "{dom}");
    assert!(dom.contains("<code>line1/temp</code>") && dom.contains("<code>21.5</code>"), "{dom}");
    // The browser serializes the text nodes with escapes again.
    assert!(dom.contains("<code>&lt;script&gt;document.title='taken'&lt;/script&gt;</code>"), "{dom}");
    assert!(!dom.contains("<script") && !dom.contains("<img"), "{dom}");
}
