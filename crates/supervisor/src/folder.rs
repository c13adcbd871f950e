//! The private folder for a worker's sockets.
//!
//! It is made new for each supervisor, with no rights for anyone else, holds a lock for as long as
//! its supervisor lives, and is removed with it. What a supervisor that was killed left behind is
//! removed by the next one that looks: the lock is free and the process gone.

use std::env;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getuid};

use crate::error::StartError;
use crate::random;

const PREFIX: &str = "omni-jev-";
const LOCK: &str = "lock";
/// `sun_path` holds 104 bytes on macOS and 108 on Linux, the last of which is a zero.
const MAX_SOCKET_PATH: usize = 103;
/// The longest name of a socket: a generation and `.sock`.
const MAX_SOCKET_NAME: usize = "4294967296.sock".len();

/// The folder. Removed, with what is in it, when dropped.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    /// Held, not read: the lock goes when the process does, however it does.
    _lock: File,
}

impl PrivateFolder {
    /// Makes a folder under `base`, or under the first usual place that can hold it.
    ///
    /// # Errors
    ///
    /// [`StartError::Folder`] or [`StartError::PathTooLong`], of the place tried last.
    pub fn create(base: Option<&Path>) -> Result<Self, StartError> {
        let bases = base.map_or_else(usual_bases, |base| vec![base.to_path_buf()]);
        let mut last = None;
        for base in bases {
            match Self::create_in(&base) {
                Ok(folder) => return Ok(folder),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| StartError::Folder {
            base: PathBuf::new(),
            source: io::ErrorKind::NotFound.into(),
        }))
    }

    fn create_in(base: &Path) -> Result<Self, StartError> {
        let name = format!(
            "{PREFIX}{}-{:08x}",
            std::process::id(),
            random::bits()? >> 32
        );
        let path = base.join(name);
        let length = path.as_os_str().len() + 1 + MAX_SOCKET_NAME;
        if length > MAX_SOCKET_PATH {
            return Err(StartError::PathTooLong {
                base: base.to_path_buf(),
                length,
                limit: MAX_SOCKET_PATH,
            });
        }
        let failed = |source| StartError::Folder {
            base: base.to_path_buf(),
            source,
        };
        remove_stale(base);
        // Fails if it exists, so that nobody can have put a folder of their own there.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        let lock = lock_new(&path).inspect_err(|_| {
            // Half made: not worth more than the error that is on its way.
            let _ = fs::remove_dir_all(&path);
        });
        Ok(Self {
            _lock: lock.map_err(failed)?,
            path,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folders of this user's living owners in each of the usual places, in the order in which
    /// an owner tries them, with the process that each belongs to.
    pub fn find() -> Vec<Vec<(u32, PathBuf)>> {
        usual_bases()
            .iter()
            .map(|base| Self::find_in(base))
            .collect()
    }

    fn find_in(base: &Path) -> Vec<(u32, PathBuf)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            let path = entry.path();
            let owner = owner_of(&path).and_then(|owner| u32::try_from(owner.as_raw()).ok());
            if let Some(owner) = owner.filter(|_| is_ours(&path) && is_locked(&path)) {
                found.push((owner, path));
            }
        }
        found.sort();
        found
    }

    /// A path for the socket of this generation, never used before.
    pub(crate) fn socket(&self, generation: u64) -> PathBuf {
        self.path.join(format!("{generation}.sock"))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the next start tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn usual_bases() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    runtime
        .into_iter()
        .chain([env::temp_dir(), PathBuf::from("/tmp")])
        .collect()
}

fn lock_new(folder: &Path) -> io::Result<File> {
    let lock = File::create_new(folder.join(LOCK))?;
    lock.try_lock()?;
    Ok(lock)
}

/// Removes the folders of supervisors that are gone. Best effort: another one may be at it too.
fn remove_stale(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if owner_of(&path).is_some_and(|pid| is_stale(&path, pid)) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The process named in a folder's name, if it is such a folder.
fn owner_of(path: &Path) -> Option<Pid> {
    let (pid, _) = path
        .file_name()?
        .to_str()?
        .strip_prefix(PREFIX)?
        .split_once('-')?;
    pid.parse().ok().filter(|&pid| pid > 0).map(Pid::from_raw)
}

/// Both must say so: the process may live in another container with this folder mounted, where
/// its id says nothing here; and a folder just made has no lock yet.
fn is_stale(path: &Path, owner: Pid) -> bool {
    let gone = kill(owner, None) == Err(Errno::ESRCH);
    is_ours(path) && gone && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == getuid().as_raw())
}

fn is_locked(path: &Path) -> bool {
    File::open(path.join(LOCK))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// No process can have this id: it is over the highest limit of Linux and macOS.
    const NOBODY: u32 = 0x7fff_fff0;

    #[test]
    fn the_folder_is_private_and_goes_with_its_owner() {
        let base = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::create(Some(base.path())).unwrap();
        let path = folder.path.clone();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_ne!(folder.socket(1), folder.socket(2));
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_is_found_while_its_owner_lives() {
        let base = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::create(Some(base.path())).unwrap();
        let found = vec![(std::process::id(), folder.path().to_path_buf())];
        assert_eq!(PrivateFolder::find_in(base.path()), found);
        drop(folder);
        let unlocked = base.path().join(format!("{PREFIX}1-00000000"));
        fs::create_dir(&unlocked).unwrap();
        File::create(unlocked.join(LOCK)).unwrap();
        assert_eq!(PrivateFolder::find_in(base.path()), []);
    }

    #[test]
    fn a_folder_of_a_dead_supervisor_is_removed_and_others_are_left() {
        let base = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            File::create(path.join(LOCK)).unwrap();
            path
        };
        let stale = make(&format!("{PREFIX}{NOBODY}-00000000"));
        let living = make(&format!("{PREFIX}{}-00000000", std::process::id()));
        let locked = make(&format!("{PREFIX}{NOBODY}-00000001"));
        let lock = File::open(locked.join(LOCK)).unwrap();
        lock.lock().unwrap();
        let foreign = make("somebody-elses");
        let _folder = PrivateFolder::create(Some(base.path())).unwrap();
        assert!(!stale.exists());
        assert!(living.exists() && locked.exists() && foreign.exists());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_by_name() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("d".repeat(90));
        let error = PrivateFolder::create(Some(&deep)).unwrap_err();
        assert!(matches!(error, StartError::PathTooLong { .. }), "{error}");
        assert!(error.to_string().contains("XDG_RUNTIME_DIR"));
    }

    #[test]
    fn a_missing_base_is_named_in_the_error() {
        let error = PrivateFolder::create(Some(Path::new("/nonexistent-base"))).unwrap_err();
        assert!(error.to_string().contains("/nonexistent-base"));
    }
}
