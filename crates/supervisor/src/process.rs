//! One worker process: spawned, drained, signalled, waited for.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal as Number, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncRead;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::journal::{Journal, Written};
use crate::lines::{Line, Lines};
use crate::log_line::LogLine;
use crate::machine::{Report, Signal};
use crate::orphans::Owned;
use crate::strays;
use crate::{Exit, WorkerSpec};

/// How long the rest of a dead process's output is read. Everyone in its group is dead by then, so
/// the pipes end at once unless a process that left the group holds them.
const LAST_OUTPUT: Duration = Duration::from_millis(300);
/// The most of a worker's last words that is kept, in characters.
const MAX_LAST_WORDS: usize = 500;

/// A process that has not been waited for. Its group is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Held, not written to: the worker ends when it closes, which it does with this process.
    _lifeline: Option<ChildStdin>,
    pid: u32,
    instance: String,
    control_token: String,
    socket: PathBuf,
    gone: bool,
    _owned: Owned,
    readers: JoinSet<()>,
    last_words: Arc<Mutex<LastWords>>,
}

#[derive(Debug, Default)]
struct LastWords {
    error: Option<String>,
    text: Option<String>,
}

/// Why a process could not be spawned.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {}: {source}", program.display())]
pub(crate) struct SpawnError {
    program: PathBuf,
    source: io::Error,
}

impl SpawnError {
    /// Whether the program is not there or not executable, rather than the machine short of
    /// something.
    pub(crate) fn cannot_run(&self) -> bool {
        use io::ErrorKind as Kind;
        matches!(
            self.source.kind(),
            Kind::NotFound | Kind::PermissionDenied | Kind::NotADirectory | Kind::IsADirectory
        ) || self.source.raw_os_error() == Some(nix::errno::Errno::ENOEXEC as i32)
    }
}

impl Process {
    /// Spawns the worker in a process group of its own. Returns it with the channel on which its
    /// latest report stands.
    pub(crate) fn spawn(
        spec: &WorkerSpec,
        instance: String,
        control_token: String,
        socket: &Path,
        journal: &Journal,
    ) -> Result<(Self, watch::Receiver<Option<Report>>), SpawnError> {
        let failed = |source| SpawnError {
            program: spec.program.clone(),
            source,
        };
        let mut child = command(spec, &instance, &control_token, socket)
            .spawn()
            .map_err(failed)?;
        let pid = child
            .id()
            .ok_or_else(|| failed(io::ErrorKind::Other.into()))?;
        let (reports, latest) = watch::channel(None);
        let last_words = Arc::default();
        let mut readers = JoinSet::new();
        let drain = Drain {
            pid,
            journal: journal.clone(),
            reports,
            last_words: Arc::clone(&last_words),
        };
        if let Some(stdout) = child.stdout.take() {
            readers.spawn(drain.clone().run(stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.spawn(drain.run(stderr));
        }
        let process = Self {
            // Taken out, because waiting for a child closes the end that it still holds.
            _lifeline: child.stdin.take(),
            child,
            pid,
            instance,
            control_token,
            socket: socket.to_path_buf(),
            gone: false,
            _owned: Owned::new(pid),
            readers,
            last_words,
        };
        Ok((process, latest))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What proves to it that a request comes from the supervisor.
    pub(crate) fn control_token(&self) -> &str {
        &self.control_token
    }

    /// Waits for its end. The only place that does. Safe to cancel and call again.
    pub(crate) async fn wait(&mut self) -> Exit {
        let exit = match self.child.wait().await {
            Ok(status) => Exit::from(status),
            // Someone else has waited for it, or the operating system does by itself.
            Err(_) => Exit::Unknown,
        };
        self.sweep();
        exit
    }

    /// Sends a signal to its whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        let number = match signal {
            Signal::Terminate => Number::SIGTERM,
            Signal::Abort => Number::SIGABRT,
            Signal::Kill => Number::SIGKILL,
        };
        self.signal_group(number);
        // A stopped process takes nothing but SIGKILL until it is continued.
        self.signal_group(Number::SIGCONT);
    }

    /// Reads the rest of what it wrote, removes its socket, and returns its last words.
    pub(crate) async fn bury(mut self) -> Option<String> {
        let readers = &mut self.readers;
        let drained = async { while readers.join_next().await.is_some() {} };
        // Late output is lost only if a process outside the group keeps the pipe open.
        let _ = tokio::time::timeout(LAST_OUTPUT, drained).await;
        // Usually not there any more, or never was.
        let _ = std::fs::remove_file(&self.socket);
        let mut words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        words.error.take().or(words.text.take())
    }

    /// Kills what is left after its leader is gone, in the group or out of it: grandchildren hold
    /// the device, and the socket.
    fn sweep(&mut self) {
        if !self.gone {
            self.gone = true;
            self.signal_group(Number::SIGKILL);
            strays::kill(&self.instance);
        }
    }

    fn signal_group(&self, signal: Number) {
        // Fails only if nobody is left in the group, which is what the signals are for.
        if let Ok(pid) = i32::try_from(self.pid) {
            let _ = killpg(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.sweep();
    }
}

fn command(spec: &WorkerSpec, instance: &str, token: &str, socket: &Path) -> Command {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .arg("--uds")
        .arg(socket)
        .envs(spec.env.iter().map(|(key, value)| (key, value)))
        .env("OMNI_JEV_LIFELINE", "stdin")
        .env("OMNI_JEV_SUPERVISOR_PID", std::process::id().to_string())
        .env("OMNI_JEV_INSTANCE", instance)
        .env("OMNI_JEV_CONTROL_TOKEN", token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// Reads one of its pipes to the end.
#[derive(Debug, Clone)]
struct Drain {
    pid: u32,
    journal: Journal,
    reports: watch::Sender<Option<Report>>,
    last_words: Arc<Mutex<LastWords>>,
}

impl Drain {
    async fn run<R: AsyncRead + Unpin>(self, pipe: R) {
        let mut lines = Lines::new(pipe);
        // A pipe that cannot be read is as good as one that ended.
        while let Ok(Some(line)) = lines.next().await {
            self.on_line(line);
        }
    }

    fn on_line(&self, line: Line) {
        let size = line.text.len();
        let written = if let Some(log) = LogLine::parse(&line.text) {
            if let Some(report) = log.report() {
                self.reports.send_replace(Some(report));
            }
            if log.level == tracing::Level::ERROR {
                self.remember(|words| words.error = Some(shortened(&log.message)));
            }
            Written::Log(log)
        } else {
            self.remember(|words| words.text = Some(shortened(&line.text)));
            Written::Text(line)
        };
        self.journal.line(self.pid, size, written);
    }

    fn remember(&self, what: impl FnOnce(&mut LastWords)) {
        what(
            &mut self
                .last_words
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(MAX_LAST_WORDS).collect()
}
