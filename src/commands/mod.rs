//! The verbs: one file each, with its arguments, its help and its execution.
//!
//! A verb returns records and prints nothing. The command line, a batch and the prompt run the same verbs.

pub mod args;
mod batch;
mod batch_args;
pub mod bench;
mod command;
pub mod configured;
mod decode;
mod del;
mod dispatch;
pub mod doctor;
pub mod duration;
mod edit;
pub mod error;
mod error_text;
pub mod exchange;
pub mod exit;
mod export;
mod get;
pub mod grammar;
mod holder;
mod import;
mod json_request;
mod keys;
pub mod lines;
mod lock;
pub mod monitor;
pub mod output;
mod ping;
mod pipelined;
pub mod process;
mod raw;
mod scan;
pub mod seed;
pub mod session;
mod set;
pub mod size;
mod stop_condition;
pub mod suggestions;
pub mod trace;
mod unlock;
pub mod url_secret;
pub mod usage;
mod vdel;
mod watch;

pub use batch_args::BatchMode;
pub use command::Command;
pub use error::{CommandError, Kind, Place, limit_hint};
pub use exit::Exit;
pub use lock::{Acquisition, BackgroundLock, LockArgs, Released, acquire_in_background, loss_message};
pub use output::{Emit, Hint};
pub use process::context::{FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY, ProcessContext};
pub use process::signal::interrupt_this_process;
pub use scan::{COMPLETION_NAMES_MAX, COMPLETION_WAIT_MAX, first_keys, prefix_pattern};
pub use session::{Session, SettingsFuture};
