//! Why a frontend does not start, or ends unasked.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::ConfigError;

/// Why a frontend did not start. Nothing is left listening.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting that cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address for clients.
    #[error("cannot listen at {address}: {source}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The address of the admin listener.
    #[error("cannot listen at {address} for the admin pages: {source}")]
    AdminBind {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The roots that an `https://` backend is checked by.
    #[error("cannot check an https backend: {0}")]
    Roots(String),
    /// The file that the trace is to be written to.
    #[error("cannot write the trace {}: {source}", path.display())]
    Trace {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Lanes were asked for, and there is none.
    #[error("there is no lane")]
    NoLane,
    /// The system gives no thread, or no event queue to one.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Why a frontend ended other than by being drained or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrontendError {
    /// A defect: what it printed says where.
    #[error("a forwarding thread failed")]
    ThreadFailed,
}
