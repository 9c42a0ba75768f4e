//! Files of an exchange, and its running nodes.

use super::{Place, StreamedProcess, reserved_port, wait_until};

/// The file of a root. Only `press-*` may join unasked.
pub const ROOT: &str = "\
exchange = \"plant\"
node = \"root\"
role = \"root\"
admit = [\"press-*\"]
[[rule]]
keys = [\"recipe/**\"]
change = \"root\"
[[rule]]
keys = [\"line/**\"]
change = \"leaves\"
";

/// Returns the file of a leaf of the same exchange.
pub fn leaf_file(name: &str, root: &str) -> String {
    format!("exchange = \"plant\"\nnode = \"{name}\"\nrole = \"leaf\"\nroot = \"{root}\"\n")
}

/// A running node with one listener and a verbose log.
pub struct Node<'a> {
    place: &'a Place,
    name: String,
    options: Vec<String>,
    pub port: u16,
    process: Option<StreamedProcess>,
}

impl<'a> Node<'a> {
    pub fn root(place: &'a Place, options: &[&str]) -> Self {
        place.write("root.toml", ROOT);
        Self::start(place, "root", options)
    }

    pub fn leaf(&self, name: &str) -> Self {
        self.leaf_with(name, "")
    }

    /// Starts a leaf whose file has more lines.
    pub fn leaf_with(&self, name: &str, lines: &str) -> Self {
        self.place.write(&format!("{name}.toml"), leaf_file(name, &self.url("mqtt")) + lines);
        Self::start(self.place, name, &[])
    }

    /// Starts the node whose file is `NAME.toml`, with the data folder `NAME`.
    pub fn start(place: &'a Place, name: &str, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut node = Self { place, name: name.to_owned(), options, port: reserved_port(), process: None };
        node.start_again();
        node
    }

    /// Starts the node on the port that it had.
    pub fn start_again(&mut self) {
        let (listen, file) = (format!("127.0.0.1:{}", self.port), format!("{}.toml", self.name));
        let words = ["serve", "-v", "--listen", &listen, "--data", &self.name, "--exchange", &file];
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let mut command = self.place.command(&[&words, &options[..]].concat());
        self.process = Some(StreamedProcess::start(&mut command));
        let ready = self.log("listening on ");
        let port = ready.split("127.0.0.1:").nth(1).and_then(|rest| rest.split([',', ' ']).next());
        self.port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no port: {ready}"));
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn process(&self) -> &StreamedProcess {
        self.process.as_ref().unwrap()
    }

    /// Waits for the next log line that contains this text.
    #[track_caller]
    pub fn log(&self, text: &str) -> String {
        wait_until(&format!("{} logs: {text}", self.name), || {
            Some(self.process().log_line()).filter(|line| line.contains(text))
        })
    }

    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    pub fn run(&self, words: &[&str]) -> String {
        self.place.run(&[words, &["-b", &self.url("mqtt")]].concat())
    }

    #[track_caller]
    pub fn set(&self, key: &str, value: &str) {
        assert_eq!(self.run(&["set", key, value, "-q"]), "--- exit 0\n");
    }

    /// Waits until the key has this value.
    #[track_caller]
    pub fn wait_for(&self, key: &str, value: &str) {
        let expected = format!("--- stdout\n{value}(no line feed)\n--- exit 0\n");
        let what = format!("{key} is {value} at {}", self.name);
        wait_until(&what, || (self.run(&["get", key]) == expected).then_some(()));
    }

    /// At the root: waits until a leaf is synchronized.
    #[track_caller]
    pub fn wait_synchronized(&self, leaf: &str) {
        let status = self.run(&["exchange", "status", leaf, "--wait", "60s"]);
        assert!(status.ends_with("--- exit 0\n"), "{status}");
    }

    /// At the root: waits until all leaves are synchronized.
    #[track_caller]
    pub fn settle(&self) {
        let status = self.run(&["exchange", "status", "--wait", "60s"]);
        assert!(status.ends_with("--- exit 0\n"), "{status}");
    }

    /// Starts a watch and waits until it shows the key's state.
    pub fn watch(&self, key: &str) -> StreamedProcess {
        let words = ["watch", key, "-b", &self.url("mqtt")];
        let watch = StreamedProcess::start(&mut self.place.command(&words));
        watch.line();
        watch
    }
}
