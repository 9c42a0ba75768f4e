//! Job control, which this system does not have.

use std::future::pending;
use std::io;

use crate::platform::types::JobSignal;

#[derive(Debug)]
pub struct JobSignals(());

impl JobSignals {
    pub fn new() -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub async fn next(&mut self) -> JobSignal {
        pending().await
    }
}

pub fn stop_this_job() {}

#[derive(Debug)]
pub struct BackgroundStops(());

impl BackgroundStops {
    #[must_use]
    pub fn ignore() -> Self {
        Self(())
    }
}
