//! Why supervision could not begin.

use std::io;
use std::path::PathBuf;

/// Why [`start`](crate::start) could not begin. Nothing runs after it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The private folder for the socket could not be made.
    #[error("cannot make a private folder for the worker's socket in {}: {source}", base.display())]
    Folder {
        /// Where it was tried last.
        base: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A socket in this folder would have a longer path than a socket address holds.
    #[error(
        "a socket in {} would have a path of {length} bytes, and {limit} is the most; \
         set XDG_RUNTIME_DIR to a shorter folder",
        base.display()
    )]
    PathTooLong {
        /// Where it was tried last.
        base: PathBuf,
        /// The path's length in bytes.
        length: usize,
        /// The longest path in bytes.
        limit: usize,
    },
    /// The supervisor's own thread or its event loop could not be started.
    #[error("cannot start the supervisor's thread: {0}")]
    Thread(#[source] io::Error),
    /// The operating system gave no random numbers.
    #[error("the operating system gives no random numbers: {0}")]
    Random(#[source] io::Error),
}
