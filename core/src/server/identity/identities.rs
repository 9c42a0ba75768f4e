//! Checks of passwords and tokens.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;

use super::error::IdentityError;
use super::login_limit::LoginLimit;
use super::reloaded_file::ReloadedFile;
use super::tokens::Tokens;
use super::users::{HashMemory, PasswordCheck, PasswordHash, Users};
use super::verified_passwords::VerifiedPasswords;
use crate::broker::{Authenticated, Credential, Denial};
use crate::mqtt::ReasonCode;
use crate::net::Secret;
use crate::net::detached::run_detached;
use crate::platform;
use crate::server::event::EventSink;

/// The most passwords that are checked at a time: each takes 19 MiB or more and a processor for a while.
const PASSWORDS_MAX: usize = 4;
/// The most tokens that are looked up at a time: a long list takes a while.
const TOKENS_MAX: usize = 4;
/// Default of the most failed logins from one address in a minute.
pub const LOGIN_FAILURES_MAX: u32 = 500;

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
    users: Option<ReloadedFile<Users>>,
    tokens: Option<ReloadedFile<Tokens>>,
    login_limit: Arc<LoginLimit>,
    verified: VerifiedPasswords,
    memory: Arc<HashMemory>,
    token_slots: Arc<Semaphore>,
}

impl Default for Identities {
    fn default() -> Self {
        Self {
            users: None,
            tokens: None,
            login_limit: Arc::new(LoginLimit::new(checks_max(), LOGIN_FAILURES_MAX)),
            verified: VerifiedPasswords::default(),
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
        Ok(Self { users, tokens, ..Self::default() })
    }

    /// Limits the failed logins from one address in a minute. Half as many may be of one user.
    #[must_use]
    pub fn with_login_failures_max(self, failures_max: u32) -> Self {
        Self { login_limit: Arc::new(LoginLimit::new(checks_max(), failures_max)), ..self }
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

    #[must_use]
    pub(crate) fn login_limit(&self) -> &LoginLimit {
        &self.login_limit
    }

    /// Reads the files again. Blocks on the disk.
    ///
    /// # Errors
    /// The last valid content of one or both files stays in force.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let users = self.users.as_ref().and_then(ReloadedFile::reload);
        let tokens = self.tokens.as_ref().and_then(ReloadedFile::reload);
        let errors: Vec<String> = users.into_iter().chain(tokens).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    /// Checks a name and a password of a client at the address `remote`. The time of a failed check does not show which
    /// names exist.
    pub(crate) async fn check_password(
        &self,
        remote: &str,
        name: String,
        password: Secret,
        events: EventSink,
    ) -> Result<Authenticated, Denial> {
        let denied = |log_text| Denial {
            reason: ReasonCode::BadUserNameOrPassword,
            reason_string: "unknown user name or wrong password",
            log_text,
        };
        let Some(file) = &self.users else {
            return Err(denied(format!("unknown user {name}: there is no file of users")));
        };
        let users = file.current(&events).await;
        if !self.verified.contains(&users, &name, &password) {
            match self.check_in_turn(remote, &name, &password, &users).await? {
                PasswordCheck::Correct => self.verified.insert(&users, &name, &password),
                PasswordCheck::Wrong => return Err(denied(format!("wrong password for the user {name}"))),
                PasswordCheck::UnknownUser => return Err(denied(format!("unknown user {name}"))),
            }
        }
        // The check found it, so the hash is there.
        let hash = users.hash(&name).cloned().ok_or_else(failed)?;
        let user: Arc<str> = name.into();
        let credential = PasswordCredential { user: Arc::clone(&user), hash, file: file.clone() };
        Ok(Authenticated { user, credential: Arc::new(credential) })
    }

    async fn check_in_turn(
        &self,
        remote: &str,
        name: &str,
        password: &Secret,
        users: &Arc<Users>,
    ) -> Result<PasswordCheck, Denial> {
        let origin = self.login_limit.origin(remote, name);
        let check_limit = || match self.login_limit.is_limited(origin) {
            true => Err(Denial {
                reason: ReasonCode::ConnectionRateExceeded,
                reason_string: "too many failed logins: try again in a minute",
                log_text: format!("too many failed logins, the last one for the user {name}"),
            }),
            false => Ok(()),
        };
        check_limit()?;
        let permit = self.login_limit.acquire(origin).await.ok_or_else(failed)?;
        // Others from this address have failed while this one waited.
        check_limit()?;
        let (users, memory) = (Arc::clone(users), Arc::clone(&self.memory));
        let (name, password) = (name.to_owned(), password.clone());
        let login_limit = Arc::clone(&self.login_limit);
        let check = move || {
            // A hash takes a processor for tens of milliseconds, which clients that are connected would wait for.
            platform::lower_thread_priority();
            let result = users.check_password(&name, &password, &memory);
            // Counted here, so that a client that disconnects meanwhile is counted too.
            if result != PasswordCheck::Correct {
                login_limit.count_failure(origin);
            }
            // A check keeps its turn to its end, even if the client disconnects: otherwise a client that reconnects could
            // start any number of checks.
            drop(permit);
            result
        };
        run_detached(check).await.map_err(|_| failed())
    }

    /// Returns the name of a token's bearer.
    pub(crate) async fn check_token(
        &self,
        token: Secret,
        events: EventSink,
    ) -> Result<Authenticated, Denial> {
        let denied = || Denial {
            reason: ReasonCode::NotAuthorized,
            reason_string: "unknown token",
            log_text: "unknown token".to_owned(),
        };
        let Some(file) = &self.tokens else { return Err(denied()) };
        let tokens = file.current(&events).await;
        let permit = Arc::clone(&self.token_slots).acquire_owned().await.map_err(|_| failed())?;
        let look_up = move || {
            let found = tokens.bearer(&token);
            drop(permit);
            found
        };
        let (user, token) = run_detached(look_up).await.map_err(|_| failed())?.ok_or_else(denied)?;
        let credential = TokenCredential { bearer: Arc::clone(&user), token, file: file.clone() };
        Ok(Authenticated { user, credential: Arc::new(credential) })
    }
}

/// Returns how many passwords are checked at a time. Half of the processors stay free for clients that are connected.
fn checks_max() -> usize {
    let processors = available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, PASSWORDS_MAX)
}

fn failed() -> Denial {
    Denial {
        reason: ReasonCode::UnspecifiedError,
        reason_string: "the credentials could not be checked",
        log_text: "credentials could not be checked".to_owned(),
    }
}

/// A password that was correct. It is valid until the user is removed or has another password.
struct PasswordCredential {
    user: Arc<str>,
    hash: Arc<PasswordHash>,
    file: ReloadedFile<Users>,
}

impl Credential for PasswordCredential {
    fn is_valid(&self) -> bool {
        self.file.last().hash(&self.user) == Some(&self.hash)
    }
}

impl fmt::Debug for PasswordCredential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PasswordCredential").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A token that was known. It is valid until it is removed from the file.
struct TokenCredential {
    bearer: Arc<str>,
    token: Arc<Secret>,
    file: ReloadedFile<Tokens>,
}

impl Credential for TokenCredential {
    fn is_valid(&self) -> bool {
        self.file.last().contains(&self.bearer, &self.token)
    }
}

impl fmt::Debug for TokenCredential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TokenCredential").field("bearer", &self.bearer).finish_non_exhaustive()
    }
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
        let check = |token| async move { check(token).await.map(|of| of.user) };
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

    #[test]
    fn an_empty_file_of_users_or_tokens_is_refused_at_the_start_and_changes_nothing_later() {
        let home = tempfile::tempdir().unwrap();
        let (users, tokens) = (home.path().join("users"), home.path().join("tokens"));
        let write = |users_text: &str, tokens_text: &str| {
            fs::write(&users, users_text).unwrap();
            fs::write(&tokens, tokens_text).unwrap();
        };
        let files = CredentialFiles { users: Some(users.clone()), tokens: Some(tokens.clone()) };
        for (users_text, tokens_text) in [("", "# none"), ("# none", "")] {
            write(users_text, tokens_text);
            assert!(Identities::load(&files).unwrap_err().to_string().ends_with(" is empty"));
        }
        write("# none", "one t1");
        let identities = Identities::load(&files).unwrap();
        write("", "");
        let errors = format!("{} is empty; {} is empty", users.display(), tokens.display());
        assert_eq!(identities.reload(), Err(errors));
        write("# none", "");
        assert_eq!(identities.reload(), Err(format!("{} is empty", tokens.display())));
        write("# none", "# none");
        assert_eq!(identities.reload(), Ok(()));
    }

    #[tokio::test]
    async fn passwords_are_checked_and_a_new_user_needs_no_restart() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let file = UsersFile::new(&path);
        assert!(file.add("ann", &secret("p1")).unwrap());
        let files = CredentialFiles { users: Some(path.clone()), tokens: None };
        let identities = Identities::load(&files).unwrap();
        let (events, lines) = recorded_events();
        let check = |name: &str, password: &str| {
            let password = secret(password);
            let check =
                identities.check_password("192.0.2.1:1", name.to_owned(), password, Arc::clone(&events));
            async move { check.await.map(|of| of.user) }
        };
        assert_eq!(check("ann", "p1").await.as_deref(), Ok("ann"));
        let wrong = check("ann", "p2").await.unwrap_err();
        let unknown = check("bob", "p1").await.unwrap_err();
        assert_eq!((wrong.reason, wrong.reason_string), (unknown.reason, unknown.reason_string));
        assert_eq!(wrong.log_text, "wrong password for the user ann");
        assert_eq!(unknown.log_text, "unknown user bob");
        assert!(file.add("bob", &secret("p2")).unwrap());
        assert_eq!(check("bob", "p2").await.as_deref(), Ok("bob"));
        assert!(file.remove("ann").unwrap() && file.remove("bob").unwrap());
        assert_eq!(check("bob", "p2").await.unwrap_err().log_text, "unknown user bob");
        assert!(lines.lock().unwrap().is_empty());
        fs::write(&path, "").unwrap();
        assert!(check("bob", "p2").await.is_err());
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_credential_is_valid_until_its_line_is_removed_or_changed() {
        let home = tempfile::tempdir().unwrap();
        let (users, tokens) = (home.path().join("users"), home.path().join("tokens"));
        let file = UsersFile::new(&users);
        file.add("ann", &secret("p1")).unwrap();
        file.add("bob", &secret("p2")).unwrap();
        fs::write(&tokens, "one t1\none t2\n").unwrap();
        let files = CredentialFiles { tokens: Some(tokens.clone()), users: Some(users) };
        let identities = Identities::load(&files).unwrap();
        let (events, _) = recorded_events();
        let password = async |name: &str, password: &str| {
            let check =
                identities.check_password("m", name.to_owned(), secret(password), Arc::clone(&events));
            check.await.unwrap().credential
        };
        let token = async |token: &str| {
            identities.check_token(secret(token), Arc::clone(&events)).await.unwrap().credential
        };
        let credentials =
            [password("ann", "p1").await, password("bob", "p2").await, token("t1").await, token("t2").await];
        let are_valid = || credentials.each_ref().map(|credential| credential.is_valid());
        identities.reload().unwrap();
        assert_eq!(are_valid(), [true; 4]);
        file.remove("ann").unwrap();
        fs::write(&tokens, "two t1\none t2\n").unwrap();
        assert_eq!(are_valid(), [true; 4], "the files are not read before the reload");
        identities.reload().unwrap();
        assert_eq!(are_valid(), [false, true, false, true]);
        file.set_password("bob", &secret("p2")).unwrap();
        fs::remove_file(&tokens).unwrap();
        assert!(identities.reload().unwrap_err().starts_with("cannot read "));
        assert_eq!(are_valid(), [false, false, false, true], "a file that cannot be read changes nothing");
    }

    #[tokio::test]
    async fn a_user_that_has_logged_in_is_not_refused_when_other_logins_have_failed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        UsersFile::new(&path).add("ann", &secret("p1")).unwrap();
        UsersFile::new(&path).add("bob", &secret("p2")).unwrap();
        let files = CredentialFiles { users: Some(path), tokens: None };
        let identities = Identities::load(&files).unwrap().with_login_failures_max(4);
        let (events, _) = recorded_events();
        let check = async |remote: &str, name: &str, password: &str| {
            let password = secret(password);
            let check = identities.check_password(remote, name.to_owned(), password, Arc::clone(&events));
            check.await.map(drop).map_err(|denial| denial.reason)
        };
        let (wrong, limited) = (ReasonCode::BadUserNameOrPassword, ReasonCode::ConnectionRateExceeded);
        assert_eq!(check("192.0.2.1:1", "ann", "p1").await, Ok(()));
        for name in ["ann", "eve", "eve"] {
            assert_eq!(check("192.0.2.1:1", name, "p").await, Err(wrong));
        }
        assert_eq!(
            check("192.0.2.1:1", "eve", "p").await,
            Err(limited),
            "half of the failures of its address"
        );
        assert_eq!(check("192.0.2.1:1", "joe", "p").await, Err(wrong));
        assert_eq!(check("192.0.2.1:1", "bob", "p2").await, Err(limited));
        assert_eq!(check("192.0.2.1:2", "ann", "p1").await, Ok(()), "verified before");
        assert_eq!(check("192.0.2.1:2", "ann", "p2").await, Err(limited));
        assert_eq!(check("192.0.2.2:1", "bob", "p2").await, Ok(()), "another address");
    }

    #[tokio::test]
    async fn a_login_does_not_wait_for_checks_that_the_limit_refuses_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        UsersFile::new(&path).add("ann", &secret("p1")).unwrap();
        let files = CredentialFiles { users: Some(path), tokens: None };
        let identities = Arc::new(Identities::load(&files).unwrap().with_login_failures_max(6));
        let (events, _) = recorded_events();
        let attempts: Vec<_> = (0..40)
            .map(|number| {
                let (identities, events) = (Arc::clone(&identities), Arc::clone(&events));
                let name = format!("user{number}");
                tokio::spawn(async move {
                    let check = identities.check_password("192.0.2.1:1", name, secret("p"), events);
                    check.await.unwrap_err().reason
                })
            })
            .collect();
        let mut limited = 0;
        for attempt in attempts {
            limited += usize::from(attempt.await.unwrap() == ReasonCode::ConnectionRateExceeded);
        }
        // Checks that run at the same time can exceed the limit.
        assert!((40 - 6 - PASSWORDS_MAX..=40 - 6).contains(&limited), "{limited}");
        assert_eq!(identities.login_limit().waiting(), 0);
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let home = tempfile::tempdir().unwrap();
        let (identities, _) = with_tokens(&home, "one hidden\n");
        assert!(!format!("{identities:?}").contains("hidden"));
    }
}
