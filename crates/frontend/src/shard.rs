//! What one thread has to itself, and its life.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;

use crate::admit::Gate;
use crate::clock::Clock;
use crate::connection;
use crate::identity::Identities;
use crate::lanes::{self, Lanes};
use crate::life::Life;
use crate::listen::Source;
use crate::metrics::{Metrics, RequestCounters};
use crate::waiting::Lost;
use crate::way::{Signs, Way};
use crate::{Backend, Config};

/// Bytes read from a client at once, by any connection of the thread.
const SCRATCH: usize = 64 * 1024;

/// What the threads have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) config: Arc<Config>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) metrics: Arc<Metrics>,
    /// One for each backend, never none.
    pub(crate) backends: Vec<Signs>,
    /// What chooses between them, if anything does; else all requests go to the first.
    pub(crate) lanes: Option<Arc<Lanes>>,
    pub(crate) life: watch::Receiver<Life>,
}

/// One thread's state; its connections share it without locks.
pub(crate) struct Shard {
    pub(crate) config: Arc<Config>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) requests: RequestCounters,
    pub(crate) clock: Clock,
    pub(crate) identities: Identities,
    pub(crate) server: hyper::server::conn::http1::Builder,
    /// Where every connection's bytes are read first, so that none needs a buffer
    /// of its own while it is idle.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    /// One for each backend, never none.
    pub(crate) ways: Vec<Way>,
    pub(crate) lanes: Option<Arc<Lanes>>,
    life: Cell<Life>,
    open: Cell<usize>,
    emptied: Notify,
}

impl Shard {
    pub(crate) fn new(common: &Common) -> Self {
        let config = Arc::clone(&common.config);
        Self {
            gate: Arc::clone(&common.gate),
            metrics: Arc::clone(&common.metrics),
            requests: RequestCounters::new(Arc::clone(&common.metrics)),
            clock: Clock::default(),
            identities: Identities::new(),
            server: server(&config),
            scratch: RefCell::new(vec![0; SCRATCH].into_boxed_slice()),
            ways: common
                .backends
                .iter()
                .map(|signs| Way::new(signs, &config))
                .collect(),
            lanes: common.lanes.clone(),
            life: Cell::new(Life::Serving),
            open: Cell::new(0),
            emptied: Notify::new(),
            config,
        }
    }

    /// Until when connections that are idle may still bring a request, once the
    /// end has begun.
    pub(crate) fn drain_grace_end(&self) -> Option<Instant> {
        match self.life.get() {
            Life::Serving => None,
            Life::Draining(since) => Some(since + self.config.drain_grace),
            Life::Stopped => Some(Instant::now()),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.life.get() != Life::Serving
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.life.get() == Life::Stopped
    }

    /// Serves a connection that was accepted; `place` is given back at its end.
    pub(crate) fn take(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
    ) {
        // Answers are written whole, so waiting to fill a packet only delays them.
        // Where it cannot be set, nothing is wrong but that.
        let _ = stream.set_nodelay(true);
        let presence = Presence::new(self, place);
        let shard = Rc::clone(self);
        tokio::task::spawn_local(async move {
            connection::serve(shard, stream, peer).await;
            drop(presence);
        });
    }
}

/// One open connection, in the counts.
struct Presence {
    shard: Rc<Shard>,
    _place: OwnedSemaphorePermit,
}

impl Presence {
    fn new(shard: &Rc<Shard>, place: OwnedSemaphorePermit) -> Self {
        shard.open.set(shard.open.get() + 1);
        shard.metrics.connections.inc();
        Self {
            shard: Rc::clone(shard),
            _place: place,
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let left = self.shard.open.get() - 1;
        self.shard.open.set(left);
        self.shard.metrics.connections.dec();
        if left == 0 {
            self.shard.emptied.notify_one();
        }
    }
}

fn server(config: &Config) -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        // The guard bounds the head's time and size, and answers in our words.
        .header_read_timeout(None)
        .max_buf_size((config.max_head_bytes + 16 * 1024).max(64 * 1024))
        // A forwarded answer has the backend's date or none.
        .auto_date_header(false);
    builder
}

/// A thread's whole life: from its first connection until all are closed.
/// Gives the number that were cut off because the drain's time was over.
pub(crate) async fn run(common: Common, source: Source) -> usize {
    let shard = Rc::new(Shard::new(&common));
    let mut background = JoinSet::new();
    background.spawn_local(keep_time(Rc::clone(&shard)));
    background.spawn_local(follow_life(Rc::clone(&shard), common.life.clone()));
    for (number, signs) in common.backends.into_iter().enumerate() {
        background.spawn_local(follow_backend(Rc::clone(&shard), number, signs.backend));
        background.spawn_local(follow_losses(Rc::clone(&shard), number, signs.lost));
        if common.lanes.is_some() && source.is_first() {
            background.spawn_local(lanes::health::watch(Rc::clone(&shard), number));
        }
    }
    let accepting = source.accept(Rc::clone(&shard), common.life.clone());
    let finished = async {
        accepting.await;
        while shard.open.get() > 0 {
            shard.emptied.notified().await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = out_of_time(common.life, shard.config.drain_timeout) => {}
        () = no_panic(&mut background) => {}
    }
    background.abort_all();
    shard.life.set(Life::Stopped);
    shard.open.get()
}

async fn keep_time(shard: Rc<Shard>) {
    let clock = shard.clock.clone();
    let sweep = |now| {
        if shard.gate.room().is_wanted() {
            // Idle connections look at it when they are polled.
            shard.clock.wake_all();
        }
        let pools = shard.ways.iter().map(|way| way.pool.sweep(now));
        pools.fold(false, |any, left| any | left)
    };
    clock.run(sweep).await;
}

/// Lets go of connections to a backend that is gone, whether or not a request comes.
async fn follow_backend(shard: Rc<Shard>, number: usize, mut backend: watch::Receiver<Backend>) {
    loop {
        let upstream = shard.ways[number].upstream(&shard.config);
        if let Some(lanes) = &shard.lanes {
            lanes.follow(number, &upstream);
        }
        if backend.changed().await.is_err() {
            return;
        }
    }
}

async fn follow_losses(shard: Rc<Shard>, number: usize, mut lost: watch::Receiver<Option<Lost>>) {
    while lost.changed().await.is_ok() {
        shard.ways[number].set_lost(lost.borrow_and_update().clone());
        // Those that wait for an answer look when they are polled.
        shard.clock.wake_all();
    }
}

async fn follow_life(shard: Rc<Shard>, mut life: watch::Receiver<Life>) {
    loop {
        shard.life.set(*life.borrow_and_update());
        // Idle connections look at it when they are polled.
        shard.clock.wake_all();
        if life.changed().await.is_err() {
            return;
        }
    }
}

/// For ever, unless one of the tasks panics: then this does too. A connection can
/// fail alone, but without these there are no time limits and no end.
async fn no_panic(background: &mut JoinSet<()>) {
    while let Some(ended) = background.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
    std::future::pending::<()>().await;
}

/// Until a drain has taken `allowed`, or everything has to stop at once.
async fn out_of_time(mut life: watch::Receiver<Life>, allowed: Duration) {
    loop {
        let now = *life.borrow_and_update();
        let changed = match now {
            Life::Serving => life.changed().await,
            Life::Draining(since) => {
                let end = tokio::time::sleep_until((since + allowed).into());
                tokio::select! {
                    changed = life.changed() => changed,
                    () = end => return,
                }
            }
            Life::Stopped => return,
        };
        if changed.is_err() {
            // The handle is gone without a word.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_the_background_is_not_outlived() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                let mut background = JoinSet::new();
                background.spawn_local(async {});
                background.spawn_local(async { panic!("brought in by the test") });
                no_panic(&mut background).await;
            });
        }));
        assert!(outcome.is_err());
    }
}
