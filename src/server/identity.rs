//! Who may come in: users with passwords and bearers of tokens, from files that may change while the server runs.

mod reloaded_file;
mod tokens;
mod users;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;

use self::tokens::Tokens;
pub use self::users::UsersFile;
use self::users::{Login, Memory, Users};
use super::event::Event;
use super::event::EventSink;
use crate::broker::Denial;
use crate::mqtt::ReasonCode;
use crate::net::Secret;
use crate::net::detached::run_detached;
use crate::server::identity::reloaded_file::Kept;

/// How many passwords are checked at a time, at most: each takes memory and a processor for a while.
const PASSWORDS_MAX: usize = 4;
/// How many tokens are looked up at a time: each reads a file.
const TOKENS_MAX: usize = 4;

/// Where those are listed who may come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityFiles {
    /// Users, each a line `NAME:HASH`; the hash is one of argon2id in the PHC format.
    pub users: Option<PathBuf>,
    /// Service account tokens, each a line `NAME TOKEN`. A name may have several.
    pub tokens: Option<PathBuf>,
}

/// What keeps a file from being used.
#[derive(Debug)]
pub enum IdentityError {
    /// Nobody can have such a name; why.
    Name(&'static str),
    /// The system.
    Io {
        /// What could not be done.
        what: &'static str,
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
        /// What is wrong; repeats nothing of what is in the file.
        what: String,
    },
}

impl fmt::Display for IdentityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(what) => write!(out, "nobody can be called so: {what}"),
            Self::Io { what, path, cause } => write!(out, "cannot {what} {}: {cause}", path.display()),
            Self::Invalid { path, line: None, what } => write!(out, "{} {what}", path.display()),
            Self::Invalid { path, line: Some(line), what } => {
                write!(out, "line {line} of {} {what}", path.display())
            }
        }
    }
}

impl std::error::Error for IdentityError {}

/// A line, from 1, and what is wrong with it; line 0 is all of the file.
type Mistake = (usize, String);

/// Everybody who may come in. Without files nobody is known, and nobody is asked.
#[derive(Debug)]
pub struct Identities {
    users: Option<Arc<Kept<Users>>>,
    tokens: Option<Arc<Kept<Tokens>>>,
    room_for_passwords: Arc<Semaphore>,
    memory: Arc<Memory>,
    room_for_tokens: Arc<Semaphore>,
}

impl Default for Identities {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            users: None,
            tokens: None,
            room_for_passwords: Arc::new(Semaphore::new(processors.min(PASSWORDS_MAX))),
            memory: Arc::default(),
            room_for_tokens: Arc::new(Semaphore::new(TOKENS_MAX)),
        }
    }
}

impl Identities {
    /// Reads the files; they are read again at each check.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn load(files: &IdentityFiles) -> Result<Self, IdentityError> {
        let users = files.users.as_deref().map(|path| Kept::load(path, Users::parse)).transpose()?;
        let tokens = files.tokens.as_deref().map(|path| Kept::load(path, Tokens::parse)).transpose()?;
        Ok(Self { users: users.map(Arc::new), tokens: tokens.map(Arc::new), ..Self::default() })
    }

    /// Whether names and passwords are checked.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// Whether tokens are checked.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Checks a name and a password; it takes as long for a name that nobody has.
    pub(crate) async fn check_password(
        &self,
        name: String,
        password: Secret,
        events: EventSink,
    ) -> Result<Arc<str>, Denial> {
        let denied = |log_text| Denial {
            reason: ReasonCode::BadUserNameOrPassword,
            reason_string: "no user of this name and password is known here",
            log_text,
        };
        let Some(users) = self.users.clone() else { return Err(denied(format!("no users, so no {name}"))) };
        let memory = Arc::clone(&self.memory);
        let check = move || {
            let login = users.current(&events).log_in(&name, &password, &memory);
            (login, name)
        };
        match in_room(&self.room_for_passwords, check).await? {
            (Login::Good, name) => Ok(name.into()),
            (Login::WrongPassword, name) => Err(denied(format!("wrong password for the user {name}"))),
            (Login::Unknown, name) => Err(denied(format!("there is no user {name}"))),
        }
    }

    /// Looks for the bearer of a token.
    pub(crate) async fn check_token(&self, token: Secret, events: EventSink) -> Result<Arc<str>, Denial> {
        let denied = || Denial {
            reason: ReasonCode::NotAuthorized,
            reason_string: "this token is not known here",
            log_text: "its token is not known".to_owned(),
        };
        let Some(tokens) = self.tokens.clone() else { return Err(denied()) };
        let check = move || tokens.current(&events).bearer(&token);
        in_room(&self.room_for_tokens, check).await?.ok_or_else(denied)
    }
}

/// Runs what takes its time on another thread, when there is room for it. What has begun goes on in its room, even if
/// nobody waits for it any more.
async fn in_room<T: Send + 'static>(
    room: &Arc<Semaphore>,
    check: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Denial> {
    let failed = || Denial {
        reason: ReasonCode::UnspecifiedError,
        reason_string: "it could not be checked",
        log_text: "what it says of itself could not be checked".to_owned(),
    };
    let permit = Arc::clone(room).acquire_owned().await.map_err(|_| failed())?;
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

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    fn heard() -> (EventSink, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        (Arc::new(move |event: Event| kept.lock().unwrap().push(event.to_string())), lines)
    }

    fn with_tokens(home: &TempDir, text: &str) -> (Identities, PathBuf) {
        let path = home.path().join("tokens");
        fs::write(&path, text).unwrap();
        let files = IdentityFiles { tokens: Some(path.clone()), users: None };
        (Identities::load(&files).unwrap(), path)
    }

    #[tokio::test]
    async fn tokens_are_read_again_and_a_broken_file_changes_nothing_and_is_told_once() {
        let home = tempfile::tempdir().unwrap();
        let (identities, path) = with_tokens(&home, "one t1\n");
        let (events, lines) = heard();
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
        let told: Vec<String> =
            lines.lock().unwrap().iter().map(|line| line.replace(path.to_str().unwrap(), "FILE")).collect();
        let still = "what it said before still counts";
        assert_eq!(
            told,
            [
                format!("FILE is empty; {still}"),
                format!("line 1 of FILE is not NAME TOKEN; {still}"),
                format!("line 2 of FILE has a token that another line has; {still}"),
                format!("cannot read FILE: No such file or directory (os error 2); {still}"),
            ]
        );
        fs::write(&path, "# nobody any more\n").unwrap();
        assert!(check("t2").await.is_err());
    }

    #[tokio::test]
    async fn a_password_is_checked_and_a_new_user_needs_no_restart() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let file = UsersFile::new(&path);
        assert!(!file.add("ann", &secret("p1")).unwrap());
        let files = IdentityFiles { users: Some(path.clone()), tokens: None };
        let identities = Identities::load(&files).unwrap();
        let (events, lines) = heard();
        let check = |name: &str, password: &str| {
            identities.check_password(name.to_owned(), secret(password), Arc::clone(&events))
        };
        assert_eq!(check("ann", "p1").await.as_deref(), Ok("ann"));
        let wrong = check("ann", "p2").await.unwrap_err();
        let unknown = check("bob", "p1").await.unwrap_err();
        assert_eq!((wrong.reason, wrong.reason_string), (unknown.reason, unknown.reason_string));
        assert_eq!(wrong.log_text, "wrong password for the user ann");
        assert_eq!(unknown.log_text, "there is no user bob");
        assert!(!file.add("bob", &secret("p2")).unwrap());
        assert_eq!(check("bob", "p2").await.as_deref(), Ok("bob"));
        assert!(file.remove("ann").unwrap() && file.remove("bob").unwrap());
        assert_eq!(check("bob", "p2").await.unwrap_err().log_text, "there is no user bob");
        assert!(lines.lock().unwrap().is_empty());
        fs::write(&path, "").unwrap();
        assert!(check("bob", "p2").await.is_err());
        assert_eq!(lines.lock().unwrap().len(), 1);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let home = tempfile::tempdir().unwrap();
        let (identities, _) = with_tokens(&home, "one hidden\n");
        assert!(!format!("{identities:?}").contains("hidden"));
    }
}
