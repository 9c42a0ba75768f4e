//! Watches that run in the background of the prompt.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::task::{AbortHandle, spawn_local};

use super::backslash::WatchSelection;
use super::printer::Printer;
use crate::commands::{Command, CommandError, Exit, Session};
use crate::render::{Record, Style};

/// The running watches by number. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of the latest watch; numbers are not reused.
    last: u32,
    running: BTreeMap<u32, RunningWatch>,
}

#[derive(Debug)]
struct RunningWatch {
    /// The line that started it.
    line: String,
    records: Rc<Cell<u64>>,
    task: AbortHandle,
}

impl Watches {
    pub fn start(&self, command: Command, line: &str, session: &Session, style: Style, printer: &Printer) {
        let number = {
            let mut inner = self.inner.borrow_mut();
            // 2^32 lines cannot be entered in one session.
            inner.last = inner.last.saturating_add(1);
            inner.last
        };
        let records = Rc::new(Cell::new(0_u64));
        let task = {
            let (watches, printer, session) = (self.clone(), printer.clone(), session.without_signals());
            let records = Rc::clone(&records);
            spawn_local(async move {
                let mut emit = |record: &dyn Record| {
                    records.set(records.get().saturating_add(u64::from(record.sequence().is_some())));
                    printer.background_record(record, &style);
                    Ok(())
                };
                let result = command.run(&session, &mut emit).await;
                watches.remove_ended(number, result, &style, &printer);
            })
        };
        let running = RunningWatch { line: line.to_owned(), records, task: task.abort_handle() };
        self.inner.borrow_mut().running.insert(number, running);
        self.update_prompt(printer);
        printer.dim_message(&format!("watch {number} runs in the background; \\unwatch {number} stops it"));
    }

    /// Stops the selected watches and reports each; without a selection the only one.
    ///
    /// # Errors
    /// There is no such watch, or several without a selection.
    pub fn stop(&self, selection: Option<WatchSelection>, printer: &Printer) -> Result<(), CommandError> {
        let numbers = self.numbers();
        let selected = match (selection, numbers.as_slice()) {
            (Some(WatchSelection::All), all) => all.to_vec(),
            (Some(WatchSelection::Number(number)), all) if all.contains(&number) => vec![number],
            (None, [one]) => vec![*one],
            (Some(WatchSelection::Number(number)), _) => {
                return Err(CommandError::usage(format!("no such watch: {number}")).hint("\\watches"));
            }
            (None, []) => return Err(CommandError::usage("no watch is running").hint("watch KEY")),
            (None, _) => {
                let error = CommandError::usage("several watches are running");
                return Err(error.hint("\\watches").hint("\\unwatch all"));
            }
        };
        for number in selected {
            self.abort(number);
            printer.flush();
            printer.message(&format!("watch {number} stopped"));
        }
        self.update_prompt(printer);
        Ok(())
    }

    /// Stops all watches. Returns how many were running.
    pub fn stop_all(&self, printer: &Printer) -> usize {
        let numbers = self.numbers();
        for number in &numbers {
            self.abort(*number);
        }
        self.update_prompt(printer);
        printer.flush();
        numbers.len()
    }

    /// Returns a line for each watch.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let line = |(number, running): (&u32, &RunningWatch)| {
            let count = running.records.get();
            let unit = if count == 1 { "record" } else { "records" };
            format!("{number:>3}  {}  ({count} {unit})", running.line)
        };
        self.inner.borrow().running.iter().map(line).collect()
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.borrow().running.len()
    }

    fn numbers(&self) -> Vec<u32> {
        self.inner.borrow().running.keys().copied().collect()
    }

    fn abort(&self, number: u32) {
        let running = self.inner.borrow_mut().running.remove(&number);
        if let Some(running) = running {
            running.task.abort();
        }
    }

    fn remove_ended(
        &self,
        number: u32,
        result: Result<Exit, CommandError>,
        style: &Style,
        printer: &Printer,
    ) {
        self.inner.borrow_mut().running.remove(&number);
        self.update_prompt(printer);
        printer.flush();
        match result {
            Ok(_) => printer.background_message(&format!("watch {number} finished")),
            Err(error) => printer.background_error(&format!("watch {number} failed\n"), &error, style),
        }
    }

    fn update_prompt(&self, printer: &Printer) {
        printer.state.set_watches(self.numbers());
    }
}
