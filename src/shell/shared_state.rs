//! State that the editor's thread and the main loop share: the contents of the prompt and of completion.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clap::Command;

use super::completion::keys::StoredKeys;
use super::completion::line::{Known, Replacements, complete_line};
use super::completion::paths;
use super::contexts::{ActiveContext, ListContexts};
use super::prompt::{PromptState, end_of};
use crate::clock;
use crate::render::cut::width_of;
use crate::render::style::{CustomColor, Paint, paint, shade};

/// How many keys completion remembers; beyond that the first ones in key order are forgotten.
const KEYS_MAX: usize = 10_000;

pub struct SharedState {
    definition: Command,
    contexts: ListContexts,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    prompt: PromptState,
    shade: Option<CustomColor>,
    offline_since: Option<Instant>,
    keys: BTreeSet<Vec<u8>>,
    stored_keys: Option<Arc<StoredKeys>>,
    locks: BTreeSet<Vec<u8>>,
    watches: BTreeSet<u32>,
    brokers: BTreeSet<String>,
    columns: usize,
    /// The columns of the prompt on the screen.
    prompt_columns: usize,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedState").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl SharedState {
    #[must_use]
    pub fn new(definition: Command, contexts: ListContexts) -> Self {
        Self { definition, contexts, inner: Mutex::default() }
    }

    #[must_use]
    pub fn definition(&self) -> &Command {
        &self.definition
    }

    /// Sets the broker and context of a new connection; completion remembers `url`.
    pub fn set_connection(&self, broker: &str, context: Option<&ActiveContext>, url: Option<&str>) {
        let mut inner = self.inner();
        broker.clone_into(&mut inner.prompt.broker);
        inner.prompt.context = context.map(|context| context.name.clone());
        inner.shade = context.and_then(|context| context.shade);
        inner.offline_since = None;
        inner.brokers.extend(url.map(str::to_owned));
    }

    /// Sets when the connection was lost; `None` while there is one.
    pub fn set_offline(&self, since: Option<Instant>) {
        self.inner().offline_since = since;
    }

    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.inner().offline_since.is_some()
    }

    pub fn set_watches(&self, numbers: impl IntoIterator<Item = u32>) {
        let mut inner = self.inner();
        inner.watches = numbers.into_iter().collect();
        inner.prompt.watches = inner.watches.len();
    }

    pub fn set_locks(&self, keys: impl IntoIterator<Item = Vec<u8>>) {
        let mut inner = self.inner();
        inner.locks = keys.into_iter().collect();
        inner.prompt.locks = inner.locks.len();
    }

    /// Remembers a key for completion.
    pub fn remember_key(&self, key: &[u8]) {
        let mut inner = self.inner();
        if inner.keys.len() >= KEYS_MAX && !inner.keys.contains(key) {
            inner.keys.pop_first();
        }
        inner.keys.insert(key.to_owned());
    }

    /// Sets where completion lists the keys of the store.
    pub fn set_stored_keys(&self, stored_keys: StoredKeys) {
        self.inner().stored_keys = Some(Arc::new(stored_keys));
    }

    /// Returns the prompt of a new line on a terminal with this number of columns.
    #[must_use]
    pub fn begin_prompt(&self, columns: usize) -> String {
        let mut inner = self.inner();
        let text = prompt_state(&inner).text(columns);
        inner.columns = columns;
        inner.prompt_columns = width_of(&text);
        text
    }

    /// Returns whether the current prompt has another width than the one on the screen, which [`Self::current_prompt`]
    /// can replace only by one of the same width.
    #[must_use]
    pub fn is_prompt_outdated(&self) -> bool {
        let inner = self.inner();
        width_of(&prompt_state(&inner).text(inner.columns)) != inner.prompt_columns
    }

    /// Returns the current prompt, as wide as the one on the screen, which it replaces.
    #[must_use]
    pub fn current_prompt(&self, color: bool) -> String {
        let inner = self.inner();
        let prompt = prompt_state(&inner);
        let text = prompt.within(inner.prompt_columns);
        if prompt.offline.is_some() {
            return paint(&text, Paint::Error, color);
        }
        let Some(((context, chosen), rest)) =
            prompt.context().zip(inner.shade).and_then(|(context, chosen)| {
                text.strip_prefix(&context).map(|rest| ((context.clone(), chosen), rest))
            })
        else {
            return text;
        };
        format!("{}{rest}", shade(&context, chosen, color))
    }

    /// Returns the columns that the terminal had at the last prompt.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.inner().columns
    }

    /// Returns the row and the column behind the prompt on the screen and a line.
    #[must_use]
    pub fn end_of_line(&self, line: &str) -> (usize, usize) {
        let inner = self.inner();
        let prompt = " ".repeat(inner.prompt_columns);
        end_of(&(prompt + line), inner.columns)
    }

    /// Returns the columns that are left behind a line in the row of the cursor.
    #[must_use]
    pub fn room_behind(&self, line: &str) -> usize {
        let (_, column) = self.end_of_line(line);
        self.columns().saturating_sub(column).saturating_sub(1)
    }

    /// Completes a text that ends at the cursor.
    #[must_use]
    pub fn complete(&self, text: &str) -> Replacements {
        let stored_keys = |prefix: &[u8]| {
            // Without the lock, because the main loop needs it while this thread waits for the store.
            let stored_keys = {
                let inner = self.inner();
                inner.stored_keys.clone().filter(|_| inner.offline_since.is_none())
            };
            stored_keys.map_or_else(Vec::new, |stored_keys| stored_keys.list(prefix))
        };
        let known = {
            let inner = self.inner();
            Known {
                definition: &self.definition,
                keys: inner.keys.iter().cloned().collect(),
                stored_keys: &stored_keys,
                locks: inner.locks.iter().cloned().collect(),
                watches: inner.watches.iter().map(u32::to_string).collect(),
                brokers: inner.brokers.iter().cloned().collect(),
                contexts: &*self.contexts,
                files: &paths::beginning_with,
            }
        };
        complete_line(text, &known)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change is one assignment or insertion, so a panic leaves no half-made change behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn prompt_state(inner: &Inner) -> PromptState {
    let offline = inner.offline_since.map(|since| clock::monotonic().saturating_duration_since(since));
    PromptState { offline, ..inner.prompt.clone() }
}
