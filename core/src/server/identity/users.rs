//! Users and their password hashes (argon2id).

use std::collections::HashMap;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::Output;
pub use argon2::password_hash::phc::PasswordHash;
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, Version};

use super::error::{IdentityError, LineError};
use super::reloaded_file::{lines, read};
use crate::files::replace;
use crate::net::Secret;
use crate::random;

/// The most memory that a check of a password may use, in KiB.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// The most memory times passes of a check, in KiB: a few seconds.
const WORK_KIB_MAX: u64 = 4 * 1024 * 1024;
/// The most lanes of a hash. They are computed sequentially.
const LANES_MAX: u32 = 64;
/// The longest user name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The users of a file.
pub struct Users {
    hashes: HashMap<String, Arc<PasswordHash>>,
    /// One hash of each cost in the file. A failed check computes a hash of each cost, also for an unknown user, so that the time
    /// shows neither which names exist nor whose hash is cheaper.
    decoys: Vec<PasswordHash>,
}

/// What the time of a check depends on: version, memory, passes and lanes.
type Cost = (u32, u32, u32, u32);

/// The result of a check of a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordCheck {
    Correct,
    Wrong,
    UnknownUser,
}

impl Users {
    /// Parses lines `NAME:HASH`.
    pub fn parse(bytes: &[u8]) -> Result<Self, LineError> {
        let mut hashes = HashMap::new();
        let mut decoys: Vec<PasswordHash> = Vec::new();
        for (number, line) in lines(bytes)? {
            let wrong = |what: &str| (number, what.to_owned());
            // Names may contain colons, hashes do not.
            let (name, hash) = line.rsplit_once(':').ok_or_else(|| wrong("is not NAME:HASH"))?;
            check_name(name).map_err(|what| (number, format!("has an invalid name: {what}")))?;
            let hash = PasswordHash::new(hash).map_err(|_| wrong("has no hash in the PHC format"))?;
            check_cost(&hash).map_err(wrong)?;
            if !decoys.iter().any(|decoy| cost_of(decoy) == cost_of(&hash)) {
                decoys.push(hash.clone());
            }
            if hashes.insert(name.to_owned(), Arc::new(hash)).is_some() {
                return Err(wrong("has a name that another line has"));
            }
        }
        Ok(Self { hashes, decoys })
    }

    /// Returns the hash of a user's password.
    pub fn hash(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        self.hashes.get(name)
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Checks a password. A failed check takes the same time for each user, known or not.
    pub fn check_password(&self, name: &str, password: &Secret, memory: &HashMemory) -> PasswordCheck {
        let known = self.hashes.get(name).map(|hash| &**hash);
        for hash in self.hashes_to_compute(known) {
            let is_correct = memory.with_blocks(|blocks| verify(password.bytes(), hash, blocks));
            if is_correct && known == Some(hash) {
                return PasswordCheck::Correct;
            }
        }
        if known.is_some() { PasswordCheck::Wrong } else { PasswordCheck::UnknownUser }
    }

    /// Returns the user's own hash, if there is one, and a decoy of each other cost.
    fn hashes_to_compute<'a>(
        &'a self,
        known: Option<&'a PasswordHash>,
    ) -> impl Iterator<Item = &'a PasswordHash> {
        let decoys = self.decoys.iter().filter(move |decoy| known.map(cost_of) != Some(cost_of(decoy)));
        known.into_iter().chain(decoys)
    }
}

fn cost_of(hash: &PasswordHash) -> Option<Cost> {
    let params = Params::try_from(hash).ok()?;
    let version = hash.version.unwrap_or_else(|| Version::default().into());
    Some((version, params.m_cost(), params.t_cost(), params.p_cost()))
}

/// Reusable buffers for password checks, one for each check that runs at a time. A check needs 19 MiB or more.
#[derive(Debug, Default)]
pub struct HashMemory(Mutex<Vec<Vec<Block>>>);

impl HashMemory {
    fn with_blocks<T>(&self, work: impl FnOnce(&mut Vec<Block>) -> T) -> T {
        let unused = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut blocks = unused().pop().unwrap_or_default();
        let result = work(&mut blocks);
        // The blocks depend on the password.
        blocks.fill(Block::new());
        unused().push(blocks);
        result
    }
}

/// Returns whether the hash is a hash of the password.
fn verify(password: &[u8], hash: &PasswordHash, blocks: &mut Vec<Block>) -> bool {
    let version = hash.version.map_or(Ok(Version::default()), Version::try_from);
    let (Ok(version), Ok(params), Some(salt), Some(expected)) =
        (version, Params::try_from(hash), &hash.salt, &hash.hash)
    else {
        return false;
    };
    let count = params.block_count();
    if blocks.len() < count {
        blocks.resize(count, Block::new());
    }
    let Some(blocks) = blocks.get_mut(..count) else { return false };
    let mut computed = vec![0; expected.len()];
    let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
    argon2.hash_password_into_with_memory(password, salt, &mut computed, blocks).is_ok()
        // `Output` compares in constant time.
        && Output::new(&computed).is_ok_and(|computed| computed == *expected)
}

/// Checks that a hash can be computed.
///
/// # Errors
/// The hash is unsupported, incomplete or too expensive.
fn check_cost(hash: &PasswordHash) -> Result<(), &'static str> {
    if hash.algorithm != ARGON2ID_IDENT {
        return Err("has a hash that is not argon2id");
    }
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err("has a hash without salt or output");
    }
    let params = Params::try_from(hash).map_err(|_| "has a hash with invalid parameters")?;
    let work = u64::from(params.m_cost()).saturating_mul(params.t_cost().into());
    if params.m_cost() > MEMORY_KIB_MAX || params.p_cost() > LANES_MAX || work > WORK_KIB_MAX {
        return Err("has a hash that is too expensive: at most m=262144, p=64, and m times t 4194304");
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("it is empty, or has more than 1024 bytes");
    }
    if name.starts_with('#') || name.trim() != name || name.contains(char::is_control) {
        return Err("it starts with #, starts or ends with white space, or has control characters");
    }
    Ok(())
}

/// A file of users. Changes are atomic: a server that reads the file sees the old or the new content.
#[derive(Clone, Debug)]
pub struct UsersFile {
    path: PathBuf,
}

impl UsersFile {
    /// Returns the file with this path. It need not exist.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Adds a user. Returns false, and changes nothing, if the user exists.
    ///
    /// # Errors
    /// The file cannot be read or written or is invalid, or the name is invalid.
    pub fn add(&self, name: &str, password: &Secret) -> Result<bool, IdentityError> {
        check_name(name).map_err(IdentityError::Name)?;
        let line = format!("{name}:{}", self.hash(password)?);
        Ok(!self.change(name, Some(line), false)?)
    }

    /// Changes the password of a user. Returns false, and changes nothing, if there is no such user.
    ///
    /// # Errors
    /// The file cannot be read or written, or is invalid.
    pub fn set_password(&self, name: &str, password: &Secret) -> Result<bool, IdentityError> {
        let line = format!("{name}:{}", self.hash(password)?);
        self.change(name, Some(line), true)
    }

    /// Removes a user. Returns false, and changes nothing, if there is no such user.
    ///
    /// # Errors
    /// The file cannot be read or written, or is invalid.
    pub fn remove(&self, name: &str) -> Result<bool, IdentityError> {
        self.change(name, None, true)
    }

    /// Returns the user names, in the order of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    pub fn names(&self) -> Result<Vec<String>, IdentityError> {
        let bytes = read(&self.path)?;
        self.located(Users::parse(bytes.bytes()))?;
        let lines = self.located(lines(bytes.bytes()))?;
        Ok(lines.into_iter().filter_map(|(_, line)| name_in(line)).map(str::to_owned).collect())
    }

    /// Returns whether the file exists and has the user.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    pub fn contains(&self, name: &str) -> Result<bool, IdentityError> {
        let bytes = self.read_if_exists()?;
        Ok(self.located(Users::parse(bytes.bytes()))?.hash(name).is_some())
    }

    fn read_if_exists(&self) -> Result<Secret, IdentityError> {
        match read(&self.path) {
            Err(IdentityError::Io { cause, .. }) if cause.kind() == NotFound => Ok(Secret::new(Vec::new())),
            read => read,
        }
    }

    fn hash(&self, password: &Secret) -> Result<String, IdentityError> {
        let [high, low] = [random::u64(), random::u64()];
        // Two users with the same password must have different hashes.
        let salt = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let hash = Argon2::default().hash_password_with_salt(password.bytes(), &salt);
        let hash = hash.map_err(|error| (0, format!("cannot hash this password: {error}")));
        Ok(self.located(hash)?.to_string())
    }

    /// Replaces, adds or removes the line of a user, if the user exists or not, as expected; returns whether it does. All other
    /// lines stay, comments included.
    fn change(&self, name: &str, line: Option<String>, is_expected: bool) -> Result<bool, IdentityError> {
        let failed = |what| move |cause| IdentityError::Io { what, path: self.path.clone(), cause };
        let _locked = replace::lock(&self.path).map_err(failed("lock"))?;
        let bytes = if is_expected { read(&self.path)? } else { self.read_if_exists()? };
        let is_there = self.located(Users::parse(bytes.bytes()))?.hash(name).is_some();
        if is_there != is_expected {
            return Ok(is_there);
        }
        let text = String::from_utf8_lossy(bytes.bytes());
        let (mut out, mut line) = (String::new(), line);
        for old in text.trim_start_matches('\u{FEFF}').lines() {
            if name_in(old.trim()) == Some(name) {
                let Some(new) = line.take() else { continue };
                out.push_str(&new);
            } else {
                out.push_str(old);
            }
            out.push('\n');
        }
        if let Some(new) = line {
            out.push_str(&new);
            out.push('\n');
        }
        // A server treats an empty file as one that is being written.
        if out.is_empty() {
            out.push_str("# no users\n");
        }
        replace::replace(&self.path, out.as_bytes(), 0o600).map_err(failed("write"))?;
        Ok(is_there)
    }

    fn located<T>(&self, result: Result<T, LineError>) -> Result<T, IdentityError> {
        result.map_err(|error| IdentityError::invalid(&self.path, error))
    }
}

fn name_in(line: &str) -> Option<&str> {
    if line.starts_with('#') { None } else { line.rsplit_once(':').map(|(name, _)| name) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The password is `p`.
    const HASH: &str = "$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$NdgbF781BvForgQq/MBkGA";

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[test]
    fn an_error_names_the_line_but_never_repeats_its_content() {
        let cases = [
            ("ann", "is not NAME:HASH"),
            (":$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "it is empty"),
            ("ann:secret", "has no hash in the PHC format"),
            ("ann:$argon2i$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "that is not argon2id"),
            ("ann:$argon2id$v=19$m=262145,t=1,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "too expensive"),
            ("ann:$argon2id$v=19$m=262144,t=17,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "too expensive"),
            ("ann:$argon2id$v=19$m=65536,t=1,p=65$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "too expensive"),
            ("ann:$argon2id$v=19$m=1,t=1,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "invalid parameters"),
            ("ann:$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ", "without salt or output"),
        ];
        for (line, what) in cases {
            let Err((number, text)) = Users::parse(format!("# a\n\n{line}\n").as_bytes()) else {
                panic!("{line}");
            };
            assert_eq!(number, 3, "{line}");
            assert!(text.contains(what) && !text.contains("secret"), "{line}: {text}");
        }
        let twice = format!("a:{HASH}\nb:{HASH}\na:{HASH}\n");
        assert!(Users::parse(twice.as_bytes()).is_err_and(|(line, _)| line == 3));
        assert!(Users::parse(b"a\xFF:").is_err_and(|(line, what)| line == 1 && what == "is not UTF-8"));
    }

    #[test]
    fn a_user_name_may_contain_colons() {
        let users = Users::parse(format!("system:ann:{HASH}\r\n").as_bytes()).unwrap();
        assert!(users.hashes.contains_key("system:ann"));
    }

    #[test]
    fn an_unknown_user_is_rejected_even_with_the_password_of_the_decoy_hash() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        UsersFile::new(&path).add("ann", &secret("p")).unwrap();
        let users = Users::parse(&fs::read(&path).unwrap()).unwrap();
        let memory = HashMemory::default();
        let check = |users: &Users, name, password| users.check_password(name, &secret(password), &memory);
        assert_eq!(check(&users, "ann", "p"), PasswordCheck::Correct);
        assert_eq!(check(&users, "ann", ""), PasswordCheck::Wrong);
        assert_eq!(check(&users, "bob", "p"), PasswordCheck::UnknownUser);
        assert_eq!(check(&Users::parse(b"").unwrap(), "ann", "p"), PasswordCheck::UnknownUser);
        // A hash with another cost reuses the buffer.
        let cheap = Users::parse(format!("ann:{HASH}\n").as_bytes()).unwrap();
        assert_eq!(check(&cheap, "ann", "p"), PasswordCheck::Correct);
        assert_eq!(check(&cheap, "ann", "q"), PasswordCheck::Wrong);
        let unused = memory.0.into_inner().unwrap();
        assert_eq!(unused.iter().map(Vec::len).collect::<Vec<_>>(), [19_456], "one check at a time");
    }

    #[test]
    fn a_failed_check_computes_the_same_work_for_every_user() {
        let cheap = |user: &str| format!("{user}:{HASH}\n");
        let other = |user: &str| cheap(user).replace("m=16,t=2", "m=64,t=1");
        let dear = |user: &str| cheap(user).replace("m=16,t=2", "m=64,t=3");
        let text = [cheap("ann"), cheap("eve"), other("bob"), dear("joe"), dear("sue")].concat();
        let users = Users::parse(text.as_bytes()).unwrap();
        let costs = |name: &str| {
            let mut costs: Vec<_> =
                users.hashes_to_compute(users.hash(name).map(|hash| &**hash)).map(cost_of).collect();
            costs.sort_unstable();
            costs
        };
        let expected = costs("unknown");
        assert_eq!(expected.len(), 3);
        for name in ["ann", "eve", "bob", "joe", "sue"] {
            assert_eq!(costs(name), expected, "{name}");
        }
        let memory = HashMemory::default();
        assert_eq!(users.check_password("ann", &secret("p"), &memory), PasswordCheck::Correct);
        assert_eq!(users.check_password("bob", &secret("p"), &memory), PasswordCheck::Wrong);
    }

    #[cfg(unix)]
    #[test]
    fn a_change_keeps_other_lines_and_the_mode_of_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let before = format!("# the crew\nann:{HASH}\n\nbob:{HASH}");
        fs::write(&path, &before).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let file = UsersFile::new(&path);
        assert!(!file.add("ann", &secret("x")).unwrap() && !file.set_password("eve", &secret("y")).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        assert!(file.set_password("ann", &secret("x")).unwrap() && file.add("eve", &secret("y")).unwrap());
        assert_eq!(file.names().unwrap(), ["ann", "bob", "eve"]);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# the crew\nann:$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        assert!(text.contains(&format!("\n\nbob:{HASH}\neve:$argon2id$")), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(file.remove("bob").unwrap());
        assert!(!file.remove("bob").unwrap());
        assert_eq!(file.names().unwrap(), ["ann", "eve"]);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_an_editor_of_another_system_has_no_user_twice_after_a_change() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        fs::write(&path, format!("\u{FEFF}ann:{HASH}\r\nbob:{HASH}")).unwrap();
        assert!(UsersFile::new(&path).set_password("ann", &secret("x")).unwrap());
        assert_eq!(UsersFile::new(&path).names().unwrap(), ["ann", "bob"]);
        fs::write(&path, b"\xFF\xFEa\0").unwrap();
        let error = UsersFile::new(&path).names().unwrap_err().to_string();
        assert!(error.ends_with("users is encoded in UTF-16; UTF-8 is required"), "{error}");
    }

    #[test]
    fn an_invalid_file_is_not_changed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        fs::write(&path, "ann\n").unwrap();
        let file = UsersFile::new(&path);
        assert!(file.add("bob", &secret("x")).unwrap_err().to_string().starts_with("line 1 of "));
        assert!(file.remove("ann").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"ann\n");
        assert!(UsersFile::new(&home.path().join("gone")).remove("ann").is_err());
        assert!(UsersFile::new(&home.path().join("new")).add("#a", &secret("x")).is_err());
    }

    #[test]
    fn two_users_with_the_same_password_have_different_hashes() {
        let file = UsersFile::new(Path::new("users"));
        assert_ne!(file.hash(&secret("p")).unwrap(), file.hash(&secret("p")).unwrap());
    }
}
