//! Opening of a folder as the one of a node.

use super::participant::{Participant, RowsError, Seeds, describe};
use super::settings::ExchangeSettings;
use crate::exchange::row::{Row, RowId};
use crate::ledger::{FileLedger, StorageError, StorageErrorKind};
use crate::store::{Now, Version};

/// Loads the rows of a node; a new one is on disk afterwards. Returns `None` if the store takes part in no exchange.
///
/// # Errors
/// [`StorageError`]: the folder belongs to another node, or to a node although there are no settings.
pub fn open(
    ledger: &mut FileLedger,
    settings: Option<&ExchangeSettings>,
    seeds: Seeds,
    now: Now,
) -> Result<Option<Participant>, StorageError> {
    let path = ledger.path();
    let error = |error: RowsError| {
        let kind = match error {
            RowsError::Malformed => StorageErrorKind::Corrupt(
                "the snapshot or the log: a row of the exchange is malformed".to_owned(),
            ),
            RowsError::OtherNode(node) => StorageErrorKind::OtherNode(node),
        };
        StorageError { path: path.clone(), kind }
    };
    let first_row = if ledger.has_rows() {
        Some(ledger.row(&RowId::Node.encode()).ok_or_else(|| error(RowsError::Malformed))?)
    } else {
        None
    };
    let Some(settings) = settings else {
        let Some(row) = first_row else { return Ok(None) };
        let node = Row::decode(&row).and_then(|row| describe(&row)).ok_or(RowsError::Malformed);
        return Err(error(node.map_or_else(|error| error, RowsError::OtherNode)));
    };
    let origin_ms = ledger.clock_ms(now).saturating_sub(now.monotonic_ms);
    let (mut participant, first_rows) =
        Participant::new(settings, first_row.as_ref(), origin_ms, seeds).map_err(&error)?;
    if first_row.is_some() {
        let mut result = Ok(());
        ledger.load_rows(|id, row| {
            if result.is_ok() {
                result = participant.load(&id, &row);
            }
        });
        result.map_err(error)?;
    } else {
        // Other nodes know a node by the identity of its folder, so it must be on disk before the first frame.
        ledger.commit(&first_rows, Version::default(), now)?;
    }
    Ok(Some(participant))
}
