//! The data path of omni-jev.
//!
//! A request walks one way: `listen` accepts its connection, `admit` keeps
//! the number of connections and requests bounded, `validate` refuses what
//! cannot be forwarded, `forward` sends the rest to the backend, and
//! `answer` turns what came of it into the one whole response that the
//! client gets. The library knows nothing of processes: whoever starts it says
//! through a `watch` channel where the backend is, or why there is none.
//!
//! ```
//! use omni_jev_frontend::{Backend, Config, Frontend, Registry};
//! use tokio::sync::watch;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let endpoint = "http://127.0.0.1:9000/base".parse()?;
//! let (_state, backend) = watch::channel(Backend::ready(endpoint, 1));
//! let config = Config {
//!     bind: "127.0.0.1:0".parse()?,
//!     admin_bind: None,
//!     ..Config::default()
//! };
//! let mut frontend = Frontend::start(config, backend, Registry::default())?;
//! assert_ne!(frontend.address().port(), 0);
//! frontend.drain();
//! assert_eq!(frontend.finished().await?.abandoned, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod access;
mod admin;
mod admit;
mod answer;
mod backend;
mod clock;
mod config;
mod connection;
mod endpoint;
mod fault;
mod forward;
mod frontend;
mod frontend_error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod identity;
mod lanes;
mod life;
mod listen;
mod metrics;
mod shard;
mod validate;
mod waiting;
mod way;

pub use backend::Backend;
pub use config::{Config, ConfigError};
pub use endpoint::{Endpoint, EndpointError};
pub use frontend::{Drained, Frontend};
pub use frontend_error::{FrontendError, StartError};
pub use lanes::LaneBackend;
pub use omni_jev_lanes::{CountTokens, Identity, LaneSpec, Limits, Point, Prior};
pub use prometheus_client::registry::Registry;
pub use waiting::{Load, Requests};
