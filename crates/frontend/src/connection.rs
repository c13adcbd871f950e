//! One client's connection: the socket, the HTTP library, and what they share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use hyper::service::service_fn;

use crate::access::Record;
use crate::admit::Ledger;
use crate::clock::Alarm;
use crate::fault::Fault;
use crate::forward;
use crate::shard::Shard;
use crate::validate::guard::{Guard, Socket};
use crate::validate::head::Description;

/// What a connection is waiting for. Its one alarm bounds that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The first byte of a request, for as long as an idle connection is kept.
    Idle,
    /// The rest of a request's head.
    Head,
    /// The rest of a request's body.
    Body,
    /// An answer to a request that is all there, or the client to take it.
    Busy,
    /// The end: a request was refused in a way that nothing after it can be read.
    Shut,
}

/// Shared between the bytes' guard below the HTTP library and the service above it.
pub(crate) struct Link {
    pub(crate) peer: SocketAddr,
    pub(crate) alarm: Alarm,
    pub(crate) stage: Cell<Stage>,
    /// When the first byte of the current request was read, or the last answer was written.
    pub(crate) begun: Cell<Instant>,
    /// Why the current request was refused before the library saw its head: what
    /// it sees is a stand-in, so that the answer takes the way of every other.
    pub(crate) refusal: RefCell<Option<Refusal>>,
    /// Why the current request's body ended early.
    pub(crate) body_fault: RefCell<Option<Fault>>,
    /// The library has taken the whole answer, and only has to write it.
    pub(crate) answer_taken: Cell<bool>,
    /// The current request's line for the log, once its answer is made.
    pub(crate) record: RefCell<Option<Record>>,
    /// The bytes of the current answer, if it is so large that they are counted:
    /// held until the client has taken it.
    pub(crate) answer_ledger: RefCell<Option<Ledger>>,
}

/// A request that was refused by its head.
pub(crate) struct Refusal {
    pub(crate) fault: Fault,
    pub(crate) about: Description,
}

impl Link {
    pub(crate) fn new(shard: &Shard, peer: SocketAddr) -> Self {
        Self {
            peer,
            alarm: shard.clock.alarm(),
            stage: Cell::new(Stage::Idle),
            begun: Cell::new(Instant::now()),
            refusal: RefCell::default(),
            body_fault: RefCell::default(),
            answer_taken: Cell::new(false),
            record: RefCell::default(),
            answer_ledger: RefCell::default(),
        }
    }
}

/// Serves one client until either side ends the connection.
pub(crate) async fn serve(shard: Rc<Shard>, stream: impl Socket, peer: SocketAddr) {
    let link = Rc::new(Link::new(&shard, peer));
    let guard = Guard::new(stream, Rc::clone(&shard), Rc::clone(&link));
    // Boxed for each request: its state is large, and an idle connection has none.
    let service = service_fn(|request| {
        Box::pin(forward::handle(
            Rc::clone(&shard),
            Rc::clone(&link),
            request,
        ))
    });
    let mut connection = pin!(shard.server.serve_connection(guard, service));
    let ended = poll_fn(|cx| {
        link.alarm.watch(cx);
        connection.as_mut().poll(cx)
    })
    .await;
    if let Err(error) = ended {
        // The client left, or was too slow; its request's line says more.
        tracing::debug!(%peer, %error, "connection ended");
    }
}
