//! Keeps one worker process alive: spawns it on a private Unix socket, learns when it is ready,
//! restarts it when it dies or hangs, and leaves nothing behind when it stops.
//!
//! The crate has two halves. [`machine`] decides: a pure state machine, events in and actions out,
//! with no clock, process or socket of its own. Everything else carries out what it decides: a
//! thread of its own for each worker (see [`start`] for why), pipes drained by line, health probes,
//! signals to the worker's process group, and a private folder for its socket.
//!
//! What others see of a worker is one value, [`WorkerStatus`], through a `tokio::sync::watch`
//! channel. The crate knows nothing of the requests that the worker answers.
//!
//! ```no_run
//! use omni_jev_supervisor::{Outcome, WorkerSpec, WorkerState, start};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut spec = WorkerSpec::new("main", "/usr/bin/python3");
//! spec.args = ["-m", "some_worker"].map(Into::into).to_vec();
//! let worker = start(spec)?;
//! let mut status = worker.status();
//! status.wait_for(|now| now.state == WorkerState::Ready).await?;
//! worker.stop();
//! assert!(matches!(worker.outcome().await, Outcome::Stopped { .. }));
//! # Ok(())
//! # }
//! ```

#[cfg(not(unix))]
compile_error!("the supervisor needs Unix: process groups, signals and Unix sockets");

mod driver;
mod error;
mod exit;
mod folder;
mod handle;
mod journal;
mod lines;
mod log_line;
pub mod machine;
mod memory;
mod orphans;
mod outcome;
mod phase;
mod probe;
mod process;
mod random;
mod recover;
mod ring;
mod spec;
mod status;
mod strays;

pub use error::StartError;
pub use exit::Exit;
pub use folder::PrivateFolder;
pub use handle::{Handle, start};
pub use machine::Load;
pub use orphans::reap_orphans;
pub use outcome::{Failure, FailureKind, Outcome};
pub use phase::{Phase, UnknownPhase};
pub use ring::LogEntry;
pub use spec::{Hopeless, Policy, ProbePolicy, RestartPolicy, WorkerSpec};
pub use status::{About, LastExit, WorkerState, WorkerStatus};
