//! Users and their passwords: the only file that names the crate for password hashes.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, Version};

use super::{IdentityError, Mistake};
use crate::net::Secret;
use crate::random;
use crate::server::identity::reloaded_file::{lines, nonsense, read};

/// The most memory that checking one password may take, in KiB.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// The most memory that checking one password may run through, in KiB: a few seconds.
const WORK_KIB_MAX: u64 = 4 * 1024 * 1024;
/// The most lanes; they are computed one after the other.
const LANES_MAX: u32 = 64;
/// Far more than any name needs.
const NAME_BYTES_MAX: usize = 1024;

/// The users.
pub struct Users {
    hashes: HashMap<String, PasswordHash>,
    /// What the password of nobody is checked against, so that it takes as long as the longest of the others.
    decoy: Option<PasswordHash>,
}

/// Whether somebody is who he says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    Good,
    WrongPassword,
    Unknown,
}

impl Users {
    /// Reads lines `NAME:HASH`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Mistake> {
        let mut hashes = HashMap::new();
        let mut decoy: Option<(u64, PasswordHash)> = None;
        for (number, line) in lines(bytes)? {
            let wrong = |what: &str| (number, what.to_owned());
            // There is no colon in a hash.
            let (name, hash) = line.rsplit_once(':').ok_or_else(|| wrong("is not NAME:HASH"))?;
            check_name(name).map_err(|what| (number, format!("has a name that nobody can have: {what}")))?;
            let hash = PasswordHash::new(hash).map_err(|_| wrong("has no hash in the PHC format"))?;
            let work = work_of(&hash).map_err(wrong)?;
            if decoy.as_ref().is_none_or(|(most, _)| *most < work) {
                decoy = Some((work, hash.clone()));
            }
            if hashes.insert(name.to_owned(), hash).is_some() {
                return Err(wrong("has a name that another line has"));
            }
        }
        Ok(Self { hashes, decoy: decoy.map(|(_, hash)| hash) })
    }

    /// Checks a password. It takes a while, for a name that nobody has as well.
    pub fn log_in(&self, name: &str, password: &Secret, memory: &Memory) -> Login {
        let known = self.hashes.get(name);
        let is_right = known
            .or(self.decoy.as_ref())
            .is_some_and(|hash| memory.lend(|blocks| is_of(password.bytes(), hash, blocks)));
        match (known, is_right) {
            (None, _) => Login::Unknown,
            (Some(_), true) => Login::Good,
            (Some(_), false) => Login::WrongPassword,
        }
    }
}

/// Memory for as many checks at a time as there have been: each takes many MiB, which an allocator that has given them
/// out once may keep for each of its threads.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Vec<Vec<Block>>>);

impl Memory {
    fn lend<T>(&self, work: impl FnOnce(&mut Vec<Block>) -> T) -> T {
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut blocks = kept().pop().unwrap_or_default();
        let done = work(&mut blocks);
        // Something of a password is in it.
        blocks.fill(Block::new());
        kept().push(blocks);
        done
    }
}

/// Whether it is the password of a hash.
fn is_of(password: &[u8], hash: &PasswordHash, blocks: &mut Vec<Block>) -> bool {
    let version = hash.version.map_or(Ok(Version::default()), Version::try_from);
    let (Ok(version), Ok(params), Some(salt), Some(right)) =
        (version, Params::try_from(hash), &hash.salt, &hash.hash)
    else {
        return false;
    };
    let count = params.block_count();
    if blocks.len() < count {
        blocks.resize(count, Block::new());
    }
    let Some(blocks) = blocks.get_mut(..count) else { return false };
    let mut found = vec![0; right.len()];
    let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
    argon2.hash_password_into_with_memory(password, salt, &mut found, blocks).is_ok()
        // In constant time.
        && Output::new(&found).is_ok_and(|found| found == *right)
}

/// How much memory is run through to check a password, in KiB, if it is not too much.
fn work_of(hash: &PasswordHash) -> Result<u64, &'static str> {
    if hash.algorithm != ARGON2ID_IDENT {
        return Err("has a hash of another kind than argon2id");
    }
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err("has a hash without its salt or its end");
    }
    let params = Params::try_from(hash).map_err(|_| "has a hash with numbers that make no sense")?;
    let work = u64::from(params.m_cost()).saturating_mul(params.t_cost().into());
    if params.m_cost() > MEMORY_KIB_MAX || params.p_cost() > LANES_MAX || work > WORK_KIB_MAX {
        return Err("has a hash that is too costly to check: at most m=262144, p=64, and m times t 4194304");
    }
    Ok(work)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("it is empty, or has more than 1024 bytes");
    }
    if name.starts_with('#') || name.trim() != name || name.contains(char::is_control) {
        return Err("it begins with #, begins or ends with a blank, or has control characters");
    }
    Ok(())
}

/// The file of the users, to be changed while servers use it: they see the old one or the new one.
#[derive(Clone, Debug)]
pub struct UsersFile {
    path: PathBuf,
}

impl UsersFile {
    /// The file with this path; it need not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Adds a user or gives one another password; says whether there was one of this name.
    ///
    /// # Errors
    /// The file cannot be read or written, makes no sense, or nobody can have such a name.
    pub fn add(&self, name: &str, password: &Secret) -> Result<bool, IdentityError> {
        check_name(name).map_err(IdentityError::Name)?;
        let line = format!("{name}:{}", self.hash(password)?);
        self.change(name, Some(line))
    }

    /// Removes a user; says whether there was one.
    ///
    /// # Errors
    /// The file cannot be read or written, or makes no sense.
    pub fn remove(&self, name: &str) -> Result<bool, IdentityError> {
        self.change(name, None)
    }

    /// The names, in their order.
    ///
    /// # Errors
    /// The file cannot be read, or makes no sense.
    pub fn names(&self) -> Result<Vec<String>, IdentityError> {
        let bytes = read(&self.path)?;
        self.nonsense_in(Users::parse(bytes.bytes()))?;
        let lines = self.nonsense_in(lines(bytes.bytes()))?;
        Ok(lines.into_iter().filter_map(|(_, line)| name_in(line)).map(str::to_owned).collect())
    }

    fn hash(&self, password: &Secret) -> Result<String, IdentityError> {
        let [high, low] = [random::u64(), random::u64()];
        // A salt is no secret; no two users shall have the same.
        let salt = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let hash = Argon2::default().hash_password_with_salt(password.bytes(), &salt);
        let hash = hash.map_err(|error| (0, format!("cannot take this password: {error}")));
        Ok(self.nonsense_in(hash)?.to_string())
    }

    /// Puts a line in the place of the user's, or of none; the rest stays as it is, comments included.
    fn change(&self, name: &str, line: Option<String>) -> Result<bool, IdentityError> {
        let is_there = self.path.try_exists().unwrap_or(true);
        let bytes = if is_there || line.is_none() { read(&self.path)? } else { Secret::new(Vec::new()) };
        self.nonsense_in(Users::parse(bytes.bytes()))?;
        let text = String::from_utf8_lossy(bytes.bytes());
        let (mut out, mut found, mut line) = (String::new(), false, line);
        for old in text.lines() {
            if name_in(old.trim()) == Some(name) {
                found = true;
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
        // A server takes an empty file for one that is being written.
        if out.is_empty() {
            out.push_str("# nobody\n");
        }
        self.replace(out.as_bytes())?;
        Ok(found)
    }

    /// Writes the file anew beside the old one, for its owner alone, then puts it in its place.
    fn replace(&self, bytes: &[u8]) -> Result<(), IdentityError> {
        // Where a link leads to.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |cause| IdentityError::Io { what, path, cause }
        };
        // If it is there, somebody else is at it, or was and did not end well.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .map_err(failed("create", &unfinished))?;
        let written =
            keep_owner(&path, &file).and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all());
        let replaced = written
            .map_err(failed("write", &unfinished))
            .and_then(|()| fs::rename(&unfinished, &path).map_err(failed("replace", &path)));
        if replaced.is_err() {
            // What is left of it would be in the way of the next one.
            let _ = fs::remove_file(&unfinished);
        }
        replaced
    }

    fn nonsense_in<T>(&self, result: Result<T, Mistake>) -> Result<T, IdentityError> {
        result.map_err(|mistake| nonsense(&self.path, mistake))
    }
}

/// Whoever runs the server must be able to read the new file, too: it may be somebody else's than whoever changes it.
fn keep_owner(old: &Path, new: &File) -> io::Result<()> {
    let Ok(old) = fs::metadata(old) else { return Ok(()) };
    if old.uid() == new.metadata()?.uid() {
        return Ok(());
    }
    fchown(new, Some(old.uid()), Some(old.gid()))
}

fn name_in(line: &str) -> Option<&str> {
    if line.starts_with('#') { None } else { line.rsplit_once(':').map(|(name, _)| name) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The password is `p`.
    const HASH: &str = "$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$NdgbF781BvForgQq/MBkGA";

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_and_not_what_is_in_it() {
        let cases = [
            ("ann", "is not NAME:HASH"),
            (":$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "it is empty"),
            ("ann:secret", "has no hash in the PHC format"),
            (
                "ann:$argon2i$v=19$m=16,t=2,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA",
                "another kind than argon2id",
            ),
            ("ann:$argon2id$v=19$m=262145,t=1,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "too costly"),
            ("ann:$argon2id$v=19$m=262144,t=17,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "too costly"),
            ("ann:$argon2id$v=19$m=65536,t=1,p=65$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA", "too costly"),
            (
                "ann:$argon2id$v=19$m=1,t=1,p=1$c2FsdHNhbHQ$Qh4ECuwu1IAvJSFTR6yUfA",
                "numbers that make no sense",
            ),
            ("ann:$argon2id$v=19$m=16,t=2,p=1$c2FsdHNhbHQ", "without its salt or its end"),
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
    fn a_name_may_have_colons() {
        let users = Users::parse(format!("system:ann:{HASH}\r\n").as_bytes()).unwrap();
        assert!(users.hashes.contains_key("system:ann"));
    }

    #[test]
    fn nobody_logs_in_by_the_decoys_password() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        UsersFile::new(&path).add("ann", &secret("p")).unwrap();
        let users = Users::parse(&fs::read(&path).unwrap()).unwrap();
        let memory = Memory::default();
        let log_in = |users: &Users, name, password| users.log_in(name, &secret(password), &memory);
        assert_eq!(log_in(&users, "ann", "p"), Login::Good);
        assert_eq!(log_in(&users, "ann", ""), Login::WrongPassword);
        assert_eq!(log_in(&users, "bob", "p"), Login::Unknown);
        assert_eq!(log_in(&Users::parse(b"").unwrap(), "ann", "p"), Login::Unknown);
        // Another cost, and the memory of the last one.
        let cheap = Users::parse(format!("ann:{HASH}\n").as_bytes()).unwrap();
        assert_eq!(log_in(&cheap, "ann", "p"), Login::Good);
        assert_eq!(log_in(&cheap, "ann", "q"), Login::WrongPassword);
        let kept = memory.0.into_inner().unwrap();
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [19_456], "one check at a time");
    }

    #[test]
    fn a_file_is_changed_line_by_line_and_is_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        let before = format!("# the crew\nann:{HASH}\n\nbob:{HASH}");
        fs::write(&path, before).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let file = UsersFile::new(&path);
        assert!(file.add("ann", &secret("x")).unwrap());
        assert!(!file.add("eve", &secret("y")).unwrap());
        assert_eq!(file.names().unwrap(), ["ann", "bob", "eve"]);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# the crew\nann:$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        assert!(text.contains(&format!("\n\nbob:{HASH}\neve:$argon2id$")), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(file.remove("bob").unwrap());
        assert!(!file.remove("bob").unwrap());
        assert_eq!(file.names().unwrap(), ["ann", "eve"]);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_stays_its_owners_whoever_changes_it() {
        const SOMEBODY: u32 = 65_534;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("users");
        fs::write(&path, format!("ann:{HASH}\n")).unwrap();
        // Only root may give a file away; nobody else can change one of somebody else's.
        let owner = match std::os::unix::fs::chown(&path, Some(SOMEBODY), Some(SOMEBODY)) {
            Ok(()) => SOMEBODY,
            Err(_) => fs::metadata(&path).unwrap().uid(),
        };
        assert!(UsersFile::new(&path).remove("ann").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_left_alone() {
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
    fn two_of_the_same_password_have_different_hashes() {
        let file = UsersFile::new(Path::new("users"));
        assert_ne!(file.hash(&secret("p")).unwrap(), file.hash(&secret("p")).unwrap());
    }
}
