//! `omni-jev worker …`: a look at the workers of a running `omni-jev`, and a word to them.
//!
//! The admin listener answers whoever reaches its port, so it only ever shows. What changes something has a way of its
//! own: a Unix socket with the mode 0600 in a folder with the mode 0700. The file system then says who may use it (the
//! same user and root), there is no token to make, hand over and leak, no port to find, and it is there when the admin
//! listener is `off`. In a container `docker exec` reaches it.

pub(crate) mod client;
mod report;
pub(crate) mod server;

use clap::{Args, Subcommand};

/// The socket's name in its private folder.
const SOCKET: &str = "control.sock";

/// The file in its place of a process that keeps no worker alive.
const NO_WORKERS: &str = "no-workers";

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// State, phase, process, restarts with their reasons, device, checkpoint and memory of every worker
    Status {
        /// Only this worker
        name: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Replaces a worker's process once it has answered what it has; starts one that was stopped or has failed
    Restart {
        #[command(flatten)]
        one: One,
    },
    /// Stops a worker until it is restarted; requests are answered 503 meanwhile
    Stop {
        #[command(flatten)]
        one: One,
    },
    /// The last lines that a worker wrote
    Logs {
        /// How many lines, 1000 at most
        #[arg(long, short = 'n', default_value_t = 100)]
        lines: usize,
        /// As JSON, one object a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        one: One,
    },
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The worker's name; may be left out where there is only one
    name: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The process id of the omni-jev, where several run
    #[arg(long)]
    pid: Option<u32>,
}
