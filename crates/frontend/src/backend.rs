//! What the frontend is told about the server it forwards to.

use std::time::Duration;

use crate::Endpoint;

/// Where the backend is, or why there is none; sent through a `watch` channel.
#[derive(Debug, Clone, PartialEq)]
pub enum Backend {
    /// Requests go to `endpoint`.
    Ready {
        /// Where to connect.
        endpoint: Endpoint,
        /// Changes when the process behind the endpoint does: connections kept
        /// from another generation are dropped, never reused.
        generation: u64,
        /// Shown as it is by `/readyz` and the status page; `Null` for nothing.
        detail: serde_json::Value,
    },
    /// Requests are answered 503 at once.
    Unavailable {
        /// Told to clients: what is the matter, and what happens next.
        message: String,
        /// Told to clients as `Retry-After`, rounded up to whole seconds.
        retry_after: Duration,
        /// Shown as it is by `/readyz` and the status page; `Null` for nothing.
        detail: serde_json::Value,
    },
}

impl Backend {
    /// A backend that is ready, with nothing more to show about it.
    pub fn ready(endpoint: Endpoint, generation: u64) -> Self {
        Self::Ready {
            endpoint,
            generation,
            detail: serde_json::Value::Null,
        }
    }

    /// A backend that is not ready, with nothing more to show about it.
    pub fn unavailable(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::Unavailable {
            message: message.into(),
            retry_after,
            detail: serde_json::Value::Null,
        }
    }

    /// Whether requests are forwarded.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }

    pub(crate) fn detail(&self) -> &serde_json::Value {
        match self {
            Self::Ready { detail, .. } | Self::Unavailable { detail, .. } => detail,
        }
    }
}
