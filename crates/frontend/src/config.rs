//! What may be set about the data path, and its defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// A semaphore of tokio's holds no more.
const MOST_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

/// Every limit and time-out of the data path.
///
/// Plain fields, so that whoever reads settings fills it in as it likes;
/// [`Frontend::start`](crate::Frontend::start) refuses values that cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect. Port 0 takes a free one.
    pub bind: SocketAddr,
    /// Where `/livez`, `/readyz`, `/metrics` and the status page are; `None` for nowhere.
    pub admin_bind: Option<SocketAddr>,
    /// From a request's dispatch to its answer's last byte; then 504.
    pub backend_timeout: Duration,
    /// How long a request whose connection broke waits to learn from
    /// [`Requests::lost`](crate::Requests::lost) why, before it is answered
    /// without that. Zero where nobody will tell.
    pub loss_grace: Duration,
    /// The part of that which connecting may take; then 502.
    pub connect_timeout: Duration,
    /// How long an idle backend connection is kept for another request. It has
    /// to be shorter than the backend's own limit (uvicorn: 5 s), or requests
    /// are sent into connections that the backend is closing.
    pub pool_idle: Duration,
    /// Roots to trust for an `https://` backend (PEM), in place of the platform's.
    pub backend_roots: Option<PathBuf>,
    /// Largest request body in bytes; over it, 413.
    pub max_request_bytes: usize,
    /// Largest response body in bytes; over it, 502.
    pub max_response_bytes: usize,
    /// Longest request target in bytes; over it, 414.
    pub max_target_bytes: usize,
    /// Largest request head (request line and headers) in bytes; over it, 431.
    pub max_head_bytes: usize,
    /// Requests being forwarded at once; over it, 503 with `Retry-After`.
    pub max_in_flight: usize,
    /// Requests at once at each backend with a Unix socket, a worker; over it, they wait here in
    /// turn. A worker's event loop comes to the next thing only when it has read all that has
    /// come: thousands at once would keep it from answers that are there, and from the probes
    /// that tell whether it is alive.
    pub max_at_worker: usize,
    /// Client connections open at once; over it, accepting waits, and connections that
    /// have been idle for five seconds are closed.
    pub max_connections: usize,
    /// Bytes of bodies over 64 KiB held at once, of requests and of answers; over
    /// it, 503 with `Retry-After`. Bounds memory: bodies are held whole before they
    /// go on, and an answer's until its client has taken it.
    pub max_buffered_bytes: usize,
    /// From a request's first byte to the end of its head; then 408.
    pub head_timeout: Duration,
    /// Longest pause in a request body, and the lead it has over 16 KiB/s; then 408.
    pub body_timeout: Duration,
    /// Longest wait for a client to take more of its answer, and the lead it has
    /// over 16 KiB/s; then its connection is closed.
    pub send_timeout: Duration,
    /// How long a client's connection may be idle between requests. The official
    /// Python client keeps its own for 30 s, so this is longer.
    pub keep_alive: Duration,
    /// How long a drain waits for what is in flight.
    pub drain_timeout: Duration,
    /// How long, from a drain's start, connections are still accepted and idle
    /// ones kept, so that a load balancer can see `/readyz` and no request that
    /// is already on its way is lost.
    pub drain_grace: Duration,
    /// Threads that forward. Each has its own connections and shares nothing hot.
    pub threads: usize,
    /// Where a line of JSON is written for each decision, with where it went and when what
    /// happened to it; only with lanes.
    pub trace: Option<PathBuf>,
    /// Add `via` and `x-forwarded-for` to forwarded requests.
    pub forwarded_headers: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin_bind: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8081))),
            backend_timeout: Duration::from_mins(1),
            loss_grace: Duration::ZERO,
            connect_timeout: Duration::from_secs(5),
            pool_idle: Duration::from_secs(4),
            backend_roots: None,
            max_request_bytes: 8 * MIB,
            max_response_bytes: 16 * MIB,
            max_target_bytes: 8 * KIB,
            max_head_bytes: 32 * KIB,
            max_in_flight: 512,
            max_at_worker: MOST_PERMITS,
            max_connections: 4096,
            max_buffered_bytes: 512 * MIB,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(30),
            drain_grace: Duration::from_millis(250),
            threads: 1,
            trace: None,
            forwarded_headers: false,
        }
    }
}

/// A value of [`Config`] that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit that would refuse everything.
    #[error("{field} must be at least {least}")]
    TooSmall {
        /// The field of [`Config`].
        field: &'static str,
        /// The least that works.
        least: usize,
    },
    /// A limit past what the HTTP library can hold.
    #[error("{field} must be at most {most}")]
    TooLarge {
        /// The field of [`Config`].
        field: &'static str,
        /// The most that works.
        most: usize,
    },
    /// A time-out of zero.
    #[error("{field} must be longer than zero")]
    ZeroTime {
        /// The field of [`Config`].
        field: &'static str,
    },
}

impl Config {
    /// Whether every value can work.
    ///
    /// # Errors
    ///
    /// The first field that cannot, with the bound that it breaks.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (field, value, least, most) in [
            ("max_request_bytes", self.max_request_bytes, 1, usize::MAX),
            ("max_response_bytes", self.max_response_bytes, 1, usize::MAX),
            // A URI of the `http` crate holds 65,534 bytes, a path prefix included.
            ("max_target_bytes", self.max_target_bytes, 16, 60 * KIB),
            ("max_head_bytes", self.max_head_bytes, 256, MIB),
            ("max_in_flight", self.max_in_flight, 1, usize::MAX),
            ("max_at_worker", self.max_at_worker, 1, MOST_PERMITS),
            ("max_connections", self.max_connections, 1, MOST_PERMITS),
            ("threads", self.threads, 1, 256),
        ] {
            if value < least {
                return Err(ConfigError::TooSmall { field, least });
            }
            if value > most {
                return Err(ConfigError::TooLarge { field, most });
            }
        }
        for (field, value) in [
            ("backend_timeout", self.backend_timeout),
            ("connect_timeout", self.connect_timeout),
            ("head_timeout", self.head_timeout),
            ("body_timeout", self.body_timeout),
            ("send_timeout", self.send_timeout),
            ("keep_alive", self.keep_alive),
        ] {
            if value.is_zero() {
                return Err(ConfigError::ZeroTime { field });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_work() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_limit_that_would_refuse_everything_is_named() {
        let config = Config {
            max_in_flight: 0,
            ..Config::default()
        };
        assert_eq!(
            config.check().unwrap_err().to_string(),
            "max_in_flight must be at least 1"
        );
    }

    #[test]
    fn a_time_out_of_zero_is_named() {
        let config = Config {
            backend_timeout: Duration::ZERO,
            ..Config::default()
        };
        assert_eq!(
            config.check().unwrap_err().to_string(),
            "backend_timeout must be longer than zero"
        );
    }
}
