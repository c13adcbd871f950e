//! A connection for a request: one that was kept, or a new one, also where the backend is behind
//! with accepting.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::connect::{Opened, connect};
use super::pool::Connection;
use super::upstream::Target;
use crate::fault::Fault;
use crate::shard::Shard;
use crate::way::Way;

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// A connection, and whether an earlier request was on it.
pub(crate) enum Found {
    Kept(Box<Connection>),
    New(Box<Connection>),
}

/// The turns of those that wait for a connection to one backend: one of them tries, in the order
/// in which they came, and the others cost nothing.
pub(crate) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Turns {
    /// Whether anyone waits.
    pub(crate) fn are_taken(&self) -> bool {
        self.0.available_permits() == 0
    }
}

/// A connection that was kept and is alive, if there is one.
pub(crate) async fn kept(way: &Way, target: &Target, now: Instant) -> Option<Box<Connection>> {
    poll_fn(|cx| Poll::Ready(way.pool.take(cx, target.generation, now))).await
}

/// Finds a connection: waits where the backend's socket has no room for a new one, until it has or
/// a kept one is given back. With `fresh` only a new one will do. The caller bounds the time.
pub(crate) async fn find(
    shard: &Shard,
    way: &Way,
    target: &Target,
    fresh: bool,
) -> Result<Found, Fault> {
    let begun = Instant::now();
    let open = || connect(target, &shard.config, &shard.metrics, begun);
    if !way.turns.are_taken()
        && let Opened::Connected(connection) = open().await?
    {
        return Ok(Found::New(connection));
    }
    // Nothing closes the semaphore.
    let _turn = way.turns.0.acquire().await;
    let mut pause = SHORTEST_PAUSE;
    loop {
        if !fresh && let Some(connection) = kept(way, target, Instant::now()).await {
            return Ok(Found::Kept(connection));
        }
        if let Opened::Connected(connection) = open().await? {
            return Ok(Found::New(connection));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
