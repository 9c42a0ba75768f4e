//! A child process in its own process group, and a job object with all its descendants.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::sync::OnceLock;
use std::time::Duration;
use std::{process, ptr};

use tokio::process::{Child, Command};
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectExtendedLimitInformation, QueryInformationJobObject,
    SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED, OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
};

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
        let leader = job.spawn(&mut Command::from(command))?;
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

    /// Starts a process in its own process group and in this job object. It runs only when it is in the job object: a process that has
    /// ended cannot be added, and one that runs may have started others.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut child = command.creation_flags(CREATE_NEW_PROCESS_GROUP | CREATE_SUSPENDED).spawn()?;
        let started = self.add(&child).and_then(|()| resume(child.id().unwrap_or_default()));
        if started.is_err() {
            let _ = child.start_kill();
        }
        started.map(|()| child)
    }

    #[expect(unsafe_code, reason = "no safe function adds a process to a job object")]
    fn add(&self, child: &Child) -> io::Result<()> {
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

/// Resumes the threads of a process that was created suspended. The standard library closes the handle of its first thread.
#[expect(unsafe_code, reason = "no safe function lists or resumes threads")]
fn resume(process: u32) -> io::Result<()> {
    // SAFETY: no pointers.
    let snapshot = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    if snapshot == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is valid, and no other code owns it.
    let snapshot = unsafe { OwnedHandle::from_raw_handle(snapshot) };
    let size = u32::try_from(size_of::<THREADENTRY32>()).map_err(io::Error::other)?;
    let mut entry = THREADENTRY32 { dwSize: size, ..THREADENTRY32::default() };
    // SAFETY: the handle is valid, and the pointer to an entry of the size that it states.
    let mut is_entry = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    while is_entry {
        if entry.th32OwnerProcessID == process {
            // SAFETY: no pointers.
            let thread = unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, entry.th32ThreadID) };
            if thread.is_null() {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the handle is valid, and no other code owns it.
            let thread = unsafe { OwnedHandle::from_raw_handle(thread) };
            // SAFETY: the handle is valid.
            if unsafe { ResumeThread(thread.as_raw_handle()) } == u32::MAX {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: as of the first.
        is_entry = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    }
    Ok(())
}

pub fn spawn_in_group(command: &mut Command) -> io::Result<Child> {
    /// Ends with this process.
    static JOB: OnceLock<Option<Job>> = OnceLock::new();
    match JOB.get_or_init(|| Job::new().ok()) {
        Some(job) => job.spawn(command),
        None => command.creation_flags(CREATE_NEW_PROCESS_GROUP).spawn(),
    }
}

pub fn adopt_orphans() {}

#[must_use]
pub fn is_in_background() -> bool {
    false
}
