//! Text of the prompt: context, broker, running watches, held locks, time offline (pure).

use std::time::Duration;

use crate::render::cut::{columns_of, width_of};
use crate::render::escape::is_safe;

/// The state that the prompt shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptState {
    pub context: Option<String>,
    pub broker: String,
    /// The number of running watches.
    pub watches: usize,
    /// The number of held locks.
    pub locks: usize,
    /// The time since the connection was lost.
    pub offline: Option<Duration>,
}

/// The end of every prompt.
const END: &str = "> ";
/// A terminal with fewer columns gets the short forms, and half of it remains for the line; of a wider one two fifths.
const WIDE: usize = 72;

impl PromptState {
    /// Returns the prompt for a terminal with this number of columns.
    #[must_use]
    pub fn text(&self, columns: usize) -> String {
        let forms = self.forms();
        let room =
            if columns < WIDE { columns } else { columns.saturating_mul(6).div_euclid(5) }.div_euclid(2);
        let fitting = forms.iter().skip(usize::from(columns < WIDE)).find(|form| width_of(form) <= room);
        fitting.or(forms.last()).cloned().unwrap_or_default()
    }

    /// Returns a prompt with exactly this number of columns, to replace one on the screen.
    #[must_use]
    pub fn within(&self, columns: usize) -> String {
        let forms = self.forms();
        let form = forms.iter().find(|form| width_of(form) <= columns).map_or("> ", String::as_str);
        let form: String = form.chars().take(columns).collect();
        let blanks = " ".repeat(columns.saturating_sub(width_of(&form)));
        form + &blanks
    }

    /// Returns the context's name as it stands at the start of the prompt.
    #[must_use]
    pub fn context(&self) -> Option<String> {
        self.context.as_ref().map(|context| shortened(context, 20))
    }

    /// Returns all forms of the prompt, the longest first.
    fn forms(&self) -> Vec<String> {
        let words = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let long = [words(self.watches, "watch", "watches"), words(self.locks, "lock", "locks")];
        let short = [(self.watches, 'w'), (self.locks, 'l')];
        let short = short.map(|(count, letter)| (count > 0).then(|| format!("{count}{letter}")));
        let offline = self.offline.map(|since| format!("(offline {})", age(since)));
        let joined = |parts: &[Option<String>], separator: &str| {
            let parts: Vec<_> = parts.iter().flatten().cloned().collect();
            (!parts.is_empty()).then(|| parts.join(separator))
        };
        let [watches, locks] = short.clone();
        let long = joined(&long, ", ").map(|counts| format!("[{counts}]"));
        let context = || self.context();
        let broker = || Some(shortened(&self.broker, 30));
        let mut forms = vec![
            joined(&[context(), broker(), long, offline.clone()], " "),
            joined(&[context(), broker(), watches.clone(), locks.clone(), offline.clone()], " "),
            // Where only one name fits, the context's name is shown: the user chose it.
            joined(
                &[
                    context().or(Some(shortened(&self.broker, 16))),
                    watches.clone(),
                    locks.clone(),
                    offline.clone(),
                ],
                " ",
            ),
        ];
        match &offline {
            None => forms.extend([joined(&short, " "), Some("mqkv".to_owned())]),
            Some(_) => forms.extend([
                joined(&[watches, locks, offline.clone()], " "),
                offline.clone(),
                Some("(offline)".to_owned()),
            ]),
        }
        forms.into_iter().flatten().map(|form| form + END).collect()
    }
}

/// Returns the row and the column behind a text that begins in the first column, on a terminal with this number of columns.
#[must_use]
pub fn end_of(text: &str, columns: usize) -> (usize, usize) {
    const TAB_STOP: usize = 8;
    let (mut row, mut column) = (0_usize, 0_usize);
    for c in text.chars() {
        let width = match c {
            '\n' => {
                (row, column) = (row.saturating_add(1), 0);
                continue;
            }
            '\t' => TAB_STOP.saturating_sub(column.rem_euclid(TAB_STOP)),
            c => columns_of(c),
        };
        column = column.saturating_add(width);
        if column > columns {
            // A wide character is not split.
            (row, column) = (row.saturating_add(1), width);
        }
    }
    if column == columns { (row.saturating_add(1), 0) } else { (row, column) }
}

/// Formats a time in its largest whole unit.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds.div_euclid(60), seconds.div_euclid(3600)) {
        (0, _) => format!("{seconds}s"),
        (minutes, 0) => format!("{minutes}m"),
        (_, hours) => format!("{hours}h"),
    }
}

/// Shortens a name to `max` characters by cutting out its middle.
fn shortened(name: &str, max: usize) -> String {
    let clean = name.chars().filter(|c| is_safe(*c));
    let all: Vec<char> = clean.collect();
    if all.len() <= max {
        return all.into_iter().collect();
    }
    // The port at the end distinguishes brokers on one host.
    let tail = max.div_euclid(3);
    let head = max.saturating_sub(tail).saturating_sub(1);
    let head: String = all.iter().take(head).collect();
    let tail: String = all.iter().skip(all.len().saturating_sub(tail)).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(watches: usize, locks: usize, offline: Option<u64>) -> PromptState {
        let offline = offline.map(Duration::from_secs);
        PromptState { context: None, broker: "localhost:1883".to_owned(), watches, locks, offline }
    }

    #[test]
    fn the_context_stands_first_and_replaces_the_broker_where_room_is_short() {
        let state = PromptState { context: Some("prod".to_owned()), ..state(1, 1, None) };
        assert_eq!(state.text(80), "prod localhost:1883 [1 watch, 1 lock]> ");
        assert_eq!(state.text(40), "prod 1w 1l> ");
        assert_eq!(PromptState { watches: 0, locks: 0, ..state }.text(50), "prod localhost:1883> ");
    }

    #[test]
    fn the_prompt_shows_the_broker_and_what_runs_in_the_background() {
        assert_eq!(state(0, 0, None).text(80), "localhost:1883> ");
        assert_eq!(state(1, 2, None).text(80), "localhost:1883 [1 watch, 2 locks]> ");
        assert_eq!(state(2, 0, Some(12)).text(80), "localhost:1883 [2 watches] (offline 12s)> ");
    }

    #[test]
    fn on_a_narrow_terminal_the_prompt_leaves_room_for_the_line() {
        assert_eq!(state(0, 0, None).text(40), "localhost:1883> ");
        assert_eq!(state(1, 1, None).text(44), "localhost:1883 1w 1l> ");
        assert_eq!(state(1, 1, Some(75)).text(40), "1w 1l (offline 1m)> ");
        let long = PromptState {
            broker: "aio-broker.azure-iot-operations:18883".to_owned(),
            ..PromptState::default()
        };
        assert_eq!(long.text(80), "aio-broker.azure-io…ions:18883> ");
        assert_eq!(long.text(40), "aio-broker…18883> ");
    }

    #[test]
    fn long_names_leave_room_for_the_line_on_a_wide_terminal_too() {
        let context = Some("production-line-7-berlin".to_owned());
        let of = |watches, offline| PromptState { context: context.clone(), ..state(watches, 1, offline) };
        assert_eq!(of(2, None).text(120), "production-li…berlin localhost:1883 [2 watches, 1 lock]> ");
        assert_eq!(of(2, None).text(80), "production-li…berlin localhost:1883 2w 1l> ");
        assert_eq!(of(2, Some(12)).text(80), "production-li…berlin 2w 1l (offline 12s)> ");
    }

    #[test]
    fn a_prompt_on_the_screen_keeps_its_width() {
        assert_eq!(state(0, 0, Some(3)).within(16), "(offline 3s)>   ");
        assert_eq!(state(0, 0, None).within(24), "localhost:1883>         ");
        assert_eq!(state(0, 0, Some(12)).within(5), ">    ");
    }

    #[test]
    fn a_line_wraps_at_the_last_column() {
        assert_eq!(end_of("", 10), (0, 0));
        assert_eq!(end_of("k> get", 10), (0, 6));
        assert_eq!(end_of("0123456789", 10), (1, 0));
        assert_eq!(end_of("0123456789ab", 10), (1, 2));
        assert_eq!(end_of("012345678温", 10), (1, 2));
        assert_eq!(end_of("k> a\nbc\td", 10), (1, 9));
    }

    proptest! {
        #[test]
        fn a_replaced_prompt_keeps_its_width(
            context in proptest::option::of(".{0,30}"), broker in ".{0,50}", watches in 0..20_usize, locks in 0..20_usize, offline in any::<Option<u32>>(),
            columns in 2..120_usize,
        ) {
            let offline = offline.map(|seconds| Duration::from_secs(seconds.into()));
            let state = PromptState { context, broker, watches, locks, offline };
            prop_assert_eq!(width_of(&state.within(columns)), columns);
            prop_assert!(width_of(&state.text(80)) <= 80);
        }
    }
}
