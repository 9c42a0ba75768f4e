//! Windows. The documentation of each function is that of the one for Unix, where it says what differs.

pub mod background;
pub mod child;
pub mod clock;
pub mod directory;
pub mod file;
pub mod folders;
pub mod job_control;
pub mod limits;
pub mod process;
pub mod service_manager;
pub mod shell;
pub mod signal;
pub mod socket;
pub mod stream;
pub mod terminal;
