//! Refuses what cannot be forwarded, before the HTTP library reads it.
//!
//! The library's server accepts some heads that a proxy may not (a length beside
//! a transfer coding, two hosts) without the service ever seeing it, and answers
//! others with an empty body that has no id and is in no log. So the bytes of
//! each connection pass an [`Inspector`](inspector::Inspector) on their way to it,
//! which knows where each message begins and ends, and lets on only what is valid.
//! The library then does all the rest; what it reads has been checked, not changed.

pub(crate) mod chunks;
pub(crate) mod guard;
pub(crate) mod head;
pub(crate) mod inspector;
pub(crate) mod pace;
pub(crate) mod target;

/// Most headers that one request may have: the library parses this many on its stack.
pub(crate) const MAX_HEADERS: usize = 100;

/// The bounds that a request is held to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of the request target.
    pub(crate) target: usize,
    /// Bytes of the whole head; also of a chunked body's trailers.
    pub(crate) head: usize,
    /// Bytes of the body, without its chunks' framing.
    pub(crate) body: u64,
}

impl From<&crate::Config> for Limits {
    fn from(config: &crate::Config) -> Self {
        Self {
            target: config.max_target_bytes,
            head: config.max_head_bytes,
            body: u64::try_from(config.max_request_bytes).unwrap_or(u64::MAX),
        }
    }
}
