//! A child process in its own process group, and a job object with all its descendants.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::OnceLock;
use std::time::Duration;
use std::{process, ptr};

use tokio::process::{Child, Command};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
    SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::CREATE_NEW_PROCESS_GROUP;

use super::signal::send_break;
use crate::platform::types::{GroupChange, Signal};

/// A running command with its descendants. They end with this process, however it ends.
#[derive(Debug)]
pub struct Group {
    leader: Child,
    id: u32,
    job: Job,
    status: Option<u8>,
    is_left: bool,
}

impl Group {
    pub fn spawn(command: process::Command) -> io::Result<Self> {
        let job = Job::new()?;
        let leader = Command::from(command).creation_flags(CREATE_NEW_PROCESS_GROUP).spawn()?;
        job.add(&leader)?;
        Ok(Self { id: leader.id().unwrap_or_default(), leader, job, status: None, is_left: false })
    }

    /// Returns the next change. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<GroupChange> {
        // A job object without processes is reported to a completion port only.
        const GONE_POLL: Duration = Duration::from_millis(20);
        if self.status.is_none() {
            let code = self.leader.wait().await?.code();
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            self.status = Some(code);
            return Ok(GroupChange::Ended(code));
        }
        while self.job.processes()? > 0 {
            tokio::time::sleep(GONE_POLL).await;
        }
        Ok(GroupChange::Gone)
    }

    /// Sends Ctrl-Break, the only event that reaches a group, if the signal asks for an end.
    pub fn signal(&self, signal: Signal) {
        if signal.is_request() {
            send_break(self.id);
        }
    }

    pub fn resume(&self) {}

    pub fn suspend(&mut self) {}

    pub fn kill(&self) {
        self.job.kill();
    }

    pub fn leave(mut self) {
        self.is_left = true;
        self.job.release();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_left {
            self.kill();
        }
    }
}

/// A job object.
#[derive(Debug)]
pub(super) struct Job(OwnedHandle);

impl Job {
    #[expect(unsafe_code, reason = "no safe function creates a job object")]
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: null pointers are allowed: no attributes, no name.
        let handle = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle is valid, and no other code owns it.
        let job = Self(unsafe { OwnedHandle::from_raw_handle(handle) });
        job.limit(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)?;
        Ok(job)
    }

    #[expect(unsafe_code, reason = "no safe function sets the limits of a job object")]
    fn limit(&self, flags: u32) -> io::Result<()> {
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = flags;
        let size = u32::try_from(size_of_val(&limits)).map_err(io::Error::other)?;
        let (handle, class) = (self.0.as_raw_handle(), JobObjectExtendedLimitInformation);
        // SAFETY: the handle is valid, and the pointer to a value of this size.
        check(unsafe { SetInformationJobObject(handle, class, (&raw const limits).cast(), size) })
    }

    #[expect(unsafe_code, reason = "no safe function adds a process to a job object")]
    pub(super) fn add(&self, child: &Child) -> io::Result<()> {
        let process = child.raw_handle().ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: both handles are valid.
        check(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process) })
    }

    /// Returns the number of processes that run.
    #[expect(unsafe_code, reason = "no safe function counts the processes of a job object")]
    fn processes(&self) -> io::Result<u32> {
        let mut counts = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let size = u32::try_from(size_of_val(&counts)).map_err(io::Error::other)?;
        let (handle, class) = (self.0.as_raw_handle(), JobObjectBasicAccountingInformation);
        let pointer = (&raw mut counts).cast();
        // SAFETY: the handle is valid, and the pointer to a value of this size.
        check(unsafe { QueryInformationJobObject(handle, class, pointer, size, ptr::null_mut()) })?;
        Ok(counts.ActiveProcesses)
    }

    #[expect(unsafe_code, reason = "no safe function ends the processes of a job object")]
    fn kill(&self) {
        // SAFETY: the handle is valid.
        let _ = unsafe { TerminateJobObject(self.0.as_raw_handle(), 1) };
    }

    /// Lets the processes outlive the job object.
    fn release(&self) {
        let _ = self.limit(0);
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn spawn_in_group(command: &mut Command) -> io::Result<Child> {
    /// Ends with this process.
    static JOB: OnceLock<Option<Job>> = OnceLock::new();
    let child = command.creation_flags(CREATE_NEW_PROCESS_GROUP).spawn()?;
    if let Some(job) = JOB.get_or_init(|| Job::new().ok()) {
        job.add(&child)?;
    }
    Ok(child)
}

pub fn adopt_orphans() {}

#[must_use]
pub fn is_in_background() -> bool {
    false
}
