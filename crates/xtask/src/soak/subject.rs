//! The binary under trouble, and its worker.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::account::Account;
use super::faults::Fault;
use crate::bench::interrupt;
use crate::python;

/// How long anything here may take; only a defect takes longer. The longest is a return to the
/// device, which is asked for once a minute.
const LIMIT: Duration = Duration::from_secs(150);

/// The running binary. Whatever is left of it is killed when this is dropped.
pub(crate) struct Subject {
    binary: PathBuf,
    /// Its runtime folder, which is also where the fake worker looks for vices.
    folder: tempfile::TempDir,
    python: PathBuf,
    port: u16,
    process: Child,
}

/// What `omni-jev worker status` says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Worker {
    state: String,
    pid: i32,
    restarts: u64,
}

impl Subject {
    pub(crate) fn start(root: &Path, binary: &Path) -> anyhow::Result<Self> {
        // Not the usual folder for temporary files: a socket's path must be short.
        let folder = tempfile::Builder::new().prefix("oj-").tempdir_in("/tmp")?;
        let python = folder.path().join("python");
        let fake = root.join("tests/fake_workers/fake_worker.py");
        let interpreter = python::interpreter(root);
        let script = format!(
            "#!/bin/sh\nexec {} -I -S {} \"$@\"\n",
            interpreter.display(),
            fake.display()
        );
        fs::write(&python, script)?;
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755))?;
        // Chosen once, since the clients go on to the same address after a restart.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = spawn(binary, folder.path(), &python, port)?;
        Ok(Self {
            binary: binary.to_path_buf(),
            folder,
            python,
            port,
            process,
        })
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until the worker is ready, and no process of an earlier one is left.
    pub(crate) fn wait_until_healed(&mut self) -> anyhow::Result<()> {
        let folder = self.folder.path().to_path_buf();
        let healed = interrupt::wait_for(LIMIT, || {
            self.expect_running()?;
            let ready = self.worker().is_ok_and(|worker| worker.state == "ready");
            Ok((ready && processes_of(&folder)?.len() == 2).then_some(()))
        })?;
        if healed.is_none() {
            let left = processes_of(self.folder.path())?;
            bail!(
                "not healed in {LIMIT:?}: {:?}, processes {left:?}",
                self.worker()
            );
        }
        Ok(())
    }

    /// Does one fault, and waits until it has had its effect.
    pub(crate) fn suffer(
        &mut self,
        fault: Fault,
        account: &Account,
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<()> {
        let before = self.worker()?;
        if let Some(vice) = fault.vice() {
            self.give_vice(vice, before.pid)?;
        }
        match fault {
            Fault::Killed => send(before.pid, Signal::SIGKILL)?,
            Fault::KilledTwice => {
                send(before.pid, Signal::SIGKILL)?;
                let next = self.worker_after(&before)?;
                // It may have ended meanwhile by itself.
                let _ = send(next.pid, Signal::SIGKILL);
            }
            Fault::Stopped => send(before.pid, Signal::SIGSTOP)?,
            Fault::Grandchild => {
                interrupt::sleep(Duration::from_millis(random.u64(100..500)))?;
                send(before.pid, Signal::SIGKILL)?;
            }
            Fault::RestartAsked => {
                self.control(&["restart"])?;
            }
            Fault::BinaryTerminated => return self.renew(Signal::SIGTERM, account),
            Fault::BinaryKilled => return self.renew(Signal::SIGKILL, account),
            Fault::BinaryKilledEarly => {
                self.renew(Signal::SIGKILL, account)?;
                interrupt::sleep(Duration::from_millis(200))?;
                return self.renew(Signal::SIGKILL, account);
            }
            Fault::Floods | Fault::LosesDevice => {
                // Neither costs the worker its life.
                interrupt::sleep(Duration::from_secs(3))?;
                return self.take_vice(fault);
            }
            _ => {}
        }
        if fault == Fault::LosesDeviceForGood {
            // Such a worker serves on until a moment is quiet, and under this load none ever is.
            account.hush(true);
        }
        self.worker_after(&before)?;
        account.hush(false);
        self.take_vice(fault)
    }

    /// Ends the binary and accounts for the end: it must leave nothing behind.
    pub(crate) fn finish(mut self, account: &Account) -> anyhow::Result<()> {
        let down = Instant::now();
        send(self.pid()?, Signal::SIGTERM)?;
        let status = self.process.wait()?;
        account.was_down(down, Instant::now() + LIMIT);
        if !status.success() {
            bail!("the binary ended with {status} when it was asked to stop");
        }
        self.expect_nothing_left()
    }

    /// Ends the binary and starts it again.
    fn renew(&mut self, signal: Signal, account: &Account) -> anyhow::Result<()> {
        let down = Instant::now();
        send(self.pid()?, signal)?;
        let status = self.process.wait()?;
        if signal == Signal::SIGTERM && !status.success() {
            bail!("the binary ended with {status} when it was asked to stop");
        }
        self.expect_nothing_left()?;
        self.process = spawn(&self.binary, self.folder.path(), &self.python, self.port)?;
        let address = self.address();
        let up = interrupt::wait_for(LIMIT, || {
            Ok(std::net::TcpStream::connect(&address).ok().map(drop))
        })?;
        up.context("it does not listen again")?;
        account.was_down(down, Instant::now());
        Ok(())
    }

    fn expect_running(&mut self) -> anyhow::Result<()> {
        match self.process.try_wait()? {
            Some(status) => bail!("the binary ended by itself ({status})"),
            None => Ok(()),
        }
    }

    /// After the binary's end nothing of it may live for more than two seconds.
    fn expect_nothing_left(&self) -> anyhow::Result<()> {
        let folder = self.folder.path();
        let gone = interrupt::wait_for(Duration::from_secs(2), || {
            Ok(processes_of(folder)?.is_empty().then_some(()))
        })?;
        match gone {
            Some(()) => Ok(()),
            None => bail!("left behind: {:?}", processes_of(folder)?),
        }
    }

    fn pid(&self) -> anyhow::Result<i32> {
        self.process
            .id()
            .try_into()
            .context("a process id over 2^31")
    }

    fn give_vice(&self, vice: &str, pid: i32) -> anyhow::Result<()> {
        // Written elsewhere and moved, so that the worker never reads half a number.
        let new = self.folder.path().join("new-vice");
        fs::write(&new, pid.to_string())?;
        fs::rename(new, self.folder.path().join(vice)).context("cannot give a vice")
    }

    fn take_vice(&self, fault: Fault) -> anyhow::Result<()> {
        match fault.vice() {
            Some(vice) => {
                fs::remove_file(self.folder.path().join(vice)).context("cannot take a vice")
            }
            None => Ok(()),
        }
    }

    /// Another process of the worker than this one was.
    fn worker_after(&mut self, before: &Worker) -> anyhow::Result<Worker> {
        let after = interrupt::wait_for(LIMIT, || {
            self.expect_running()?;
            Ok(self.worker().ok().filter(|now| now.pid != before.pid))
        })?;
        after.with_context(|| format!("the worker was not replaced in {LIMIT:?}"))
    }

    /// The worker, while it has a process.
    fn worker(&self) -> anyhow::Result<Worker> {
        let text = self.control(&["status", "--json"])?;
        let workers: Value = serde_json::from_str(&text)?;
        let worker = &workers[0];
        let number = |key: &str| worker[key].as_u64();
        Ok(Worker {
            state: worker["state"].as_str().context("no state")?.to_owned(),
            pid: number("pid").context("no process")?.try_into()?,
            restarts: number("restarts").context("no restarts")?,
        })
    }

    fn control(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.binary)
            .arg("worker")
            .args(arguments)
            .args(["--pid", &self.process.id().to_string()])
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("not text")
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Gone already, or about to be.
        let _ = self.process.kill();
        let _ = self.process.wait();
        for pid in processes_of(self.folder.path()).unwrap_or_default() {
            let _ = send(pid, Signal::SIGKILL);
        }
    }
}

fn spawn(binary: &Path, folder: &Path, python: &Path, port: u16) -> anyhow::Result<Child> {
    Command::new(binary)
        .args(["--", "none"])
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("OMNI_JEV_BIND", format!("127.0.0.1:{port}"))
        .env("OMNI_JEV_ADMIN_BIND", "off")
        .env("OMNI_JEV_LOG", "error")
        .env("OMNI_JEV_BACKEND_TIMEOUT", "2s")
        .env("OMNI_JEV_DRAIN_TIMEOUT", "5s")
        .env("OMNI_JEV_WORKER_PYTHON", python)
        .env("OMNI_JEV_WORKER_HANG_TIMEOUT", "3s")
        .env("OMNI_JEV_WORKER_MAX_RSS", "200MiB")
        // The soak is one failure after the other: giving up is shown by the tests.
        .env("OMNI_JEV_WORKER_MAX_FAILURES", "1000000")
        .env("OMNI_JEV_WORKER_MAX_RESTART_DELAY", "200ms")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))
}

fn send(pid: i32, signal: Signal) -> anyhow::Result<()> {
    kill(Pid::from_raw(pid), signal).with_context(|| format!("cannot send {signal} to {pid}"))
}

/// Every living process that was started with this runtime folder, but for the soak's own look at
/// the status, which is over by then.
fn processes_of(folder: &Path) -> anyhow::Result<Vec<i32>> {
    let mark = format!("XDG_RUNTIME_DIR={}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("the soak needs Linux's /proc")? {
        let path = entry?.path();
        let pid = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        // One that ended meanwhile cannot be read, and a zombie has no environment.
        let (Some(pid), Ok(environment)) = (pid, fs::read(path.join("environ"))) else {
            continue;
        };
        if environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == mark.as_bytes())
        {
            found.push(pid);
        }
    }
    Ok(found)
}
