//! What the tests share: fake workers, waiting for what they do, and the log they leave.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test program is a crate of its own and uses its own part"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use omni_jev_supervisor::{Handle, Outcome, WorkerSpec, WorkerState, WorkerStatus, start};
use tempfile::TempDir;

pub mod log;

/// Long enough for a machine that does ten things at once; reached only by a failing test.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A fake worker and the folder that belongs to the test.
pub struct Fake {
    pub folder: TempDir,
    pub spec: WorkerSpec,
}

/// A fake worker with this vice, see `fake_worker.py`.
pub fn fake(vice: &[&str]) -> Fake {
    // Not the usual folder for temporary files: its path is too long for a socket on macOS.
    let folder = tempfile::Builder::new()
        .prefix("sv")
        .tempdir_in("/tmp")
        .unwrap();
    let spec = fake_spec(folder.path(), vice);
    Fake { folder, spec }
}

/// The spec of a fake worker whose folder is this one.
pub fn fake_spec(folder: &Path, vice: &[&str]) -> WorkerSpec {
    log::listen_everywhere();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_worker.py");
    let mut spec = WorkerSpec::new("fake", "python3");
    spec.args = vec!["-I".into(), "-S".into(), script.into()];
    spec.args.extend(vice.iter().map(Into::into));
    spec.env = vec![("FAKE_WORKER_NOTES".into(), folder.join("notes").into())];
    spec.runtime_dir = Some(folder.to_path_buf());
    spec
}

impl Fake {
    pub fn start(&self) -> Handle {
        start(self.spec.clone()).unwrap()
    }

    /// The lines the worker noted for the test.
    pub fn notes(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.folder.path().join("notes")).unwrap();
        notes.lines().map(str::to_owned).collect()
    }

    /// The private folders that are there now.
    pub fn socket_folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.is_dir()).collect()
    }
}

/// Waits until the status is as wanted, and returns it.
pub async fn until(worker: &Handle, wanted: impl Fn(&WorkerStatus) -> bool) -> WorkerStatus {
    let mut status = worker.status();
    let result = tokio::time::timeout(PATIENCE, status.wait_for(|now| wanted(now))).await;
    if let Ok(Ok(status)) = result {
        return status.clone();
    }
    panic!("it ended or stays as {:?}", worker.status().borrow());
}

pub async fn ready(worker: &Handle) -> WorkerStatus {
    until(worker, |status| status.state == WorkerState::Ready).await
}

/// Ready with another process than this one was.
pub async fn ready_after(worker: &Handle, before: &WorkerStatus) -> WorkerStatus {
    until(worker, |status| {
        status.state == WorkerState::Ready && status.generation > before.generation
    })
    .await
}

pub async fn outcome(worker: &Handle) -> Outcome {
    tokio::time::timeout(PATIENCE, worker.outcome())
        .await
        .expect("it does not end")
}

pub async fn stopped(worker: &Handle) {
    worker.stop();
    assert_eq!(outcome(worker).await, Outcome::Stopped { forced: false });
}

pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// Whether the process runs. One that nobody has waited for yet does not.
pub fn is_alive(pid: u32) -> bool {
    let exists = kill(Pid::from_raw(i32::try_from(pid).unwrap()), None) != Err(Errno::ESRCH);
    // Linux only; elsewhere an orphan is waited for at once by the first process.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let zombie = stat
        .rsplit(')')
        .next()
        .is_some_and(|rest| rest.starts_with(" Z"));
    exists && !zombie
}

pub async fn gone(pid: u32, limit: Duration) {
    let waiting = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, waiting)
        .await
        .unwrap_or_else(|_| panic!("process {pid} is still there"));
}
