//! One request and its whole answer on one connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;

use super::gather::Gathering;
use super::pool::Connection;
use crate::Config;
use crate::admit::{Ledger, UNCOUNTED_BODY};
use crate::clock::Alarm;
use crate::fault::Fault;

/// Why there is no whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The connection ended before the answer's head.
    Gone,
    /// The answer is not one that can be passed on.
    Answer(&'static str),
    TooLarge,
    /// There is no memory left for it that is set aside for bodies.
    NoRoom,
    Late,
}

impl Broken {
    pub(crate) fn into_fault(self, config: &Config) -> Fault {
        match self {
            Self::Gone => Fault::Died,
            Self::Answer(why) => Fault::AnswerBroken(why),
            Self::TooLarge => Fault::AnswerTooLarge {
                limit: config.max_response_bytes,
            },
            Self::NoRoom => Fault::TooMuchBuffered,
            Self::Late => Fault::TimedOut {
                limit: config.backend_timeout,
            },
        }
    }
}

/// Gathers the answer to the request that was begun, driving the connection meanwhile.
/// Dropping the future half-way and then the connection ends the backend's work.
///
/// `head` is pinned by the caller: every function that it is moved through would keep
/// a place for it, a request's size each time.
pub(crate) async fn exchange(
    connection: &mut Connection,
    head: Pin<&mut impl Future<Output = hyper::Result<Response<Incoming>>>>,
    alarm: &Alarm,
    limit: usize,
    ledger: &mut Ledger,
) -> Result<Response<Bytes>, Broken> {
    let (parts, body) = read_head(connection, head, alarm).await?.into_parts();
    check(parts.status, &parts.headers)?;
    let body = gather(connection, body, alarm, limit, ledger).await?;
    Ok(Response::from_parts(parts, body))
}

async fn read_head(
    connection: &mut Connection,
    mut head: Pin<&mut impl Future<Output = hyper::Result<Response<Incoming>>>>,
    alarm: &Alarm,
) -> Result<Response<Incoming>, Broken> {
    let outcome = poll_fn(|cx| {
        connection.drive(cx, |cx, ended| match head.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            // The driver has answered before it ended; were it not so, nobody would.
            Poll::Pending if ended || alarm.rang() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    })
    .await;
    match outcome {
        Some(Ok(response)) => Ok(response),
        Some(Err(error)) if error.is_parse() => Err(Broken::Answer("it is not valid HTTP/1.1")),
        Some(Err(_)) if connection.has_heard() => {
            Err(Broken::Answer("it ended before its headers did"))
        }
        None if alarm.rang() => Err(Broken::Late),
        Some(Err(_)) | None => Err(Broken::Gone),
    }
}

/// Refuses heads that the library reads and that cannot be passed on.
fn check(status: StatusCode, headers: &HeaderMap) -> Result<(), Broken> {
    if status.is_informational() {
        return Err(Broken::Answer("it switches protocols unasked"));
    }
    // Any coding but chunked would be left in the bytes while its name goes.
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Broken::Answer(
            "it has a transfer coding other than chunked",
        )),
    }
}

async fn gather(
    connection: &mut Connection,
    mut body: Incoming,
    alarm: &Alarm,
    limit: usize,
    ledger: &mut Ledger,
) -> Result<Bytes, Broken> {
    let hint = body.size_hint();
    if usize::try_from(hint.lower()).is_ok_and(|announced| announced <= limit) {
        let mut gathering = Gathering::new(hint);
        while let Some(frame) = next(connection, &mut body, alarm).await? {
            // A backend's trailers are of its hop, and dropped.
            if let Ok(data) = frame.into_data() {
                if gathering.len() + data.len() > limit {
                    return Err(Broken::TooLarge);
                }
                gathering.push(data);
                if gathering.len() > UNCOUNTED_BODY {
                    ledger.hold(gathering.len()).map_err(|_| Broken::NoRoom)?;
                }
            }
        }
        return Ok(gathering.finish());
    }
    Err(Broken::TooLarge)
}

/// The next piece of the body, or `None` at its proper end.
async fn next(
    connection: &mut Connection,
    body: &mut Incoming,
    alarm: &Alarm,
) -> Result<Option<Frame<Bytes>>, Broken> {
    if body.is_end_stream() {
        return Ok(None);
    }
    poll_fn(|cx| {
        // Said to nobody but the driver: that more is wanted, which it now brings.
        let mut polled = Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
        if polled.is_pending() {
            polled = connection.drive(cx, |cx, _| Pin::new(&mut *body).poll_frame(cx));
        }
        match polled {
            Poll::Ready(Some(Err(_))) => {
                Poll::Ready(Err(Broken::Answer("it ended before its body did")))
            }
            Poll::Ready(frame) => Poll::Ready(Ok(frame.and_then(Result::ok))),
            Poll::Pending if alarm.rang() => Poll::Ready(Err(Broken::Late)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
