//! A backend that closes, stalls, cuts, lies and comes late: a short version of
//! `examples/chaos`, which says how the long one is run.

#[path = "../../examples/chaos/backend.rs"]
pub(crate) mod backend;
#[path = "../../examples/chaos/clients.rs"]
mod clients;
#[path = "../../examples/chaos/plan.rs"]
pub(crate) mod plan;

use std::sync::atomic::Ordering;
use std::time::Duration;

use omni_jev_frontend::{Backend, Config};

use crate::support::*;

#[test]
fn whatever_the_backend_does_every_client_gets_the_right_outcome() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (address, complaints) = runtime.block_on(backend::start()).unwrap();
    let endpoint = format!("http://{address}").parse().unwrap();
    let config = Config {
        backend_timeout: plan::BACKEND_TIMEOUT,
        max_response_bytes: plan::MAX_ANSWER,
        pool_idle: Duration::from_secs(1),
        ..config()
    };
    let fixture = start(config, Backend::ready(endpoint, 1));
    let tally = runtime.block_on(clients::run(fixture.frontend.address(), 4000, 64, 7));
    assert_eq!((tally.wrong, tally.hung), (0, 0), "{:#?}", tally.examples);
    let malformed = complaints.malformed.lock().unwrap();
    assert!(malformed.is_empty(), "{malformed:#?}");
    assert_eq!(complaints.kept_waiting.load(Ordering::Relaxed), 0);
    let outcomes = tally.right.len();
    assert!(outcomes > 25, "only {outcomes} plans were drawn");
}
