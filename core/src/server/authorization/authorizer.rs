//! The rules in force, and the permissions of connected clients.

use std::any::Any;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use hashbrown::{DefaultHashBuilder, HashSet};

use super::error::{AuthorizationError, RuleError};
use super::policy::{Access, Policy};
use crate::broker::{self, AccessControl, Peer, Principal};
use crate::files::text;
use crate::net::Secret;
use crate::server::event::{Event, EventSink};
use crate::store::authorization::KeyPermissions;

/// The largest rule file, in bytes.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most clients that are remembered as reported. Above it, a client is reported each time that it connects.
const REPORTED_MAX: usize = 10_000;

/// The rules in force. A reload replaces them while clients are connected.
pub struct Authorizer {
    path: PathBuf,
    policy: RwLock<Arc<Policy>>,
    /// Number of reloads: a client's access is computed again only after a reload.
    generation: AtomicU64,
    events: OnceLock<EventSink>,
    reported: Mutex<ReportedClients>,
}

/// The clients whose skipped templates have been reported since the last reload, as hashes: client ids can be long.
#[derive(Default)]
struct ReportedClients {
    hasher: DefaultHashBuilder,
    hashes: HashSet<u64>,
}

impl ReportedClients {
    /// Returns whether the client has not been reported yet, and notes that it has been now.
    fn insert(&mut self, client_id: &str) -> bool {
        let hash = self.hasher.hash_one(client_id);
        if self.hashes.len() >= REPORTED_MAX {
            !self.hashes.contains(&hash)
        } else {
            self.hashes.insert(hash)
        }
    }
}

/// The permissions of a connected client. They follow reloads of the rules.
#[derive(Debug)]
pub struct ClientPermissions {
    authorizer: Arc<Authorizer>,
    client_id: Arc<str>,
    principal: Principal,
    access: Mutex<(u64, Arc<Access>)>,
}

impl Authorizer {
    /// Reads the rules.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn load(path: &Path) -> Result<Arc<Self>, AuthorizationError> {
        let policy = read(path, |path| Secret::read_file(path, FILE_BYTES_MAX))?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            policy: RwLock::new(Arc::new(policy)),
            generation: AtomicU64::new(0),
            events: OnceLock::new(),
            reported: Mutex::default(),
        }))
    }

    /// Reports events to this sink from now on; the first sink stays.
    pub(in crate::server) fn report_to(&self, events: EventSink) {
        let _ = self.events.set(events);
    }

    /// Reads the rules again.
    ///
    /// # Errors
    /// The file cannot be read or is invalid. The rules in force stay.
    pub fn reload(&self) -> Result<(), AuthorizationError> {
        let policy = read(&self.path, |path| Secret::read_regular_file(path, FILE_BYTES_MAX))?;
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(policy);
        self.generation.fetch_add(1, Ordering::Release);
        drop(current);
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = ReportedClients::default();
        Ok(())
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current().1.len()
    }

    /// Returns whether there are no rules. Then nothing is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a rule is for users, so that it needs passwords or tokens.
    #[must_use]
    pub fn names_users(&self) -> bool {
        self.current().1.names_users()
    }

    fn current(&self) -> (u64, Arc<Policy>) {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, because `reload` changes both under it.
        (self.generation.load(Ordering::Acquire), Arc::clone(&policy))
    }

    /// Evaluates the rules for one client. Returns the generation of the rules, too.
    fn access(&self, client_id: &Arc<str>, principal: &Principal) -> (u64, Arc<Access>) {
        let (generation, policy) = self.current();
        let access = policy.access(client_id, principal);
        // A client that may not connect could report any number of client ids.
        if let Some(skipped) = access.skipped.as_ref().filter(|_| access.may_connect)
            && let Some(events) = self.events.get()
            && self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(client_id)
        {
            events(Event::TemplateSkipped {
                client_id: Arc::clone(client_id),
                template: skipped.template.clone(),
                placeholder: skipped.placeholder.clone(),
            });
        }
        (generation, Arc::new(access))
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Authorizer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ClientPermissions {
    /// Computes a client's permissions.
    #[must_use]
    pub fn new(authorizer: Arc<Authorizer>, client_id: Arc<str>, principal: Principal) -> Self {
        let access = Mutex::new(authorizer.access(&client_id, &principal));
        Self { authorizer, client_id, principal, access }
    }

    /// Returns a client's permissions, which the broker holds without knowing this type; None if there are no rules.
    #[must_use]
    pub fn of(peer: &Peer) -> Option<Arc<Self>> {
        let permissions: Arc<dyn Any + Send + Sync> =
            Arc::<dyn broker::Permissions>::clone(peer.permissions.as_ref()?);
        permissions.downcast().ok()
    }

    /// Returns a client's permissions for keys; None if there are no rules, so that it may do everything.
    #[must_use]
    pub fn key_permissions_of(peer: &Peer) -> Option<Arc<KeyPermissions>> {
        let permissions: &dyn Any = &**peer.permissions.as_ref()?;
        // Permissions of another type would be a bug; then the client may do nothing.
        Some(permissions.downcast_ref::<Self>().map_or_else(Arc::default, Self::key_permissions))
    }

    /// Returns the permissions for keys.
    #[must_use]
    pub fn key_permissions(&self) -> Arc<KeyPermissions> {
        Arc::clone(&self.access().permissions)
    }

    fn access(&self) -> Arc<Access> {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        if access.0 != self.authorizer.generation.load(Ordering::Acquire) {
            *access = self.authorizer.access(&self.client_id, &self.principal);
        }
        Arc::clone(&access.1)
    }
}

impl AccessControl for Authorizer {
    fn permissions(
        self: Arc<Self>,
        client_id: &Arc<str>,
        principal: &Principal,
    ) -> Arc<dyn broker::Permissions> {
        Arc::new(ClientPermissions::new(self, Arc::clone(client_id), principal.clone()))
    }
}

impl broker::Permissions for ClientPermissions {
    fn may_connect(&self) -> bool {
        self.access().may_connect
    }

    fn may_publish(&self, topic: &str) -> bool {
        self.access().publish.contains(topic)
    }

    fn may_subscribe(&self, filter: &str) -> bool {
        self.access().subscribe.covers(filter)
    }

    fn may_receive(&self, topic: &str) -> bool {
        self.access().subscribe.contains(topic)
    }

    fn generation(&self) -> u64 {
        self.authorizer.generation.load(Ordering::Acquire)
    }

    fn refresh(&self) {
        drop(self.access());
    }
}

fn read(path: &Path, read: impl FnOnce(&Path) -> io::Result<Secret>) -> Result<Policy, AuthorizationError> {
    let invalid = |RuleError { line, what }| AuthorizationError::Invalid {
        path: path.to_owned(),
        line: (line > 0).then_some(line),
        what,
    };
    let whole = |what: &str| invalid(RuleError::new(0, what));
    let bytes = read(path).map_err(|cause| AuthorizationError::Io { path: path.to_owned(), cause })?;
    if bytes.bytes().len() > FILE_BYTES_MAX {
        return Err(whole("larger than 16 MiB"));
    }
    let bytes = text::unmarked(bytes.bytes()).map_err(|error| whole(&error.to_string()))?;
    let text = std::str::from_utf8(bytes).map_err(|_| whole("not UTF-8"))?;
    Policy::parse(text).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::a_watchdog::bounded;
    use crate::broker::Permissions as _;

    fn rules(client: &str, topic: &str) -> String {
        format!(
            "rules:\n- principals: {{clientIds: [{client}]}}\n  brokerResources:\n  - method: Connect\n  \
             - {{method: Publish, topics: [\"{topic}\"]}}\n"
        )
    }

    #[test]
    fn a_reload_changes_permissions_of_connected_clients_and_an_invalid_file_does_not() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules");
        fs::write(&path, rules("a", "t/#")).unwrap();
        let authorizer = Authorizer::load(&path).unwrap();
        let permissions = ClientPermissions::new(Arc::clone(&authorizer), "a".into(), Principal::default());
        assert!(permissions.may_connect() && permissions.may_publish("t/1") && !permissions.may_publish("u"));
        fs::write(&path, rules("a", "u")).unwrap();
        assert!(permissions.may_publish("t/1"), "the file is read by a reload only");
        authorizer.reload().unwrap();
        assert!(!permissions.may_publish("t/1") && permissions.may_publish("u"));
        fs::write(&path, "rules: 1").unwrap();
        assert!(
            authorizer.reload().unwrap_err().to_string().ends_with(":1: rules is a string, expected a list")
        );
        assert!(permissions.may_publish("u"));
        fs::write(&path, rules("b", "u")).unwrap();
        authorizer.reload().unwrap();
        assert!(!permissions.may_connect() && !permissions.may_publish("u"));
    }

    #[test]
    fn a_client_with_a_skipped_template_is_reported_once_until_the_rules_are_reloaded() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules");
        fs::write(&path, rules("a/b, c", "t/{principal.clientId}")).unwrap();
        let authorizer = Authorizer::load(&path).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        authorizer.report_to(Arc::new(move |event: Event| sink.lock().unwrap().push(event.to_string())));
        let connect =
            |id: &str| ClientPermissions::new(Arc::clone(&authorizer), id.into(), Principal::default());
        for id in ["a/b", "c", "a/b", "x/y"] {
            drop(connect(id));
        }
        let line = "the rule for t/{principal.clientId} does not apply to a/b: the value of {principal.clientId} has a \
                    separator or is reserved";
        assert_eq!(*events.lock().unwrap(), [line]);
        let permissions = connect("a/b");
        authorizer.reload().unwrap();
        assert!(permissions.may_connect() && !permissions.may_publish("t/a/b"));
        assert_eq!(*events.lock().unwrap(), [line, line]);
    }

    #[test]
    fn a_pipe_in_the_place_of_the_rules_is_refused_by_a_reload_without_blocking() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules");
        fs::write(&path, rules("a", "t")).unwrap();
        let authorizer = Authorizer::load(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(bounded(|| std::process::Command::new("mkfifo").arg(&path).status()).unwrap().success());
        assert!(authorizer.reload().unwrap_err().to_string().ends_with("rules: not a regular file"));
    }

    #[test]
    fn an_error_names_the_file() {
        let home = tempfile::tempdir().unwrap();
        let error = |name: &str| Authorizer::load(&home.path().join(name)).unwrap_err().to_string();
        assert!(error("gone").contains("No such file"));
        fs::write(home.path().join("latin"), b"rules: [\xE4]").unwrap();
        assert!(error("latin").ends_with("latin: not UTF-8"));
        fs::write(home.path().join("wide"), b"\xFE\xFF\0r").unwrap();
        assert!(error("wide").ends_with("wide: is encoded in UTF-16; UTF-8 is required"));
        let marked = home.path().join("marked");
        fs::write(&marked, format!("\u{FEFF}{}", rules("a", "t").replace('\n', "\r\n"))).unwrap();
        assert_eq!(Authorizer::load(&marked).unwrap().len(), 1);
    }
}
