//! Watches: a stream of changes of one member, which ends when the member does not answer any more.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use etcd_client::proto::PbWatchResponse;
use etcd_client::{WatchOptions, WatchStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::assembly::Assembly;
use super::client::{ANSWER_BYTES_MAX, Endpoint, Etcd, bound, signed, unsigned};
use super::error::Failure;
use super::version::has_progress_fix;
use crate::ledger::etcd::action::WatchRange;
use crate::ledger::etcd::operation::{EtcdError, WatchBatch, WatchEvent};

/// Batches that wait for their reader, before the stream is read no further.
const WAITING_MAX: usize = 8;
/// What etcd answers to a request for progress has this identifier: it is about all watches of a stream.
const ALL_WATCHES: i64 = -1;
/// Progress is asked for this often within the timeout of a request.
const PROGRESS_REQUESTS: u32 = 4;

/// A watch of a range of keys. It ends with its first error.
pub struct Watch {
    batches: mpsc::Receiver<Result<WatchBatch, EtcdError>>,
    task: AbortHandle,
}

impl Watch {
    /// Waits for the next batch. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`EtcdError::Unknown`]: the watch is lost, and another one must begin after the revision of the last batch;
    /// [`EtcdError::Compacted`]: the changes up to there are gone, and the state must be read.
    pub async fn next(&mut self) -> Result<WatchBatch, EtcdError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchBatch, EtcdError>> {
        let ended = || EtcdError::Unknown { reason: "the watch has ended".to_owned() };
        self.batches.poll_recv(cx).map(|batch| batch.unwrap_or_else(|| Err(ended())))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Etcd {
    /// Watches the keys of a range.
    #[must_use]
    pub fn watch(&self, range: &WatchRange) -> Watch {
        let (sender, batches) = mpsc::channel(WAITING_MAX);
        let (etcd, range) = (self.clone(), range.clone());
        let task: JoinHandle<()> = tokio::spawn(async move {
            if let Err(error) = run(&etcd, &range, &sender).await {
                // Without a reader there is nothing to report to.
                let _ = sender.send(Err(error)).await;
            }
        });
        Watch { batches, task: task.abort_handle() }
    }
}

type Sender = mpsc::Sender<Result<WatchBatch, EtcdError>>;

/// Passes batches on until the reader is gone.
async fn run(etcd: &Etcd, range: &WatchRange, batches: &Sender) -> Result<(), EtcdError> {
    let (endpoint, mut stream, is_progress_ordered) = open(etcd, range).await?;
    let lost = |failure| etcd.lost(&endpoint, failure, 0);
    let after = etcd.request_timeout();
    let mut ticks = interval(after.checked_div(PROGRESS_REQUESTS).unwrap_or(after));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut assembly = Assembly::new(range.revision);
    let mut unanswered = 0_u32;
    loop {
        let response = tokio::select! {
            response = stream.message() => response,
            _ = ticks.tick() => {
                if unanswered >= PROGRESS_REQUESTS {
                    return Err(lost(Failure::TimedOut(after)));
                }
                unanswered = unanswered.saturating_add(1);
                stream.request_progress().await.map_err(|error| lost(Failure::new(&error)))?;
                continue;
            }
        };
        let response = response.map_err(|error| lost(Failure::new(&error)))?;
        let response = response.ok_or_else(|| lost(Failure::Unknown("the watch was ended".to_owned())))?.0;
        unanswered = 0;
        if response.canceled {
            return Err(match unsigned(response.compact_revision)? {
                0 => lost(failure_of_cancelled(response.cancel_reason)),
                revision => EtcdError::Compacted { revision },
            });
        }
        if let Some(batch) = batch_of(response, &mut assembly, is_progress_ordered)?
            && batches.send(Ok(batch)).await.is_err()
        {
            return Ok(());
        }
    }
}

async fn open(etcd: &Etcd, range: &WatchRange) -> Result<(Arc<Endpoint>, WatchStream, bool), EtcdError> {
    let (endpoint, client) = etcd.separate_client().await?;
    let options = WatchOptions::new().with_range(bound(&range.to));
    let options = options.with_start_revision(signed(range.revision)?).with_fragment().with_progress_notify();
    let after = etcd.request_timeout();
    let opened = timeout(after, async {
        // A member that refuses to report its version is a later one.
        let status = Failure::unless_refused(client.maintenance_client().status().await)?;
        let is_progress_ordered = status.is_none_or(|status| has_progress_fix(status.version()));
        let mut watches = client.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok((watches.watch(bound(&range.from), Some(options)).await?, is_progress_ordered))
    });
    match opened.await {
        Ok(Ok((stream, is_progress_ordered))) => Ok((endpoint, stream, is_progress_ordered)),
        Ok(Err(error)) => Err(etcd.lost(&endpoint, Failure::new(&error), 0)),
        Err(_) => Err(etcd.lost(&endpoint, Failure::TimedOut(after), 0)),
    }
}

fn failure_of_cancelled(reason: String) -> Failure {
    match reason.as_str() {
        "etcdserver: permission denied" => Failure::Refused("permission denied".to_owned()),
        "" => Failure::Unknown("the watch was cancelled".to_owned()),
        _ => Failure::Unknown(reason),
    }
}

fn batch_of(
    response: PbWatchResponse,
    assembly: &mut Assembly,
    is_progress_ordered: bool,
) -> Result<Option<WatchBatch>, EtcdError> {
    if !response.events.is_empty() {
        let events = response.events.into_iter().filter_map(|event| {
            let is_deleted = event.r#type == DELETE;
            event.kv.map(|pair| {
                let value = (!is_deleted).then(|| pair.value.into());
                Ok(WatchEvent { key: pair.key.into(), value, mod_revision: unsigned(pair.mod_revision)? })
            })
        });
        return Ok(assembly.events(events.collect::<Result<_, EtcdError>>()?, response.fragment));
    }
    // Before the fix, an answer to a request for progress may be ahead of events that are still to come: then it shows only
    // that the member is alive. The notifications that etcd sends by itself never are.
    let is_ordered = response.watch_id != ALL_WATCHES || is_progress_ordered;
    match response.header {
        Some(header) if is_ordered && !response.created => Ok(assembly.progress(unsigned(header.revision)?)),
        _ => Ok(None),
    }
}

/// The type of the event of a deletion.
const DELETE: i32 = 1;
