//! Between the supervisor and the frontend: how the worker is started, and what the frontend is told of it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use omni_jev_frontend::{Backend, Endpoint, Requests};
use omni_jev_supervisor::{Handle, Hopeless, ProbePolicy, WorkerSpec, WorkerStatus};
use serde_json::json;
use tokio::sync::watch;

use crate::settings::{Settings, Worker};
use crate::{cores, exit, python};

/// What the interpreter runs.
const MODULE: [&str; 2] = ["-m", "omni_jev_worker"];

/// Told to clients when nobody knows how long it will take.
const UNKNOWN_WAIT: Duration = Duration::from_secs(5);

/// How often the requests at the worker are counted for the supervisor.
const COUNT_EVERY: Duration = Duration::from_millis(200);

/// The worker's own flag for how long it finishes what it has.
const DRAIN_TIMEOUT: &str = "--drain-timeout";

/// The most that it takes.
const LONGEST_DRAIN: Duration = Duration::from_hours(1);

/// How often a waiting client's `Retry-After` is brought up to date.
const REFRESH: Duration = Duration::from_secs(1);

/// `python -m omni_jev_worker` with the flags and the patience that the settings ask for, and so many threads where it
/// shares the processor's cores with others.
pub(crate) fn spec(
    worker: &Worker,
    backend_timeout: Duration,
    python: PathBuf,
    threads: Option<usize>,
) -> WorkerSpec {
    let mut spec = WorkerSpec::new(&worker.name, python);
    spec.args = MODULE.map(OsString::from).to_vec();
    spec.args.extend(worker.args.0.iter().map(OsString::from));
    spec.args
        .extend(cores::flags(threads).into_iter().map(OsString::from));
    spec.args
        .extend(drain_flags(&worker.args.0, backend_timeout));
    let python = spec.program.display().to_string();
    let policy = &mut spec.policy;
    policy.start_deadline = worker.start_deadline;
    policy.stop_grace = worker.stop_grace;
    policy.restart.window = worker.restart_window;
    policy.restart.max_failures = u32::try_from(worker.max_failures).unwrap_or(u32::MAX);
    policy.restart.max_delay = worker.max_restart_delay;
    policy.probe = ProbePolicy::finding_hangs_within(worker.hang_timeout);
    policy.oldest_request_limit = backend_timeout.saturating_add(worker.hang_timeout);
    policy.leave_limit = backend_timeout;
    policy.max_memory = worker.max_rss;
    policy.recover_device = worker.recover_device;
    policy.hopeless = Some(Hopeless {
        last_words: "No module named omni_jev_worker".to_owned(),
        cure: format!(
            "{python} has no omni_jev_worker: run `cargo xtask setup`, which makes a .venv that has it, \
             or name a Python that has it in {}",
            worker.python_setting
        ),
    });
    spec
}

/// The first worker's flags, if with them it says something of itself (its help, its version) and serves nothing.
pub(crate) fn only_prints(settings: &Settings) -> Option<Vec<String>> {
    let prints = |arg: &String| matches!(arg.as_str(), "--help" | "-h" | "--version");
    let args = settings.first_args().0;
    (settings.supervises() && args.iter().any(prints)).then_some(args)
}

/// Becomes the worker (`exec`), so that what it prints and its exit code are its own. Returns only if that fails.
pub(crate) fn become_it(settings: &Settings, args: &[String]) -> ExitCode {
    let first = settings.workers().swap_remove(0);
    let python = match python::find(first.python.as_deref(), &first.python_setting) {
        Ok(python) => python,
        Err(error) => return exit::configuration(&error.to_string()),
    };
    let error = Command::new(&python).args(MODULE).args(args).exec();
    exit::configuration(&format!("cannot start {}: {error}", python.display()))
}

/// A worker that somebody else asks to stop may finish whatever the frontend still waits for. The supervisor itself
/// asks only when there is nothing of the kind.
fn drain_flags(args: &[String], backend_timeout: Duration) -> Vec<OsString> {
    let is_given = |arg: &String| arg == DRAIN_TIMEOUT || arg.starts_with("--drain-timeout=");
    if args.iter().any(is_given) {
        return Vec::new();
    }
    let seconds = format!("{:.3}", backend_timeout.min(LONGEST_DRAIN).as_secs_f64());
    vec![DRAIN_TIMEOUT.into(), seconds.into()]
}

/// Before the supervisor has said anything.
pub(crate) fn not_started() -> Backend {
    Backend::unavailable("the worker is starting", UNKNOWN_WAIT)
}

/// Keeps the frontend and the supervisor told of each other, whichever supervision the worker is under: it is another
/// one after a worker that had failed for good was started again.
pub(crate) async fn wire(
    mut handles: watch::Receiver<Handle>,
    backend: watch::Sender<Backend>,
    requests: Requests,
) {
    // The processes of earlier supervisions: the frontend counts on.
    let mut before = 0;
    loop {
        let handle = handles.borrow_and_update().clone();
        let link = Link {
            requests: requests.clone(),
            before,
        };
        let told = async {
            tokio::join!(
                link.forward_status(handle.status(), &backend),
                link.report_load(&handle)
            );
        };
        tokio::select! {
            () = told => {}
            changed = handles.changed() => if changed.is_err() { return },
        }
        before += handle.status().borrow().generation;
    }
}

/// Between one supervision and the frontend.
struct Link {
    requests: Requests,
    /// What the frontend counts a process as, beyond its number here.
    before: u64,
}

impl Link {
    /// Tells the supervisor of the requests at its worker, as long as there is a frontend.
    async fn report_load(&self, worker: &Handle) {
        let mut status = worker.status();
        let mut last = None;
        loop {
            let generation = status.borrow_and_update().generation;
            let load = self.requests.load(self.before + generation);
            // Nothing new is worth telling only while something waits: its age grows.
            if last != Some((generation, load)) {
                last = Some((generation, load));
                let load = omni_jev_supervisor::Load {
                    in_flight: load.in_flight,
                    unanswered_for: load.unanswered_for,
                };
                worker.report_load(generation, load);
            }
            // At once for a new process: one that nobody seems to count for is not waited for when it is replaced.
            tokio::select! {
                Ok(()) = status.changed() => {}
                () = tokio::time::sleep(COUNT_EVERY) => {}
            }
        }
    }

    /// Tells the frontend of every change of the worker's status, until the supervisor is gone.
    async fn forward_status(
        &self,
        mut status: watch::Receiver<WorkerStatus>,
        backend: &watch::Sender<Backend>,
    ) {
        loop {
            let (now, last_exit) = {
                let status = status.borrow_and_update();
                (
                    seen_by_frontend(&status, self.before),
                    status.last_exit.clone(),
                )
            };
            let ready = now.is_ready();
            backend.send_if_modified(|last| {
                let changed = *last != now;
                *last = now;
                changed
            });
            // After that: whoever is told so and asks again finds that there is no worker now.
            if let Some(last) = last_exit {
                let generation = self.before + last.generation;
                self.requests.lost(generation, last.summary.as_str());
            }
            let refresh = async {
                if ready {
                    std::future::pending::<()>().await;
                } else {
                    tokio::time::sleep(REFRESH).await;
                }
            };
            tokio::select! {
                changed = status.changed() => if changed.is_err() { return },
                () = refresh => {}
            }
        }
    }
}

/// The part of the worker's status that matters to requests.
fn seen_by_frontend(status: &WorkerStatus, before: u64) -> Backend {
    let detail = json!({
        "worker": status.name,
        "state": status.state.name(),
        "phase": status.phase.map(omni_jev_supervisor::Phase::name),
        "restarts": status.restarts,
    });
    let socket = status
        .socket
        .as_ref()
        .filter(|_| status.state.is_serving())
        .and_then(|path| Endpoint::unix(path).ok());
    match socket {
        Some(endpoint) => Backend::Ready {
            endpoint,
            generation: before + status.generation,
            detail,
        },
        None => Backend::Unavailable {
            message: status.message.clone(),
            retry_after: status
                .estimated_wait(Instant::now())
                .unwrap_or(UNKNOWN_WAIT),
            detail,
        },
    }
}
