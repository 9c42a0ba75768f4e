//! Debian's headless Chromium, driven over a pipe with the DevTools protocol.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Place, make_fifo, open_fifo, wait_until};
use crate::a_watchdog::bounded;

/// A browser with one page.
pub struct Browser {
    process: Child,
    input: File,
    output: BufReader<File>,
    session: Option<String>,
    calls: u64,
    /// Messages of the page's console, exceptions and violated policies.
    pub complaints: Vec<String>,
    loads: usize,
}

impl Browser {
    pub fn start(place: &Place) -> Self {
        for pipe in ["to-browser", "from-browser"] {
            make_fifo(&place.path(pipe));
        }
        let options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                       --remote-debugging-pipe --hide-scrollbars --lang=en-US";
        let process = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "exec timeout -k 5 300 chromium {options} --user-data-dir=profile 3<to-browser 4>from-browser"
            ))
            .current_dir(place.folder())
            .env("HOME", place.folder())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = open_fifo(&place.path("to-browser"));
        let output = BufReader::new(bounded(|| File::open(place.path("from-browser"))).unwrap());
        let mut browser =
            Self { process, input, output, session: None, calls: 0, complaints: Vec::new(), loads: 0 };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        bounded(|| self.output.read_until(0, &mut bytes)).unwrap();
        assert_eq!(bytes.pop(), Some(0), "apt-get install chromium");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loads += 1,
            Some("Log.entryAdded" | "Runtime.exceptionThrown") => {
                self.complaints.push(message["params"].to_string());
            }
            _ => {}
        }
        message
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let message = self.read();
            if message["id"] == json!(self.calls) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Opens an address and waits until it has loaded.
    pub fn open(&mut self, url: &str) {
        self.loaded_by(|browser| {
            browser.call("Page.navigate", json!({"url": url}));
        });
    }

    /// Waits until what `act` does has loaded a page.
    pub fn loaded_by(&mut self, act: impl FnOnce(&mut Self)) {
        let before = self.loads;
        act(self);
        while self.loads == before {
            self.read();
        }
    }

    /// Returns the number of pages that were loaded.
    pub fn loads(&self) -> usize {
        self.loads
    }

    /// Evaluates an expression in the page.
    pub fn get(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        wait_until(expression, || (self.get(expression) == json!(true)).then_some(()));
    }

    pub fn allow_scripts(&mut self, are_allowed: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !are_allowed}));
    }

    /// Sets the width of the window and the color scheme.
    pub fn look(&mut self, width: u32, scheme: &str) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Writes a picture of the whole page.
    pub fn picture(&mut self, path: &Path) -> PathBuf {
        let shot =
            self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()).unwrap();
        path.to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its own processes; `timeout` would only lose sight of them.
        let _ = self.input.write_all(b"{\"id\": 0, \"method\": \"Browser.close\"}\0");
        let _ = bounded(|| self.process.wait());
    }
}
