//! How far a verb has come, on a terminal: a line on standard error that is written over and over.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::clock;
use crate::commands::duration;
use crate::commands::output::Progress;
use crate::commands::process::stdout;

/// What ends sooner than this shows no bar: it would only flicker.
const DELAY: Duration = Duration::from_millis(400);
const INTERVAL: Duration = Duration::from_millis(50);
const CELLS: u64 = 30;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const ERASE: &str = "\r\x1b[2K";

/// A bar, or none.
///
/// No crate's: those weigh the past with `pow`, and with that one call a server that shows no bar would load libm.
#[derive(Debug, Default)]
pub struct Bar {
    shown: Option<Shown>,
}

#[derive(Debug)]
struct Shown {
    since: Instant,
    next: Instant,
    line: String,
}

impl Bar {
    /// A bar, if it is to be shown.
    #[must_use]
    pub fn new(shown: bool) -> Self {
        Self { shown: shown.then(|| Shown::begin(clock::monotonic())) }
    }

    /// Shows how far it has come.
    pub fn show(&mut self, progress: &Progress) {
        let Some(shown) = &mut self.shown else { return };
        if shown.update(progress, clock::monotonic()) {
            // The last column stays free: some terminals begin a new line behind it.
            let room = stdout::stderr_columns().map_or(usize::MAX, |columns| columns.saturating_sub(1));
            shown.line = shown.line.chars().take(room).collect();
            write(&[ERASE, &shown.line]);
        }
    }

    /// Writes something else without the bar in its way.
    pub fn suspend<T>(&self, write_it: impl FnOnce() -> T) -> T {
        let line = self.shown.as_ref().map_or("", |shown| &shown.line);
        if line.is_empty() {
            return write_it();
        }
        write(&[ERASE]);
        let result = write_it();
        write(&[line]);
        result
    }

    /// Takes the bar away for good.
    pub fn clear(&mut self) {
        if self.shown.take().is_some_and(|shown| !shown.line.is_empty()) {
            write(&[ERASE]);
        }
    }
}

/// Standard error may be closed: a bar is not worth failing for.
fn write(parts: &[&str]) {
    let _ = io::stderr().write_all(parts.concat().as_bytes());
}

impl Shown {
    fn begin(now: Instant) -> Self {
        Self { since: now, next: now.checked_add(DELAY).unwrap_or(now), line: String::new() }
    }

    /// Makes a new line, if it is time for one.
    fn update(&mut self, progress: &Progress, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.line = line(progress, now.saturating_duration_since(self.since));
            self.next = now.checked_add(INTERVAL).unwrap_or(now);
        }
        is_due
    }
}

fn line(progress: &Progress, elapsed: Duration) -> String {
    let Progress { count, unit, bytes_read, bytes_total } = *progress;
    let time = duration::text(Duration::from_secs(elapsed.as_secs()));
    let Some(total) = bytes_total else {
        let turn = usize::try_from(elapsed.as_millis() / 100 % 10).unwrap_or(0);
        let tick = SPINNER.get(turn).unwrap_or(&' ');
        return format!("{tick} {count} {unit}  {time}");
    };
    let read = bytes_read.min(total);
    // Of nothing, all has been read.
    let part = |whole: u64| whole.saturating_mul(read).checked_div(total).unwrap_or(whole);
    let cell = |cell| if cell < part(CELLS) { '█' } else { '░' };
    let bar: String = (0..CELLS).map(cell).collect();
    let left_ms = match total.saturating_sub(read) {
        0 => Some(0),
        left => u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).saturating_mul(left).checked_div(read),
    };
    let left = left_ms.map_or_else(|| "?".to_owned(), |ms| duration::text(Duration::from_secs(ms / 1000)));
    format!("{bar} {:>3}%  {count} {unit}  {time}, {left} left", part(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(bytes_read: u64, bytes_total: Option<u64>) -> Progress {
        Progress { count: 12, unit: "keys", bytes_read, bytes_total }
    }

    #[test]
    fn what_is_known_to_end_has_a_bar_and_the_time_that_is_left() {
        let after = |read, seconds| line(&progress(read, Some(300)), Duration::from_secs(seconds));
        let cells = |full| ["█".repeat(full), "░".repeat(30 - full)].concat();
        assert_eq!(after(100, 45), format!("{}  33%  12 keys  45s, 1m 30s left", cells(10)));
        assert_eq!(after(300, 61), format!("{} 100%  12 keys  1m 1s, 0s left", cells(30)));
        assert_eq!(after(0, 1), format!("{}   0%  12 keys  1s, ? left", cells(0)));
    }

    #[test]
    fn a_file_that_grows_or_is_empty_is_read_whole() {
        assert!(
            line(&progress(400, Some(300)), Duration::from_secs(1)).contains(" 100%  12 keys  1s, 0s left")
        );
        assert!(line(&progress(0, Some(0)), Duration::from_secs(1)).contains(" 100%  12 keys  1s, 0s left"));
    }

    #[test]
    fn what_has_no_known_end_turns() {
        let lines = [2000, 2100, 2999].map(|ms| line(&progress(5, None), Duration::from_millis(ms)));
        assert_eq!(lines, ["⠋ 12 keys  2s", "⠙ 12 keys  2s", "⠏ 12 keys  2s"]);
    }

    #[test]
    fn what_ends_soon_shows_none_and_what_lasts_no_more_than_can_be_seen() {
        let begin = clock::monotonic();
        let mut shown = Shown::begin(begin);
        let updates = [399, 400, 449, 450, 499, 500]
            .map(|ms| shown.update(&progress(1, None), begin + Duration::from_millis(ms)));
        assert_eq!(updates, [false, true, false, true, false, true]);
    }
}
