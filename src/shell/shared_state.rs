//! What the editor's thread and the loop both look at: the state of the prompt, and what completion goes by.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::definition::Definition;
use super::files;
use super::line_completion::{Known, Replacements, complete_line};
use super::prompt::{State, width};
use super::{Names, Opened};
use crate::render::style::{Paint, Shade, paint, shade};

/// How many keys are remembered for completion; beyond that, those that come first are forgotten.
const KEYS_MAX: usize = 10_000;

/// What is known at the moment.
pub struct Live {
    definition: Definition,
    contexts: Names,
    now: fn() -> Instant,
    is_editing: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    shade: Option<Shade>,
    offline_since: Option<Instant>,
    keys: BTreeSet<Vec<u8>>,
    locks: BTreeSet<Vec<u8>>,
    watches: BTreeSet<u32>,
    brokers: BTreeSet<String>,
    columns: usize,
    prompt_columns: usize,
}

impl fmt::Debug for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Live").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Live {
    /// Nothing but the definition is known.
    #[must_use]
    pub fn new(definition: Definition, contexts: Names, now: fn() -> Instant) -> Self {
        Self { definition, contexts, now, is_editing: AtomicBool::new(false), inner: Mutex::default() }
    }

    /// What can be typed.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Whether a line is being typed.
    #[must_use]
    pub fn is_editing(&self) -> bool {
        self.is_editing.load(Ordering::SeqCst)
    }

    /// Says whether a line is being typed.
    pub fn set_editing(&self, is_editing: bool) {
        self.is_editing.store(is_editing, Ordering::SeqCst);
    }

    /// Says where the broker is, after a connection was made.
    pub fn set_broker(&self, opened: &Opened) {
        let mut inner = self.inner();
        inner.state.broker.clone_from(&opened.broker);
        inner.state.context = opened.context.as_ref().map(|context| context.name.clone());
        inner.shade = opened.context.as_ref().and_then(|context| context.shade);
        inner.offline_since = None;
        inner.brokers.extend(opened.url.clone());
    }

    /// Says since when there is no connection, or that there is one.
    pub fn set_offline(&self, since: Option<Instant>) {
        self.inner().offline_since = since;
    }

    /// Whether there is no connection at the moment.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.inner().offline_since.is_some()
    }

    /// Says which watches run.
    pub fn set_watches(&self, numbers: impl IntoIterator<Item = u32>) {
        let mut inner = self.inner();
        inner.watches = numbers.into_iter().collect();
        inner.state.watches = inner.watches.len();
    }

    /// Says which locks are held.
    pub fn set_locks(&self, keys: impl IntoIterator<Item = Vec<u8>>) {
        let mut inner = self.inner();
        inner.locks = keys.into_iter().collect();
        inner.state.locks = inner.locks.len();
    }

    /// Remembers a key.
    pub fn see_key(&self, key: &[u8]) {
        let mut inner = self.inner();
        if inner.keys.len() >= KEYS_MAX && !inner.keys.contains(key) {
            inner.keys.pop_first();
        }
        inner.keys.insert(key.to_owned());
    }

    /// The prompt for the next line, on a terminal of so many columns.
    #[must_use]
    pub fn begin_prompt(&self, columns: usize) -> String {
        let mut inner = self.inner();
        let text = self.state(&inner).text(columns);
        inner.columns = columns;
        inner.prompt_columns = width(&text);
        text
    }

    /// What the prompt on the screen should say by now, painted where that is wanted.
    #[must_use]
    pub fn current_prompt(&self, color: bool) -> String {
        let inner = self.inner();
        let state = self.state(&inner);
        let text = state.within(inner.prompt_columns);
        if state.offline.is_some() {
            return paint(&text, Paint::Wrong, color);
        }
        let Some(((context, chosen), rest)) =
            state.context().zip(inner.shade).and_then(|(context, chosen)| {
                text.strip_prefix(&context).map(|rest| ((context.clone(), chosen), rest))
            })
        else {
            return text;
        };
        format!("{}{rest}", shade(&context, chosen, color))
    }

    /// How many columns the terminal had at the last prompt.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.inner().columns
    }

    /// How many columns are left behind a text in the row of the cursor.
    #[must_use]
    pub fn room_behind(&self, line: &str) -> usize {
        let inner = self.inner();
        let last = line.rsplit('\n').next().unwrap_or_default();
        let before = if line.contains('\n') { 0 } else { inner.prompt_columns };
        let used = before.saturating_add(width(last));
        let used = used.checked_rem(inner.columns).unwrap_or(0);
        inner.columns.saturating_sub(used).saturating_sub(1)
    }

    /// What can follow on this text.
    #[must_use]
    pub fn complete(&self, text: &str) -> Replacements {
        let known = {
            let inner = self.inner();
            Known {
                definition: &self.definition,
                keys: inner.keys.iter().cloned().collect(),
                locks: inner.locks.iter().cloned().collect(),
                watches: inner.watches.iter().map(u32::to_string).collect(),
                contexts: &*self.contexts,
                brokers: inner.brokers.iter().cloned().collect(),
                files: &files::beginning_with,
            }
        };
        complete_line(text, &known)
    }

    fn state(&self, inner: &Inner) -> State {
        let offline = inner.offline_since.map(|since| (self.now)().saturating_duration_since(since));
        State { offline, ..inner.state.clone() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Whoever panicked with it has left nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
