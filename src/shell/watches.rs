//! The watches that run in the background.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::{AbortHandle, spawn_local};

use crate::commands::output::{Output, WatchEvent};
use crate::commands::{Command, CommandError, Session, Verdict};
use crate::render::Style;
use crate::shell::backslash::Which;
use crate::shell::printer::Printer;

/// The watches, by their numbers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u32,
    running: BTreeMap<u32, Running>,
}

#[derive(Debug)]
struct Running {
    line: String,
    events: Rc<Cell<u64>>,
    task: AbortHandle,
}

impl Watches {
    /// Begins a watch.
    pub fn begin(&self, command: Command, line: &str, session: &Session, style: Style, voice: &Printer) {
        let number = {
            let mut inner = self.inner.borrow_mut();
            inner.last = inner.last.saturating_add(1);
            inner.last
        };
        let events = Rc::new(Cell::new(0_u64));
        let task = {
            let (watches, voice, session) = (self.clone(), voice.clone(), session.without_signals());
            let events = Rc::clone(&events);
            spawn_local(async move {
                let mut emit = |output: Output| {
                    let is_lost = matches!(&output, Output::Watched { event: WatchEvent::Lost { .. }, .. });
                    events.set(events.get().saturating_add(u64::from(!is_lost)));
                    voice.tell_record(&output, &style);
                    Ok(())
                };
                let result = command.run(&session, &mut emit).await;
                watches.ended(number, result, &style, &voice);
            })
        };
        let running = Running { line: line.to_owned(), events, task: task.abort_handle() };
        self.inner.borrow_mut().running.insert(number, running);
        self.show(voice);
        voice.say_dim(&format!("watch {number} runs in the background; \\unwatch {number} ends it"));
    }

    /// Ends watches, and says so.
    ///
    /// # Errors
    /// There is none of this number, or more than one could be meant.
    pub fn end(&self, which: Option<Which>, voice: &Printer) -> Result<(), CommandError> {
        let numbers = self.numbers();
        let ending = match (which, numbers.as_slice()) {
            (Some(Which::All), all) => all.to_vec(),
            (Some(Which::Number(number)), all) if all.contains(&number) => vec![number],
            (None, [one]) => vec![*one],
            (Some(Which::Number(number)), _) => {
                return Err(CommandError::usage(format!("there is no watch {number}")).hint("\\watches"));
            }
            (None, []) => return Err(CommandError::usage("nothing is watched").hint("watch KEY")),
            (None, _) => {
                return Err(CommandError::usage("which watch?").hint("\\watches").hint("\\unwatch all"));
            }
        };
        for number in ending {
            self.stop(number);
            voice.say(&format!("watch {number} has ended"));
        }
        self.show(voice);
        Ok(())
    }

    /// Ends all watches without a word. Returns how many there were.
    pub fn clear(&self, voice: &Printer) -> usize {
        let numbers = self.numbers();
        for number in &numbers {
            self.stop(*number);
        }
        self.show(voice);
        numbers.len()
    }

    /// The watches, a line each.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let line = |(number, running): (&u32, &Running)| {
            let count = running.events.get();
            format!(
                "{number:>3}  {}  ({count} {})",
                running.line,
                if count == 1 { "record" } else { "records" }
            )
        };
        self.inner.borrow().running.iter().map(line).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.borrow().running.len()
    }

    fn numbers(&self) -> Vec<u32> {
        self.inner.borrow().running.keys().copied().collect()
    }

    fn stop(&self, number: u32) {
        let running = self.inner.borrow_mut().running.remove(&number);
        if let Some(running) = running {
            running.task.abort();
        }
    }

    fn ended(&self, number: u32, result: Result<Verdict, CommandError>, style: &Style, voice: &Printer) {
        self.inner.borrow_mut().running.remove(&number);
        self.show(voice);
        match result {
            Ok(_) => voice.tell(&format!("watch {number} has ended: it has what it waited for")),
            Err(error) => voice.tell_failure(&format!("watch {number} has ended\n"), &error, style),
        }
    }

    fn show(&self, voice: &Printer) {
        voice.live.set_watches(self.numbers());
    }
}
