//! What kubectl prints on standard error: the end of it, and the line that says most (pure).

/// How much is kept, and how much of a line is shown.
const BYTES_MAX: usize = 4096;
const LINE_CHARS_MAX: usize = 300;

/// The last messages.
#[derive(Clone, Debug, Default)]
pub struct Messages(Vec<u8>);

impl Messages {
    /// Returns the bytes, to add more. [`Messages::cut`] follows.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Removes what is too much, from the beginning.
    pub fn cut(&mut self) {
        let excess = self.0.len().saturating_sub(BYTES_MAX);
        self.0.drain(..excess);
    }

    /// Returns the last lines, each without what does not belong to the message, and shortened.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0);
        let lines = text.lines().map(message).filter(|line| !line.is_empty());
        let lines: Vec<String> = lines.map(|line| line.chars().take(LINE_CHARS_MAX).collect()).collect();
        lines.into_iter().rev().take(count).rev().collect()
    }

    /// Returns the last line, which is the error if there is one.
    pub fn last(&self) -> String {
        self.last_lines(1).pop().unwrap_or_default()
    }

    /// Returns whether the forward has ended, or does not lead to the broker any more: older versions go on after such an error.
    pub fn are_about_lost_forward(&self) -> bool {
        let text = String::from_utf8_lossy(&self.0);
        ["lost connection to pod", "an error occurred forwarding"].iter().any(|words| text.contains(words))
    }
}

/// Returns the message of a line of kubectl: without `error:`, the kind of an error of the server, and the prefix of its log.
fn message(line: &str) -> &str {
    let line = line.trim();
    let line = logged(line).unwrap_or(line);
    let line = line.strip_prefix("error: ").or_else(|| line.strip_prefix("Error: ")).unwrap_or(line);
    let of_server = line.strip_prefix("Error from server (").and_then(|rest| rest.split_once("): "));
    of_server.map_or(line, |(_, message)| message)
}

/// Returns the message of a line such as `E1129 11:55:45.819028   25228 portforward.go:424] "Unhandled Error" err="MESSAGE"`.
fn logged(line: &str) -> Option<&str> {
    let (prefix, message) = line.split_once("] ")?;
    let is_log = prefix.starts_with(['E', 'W', 'I', 'F']) && prefix.contains(".go:");
    let quoted = message.split_once("err=\"").and_then(|(_, error)| error.strip_suffix('"'));
    is_log.then(|| quoted.unwrap_or(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Messages {
        let mut messages = Messages::default();
        messages.bytes().extend_from_slice(text.as_bytes());
        messages.cut();
        messages
    }

    #[test]
    fn the_last_line_is_shown_without_the_prefixes_of_a_log() {
        let forward = "E1129 12:05:41.485599     318 portforward.go:400] an error occurred forwarding 1 -> 2: refused\n";
        let newer = "E1129 11:55:45.819028   25228 portforward.go:424] \"Unhandled Error\" err=\"an error occurred \
                     forwarding 1 -> 2: refused\"\nerror: lost connection to pod\n";
        for (text, last) in [
            ("", ""),
            ("error: context \"nope\" does not exist\n", "context \"nope\" does not exist"),
            ("Error from server (Forbidden): pods is forbidden\n\n", "pods is forbidden"),
            (forward, "an error occurred forwarding 1 -> 2: refused"),
            (newer, "lost connection to pod"),
            ("a\r\nb [x] c", "b [x] c"),
        ] {
            assert_eq!(messages(text).last(), last);
        }
        assert_eq!(messages(newer).last_lines(5)[0], "an error occurred forwarding 1 -> 2: refused");
        assert!(messages(forward).are_about_lost_forward() && messages(newer).are_about_lost_forward());
        let harmless =
            "E1129 1 1 portforward.go:394] error copying from remote stream to local connection: broken pipe";
        assert!(!messages(harmless).are_about_lost_forward());
    }

    #[test]
    fn messages_are_bounded() {
        let long = messages(&format!("begin{}end", "x".repeat(1_000_000)));
        assert_eq!(long.0.len(), BYTES_MAX);
        assert_eq!(long.last().chars().count(), LINE_CHARS_MAX);
    }
}
