//! What differs between operating systems: files, directories, sockets, processes, signals, terminals, clocks. No other code depends on
//! the system.
//!
//! What a system cannot do has a function that does nothing, or returns None; its documentation names the system.

mod sent_mark;
mod timer;
mod types;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

pub use sent_mark::SentMark;
pub use system::background::Background;
pub use system::child::{Group, adopt_orphans, is_in_background, spawn_in_group};
pub use system::clock::{boot_id, is_clock_synchronized, since_boot};
pub use system::directory::Directory;
pub use system::file::{
    FileStamp, allocate, append_private, copy_owner, create_file, create_new_private_directory,
    create_private_directory, drop_cache, file_id, is_hardware_error, is_mount_point, keep_permissions,
    lock_file, make_private, open_nonblocking, permissions, read_at, read_exact_at, sync_data,
    sync_directory, user_id, write_at,
};
pub use system::folders::{HOME, SETTINGS, STATE};
pub use system::job_control::{BackgroundStops, JobSignals, stop_this_job};
pub use system::limits::{memory_limit, raise_open_files_limit};
pub use system::process::{SUPPORTS_ETCD, lower_thread_priority, reserve_runtime_descriptors};
pub use system::service_manager;
pub use system::shell::{
    EDITOR, SHELL, blocking_stdin, editor_command, ended_by, os_string, program, shell_command,
};
pub use system::signal::{
    Signals, hold_hangup, ignore_keys, interrupt_this_process, outlive_file_size_limit, release_hangup,
};
pub use system::socket::{CAN_POLL_SOCKETS, Socket, poll_socket, socket_of, stop_listening};
pub use system::stream::{
    is_stdin_closed, stderr_has_room, stdin_file, stdin_has_content, stdin_is_ready_within, stdout_closed,
    stdout_file,
};
pub use system::terminal::{KeyMode, SavedTerminal, is_terminal_in_line_mode};
pub use timer::Timer;
pub use types::{Access, GroupChange, JobSignal, Permissions, Signal, UserFolder};
