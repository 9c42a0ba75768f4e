//! Progress of the writes to a client.

/// Detects a client that does not read.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many writes have succeeded.
    writes: u64,
    /// That number when the current period began, None while there is nothing to write.
    since: Option<u64>,
}

impl Progress {
    /// Notes that bytes have been written, perhaps the last ones.
    pub fn handle_written(&mut self, is_complete: bool) {
        self.writes = self.writes.wrapping_add(1);
        if is_complete {
            self.since = None;
        }
    }

    /// Begins a period; returns whether nothing has been written in the last one.
    pub fn handle_timeout(&mut self) -> bool {
        self.since.replace(self.writes) == Some(self.writes)
    }
}
