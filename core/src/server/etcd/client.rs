//! The client: requests to one endpoint at a time, and to the next one after a failure.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::proto::{PbKeyValue, PbTxnOpResponse};
use etcd_client::{
    Channel, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, PutOptions,
    ResponseHeader, TxnOp,
};
use tokio::time::timeout;

use super::channel::{ALPN, Address, Dialer, LastFailure};
use super::error::{ConnectError, Failure};
use super::version;
use crate::ledger::etcd::layout::KeyRange;
use crate::ledger::etcd::operation::{
    EtcdError, EtcdSize, Operation, Pair, RangeAnswer, RangeRead, Space, Txn, TxnAnswer, TxnOutcome,
};
use crate::net::secret::Secret;
use crate::net::tls::{ClientTls, TlsOptions};

/// The largest answer that is accepted. A page with more is read as smaller ones.
pub(super) const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pairs of a page, where the reader has set no limit.
const PAGE_PAIRS: u32 = 1000;
/// After so many answers in a row that refuse the user, that is reported as a refusal. A token that has expired, or a change of
/// the roles, is over after the next authentication.
const USER_REFUSALS_MAX: u32 = 10;
/// A key that is read at the first connection, to see whether etcd accepts the user.
const PROBE_KEY: &str = "mqkv";

/// Settings of the client.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// Client URLs: `https://HOST:PORT` or `http://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// For endpoints with `https`.
    pub tls: TlsOptions,
    pub user: Option<(String, Secret)>,
    /// For a TCP connection and its TLS handshake.
    pub connect_timeout: Duration,
    /// For a request, with the connection if there is none.
    pub request_timeout: Duration,
}

impl Default for EtcdSettings {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            tls: TlsOptions::default(),
            user: None,
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(2),
        }
    }
}

/// A client of etcd. Clones share its connections.
///
/// A request goes to one endpoint, once. If it has no certain answer ([`EtcdError::Unknown`]), the next request goes to the
/// next endpoint, so that one that hangs does not fail request after request.
#[derive(Clone)]
pub struct Etcd(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    /// The endpoint of the next request.
    pub(super) current: Mutex<Arc<Endpoint>>,
    /// The endpoint of reads at a revision, if one was chosen.
    pub(super) reading: Mutex<Option<Arc<Endpoint>>>,
    /// The answers since the last read or transaction that etcd has refused because of the user.
    user_refusals: AtomicU32,
    request_timeout: Duration,
}

/// A member of etcd, as a client reaches it.
pub(super) struct Endpoint {
    index: usize,
    dialer: Dialer,
    user: Option<(String, Secret)>,
    /// `None` before the first request, and after one that was not answered in time: its connection may be dead.
    client: Mutex<Option<Client>>,
}

/// What an endpoint reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    pub version: String,
    pub is_leader: bool,
    pub has_leader: bool,
    /// The size of the database file, with free space in it.
    pub database_bytes: u64,
    pub used_bytes: u64,
    /// The quota of the database; `None` before etcd 3.6, which reports it.
    pub quota_bytes: Option<u64>,
    /// Alarms in the words of etcd, such as `alarm:NOSPACE`.
    pub alarms: Vec<String>,
}

/// What is in use of the quota, in percent, from which on a store writes no more values. Clients that write new or longer values get
/// `the quota has been exceeded`, until a compaction, deletions or a greater quota; ordinary use gets there only if the quota is too small
/// for the state with five minutes of its history. Without this bound, etcd would raise an alarm that only an operator can end.
const QUOTA_PERCENT_MAX: u64 = 90;

impl EndpointStatus {
    /// Returns whether the member has space for more. Free space in its file counts: etcd returns none to the disk by itself.
    #[must_use]
    pub fn space(&self) -> Space {
        if self.alarms.iter().any(|alarm| alarm.contains("NOSPACE")) {
            return Space::Exhausted;
        }
        let max = self.quota_bytes.map_or(u64::MAX, |quota| (quota / 100).saturating_mul(QUOTA_PERCENT_MAX));
        if self.used_bytes < max { Space::Enough } else { Space::Low }
    }

    fn size(&self) -> EtcdSize {
        EtcdSize {
            space: self.space(),
            database_bytes: self.database_bytes,
            used_bytes: self.used_bytes,
            quota_bytes: self.quota_bytes,
            alarms: u32::try_from(self.alarms.len()).unwrap_or(u32::MAX),
        }
    }
}

impl Etcd {
    /// Connects: at least one endpoint must answer as a supported etcd that accepts the user.
    ///
    /// # Errors
    /// The settings are invalid, or no endpoint can be used: the first cause that is more than a missing answer.
    pub async fn connect(settings: &EtcdSettings) -> Result<Self, ConnectError> {
        let endpoints = endpoints(settings)?;
        let first =
            endpoints.first().ok_or_else(|| ConnectError::Settings("etcd has no endpoint".to_owned()))?;
        let current = Mutex::new(Arc::clone(first));
        let (user_refusals, request_timeout) = (AtomicU32::new(0), settings.request_timeout);
        let etcd = Self(Arc::new(Shared {
            endpoints,
            current,
            reading: Mutex::default(),
            user_refusals,
            request_timeout,
        }));
        let mut found: Option<ConnectError> = None;
        for endpoint in &etcd.0.endpoints {
            let Err(error) = etcd.check(endpoint).await else {
                *lock(&etcd.0.current) = Arc::clone(endpoint);
                return Ok(etcd);
            };
            match &found {
                Some(ConnectError::Unreachable { .. }) | None => found = Some(error),
                Some(_) => {}
            }
        }
        Err(found.unwrap_or_else(|| ConnectError::Settings("etcd has no endpoint".to_owned())))
    }

    /// Checks the form of an endpoint's URL.
    ///
    /// # Errors
    /// It is not `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn check_url(url: &str) -> Result<(), ConnectError> {
        address(url).map(drop)
    }

    async fn check(&self, endpoint: &Endpoint) -> Result<(), ConnectError> {
        let asked = self.ask(endpoint, |client| async move {
            let status = Failure::unless_refused(client.maintenance_client().status().await)?;
            let probe = client.kv_client().get(PROBE_KEY, Some(GetOptions::new().with_serializable())).await;
            match probe.map_err(|error| (Failure::new(&error), error)) {
                // The user may not read this key, which is none of the store. So etcd has accepted the user.
                Ok(_) | Err((Failure::Refused(_), _)) => Ok(status.map(|status| status.version().to_owned())),
                Err((_, error)) => Err(error),
            }
        });
        let address = &endpoint.dialer.address;
        let version = match asked.await {
            Ok(version) => version.filter(|version| !version::is_supported(version)),
            Err(failure) => {
                let dialed = match (endpoint.dialer.last_failure.get(), &failure) {
                    (None, Failure::Foreign(_)) => endpoint.dialer.refusal().await,
                    (dialed, _) => dialed,
                };
                return Err(ConnectError::new(address, failure, dialed));
            }
        };
        version.map_or(Ok(()), |version| Err(ConnectError::TooOld { endpoint: address.to_string(), version }))
    }

    /// Asks for a transaction, once. After [`EtcdError::Unknown`] it must be asked for again: if it was applied, its
    /// conditions do not hold any more, provided that it changes a key of them.
    pub async fn txn(&self, txn: &Txn) -> Result<TxnAnswer, EtcdError> {
        match self.ask_txn(txn, &txn.operations).await {
            // The member that applies a transaction with which the quota is reached applies it, and answers this nevertheless.
            Err(EtcdError::NoSpace) if !txn.conditions.is_empty() => match self.ask_txn(txn, &[]).await? {
                TxnAnswer { outcome: TxnOutcome::Applied, .. } => Err(EtcdError::NoSpace),
                changed => Ok(changed),
            },
            other => other,
        }
    }

    async fn ask_txn(&self, txn: &Txn, operations: &[Operation]) -> Result<TxnAnswer, EtcdError> {
        let asked = txn_of(txn, operations)?;
        let answer = self.request(0, |client| async move { client.kv_client().txn(asked).await }).await?;
        self.note_accepted_user();
        let revision = revision_in(answer.header())?;
        let outcome = match answer.succeeded() {
            true => TxnOutcome::Applied,
            false => TxnOutcome::NotApplied(
                answer
                    .0
                    .responses
                    .into_iter()
                    .map(|read| pair_of(read.response))
                    .collect::<Result<_, _>>()?,
            ),
        };
        Ok(TxnAnswer { revision, outcome })
    }

    /// Reads a range, linearizable unless a revision is given: the state at a revision is the same at each member that has it, so
    /// that any one may answer. An answer that would be too large has fewer pairs than the limit.
    pub async fn read(&self, read: &RangeRead) -> Result<RangeAnswer, EtcdError> {
        if read.limit != 0 {
            return self.page(read).await;
        }
        let mut page = RangeRead { limit: PAGE_PAIRS, ..read.clone() };
        let mut all = self.page(&page).await?;
        while all.more > 0 {
            // All keys after the last one, in the state of the first page.
            let mut from = all.pairs.last().map(|pair| pair.key.to_vec()).unwrap_or_default();
            from.push(0);
            page.from = from.into();
            page.revision = Some(read.revision.unwrap_or(all.revision));
            let next = self.page(&page).await?;
            all.more = next.more;
            all.pairs.extend(next.pairs);
        }
        Ok(all)
    }

    async fn page(&self, read: &RangeRead) -> Result<RangeAnswer, EtcdError> {
        let (from, to) = (bound(&read.from), bound(&read.to));
        let at = read.revision.unwrap_or(0);
        let (mut limit, mut by_any_member) = (read.limit.max(1), at != 0);
        loop {
            let options = GetOptions::new().with_range(to.clone()).with_limit(limit.into());
            let options = options.with_revision(signed(at)?);
            let options = if by_any_member { options.with_serializable() } else { options };
            let from = from.clone();
            let ask = |client: Client| async move {
                let mut kv = client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX);
                kv.get(from, Some(options)).await
            };
            let (endpoint, answer) = if by_any_member {
                let endpoint = self.reading_endpoint().await;
                let answer = self.ask(&endpoint, ask).await;
                self.keep_reading_endpoint(&endpoint, answer.as_ref().err());
                (endpoint, answer)
            } else {
                self.ask_current(ask).await
            };
            match answer {
                Ok(mut answer) => {
                    self.note_accepted_user();
                    let revision = revision_in(answer.header())?;
                    let count = unsigned(answer.count())?;
                    let pairs = answer
                        .take_kvs()
                        .into_iter()
                        .map(|pair| pair_from(pair.0))
                        .collect::<Result<Vec<_>, _>>()?;
                    let more = count.saturating_sub(u64::try_from(pairs.len()).unwrap_or(u64::MAX));
                    return Ok(RangeAnswer { revision, pairs, more });
                }
                // etcd has built the whole answer: few attempts, and the next page is as long as this one.
                Err(Failure::TooLarge) if limit > 1 => limit = limit.div_euclid(8).max(1),
                // A linearizable read waits until its member has applied all that was committed before.
                Err(failure) if by_any_member && failure.is_lag() => by_any_member = false,
                Err(failure) => return Err(endpoint.error(failure, at)),
            }
        }
    }

    /// Returns the number of keys of a range, in the state at this revision.
    pub async fn count(&self, (from, to): &KeyRange, revision: u64) -> Result<u64, EtcdError> {
        let options = GetOptions::new().with_range(bound(to)).with_count_only();
        let (from, options) = (bound(from), options.with_revision(signed(revision)?));
        let counted = |client: Client| async move { client.kv_client().get(from, Some(options)).await };
        unsigned(self.request(revision, counted).await?.count())
    }

    /// Discards the history before this revision.
    ///
    /// # Errors
    /// [`EtcdError::Compacted`] if it is already gone.
    pub async fn compact(&self, revision: u64) -> Result<(), EtcdError> {
        let at = signed(revision)?;
        self.request(revision, |client| async move { client.kv_client().compact(at, None).await })
            .await
            .map(drop)
    }

    /// Returns what each endpoint reports, in the order of the settings.
    pub async fn status(&self) -> Vec<(String, Result<EndpointStatus, EtcdError>)> {
        let started = self.0.endpoints.iter().map(|endpoint| {
            let (etcd, endpoint) = (self.clone(), Arc::clone(endpoint));
            tokio::spawn(async move { etcd.status_of(&endpoint).await })
        });
        let started: Vec<_> = started.collect();
        let mut all = Vec::new();
        for (endpoint, status) in self.0.endpoints.iter().zip(started) {
            let status =
                status.await.unwrap_or_else(|error| Err(EtcdError::Unknown { reason: error.to_string() }));
            all.push((endpoint.dialer.address.to_string(), status));
        }
        all
    }

    /// Returns the size of the database of the fullest member, and whether it has space for more. The next requests go to the leader.
    ///
    /// # Errors
    /// [`EtcdError::Refused`]: the user has no permission to read the status; otherwise no member answers.
    pub async fn size(&self) -> Result<EtcdSize, EtcdError> {
        let before = self.current();
        let all = self.status().await;
        self.prefer_leader(&before, &all);
        let sizes = all.iter().filter_map(|(_, status)| status.as_ref().ok()).map(EndpointStatus::size);
        if let Some(least) = sizes.max_by_key(|size| (size.space, size.used_bytes)) {
            return Ok(least);
        }
        let mut errors = all.into_iter().filter_map(|(_, status)| status.err());
        let refusal = errors.find(|error| matches!(error, EtcdError::Refused { .. }));
        Err(refusal.unwrap_or(EtcdError::Unknown { reason: "no member of etcd answers".to_owned() }))
    }

    pub(super) async fn status_of(&self, endpoint: &Endpoint) -> Result<EndpointStatus, EtcdError> {
        let asked = self.ask(endpoint, |client| async move { client.maintenance_client().status().await });
        let status = asked.await.map_err(|failure| endpoint.error(failure, 0))?;
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let member = status.header().map(ResponseHeader::member_id);
        Ok(EndpointStatus {
            version: status.version().to_owned(),
            is_leader: member == Some(status.leader()),
            has_leader: status.leader() != 0,
            database_bytes: bytes(status.db_size()),
            used_bytes: bytes(status.0.db_size_in_use),
            quota_bytes: Some(bytes(status.db_size_quota())).filter(|quota| *quota != 0),
            alarms: status.errors().to_vec(),
        })
    }

    /// Asks the current endpoint. `revision` is that of an error of compaction.
    pub(super) async fn request<T, F>(
        &self,
        revision: u64,
        ask: impl FnOnce(Client) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (endpoint, result) = self.ask_current(ask).await;
        result.map_err(|failure| endpoint.error(failure, revision))
    }

    /// Asks the current endpoint. If the answer is uncertain, the next one is current from now on.
    async fn ask_current<T, F>(&self, ask: impl FnOnce(Client) -> F) -> (Arc<Endpoint>, Result<T, Failure>)
    where
        F: Future<Output = Result<T, Error>>,
    {
        let endpoint = self.current();
        let result = self.ask(&endpoint, ask).await;
        if result.as_ref().is_err_and(Failure::is_uncertain) {
            self.leave(&endpoint);
        }
        let result = result.map_err(|failure| match failure {
            Failure::Unauthenticated(reason)
                if self.0.user_refusals.fetch_add(1, Ordering::Relaxed) >= USER_REFUSALS_MAX =>
            {
                Failure::Refused(reason)
            }
            other => other,
        });
        (endpoint, result)
    }

    /// Notes that etcd accepts the user: other requests than reads and transactions need none.
    fn note_accepted_user(&self) {
        self.0.user_refusals.store(0, Ordering::Relaxed);
    }

    /// Asks one endpoint.
    async fn ask<T, F>(&self, endpoint: &Endpoint, ask: impl FnOnce(Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let after = self.0.request_timeout;
        let asked = timeout(after, async { ask(endpoint.client().await?).await }).await;
        let failure = match asked {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::new(&error),
            Err(_) => Failure::TimedOut(after),
        };
        if matches!(failure, Failure::TimedOut(_) | Failure::Unauthenticated(_)) {
            // The next request connects and authenticates again.
            *lock(&endpoint.client) = None;
        }
        Err(failure)
    }

    /// Returns a client with a connection of its own to the current endpoint: the flow control of HTTP/2 lets a stream that is
    /// not read block the others of its connection.
    pub(super) async fn separate_client(&self) -> Result<(Arc<Endpoint>, Client), EtcdError> {
        let endpoint = self.current();
        let client = timeout(self.0.request_timeout, endpoint.connected()).await;
        match client.map_err(|_| Failure::TimedOut(self.0.request_timeout)) {
            Ok(Ok(client)) => Ok((endpoint, client)),
            Ok(Err(error)) => Err(self.lost(&endpoint, Failure::new(&error), 0)),
            Err(failure) => Err(self.lost(&endpoint, failure, 0)),
        }
    }

    /// Makes the next endpoint the current one and returns the error of this one.
    pub(super) fn lost(&self, endpoint: &Endpoint, failure: Failure, revision: u64) -> EtcdError {
        self.leave(endpoint);
        endpoint.error(failure, revision)
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.0.request_timeout
    }

    pub(super) fn current(&self) -> Arc<Endpoint> {
        Arc::clone(&lock(&self.0.current))
    }

    fn leave(&self, endpoint: &Endpoint) {
        let mut current = lock(&self.0.current);
        // Other requests may have failed at the same endpoint: they must not skip the next one.
        if current.index == endpoint.index {
            let endpoints = &self.0.endpoints;
            let next = endpoints.get(endpoint.index.wrapping_add(1)).or_else(|| endpoints.first());
            if let Some(next) = next {
                *current = Arc::clone(next);
            }
        }
    }
}

impl Endpoint {
    async fn client(&self) -> Result<Client, Error> {
        let existing = lock(&self.client).clone();
        if let Some(client) = existing {
            return Ok(client);
        }
        let client = self.connected().await?;
        *lock(&self.client) = Some(client.clone());
        Ok(client)
    }

    async fn connected(&self) -> Result<Client, Error> {
        // Without a leader a member answers at once that it has none, instead of when its own timeout has passed.
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((name, password)) = &self.user {
            let password = String::from_utf8_lossy(password.bytes());
            options = options.with_user(name.as_str(), password).with_auto_token_refresh(true);
        }
        let channel = self.dialer.channel().map_err(Error::InvalidArgs)?;
        Client::from_channel(Channel::Tonic(channel), Some(options)).await
    }

    fn error(&self, failure: Failure, revision: u64) -> EtcdError {
        failure.into_error(&self.dialer.address, self.dialer.last_failure.get(), revision)
    }
}

fn address(url: &str) -> Result<Address, ConnectError> {
    let invalid = |what| ConnectError::Settings(format!("invalid endpoint of etcd: '{url}' {what}"));
    Address::parse(url).map_err(invalid)
}

fn endpoints(settings: &EtcdSettings) -> Result<Vec<Arc<Endpoint>>, ConnectError> {
    let invalid = |message: String| ConnectError::Settings(message);
    let addresses = settings.endpoints.iter().map(|url| address(url)).collect::<Result<Vec<_>, _>>()?;
    let plain = addresses.iter().find(|address| !address.is_tls);
    if let Some(plain) = plain
        && settings.tls != TlsOptions::default()
    {
        return Err(invalid(format!(
            "the endpoint of etcd at {plain} has no TLS, but TLS options are given"
        )));
    }
    let needs_tls = addresses.iter().any(|address| address.is_tls);
    let tls = needs_tls.then(|| ClientTls::load_for(&settings.tls, &[ALPN])).transpose();
    let tls = tls.map_err(ConnectError::TlsFiles)?;
    let endpoints = addresses.into_iter().enumerate().map(|(index, address)| {
        let tls = tls.clone().filter(|_| address.is_tls);
        let dialer = Dialer {
            address,
            tls,
            connect_timeout: settings.connect_timeout,
            last_failure: LastFailure::default(),
        };
        Arc::new(Endpoint { index, dialer, user: settings.user.clone(), client: Mutex::default() })
    });
    Ok(endpoints.collect())
}

fn txn_of(txn: &Txn, operations: &[Operation]) -> Result<etcd_client::Txn, EtcdError> {
    let conditions = txn.conditions.iter().map(|condition| {
        let revision = signed(condition.mod_revision)?;
        Ok(Compare::mod_revision(condition.key.to_vec(), CompareOp::Equal, revision))
    });
    let conditions = conditions.collect::<Result<Vec<_>, EtcdError>>()?;
    let mut changes = operations.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    if let (true, Some(condition)) = (changes.is_empty(), txn.conditions.first()) {
        // etcd does not read the latest state for a transaction that neither changes nor reads anything.
        changes.push(TxnOp::get(condition.key.to_vec(), None));
    }
    let reads: Vec<_> = txn.otherwise.iter().map(|key| TxnOp::get(key.to_vec(), None)).collect();
    Ok(etcd_client::Txn::new().when(conditions).and_then(changes).or_else(reads))
}

fn change(operation: &Operation) -> Result<TxnOp, EtcdError> {
    Ok(match operation {
        Operation::Put { key, value, lease } => {
            let lease = signed(lease.unwrap_or(0))?;
            TxnOp::put(key.to_vec(), value.to_vec(), Some(PutOptions::new().with_lease(lease)))
        }
        Operation::Delete { key } => TxnOp::delete(key.to_vec(), None),
        Operation::DeleteRange { from, to } => {
            TxnOp::delete(bound(from), Some(DeleteOptions::new().with_range(bound(to))))
        }
    })
}

/// Returns an end of a range as etcd has it: without one, the range is that of all keys, which a zero byte stands for.
pub(super) fn bound(key: &[u8]) -> Vec<u8> {
    if key.is_empty() { vec![0] } else { key.to_vec() }
}

/// Revisions, limits and leases are signed in etcd's messages.
pub(super) fn signed(number: u64) -> Result<i64, EtcdError> {
    i64::try_from(number)
        .map_err(|_| EtcdError::Refused { reason: format!("{number} is out of the range of etcd") })
}

pub(super) fn unsigned(number: i64) -> Result<u64, EtcdError> {
    u64::try_from(number).map_err(|_| malformed(&format!("it has the revision {number}")))
}

fn revision_in(header: Option<&ResponseHeader>) -> Result<u64, EtcdError> {
    header.map_or_else(|| Err(malformed("it has no header")), |header| unsigned(header.revision()))
}

fn malformed(what: &str) -> EtcdError {
    EtcdError::Unknown { reason: format!("the answer of etcd is malformed: {what}") }
}

fn pair_of(read: Option<PbTxnOpResponse>) -> Result<Option<Pair>, EtcdError> {
    match read {
        Some(PbTxnOpResponse::ResponseRange(answer)) => {
            answer.kvs.into_iter().next().map(pair_from).transpose()
        }
        _ => Err(malformed("it has no read pair")),
    }
}

fn pair_from(pair: PbKeyValue) -> Result<Pair, EtcdError> {
    Ok(Pair { key: pair.key.into(), value: pair.value.into(), mod_revision: unsigned(pair.mod_revision)? })
}

/// A panic while the lock is held leaves a valid value: each is replaced as a whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Etcd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.0.endpoints.iter().map(|endpoint| endpoint.dialer.address.to_string());
        out.debug_tuple("Etcd").field(&addresses.collect::<Vec<_>>()).finish()
    }
}
