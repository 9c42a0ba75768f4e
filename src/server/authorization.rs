//! Who may do what: allow-only rules in the shape of the product's, and what they come to for one client (protocol §7).

mod policy;
mod topics;
mod yaml;

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use self::policy::Policy;
use self::topics::TopicSet;
use crate::broker::{self, AccessControl, Peer, Principal};
use crate::net::Secret;
use crate::store::authorization::KeyPermissions;

/// The most bytes of a file of rules.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is wrong with the rules, and on which line, from 1; line 0 is all of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mistake {
    line: usize,
    what: String,
}

/// What keeps a file of rules from being used.
#[derive(Debug)]
pub enum AuthorizationError {
    /// The system.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Its content.
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1; none if it is about all of it.
        line: Option<usize>,
        /// What is wrong; not escaped.
        what: String,
    },
}

impl fmt::Display for AuthorizationError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, cause } => write!(out, "cannot read {}: {cause}", path.display()),
            Self::Invalid { path, line: None, what } => {
                write!(out, "{}: {}", path.display(), what.escape_debug())
            }
            Self::Invalid { path, line: Some(line), what } => {
                write!(out, "{}:{line}: {}", path.display(), what.escape_debug())
            }
        }
    }
}

impl std::error::Error for AuthorizationError {}

/// What one client may do. Whatever is not here it may not.
#[derive(Debug, Default)]
struct Access {
    may_connect: bool,
    publish: TopicSet,
    subscribe: TopicSet,
    permissions: Arc<KeyPermissions>,
}

/// The rules in force. They may be replaced while clients are connected.
#[derive(Debug)]
pub struct Authorizer {
    path: PathBuf,
    policy: RwLock<Arc<Policy>>,
    /// Counts the policies, so that a client's access is reckoned anew only when there is another one.
    generation: AtomicU64,
}

/// A connected client, and what the rules in force come to for it.
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
    /// What is wrong with the file.
    pub fn load(path: &Path) -> Result<Arc<Self>, AuthorizationError> {
        let policy = RwLock::new(Arc::new(read(path)?));
        Ok(Arc::new(Self { path: path.to_owned(), policy, generation: AtomicU64::new(0) }))
    }

    /// Reads the rules again. With a mistake in them those in force stay.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn reload(&self) -> Result<(), AuthorizationError> {
        let policy = Arc::new(read(&self.path)?);
        let mut current = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        *current = policy;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current().1.len()
    }

    /// Whether there is no rule, so that nobody may do anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn current(&self) -> (u64, Arc<Policy>) {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that both belong together.
        (self.generation.load(Ordering::Acquire), Arc::clone(&policy))
    }
}

impl ClientPermissions {
    /// What the rules come to for a client.
    #[must_use]
    pub fn new(authorizer: Arc<Authorizer>, client_id: Arc<str>, principal: Principal) -> Self {
        let (generation, policy) = authorizer.current();
        let access = Mutex::new((generation, Arc::new(policy.access(&client_id, &principal))));
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

    /// What it may do with keys.
    #[must_use]
    pub fn key_permissions(&self) -> Arc<KeyPermissions> {
        Arc::clone(&self.access().permissions)
    }

    fn access(&self) -> Arc<Access> {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        if access.0 != self.authorizer.generation.load(Ordering::Acquire) {
            let (generation, policy) = self.authorizer.current();
            *access = (generation, Arc::new(policy.access(&self.client_id, &self.principal)));
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

fn read(path: &Path) -> Result<Policy, AuthorizationError> {
    let nonsense = |Mistake { line, what }| AuthorizationError::Invalid {
        path: path.to_owned(),
        line: (line > 0).then_some(line),
        what,
    };
    let whole = |what: &str| nonsense(Mistake { line: 0, what: what.to_owned() });
    let bytes = Secret::read_file(path, FILE_BYTES_MAX)
        .map_err(|cause| AuthorizationError::Io { path: path.to_owned(), cause })?;
    if bytes.bytes().len() > FILE_BYTES_MAX {
        return Err(whole("it has more than 16 MiB"));
    }
    let text = std::str::from_utf8(bytes.bytes()).map_err(|_| whole("it is not UTF-8"))?;
    Policy::parse(text).map_err(nonsense)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::broker::Permissions as _;

    fn rules(client: &str, topic: &str) -> String {
        format!(
            "rules:\n- principals: {{clientIds: [{client}]}}\n  brokerResources:\n  - method: Connect\n  \
             - {{method: Publish, topics: [\"{topic}\"]}}\n"
        )
    }

    #[test]
    fn rules_change_under_a_connected_client_and_a_mistake_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules");
        fs::write(&path, rules("a", "t/#")).unwrap();
        let authorizer = Authorizer::load(&path).unwrap();
        let pass = ClientPermissions::new(Arc::clone(&authorizer), "a".into(), Principal::default());
        assert!(pass.may_connect() && pass.may_publish("t/1") && !pass.may_publish("u"));
        fs::write(&path, rules("a", "u")).unwrap();
        assert!(pass.may_publish("t/1"), "not before it is asked for");
        authorizer.reload().unwrap();
        assert!(!pass.may_publish("t/1") && pass.may_publish("u"));
        fs::write(&path, "rules: 1").unwrap();
        assert!(
            authorizer
                .reload()
                .unwrap_err()
                .to_string()
                .ends_with(":1: rules is a text and should be a list")
        );
        assert!(pass.may_publish("u"));
        fs::write(&path, rules("b", "u")).unwrap();
        authorizer.reload().unwrap();
        assert!(!pass.may_connect() && !pass.may_publish("u"));
    }

    #[test]
    fn a_file_that_cannot_be_rules_is_told_by_its_name() {
        let home = tempfile::tempdir().unwrap();
        let error = |name: &str| Authorizer::load(&home.path().join(name)).unwrap_err().to_string();
        assert!(error("gone").contains("No such file"));
        fs::write(home.path().join("latin"), b"rules: [\xE4]").unwrap();
        assert!(error("latin").ends_with("latin: it is not UTF-8"));
    }
}
