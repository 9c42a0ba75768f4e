//! Checks of passwords and tokens.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;

use super::error::IdentityError;
use super::reloaded_file::ReloadedFile;
use super::tokens::Tokens;
use super::users::{HashMemory, PasswordCheck, Users};
use crate::broker::Denial;
use crate::mqtt::ReasonCode;
use crate::net::Secret;
use crate::net::detached::run_detached;
use crate::server::event::EventSink;

/// The most passwords that are checked at a time: each takes 19 MiB or more and a processor for a while.
const PASSWORDS_MAX: usize = 4;
/// The most tokens that are looked up at a time: each reads a file.
const TOKENS_MAX: usize = 4;

/// The files with the credentials of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Users: lines `NAME:HASH`, with an argon2id hash in the PHC format.
    pub users: Option<PathBuf>,
    /// Service account tokens: lines `NAME TOKEN`. A name may have several tokens.
    pub tokens: Option<PathBuf>,
}

/// The users and token bearers of the files.
#[derive(Debug)]
pub struct Identities {
    users: Option<Arc<ReloadedFile<Users>>>,
    tokens: Option<Arc<ReloadedFile<Tokens>>>,
    password_slots: Arc<Semaphore>,
    memory: Arc<HashMemory>,
    token_slots: Arc<Semaphore>,
}

impl Default for Identities {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            users: None,
            tokens: None,
            password_slots: Arc::new(Semaphore::new(processors.min(PASSWORDS_MAX))),
            memory: Arc::default(),
            token_slots: Arc::new(Semaphore::new(TOKENS_MAX)),
        }
    }
}

impl Identities {
    /// Reads the files. They are read again at each check.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn load(files: &CredentialFiles) -> Result<Self, IdentityError> {
        let users = files.users.as_deref().map(|path| ReloadedFile::load(path, Users::parse)).transpose()?;
        let tokens =
            files.tokens.as_deref().map(|path| ReloadedFile::load(path, Tokens::parse)).transpose()?;
        Ok(Self { users: users.map(Arc::new), tokens: tokens.map(Arc::new), ..Self::default() })
    }

    /// Returns whether there is a file of users.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// Returns whether there is a file of tokens.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Checks a name and a password, and returns the name. An unknown name takes as long as a known one, so that the time
    /// does not show which names exist.
    pub(crate) async fn check_password(
        &self,
        name: String,
        password: Secret,
        events: EventSink,
    ) -> Result<Arc<str>, Denial> {
        let denied = |log_text| Denial {
            reason: ReasonCode::BadUserNameOrPassword,
            reason_string: "unknown user name or wrong password",
            log_text,
        };
        let Some(users) = self.users.clone() else {
            return Err(denied(format!("unknown user {name}: there is no file of users")));
        };
        let memory = Arc::clone(&self.memory);
        let check = move || {
            let result = users.current(&events).check_password(&name, &password, &memory);
            (result, name)
        };
        match run_limited(&self.password_slots, check).await? {
            (PasswordCheck::Correct, name) => Ok(name.into()),
            (PasswordCheck::Wrong, name) => Err(denied(format!("wrong password for the user {name}"))),
            (PasswordCheck::UnknownUser, name) => Err(denied(format!("unknown user {name}"))),
        }
    }

    /// Returns the name of a token's bearer.
    pub(crate) async fn check_token(&self, token: Secret, events: EventSink) -> Result<Arc<str>, Denial> {
        let denied = || Denial {
            reason: ReasonCode::NotAuthorized,
            reason_string: "unknown token",
            log_text: "unknown token".to_owned(),
        };
        let Some(tokens) = self.tokens.clone() else { return Err(denied()) };
        let check = move || tokens.current(&events).bearer(&token);
        run_limited(&self.token_slots, check).await?.ok_or_else(denied)
    }
}

/// Runs a check on a detached thread, when a slot is free. A check that has started keeps its slot to its end, even if the
/// caller drops the future: otherwise a client that reconnects could start any number of checks.
async fn run_limited<T: Send + 'static>(
    slots: &Arc<Semaphore>,
    check: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Denial> {
    let failed = || Denial {
        reason: ReasonCode::UnspecifiedError,
        reason_string: "the credentials could not be checked",
        log_text: "credentials could not be checked".to_owned(),
    };
    let permit = Arc::clone(slots).acquire_owned().await.map_err(|_| failed())?;
    let checked = run_detached(move || {
        let checked = check();
        drop(permit);
        checked
    });
    checked.await.map_err(|_| failed())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;

    use tempfile::TempDir;

    use super::*;
    use crate::server::event::Event;
    use crate::server::identity::UsersFile;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    fn recorded_events() -> (EventSink, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        (Arc::new(move |event: Event| sink.lock().unwrap().push(event.to_string())), lines)
    }

    fn with_tokens(home: &TempDir, text: &str) -> (Identities, PathBuf) {
        let path = home.path().join("tokens");
        fs::write(&path, text).unwrap();
        let files = CredentialFiles { tokens: Some(path.clone()), users: None };
        (Identities::load(&files).unwrap(), path)
    }

    #[tokio::test]
    async fn tokens_are_reread_and_an_invalid_file_changes_nothing_and_is_reported_once() {
        let home = tempfile::tempdir().unwrap();
        let (identities, path) = with_tokens(&home, "one t1\n");
        let (events, lines) = recorded_events();
        let check = |token: &str| identities.check_token(secret(token), Arc::clone(&events));
        assert_eq!(check("t1 \r\n").await.as_deref(), Ok("one"));
        assert_eq!(check(" t1").await.unwrap_err().reason, ReasonCode::NotAuthorized);
        fs::write(&path, "one t2\ntwo t3\n").unwrap();
        assert_eq!(check("t1").await.unwrap_err().reason, ReasonCode::NotAuthorized);
        assert_eq!(check("t3").await.as_deref(), Ok("two"));
        for broken in ["", "t2\n", "one t2\none t2\n"] {
            fs::write(&path, broken).unwrap();
            assert_eq!(check("t2").await.as_deref(), Ok("one"), "{broken:?}");
            assert_eq!(check("t2").await.as_deref(), Ok("one"), "{broken:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(check("t2").await.as_deref(), Ok("one"));
        assert_eq!(check("t2").await.as_deref(), Ok("one"));
        let reported: Vec<String> =
            lines.lock().unwrap().iter().map(|line| line.replace(path.to_str().unwrap(), "FILE")).collect();
        let still = "its last valid content stays in force";
        assert_eq!(
            reported,
            [
                format!("FILE is empty; {still}"),
                format!("line 1 of FILE is not NAME TOKEN; {still}"),
                format!("line 2 of FILE has a token that another line has; {still}"),
                format!("cannot read FILE: No such file or directory (os error 2); {still}"),
            ]
        );
        fs::write(&path, "# empty\n").unwrap();
        assert!(check("t2").await.is_err());
    }

    #[tokio::test]
    async fn passwords_are_checked_and_a_new_user_needs_no_restart() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let file = UsersFile::new(&path);
        assert!(!file.add("ann", &secret("p1")).unwrap());
        let files = CredentialFiles { users: Some(path.clone()), tokens: None };
        let identities = Identities::load(&files).unwrap();
        let (events, lines) = recorded_events();
        let check = |name: &str, password: &str| {
            identities.check_password(name.to_owned(), secret(password), Arc::clone(&events))
        };
        assert_eq!(check("ann", "p1").await.as_deref(), Ok("ann"));
        let wrong = check("ann", "p2").await.unwrap_err();
        let unknown = check("bob", "p1").await.unwrap_err();
        assert_eq!((wrong.reason, wrong.reason_string), (unknown.reason, unknown.reason_string));
        assert_eq!(wrong.log_text, "wrong password for the user ann");
        assert_eq!(unknown.log_text, "unknown user bob");
        assert!(!file.add("bob", &secret("p2")).unwrap());
        assert_eq!(check("bob", "p2").await.as_deref(), Ok("bob"));
        assert!(file.remove("ann").unwrap() && file.remove("bob").unwrap());
        assert_eq!(check("bob", "p2").await.unwrap_err().log_text, "unknown user bob");
        assert!(lines.lock().unwrap().is_empty());
        fs::write(&path, "").unwrap();
        assert!(check("bob", "p2").await.is_err());
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let home = tempfile::tempdir().unwrap();
        let (identities, _) = with_tokens(&home, "one hidden\n");
        assert!(!format!("{identities:?}").contains("hidden"));
    }
}
