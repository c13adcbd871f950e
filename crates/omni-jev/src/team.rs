//! The workers by name. The first one answers the requests; the others live beside it.

use std::sync::{Mutex, PoisonError};

use omni_jev_supervisor::{
    Handle, LogEntry, Outcome, StartError, WorkerSpec, WorkerState, WorkerStatus,
};
use tracing::error;

/// All workers of this process, in the order of the settings.
#[derive(Debug)]
pub(crate) struct Team {
    first: Handle,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    spec: WorkerSpec,
    /// Replaced when a worker that had failed for good is started again.
    handle: Mutex<Handle>,
    is_first: bool,
}

/// There is no worker of this name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no worker called {0}")]
pub(crate) struct NoSuchWorker(String);

impl Team {
    /// Starts every worker; nothing is left of those before one that cannot be supervised.
    pub(crate) fn start(specs: Vec<WorkerSpec>) -> Result<Self, StartError> {
        let mut members = Vec::new();
        for spec in specs {
            let handle = Mutex::new(omni_jev_supervisor::start(spec.clone())?);
            let is_first = members.is_empty();
            members.push(Member {
                spec,
                handle,
                is_first,
            });
        }
        for member in members.iter().skip(1) {
            member.log_failure();
        }
        let first = members.first().map(Member::handle);
        Ok(Self {
            // There is no team without a worker: the settings always have one.
            first: first.ok_or(StartError::Thread(std::io::ErrorKind::InvalidInput.into()))?,
            members,
        })
    }

    /// The worker that answers the requests.
    pub(crate) fn first(&self) -> &Handle {
        &self.first
    }

    pub(crate) fn statuses(&self) -> Vec<WorkerStatus> {
        self.members.iter().map(Member::status).collect()
    }

    pub(crate) fn status(&self, name: &str) -> Result<WorkerStatus, NoSuchWorker> {
        self.member(name).map(Member::status)
    }

    /// Asks for another process of this worker, also after it was stopped or has failed for good.
    pub(crate) fn restart(&self, name: &str) -> Result<Result<(), StartError>, NoSuchWorker> {
        self.member(name).map(Member::restart)
    }

    /// Asks this worker to stop until it is restarted.
    pub(crate) fn halt(&self, name: &str) -> Result<(), NoSuchWorker> {
        self.member(name).map(|member| member.handle().halt())
    }

    pub(crate) fn log(&self, name: &str, lines: usize) -> Result<Vec<LogEntry>, NoSuchWorker> {
        self.member(name)
            .map(|member| member.handle().recent_log(lines))
    }

    /// Lets every process that runs be the last one of its worker.
    pub(crate) fn retire(&self) {
        for member in &self.members {
            member.handle().retire();
        }
    }

    /// Asks all to stop for good.
    pub(crate) fn stop(&self) {
        for member in &self.members {
            member.handle().stop();
        }
    }

    /// Kills all.
    pub(crate) fn kill(&self) {
        for member in &self.members {
            member.handle().kill();
        }
    }

    /// Waits until none is left.
    pub(crate) async fn gone(&self) {
        for member in &self.members {
            member.handle().outcome().await;
        }
    }

    fn member(&self, name: &str) -> Result<&Member, NoSuchWorker> {
        self.members
            .iter()
            .find(|member| member.spec.name == name)
            .ok_or_else(|| NoSuchWorker(name.to_owned()))
    }
}

impl Member {
    fn handle(&self) -> Handle {
        self.handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn status(&self) -> WorkerStatus {
        self.handle().status().borrow().clone()
    }

    fn restart(&self) -> Result<(), StartError> {
        // The first one's failure ends the process, so it is never started a second time here.
        if self.is_first || self.status().state != WorkerState::Failed {
            self.handle().restart();
            return Ok(());
        }
        let again = omni_jev_supervisor::start(self.spec.clone())?;
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = again;
        self.log_failure();
        Ok(())
    }

    /// Says so when this worker fails for good, which ends nothing else.
    fn log_failure(&self) {
        let (handle, worker) = (self.handle(), self.spec.name.clone());
        tokio::spawn(async move {
            if let Outcome::Failed(failure) = handle.outcome().await {
                error!(worker, reason = %failure, "a worker has failed for good; the others go on");
            }
        });
    }
}
