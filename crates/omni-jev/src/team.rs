//! The workers by name. Those that serve answer the requests, the first one if none else; the others live beside them.

use omni_jev_supervisor::{
    Failure, Handle, LogEntry, Outcome, StartError, WorkerSpec, WorkerState, WorkerStatus,
};
use tokio::sync::watch;
use tracing::error;

/// All workers of this process, in the order of the settings.
#[derive(Debug)]
pub(crate) struct Team {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    spec: WorkerSpec,
    /// Replaced when a worker that had failed for good is started again.
    handle: watch::Sender<Handle>,
    serves: bool,
    /// Whether its failure ends the process: it is the only one that serves.
    is_vital: bool,
}

/// There is no worker of this name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no worker called {0}")]
pub(crate) struct NoSuchWorker(String);

impl Team {
    /// Starts every worker, of which those at `serving` answer requests; nothing is left of those before one that cannot
    /// be supervised.
    pub(crate) fn start(specs: Vec<WorkerSpec>, serving: &[usize]) -> Result<Self, StartError> {
        let mut members = Vec::new();
        for (place, spec) in specs.into_iter().enumerate() {
            let (handle, _) = watch::channel(omni_jev_supervisor::start(spec.clone())?);
            let serves = serving.contains(&place);
            members.push(Member {
                spec,
                handle,
                serves,
                is_vital: serves && serving.len() == 1,
            });
        }
        for member in members.iter().filter(|member| !member.is_vital) {
            member.log_failure();
        }
        Ok(Self { members })
    }

    /// The supervision of a worker, now and as it is begun anew.
    pub(crate) fn supervision(&self, place: usize) -> Option<watch::Receiver<Handle>> {
        self.members
            .get(place)
            .map(|member| member.handle.subscribe())
    }

    /// Waits until no worker is left that could serve: until the only one, or all of them, have failed for good. `None`
    /// if they were stopped instead.
    pub(crate) async fn failed(&self) -> Option<Failure> {
        let serving = || self.members.iter().filter(|member| member.serves);
        loop {
            let mut last = None;
            for member in serving() {
                last = Some(member.handle().outcome().await);
            }
            let has_ended =
                |member: &Member| member.status().state == WorkerState::Failed || member.is_vital;
            match last {
                Some(Outcome::Failed(failure)) if serving().all(has_ended) => return Some(failure),
                Some(Outcome::Failed(_)) => {}
                Some(Outcome::Stopped { .. }) | None => return None,
            }
        }
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
        self.handle.borrow().clone()
    }

    fn status(&self) -> WorkerStatus {
        self.handle().status().borrow().clone()
    }

    fn restart(&self) -> Result<(), StartError> {
        // The failure of the only one that serves ends the process, so it is never started a second time here.
        if self.is_vital || self.status().state != WorkerState::Failed {
            self.handle().restart();
            return Ok(());
        }
        let again = omni_jev_supervisor::start(self.spec.clone())?;
        self.handle.send_replace(again);
        self.log_failure();
        Ok(())
    }

    /// Says so when this worker fails for good, which ends nothing else.
    fn log_failure(&self) {
        let (handle, worker) = (self.handle(), self.spec.name.clone());
        tokio::spawn(async move {
            // Why is in the log already.
            if let Outcome::Failed(_) = handle.outcome().await {
                error!(
                    worker,
                    "this worker is not started any more; the others go on"
                );
            }
        });
    }
}
