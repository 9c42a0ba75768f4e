//! What the prompt says: where we are, what runs in the background, and whether the broker is there (pure).

use std::time::Duration;

/// What the prompt is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The context in use.
    pub context: Option<String>,
    /// The broker.
    pub broker: String,
    /// How many watches run.
    pub watches: usize,
    /// How many locks are held.
    pub locks: usize,
    /// Since when there is no connection.
    pub offline: Option<Duration>,
}

/// What ends every prompt.
const END: &str = "> ";
/// A terminal with fewer columns gets the short forms.
const WIDE: usize = 72;

impl State {
    /// The prompt for a terminal of so many columns.
    #[must_use]
    pub fn text(&self, columns: usize) -> String {
        let forms = self.forms();
        let room = if columns < WIDE { columns.div_euclid(2) } else { columns };
        let fitting = forms.iter().skip(usize::from(columns < WIDE)).find(|form| width(form) <= room);
        fitting.or(forms.last()).cloned().unwrap_or_default()
    }

    /// The prompt in the place of one that is on the screen already, so it has just as many columns.
    #[must_use]
    pub fn within(&self, columns: usize) -> String {
        let forms = self.forms();
        let form = forms.iter().find(|form| width(form) <= columns).map_or("> ", String::as_str);
        let form: String = form.chars().take(columns).collect();
        let blanks = " ".repeat(columns.saturating_sub(width(&form)));
        form + &blanks
    }

    /// The context as it stands at the beginning.
    #[must_use]
    pub fn context(&self) -> Option<String> {
        self.context.as_ref().map(|context| shortened(context, 20))
    }

    /// All the ways to say it, the longest first.
    fn forms(&self) -> Vec<String> {
        let words = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let long = [words(self.watches, "watch", "watches"), words(self.locks, "lock", "locks")];
        let short = [(self.watches, 'w'), (self.locks, 'l')];
        let short = short.map(|(count, letter)| (count > 0).then(|| format!("{count}{letter}")));
        let away = self.offline.map(|since| format!("(offline {})", length(since)));
        let joined = |parts: &[Option<String>], separator: &str| {
            let parts: Vec<_> = parts.iter().flatten().cloned().collect();
            (!parts.is_empty()).then(|| parts.join(separator))
        };
        let [watches, locks] = short.clone();
        let long = joined(&long, ", ").map(|counts| format!("[{counts}]"));
        let context = || self.context();
        let broker = || Some(shortened(&self.broker, 30));
        let mut forms = vec![
            joined(&[context(), broker(), long, away.clone()], " "),
            joined(&[context(), broker(), watches.clone(), locks.clone(), away.clone()], " "),
            // The name that somebody has chosen says more than that of a host.
            joined(
                &[
                    context().or(Some(shortened(&self.broker, 16))),
                    watches.clone(),
                    locks.clone(),
                    away.clone(),
                ],
                " ",
            ),
        ];
        match &away {
            None => forms.extend([joined(&short, " "), Some("mqkv".to_owned())]),
            Some(_) => forms.extend([
                joined(&[watches, locks, away.clone()], " "),
                away.clone(),
                Some("(offline)".to_owned()),
            ]),
        }
        forms.into_iter().flatten().map(|form| form + END).collect()
    }
}

/// How many columns a text has. Names of hosts have no wide characters; other things in a prompt do not either.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// A length of time as it grows: the longer it is, the coarser.
fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds.div_euclid(60), seconds.div_euclid(3600)) {
        (0, _) => format!("{seconds}s"),
        (minutes, 0) => format!("{minutes}m"),
        (_, hours) => format!("{hours}h"),
    }
}

/// The beginning and the end of a name, with its middle left out if it is too long.
fn shortened(name: &str, max: usize) -> String {
    let clean = name.chars().filter(|c| !c.is_control());
    let all: Vec<char> = clean.collect();
    if all.len() <= max {
        return all.into_iter().collect();
    }
    // The port at the end tells brokers on one host apart.
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

    fn state(watches: usize, locks: usize, offline: Option<u64>) -> State {
        let offline = offline.map(Duration::from_secs);
        State { context: None, broker: "localhost:1883".to_owned(), watches, locks, offline }
    }

    #[test]
    fn the_context_stands_first_and_stays_where_there_is_no_room_for_the_broker() {
        let state = State { context: Some("prod".to_owned()), ..state(1, 1, None) };
        assert_eq!(state.text(80), "prod localhost:1883 [1 watch, 1 lock]> ");
        assert_eq!(state.text(40), "prod 1w 1l> ");
        assert_eq!(State { watches: 0, locks: 0, ..state }.text(50), "prod localhost:1883> ");
    }

    #[test]
    fn the_prompt_says_where_we_are_and_what_runs() {
        assert_eq!(state(0, 0, None).text(80), "localhost:1883> ");
        assert_eq!(state(1, 2, None).text(80), "localhost:1883 [1 watch, 2 locks]> ");
        assert_eq!(state(2, 0, Some(12)).text(80), "localhost:1883 [2 watches] (offline 12s)> ");
    }

    #[test]
    fn a_narrow_terminal_has_room_left_to_type() {
        assert_eq!(state(0, 0, None).text(40), "localhost:1883> ");
        assert_eq!(state(1, 1, None).text(44), "localhost:1883 1w 1l> ");
        assert_eq!(state(1, 1, Some(75)).text(40), "1w 1l (offline 1m)> ");
        let long = State { broker: "aio-broker.azure-iot-operations:18883".to_owned(), ..State::default() };
        assert_eq!(long.text(80), "aio-broker.azure-io…ions:18883> ");
        assert_eq!(long.text(40), "aio-broker…18883> ");
    }

    #[test]
    fn a_prompt_on_the_screen_keeps_its_width() {
        assert_eq!(state(0, 0, Some(3)).within(16), "(offline 3s)>   ");
        assert_eq!(state(0, 0, None).within(24), "localhost:1883>         ");
        assert_eq!(state(0, 0, Some(12)).within(5), ">    ");
    }

    proptest! {
        #[test]
        fn whatever_changes_the_width_stays(
            context in proptest::option::of(".{0,30}"), broker in ".{0,50}", watches in 0..20_usize, locks in 0..20_usize, offline in any::<Option<u32>>(),
            columns in 2..120_usize,
        ) {
            let offline = offline.map(|seconds| Duration::from_secs(seconds.into()));
            let state = State { context, broker, watches, locks, offline };
            prop_assert_eq!(width(&state.within(columns)), columns);
            prop_assert!(width(&state.text(80)) <= 80);
        }
    }
}
