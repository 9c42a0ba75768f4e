//! The prompt: one session kept open, verbs run over it line by line, and what runs in its background.

mod backslash;
pub mod complete;
mod connection_status;
pub mod definition;
mod dumb_terminal;
mod editor;
mod files;
mod hint;
mod history;
mod line;
mod line_completion;
mod locks;
mod printer;
mod prompt;
mod rate_limit;
mod redact;
mod redirection;
mod run;
mod screen;
mod shared_state;
mod text;
mod trace;
mod watches;

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::{AbortHandle, LocalSet, spawn_local};

use crate::client::{Reconnect, Tracer};
use crate::clock;
use crate::commands::lines::words::Word;
use crate::commands::process::signal::{Signal, Signals};
use crate::commands::{Command, CommandError, Kind, Session, Verdict};
use crate::render::escape::escape;
use crate::render::style::Shade;
use crate::render::{Format, Style};
use definition::Definition;
use editor::{Lines, Typed};
use history::History;
use locks::Locks;
use printer::Printer;
pub use printer::Streams;
use screen::Screen;
use shared_state::Live;
pub use trace::Above;
use watches::Watches;

/// What the process edge gives.
pub struct House {
    /// What can be typed.
    pub definition: Definition,
    /// Says what the words of a line mean, in the style of the session.
    pub parse: Box<dyn Fn(Vec<Word>, Style) -> Result<Meaning, CommandError>>,
    /// Begins a session: with the broker of the command line, or with another one.
    pub open: Box<Opening>,
    /// Names the contexts that there are.
    pub contexts: Names,
    /// Where the shell puts what it says.
    pub streams: Streams,
    /// How output is shown.
    pub style: Style,
    /// Whether a pipe or a file gets bare values: no format was asked for.
    pub is_auto: bool,
    /// Where the history is kept.
    pub history: Option<PathBuf>,
    /// What a lone `\!` starts.
    pub login_shell: OsString,
    /// What `\trace` turns on and off.
    pub tracer: Tracer,
    /// Where the trace is shown, if it is.
    pub above: Above,
}

/// Begins a session: with the broker of the command line, or with that of this context or URL.
pub type Opening = dyn Fn(Option<&str>) -> Result<Opened, CommandError>;

/// Names what there is; asked from the editor's thread.
pub type Names = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What the words of a line mean.
#[derive(Debug)]
pub enum Meaning {
    /// A verb, how to show its output, and whether that was asked for in the line.
    Run {
        /// The verb.
        command: Box<Command>,
        /// How to show its output.
        style: Style,
        /// Whether a format was asked for.
        is_formatted: bool,
        /// Whether it may write where nothing is to be written.
        is_forced: bool,
    },
    /// A text is to be shown.
    Show(String),
    /// The shell's own help.
    Help,
}

/// A session, not connected yet.
pub struct Opened {
    /// The session.
    pub session: Session,
    /// The broker, short, for the prompt.
    pub broker: String,
    /// The context in use.
    pub context: Option<InUse>,
    /// What there is to know about its place, once it is connected.
    pub about: String,
    /// What was typed to get there, if that can be typed again.
    pub url: Option<String>,
    /// Whether all that is in the store is gone with the session.
    pub is_transient: bool,
    /// Ends what was begun for the session, after it was closed.
    pub close: Box<dyn FnOnce() -> Closing>,
}

/// A context in use.
#[derive(Clone, Debug)]
pub struct InUse {
    /// Its name.
    pub name: String,
    /// The colour of its name.
    pub shade: Option<Shade>,
    /// Whether nothing is to be written.
    pub is_read_only: bool,
}

/// Resolves when everything has ended.
pub type Closing = Pin<Box<dyn Future<Output = ()>>>;

/// How many requests may be under way: a watch of many keys takes a few round trips.
const INFLIGHT_MAX: usize = 256;

/// Runs the prompt until it is left.
///
/// # Errors
/// The first connection cannot be made, or there is no terminal.
pub async fn run(house: House) -> Result<Verdict, CommandError> {
    LocalSet::new()
        .run_until(async {
            let mut shell = match Shell::open(house).await? {
                Ok(shell) => shell,
                Err(signal) => return Ok(signal.verdict()),
            };
            let verdict = shell.serve().await;
            shell.leave().await;
            Ok(verdict)
        })
        .await
}

struct Shell {
    house: House,
    opened: Opened,
    /// What was typed to get there; none: the command line.
    destination: Option<String>,
    connected: Connected,
    lines: Lines,
    history: History,
    signals: Signals,
    voice: Printer,
    watches: Watches,
    locks: Locks,
    /// What `\o` has chosen, else what the command line has.
    style: Style,
    is_auto: bool,
    times: bool,
    link: AbortHandle,
    is_leaving: Option<Verdict>,
}

/// What is known of a session that is connected.
#[derive(Clone, Debug)]
struct Connected {
    client_id: String,
    elapsed_ms: f64,
    since: std::time::Instant,
}

impl Shell {
    /// A prompt that is connected; or the signal that came before it was.
    async fn open(house: House) -> Result<Result<Self, Signal>, CommandError> {
        // Before the editor puts its own handlers in front of ours, and takes them away again.
        let mut signals =
            Signals::new().map_err(|error| CommandError::system("listen to signals", &error))?;
        let opened = (house.open)(None)?;
        let result = tokio::select! {
            connected = connect(&opened) => connected.map(Ok),
            signal = signals.next() => Ok(Err(signal)),
        };
        let connected = match result {
            Ok(Ok(connected)) => connected,
            Ok(Err(signal)) => {
                close(opened).await;
                return Ok(Err(signal));
            }
            Err(error) => {
                close(opened).await;
                return Err(error);
            }
        };
        let live = Live::new(house.definition.clone(), Arc::clone(&house.contexts), house.streams.now);
        let live = Arc::new(live);
        live.set_broker(&opened);
        let (history, earlier) = History::open(house.history.clone());
        let color = house.style.color_data;
        let no_terminal = |error| CommandError::new(Kind::File, format!("cannot use the terminal: {error}"));
        let lines = Lines::start(Arc::clone(&live), earlier, house.streams, color);
        let (lines, above) = lines.map_err(no_terminal)?;
        let screen = Screen::start(above, house.streams.above, Arc::clone(&live)).map_err(no_terminal)?;
        house.above.begin(screen.clone());
        let voice = Printer::new(house.streams, live, screen, color);
        let watches = Watches::default();
        let link = observe(&opened.session, &watches, &voice).await?;
        let (style, is_auto) = (house.style, house.is_auto);
        Ok(Ok(Self {
            house,
            opened,
            destination: None,
            connected,
            lines,
            history,
            signals,
            voice,
            watches,
            locks: Locks::default(),
            style,
            is_auto,
            times: false,
            link,
            is_leaving: None,
        }))
    }

    async fn serve(&mut self) -> Verdict {
        self.voice.print(&text::greeting(&self.place()));
        loop {
            self.lines.ask();
            let mut is_stopped = false;
            let typed = loop {
                tokio::select! {
                    biased;
                    typed = self.lines.next() => break typed,
                    signal = self.signals.next() => match signal {
                        // Ctrl-C is no signal while a line is edited, so this one is for the line just entered.
                        Signal::Interrupt if self.lines.is_entered() => is_stopped = true,
                        Signal::Interrupt => self.lines.clear(),
                        signal => {
                            self.lines.wake().await;
                            return signal.verdict();
                        }
                    },
                }
            };
            match typed {
                Typed::Line(_) if is_stopped => self.voice.say("\nstopped before it began"),
                Typed::Line(line) => {
                    let live = Arc::clone(&self.voice.live);
                    if let Err(error) = self.history.keep(&line, live.definition()) {
                        self.voice.say(&format!("the history is not kept: {error}"));
                    }
                    self.run_text(&line).await;
                }
                Typed::Cleared => {}
                Typed::Garbled => {
                    let error = CommandError::usage("what was typed is not UTF-8, and nothing is done")
                        .hint("\"\\xFF\", with its quotes, for a byte that is no text");
                    self.voice.fail(&error, &self.style);
                }
                Typed::End => return Verdict::Yes,
                // Whoever sat at the terminal has gone.
                Typed::Broken => return Verdict::Child(129),
            }
            if let Some(verdict) = self.is_leaving {
                return verdict;
            }
        }
    }

    /// Where we are, as the first screen says it.
    fn place(&self) -> String {
        let Connected { client_id, elapsed_ms, .. } = &self.connected;
        let context = self.opened.context.as_ref().map_or_else(String::new, |context| {
            let note = if context.is_read_only { ", read-only" } else { "" };
            format!("\ncontext {}{note}", escape(context.name.as_bytes()))
        });
        match self.opened.url {
            Some(_) => format!("{} in {elapsed_ms:.1} ms, as {client_id}{context}", self.opened.about),
            None => format!("{}{context}", self.opened.about),
        }
    }

    async fn leave(mut self) {
        self.link.abort();
        self.release_all().await;
        self.watches.clear(&self.voice);
        close(self.opened).await;
    }

    /// Gives all locks back, and says so.
    async fn release_all(&mut self) {
        let is_hasty = self.voice.live.is_offline();
        for key in self.locks.keys() {
            let released = self.locks.release(&key, is_hasty, &self.opened.session, &self.voice).await;
            if let Err(error) = released {
                self.voice.fail(&error, &self.style);
            }
        }
    }

    /// Changes to the broker of a context or URL; without one the session is made anew. Nothing changes if there is no
    /// connection.
    async fn connect(&mut self, destination: Option<&str>, is_forced: bool) -> Result<(), CommandError> {
        if self.opened.is_transient && !is_forced {
            let typed = destination.map_or_else(String::new, |typed| format!(" {typed}"));
            return Err(CommandError::usage("this store is in memory: what is in it would be gone")
                .hint(format!("\\c!{typed}"))
                .hint("export > FILE, to keep it"));
        }
        let destination = destination.map(str::to_owned).or_else(|| self.destination.clone());
        let opened = (self.house.open)(destination.as_deref())?;
        let connected = match connect(&opened).await {
            Ok(connected) => connected,
            Err(error) => {
                close(opened).await;
                return Err(error.cause(format!("still at {}", self.opened.broker)));
            }
        };
        self.link.abort();
        self.release_all().await;
        match self.watches.clear(&self.voice) {
            0 => {}
            1 => self.voice.say("1 watch has ended"),
            count => self.voice.say(&format!("{count} watches have ended")),
        }
        close(std::mem::replace(&mut self.opened, opened)).await;
        self.connected = connected;
        self.destination = destination;
        self.voice.live.set_broker(&self.opened);
        self.link = observe(&self.opened.session, &self.watches, &self.voice).await?;
        self.voice.say(&self.place());
        Ok(())
    }

    /// The style of a line whose output does not go to the screen.
    fn style_of_outlet(style: Style, is_auto: bool) -> Style {
        let format = if is_auto { Format::Lines } else { style.format };
        Style { format, color_data: false, ..style }
    }
}

async fn connect(opened: &Opened) -> Result<Connected, CommandError> {
    let client = opened.session.client_with(|settings| {
        settings.reconnect = Reconnect::WithBackoff;
        settings.inflight_max = INFLIGHT_MAX;
    });
    let about = client.await?.connection_info();
    Ok(Connected {
        client_id: about.client_id.clone(),
        elapsed_ms: about.connect_elapsed.as_secs_f64() * 1000.0,
        since: clock::monotonic(),
    })
}

async fn observe(session: &Session, watches: &Watches, voice: &Printer) -> Result<AbortHandle, CommandError> {
    let link = session.client().await?.connection_status();
    Ok(spawn_local(connection_status::observe(link, watches.clone(), voice.clone())).abort_handle())
}

async fn close(opened: Opened) {
    opened.session.close().await;
    (opened.close)().await;
}

impl fmt::Debug for House {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("House").finish_non_exhaustive()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Opened").field("broker", &self.broker).finish_non_exhaustive()
    }
}
