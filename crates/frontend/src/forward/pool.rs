//! Connections to the backend, kept for the next request.
//!
//! No task drives them: a request's own task does while it uses one, so an
//! answer is read where it is waited for, without a hand-over. Each thread keeps
//! its own, the last used first, so there are never more than were in use at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::connect::Heard;
use super::nudge::Nudge;

/// The HTTP library's two halves of one connection.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Heard>, Full<Bytes>>,
    nudge: Nudge,
    /// Whether the backend has said anything since the current request.
    heard: Rc<Cell<bool>>,
    generation: u64,
    /// What the driver ended with; it must not be polled after that.
    ended: Option<Ended>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Closed,
    Spoiled,
}

/// What an exchange left of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It can carry another request.
    Idle,
    /// It ended as it was to.
    Closed,
    /// More came than the answer: it cannot be told whose that is.
    Spoiled,
}

impl Connection {
    pub(crate) fn new(
        sender: http1::SendRequest<Full<Bytes>>,
        driver: http1::Connection<TokioIo<Heard>, Full<Bytes>>,
        nudge: Nudge,
        heard: Rc<Cell<bool>>,
        generation: u64,
    ) -> Self {
        Self {
            sender,
            driver,
            nudge,
            heard,
            generation,
            ended: None,
        }
    }

    /// Takes a request, which is sent as the connection is driven. Gives the answer's head.
    pub(crate) fn begin(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.heard.set(false);
        self.sender.send_request(request)
    }

    /// Whether any byte of an answer came.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.get()
    }

    /// Reads and writes what it can, then polls `other`, the half that waits for
    /// that; `other` is told whether the connection has ended.
    pub(crate) fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        other: impl FnMut(&mut Context<'_>, bool) -> Poll<T>,
    ) -> Poll<T> {
        self.nudge.wake(cx.waker());
        self.turn(cx, other)
    }

    fn turn<T>(
        &mut self,
        cx: &Context<'_>,
        mut other: impl FnMut(&mut Context<'_>, bool) -> Poll<T>,
    ) -> Poll<T> {
        let (driver, ended) = (&mut self.driver, &mut self.ended);
        self.nudge.poll(cx.waker(), |cx| {
            if ended.is_none()
                && let Poll::Ready(outcome) = Pin::new(&mut *driver).poll(cx)
            {
                *ended = Some(match outcome {
                    Err(error) if is_unexpected(&error) => Ended::Spoiled,
                    _ => Ended::Closed,
                });
            }
            other(cx, ended.is_some())
        })
    }

    /// To be called when an answer is whole: no task waits for the connection then.
    pub(crate) fn settle(&mut self, cx: &Context<'_>) -> Settled {
        self.nudge.rest();
        let _ = self.turn(cx, |_, _| Poll::Ready(()));
        match self.ended {
            Some(Ended::Spoiled) => Settled::Spoiled,
            None if self.sender.is_ready() => Settled::Idle,
            Some(Ended::Closed) | None => Settled::Closed,
        }
    }
}

/// Whether bytes came that belong to no request. The library names every other
/// error; this one it only has words for.
fn is_unexpected(error: &hyper::Error) -> bool {
    let named = error.is_parse()
        || error.is_canceled()
        || error.is_closed()
        || error.is_incomplete_message()
        || error.is_body_write_aborted()
        || error.is_user()
        || error.is_timeout()
        || error.is_shutdown();
    !named && error.source().is_none()
}

/// The idle connections of one thread.
pub(crate) struct Pool {
    /// How long one is kept.
    limit: Duration,
    /// Oldest first.
    idle: RefCell<VecDeque<Idle>>,
}

struct Idle {
    /// Boxed: it is large, and moves in and out for each request.
    connection: Box<Connection>,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            idle: RefCell::default(),
        }
    }

    /// The connection last used, if one is left that is alive.
    pub(crate) fn take(
        &self,
        cx: &Context<'_>,
        generation: u64,
        now: Instant,
    ) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle {
            mut connection,
            since,
        }) = idle.pop_back()
        {
            let fresh = now.saturating_duration_since(since) < self.limit;
            // If something came while nobody looked, the end mostly, the library finds it.
            if fresh
                && connection.generation == generation
                && (!connection.nudge.has_stirred() || connection.settle(cx) == Settled::Idle)
            {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection, if it can carry another request.
    pub(crate) fn put(&self, connection: Box<Connection>) {
        if connection.ended.is_none() && connection.sender.is_ready() {
            self.idle.borrow_mut().push_back(Idle {
                connection,
                since: Instant::now(),
            });
        }
    }

    /// Lets go of what has been idle too long; says whether any are left.
    pub(crate) fn sweep(&self, now: Instant) -> bool {
        let mut idle = self.idle.borrow_mut();
        while let Some(oldest) = idle.front() {
            if now.saturating_duration_since(oldest.since) < self.limit {
                return true;
            }
            idle.pop_front();
        }
        false
    }

    /// Lets go of the connections to any other generation of the backend.
    pub(crate) fn keep_only(&self, generation: u64) {
        self.idle
            .borrow_mut()
            .retain(|idle| idle.connection.generation == generation);
    }
}
