//! A timer that is more exact than the runtime's, which counts whole milliseconds, and runs while the machine is suspended.

#[cfg(target_os = "linux")]
pub use linux::Timer;
#[cfg(not(target_os = "linux"))]
pub use other::Timer;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::time::Duration;

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A timer of the system.
    #[derive(Debug)]
    pub struct Timer(AsyncFd<Descriptor>);

    #[derive(Debug)]
    struct Descriptor(TimerFd);

    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    impl Timer {
        #[expect(deprecated, reason = "its successor is unsafe; the timer owns its descriptor")]
        pub fn new() -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = Descriptor(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?);
            Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
        }

        /// Waits. The timer must not be used twice at the same time.
        pub async fn sleep(&self, duration: Duration) -> io::Result<()> {
            // Zero would disarm it.
            let duration = duration.max(Duration::from_nanos(1));
            let once = Expiration::OneShot(TimeSpec::from_duration(duration));
            self.0.get_ref().0.set(once, TimerSetTimeFlags::empty())?;
            self.0.async_io(Interest::READABLE, |timer| Ok(timer.0.wait()?)).await
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;
    use std::time::Duration;

    /// The runtime's timer: this system has no timer that is a descriptor.
    #[derive(Debug)]
    pub struct Timer(());

    impl Timer {
        pub fn new() -> io::Result<Self> {
            Ok(Self(()))
        }

        pub async fn sleep(&self, duration: Duration) -> io::Result<()> {
            tokio::time::sleep(duration).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "clock.rs is built on this module")]
    #[tokio::test]
    async fn it_does_not_end_early_and_can_be_used_again() {
        let timer = Timer::new().unwrap();
        for ns in [0, 1, 100_000, 2_000_000] {
            let duration = Duration::from_nanos(ns);
            let begun = Instant::now();
            timer.sleep(duration).await.unwrap();
            assert!(begun.elapsed() >= duration);
        }
    }
}
