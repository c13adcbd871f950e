//! The three ages of a frontend, told to every thread.

use std::time::Instant;

/// Sent through a `watch` channel; it only ever moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Accepting and forwarding.
    Serving,
    /// Finishing what is in flight, since the given time.
    Draining(Instant),
    /// Everything still open is dropped.
    Stopped,
}
