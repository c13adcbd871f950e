//! Starting supervision, and holding on to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use tokio::sync::{mpsc, watch};

use crate::driver::{Command, Driver};
use crate::folder::PrivateFolder;
use crate::journal::Journal;
use crate::machine::{Load, Machine};
use crate::ring::{LogEntry, Ring};
use crate::{
    Failure, FailureKind, Outcome, StartError, WorkerSpec, WorkerState, WorkerStatus, random,
};

/// A supervised worker. When the last clone is dropped the worker is stopped.
#[derive(Debug, Clone)]
pub struct Handle {
    status: watch::Receiver<WorkerStatus>,
    outcome: watch::Receiver<Option<Outcome>>,
    commands: mpsc::UnboundedSender<Command>,
    ring: Ring,
}

/// Starts supervising the worker that `spec` describes.
///
/// The work is done on a thread of its own, which lives until the outcome is known. Linux sends a
/// parent-death signal when the *thread* that spawned a child ends, so the thread must outlive the
/// child; and a data path that is busy must not delay the probes. It may be called from inside or
/// outside any async runtime. Log events go to the subscriber that is current here.
///
/// # Errors
///
/// [`StartError`] if the private folder for the socket or the thread cannot be made. A program
/// that cannot be run is an [`Outcome`], not an error of this function.
pub fn start(spec: WorkerSpec) -> Result<Handle, StartError> {
    let seed = random::bits()?;
    let folder = PrivateFolder::create(spec.runtime_dir.as_deref())?;
    let ring = Ring::default();
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let (journal, flushed) =
        Journal::open(&spec.name, dispatch.clone(), ring.clone()).map_err(StartError::Thread)?;

    let machine = Machine::new(&spec.name, spec.policy.clone(), seed, Instant::now());
    let (status_sender, status) = watch::channel(machine.status().clone());
    let (outcome_sender, outcome) = watch::channel(None);
    let (commands, queue) = mpsc::unbounded_channel();
    let thread_name = format!("supervise-{}", spec.name);
    let driver = Driver::new(spec, machine, folder, journal, status_sender.clone(), queue);

    thread::Builder::new()
        .name(thread_name)
        .spawn(move || {
            let outcome = tracing::dispatcher::with_default(&dispatch, || supervise(driver));
            if matches!(&outcome, Outcome::Failed(failure) if failure.kind == FailureKind::Internal)
            {
                // The machine could not say so itself, and its last word may have been `ready`.
                status_sender.send_modify(mark_broken);
            }
            flushed.wait();
            outcome_sender.send_replace(Some(outcome));
        })
        .map_err(StartError::Thread)?;
    Ok(Handle {
        status,
        outcome,
        commands,
        ring,
    })
}

/// Runs the driver to its end. Everything that belongs to it is gone afterwards.
fn supervise(driver: Driver) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return broken(format!("cannot start the supervisor's event loop: {error}")),
    };
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(driver.run())))
        .unwrap_or_else(|_| broken("the supervisor broke; this is a fault in it".to_owned()))
}

fn broken(reason: String) -> Outcome {
    Outcome::Failed(Failure {
        kind: FailureKind::Internal,
        reason,
        exit_code: None,
    })
}

fn mark_broken(status: &mut WorkerStatus) {
    status.state = WorkerState::Failed;
    status.since = Instant::now();
    "the worker has failed and is not tried again".clone_into(&mut status.message);
    status.socket = None;
    status.pid = None;
    status.started_at = None;
    status.about = None;
    status.memory = None;
    status.instance = None;
    status.expected_ready_at = None;
}

impl Handle {
    /// The worker's status, now and as it changes. The last one stays readable after the end.
    pub fn status(&self) -> watch::Receiver<WorkerStatus> {
        self.status.clone()
    }

    /// Asks for a stop: SIGTERM to the worker's group, and SIGKILL after its grace. Returns at
    /// once; [`outcome`](Self::outcome) tells the end.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Asks for a stop without grace: SIGKILL now. For a second Ctrl-C.
    pub fn kill(&self) {
        self.send(Command::Kill);
    }

    /// Asks for another process in place of the one that runs, or for one after a
    /// [`halt`](Self::halt). What the old one has is answered first, within the policy's limit.
    pub fn restart(&self) {
        self.send(Command::Restart);
    }

    /// Asks for no process until a [`restart`](Self::restart): supervision itself goes on.
    pub fn halt(&self) {
        self.send(Command::Halt);
    }

    /// Asks for no further process: the one that lives serves on until it ends by itself or
    /// [`stop`](Self::stop) is asked for, and its end is then the end of supervision. For whoever is about
    /// to stop and still has requests in flight.
    pub fn retire(&self) {
        self.send(Command::Retire);
    }

    /// Tells what requests the worker of this generation has. Its health may answer while nothing
    /// else does: unanswered over the policy's limit it counts as hung. Told often (several times
    /// within [`Policy::quiet`](crate::Policy::quiet)) it also lets replacements wait for a moment
    /// without requests; never told, they do not wait.
    pub fn report_load(&self, generation: u64, load: Load) {
        self.send(Command::Load { generation, load });
    }

    /// The last lines that the worker wrote and the supervisor wrote about it, at most `most` and
    /// never more than a thousand, oldest first.
    pub fn recent_log(&self, most: usize) -> Vec<LogEntry> {
        self.ring.last(most)
    }

    /// Waits for the end: the worker's processes are gone, its folder is removed, its last log
    /// lines are out.
    pub async fn outcome(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        match outcome.wait_for(Option::is_some).await {
            Ok(known) => known.clone(),
            Err(_) => None,
        }
        .unwrap_or_else(|| broken("the supervisor's thread is gone".to_owned()))
    }

    fn send(&self, command: Command) {
        // Nobody listens once it is over, and then there is nothing left to do.
        let _ = self.commands.send(command);
    }
}
