//! From a request to its answer.

mod connect;
mod exchange;
pub(crate) mod find;
mod gather;
mod journey;
mod loss;
mod nudge;
mod outgoing;
pub(crate) mod pool;
mod roots;
pub(crate) mod upstream;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::sync::SemaphorePermit;

pub(crate) use roots::load as load_roots;

use crate::access::Record;
use crate::admit::Ledger;
use crate::answer::{self, Whole};
use crate::clock::Alarm;
use crate::connection::{Link, Stage};
use crate::fault::{Fault, Malformed};
use crate::identity::X_REQUEST_ID;
use crate::shard::Shard;
use crate::waiting::Waiting;
use crate::way::Way;
use exchange::{Broken, exchange};
use find::{Found, find, kept};
use gather::Gathering;
use pool::Settled;
use upstream::{Target, Upstream};

/// Answers one request, by the backend or with the reason why not.
///
/// Its record is begun at once, not when the future is first polled: a client that
/// has left by then has a line in the log all the same.
pub(crate) fn handle(
    shard: Rc<Shard>,
    link: Rc<Link>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Whole>, Infallible>> {
    let (mut parts, body) = request.into_parts();
    let refusal = link.refusal.borrow_mut().take();
    if let Some(id) = refusal.as_ref().and_then(|r| r.about.request_id.as_deref())
        && let Ok(id) = HeaderValue::from_str(id)
    {
        parts.headers.insert(X_REQUEST_ID, id);
    }
    let request_id = shard.identities.settle(&mut parts.headers);
    let mut record = Record::new(&shard, &parts, request_id.clone(), link.begun.get());
    let fault = refusal.map(|refusal| {
        record.describe(refusal.about);
        refusal.fault
    });
    answer_with(shard, link, parts, body, fault, record, request_id)
}

/// The answer to a request, which is the refusal if there is one already.
async fn answer_with(
    shard: Rc<Shard>,
    link: Rc<Link>,
    parts: Parts,
    body: Incoming,
    refusal: Option<Fault>,
    mut record: Record,
    request_id: HeaderValue,
) -> Result<Response<Whole>, Infallible> {
    let method = parts.method.clone();
    let outcome = match refusal {
        Some(fault) => Err(fault),
        None => process(&shard, &link, parts, body, &mut record).await,
    };
    // From here on the alarm is the client's, who has to take the answer.
    link.alarm.clear();

    let (mut response, fault) = match outcome {
        Ok(response) => (response, None),
        Err(fault) => (
            answer::from_fault(&fault, &request_id, &method),
            Some(fault),
        ),
    };
    if let Some(fault) = &fault {
        shard.metrics.count_refusal(fault);
    }
    record.answered(response.status(), response.body().len(), fault.as_ref());
    answer::identify(response.headers_mut(), request_id);
    record.tell_lane(response.headers_mut());
    *link.record.borrow_mut() = Some(record);
    if link.stage.get() == Stage::Shut || shard.is_draining() {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| Whole::new(body, Rc::clone(&link))))
}

async fn process(
    shard: &Rc<Shard>,
    link: &Link,
    parts: Parts,
    body: Incoming,
    record: &mut Record,
) -> Result<Response<Bytes>, Fault> {
    // Held to the end of the request, as the bytes are.
    let mut ledger = shard.gate.ledger();
    let body = read_body(link, body, &mut ledger).await?;
    record.received(body.len());
    if outgoing::is_for_us(&parts) {
        return Ok(answer::options());
    }
    let _place = shard.gate.enter()?;
    let method = parts.method.clone();
    if let Some(lanes) = &shard.lanes {
        // Boxed: only those who have lanes carry its state.
        let travel = Box::pin(journey::travel(shard, lanes, link, parts, body, record));
        let mut response = travel.await?;
        answer::from_backend(&mut response, &method);
        return Ok(response);
    }
    let way = &shard.ways[0];
    let upstream = way.upstream(&shard.config);
    let target = match &*upstream {
        Upstream::Ready(target) => target,
        Upstream::Unavailable {
            message,
            retry_after,
        } => {
            return Err(Fault::Unavailable {
                message: message.clone(),
                retry_after: *retry_after,
            });
        }
    };
    let request = outgoing::request(parts, body, target, shard, link.peer)?;
    let now = Instant::now();
    record.dispatched(now);
    link.alarm.set(now + shard.config.backend_timeout);
    let decision = method == Method::POST;
    let outcome = attempt(shard, link, way, target, request, decision).await;
    let outcome = loss::explained(shard, link, way, target.generation, outcome).await;
    record.returned(Instant::now());
    let mut response = outcome?;
    answer::from_backend(&mut response, &method);
    Ok(response)
}

/// One request at one backend, which is known to wait there meanwhile. What of the answer is counted as held is
/// the link's to hold until the client has it.
async fn attempt(
    shard: &Shard,
    link: &Link,
    way: &Way,
    target: &Target,
    request: Request<Full<Bytes>>,
    decision: bool,
) -> Result<Response<Bytes>, Fault> {
    let _place = place(shard, &link.alarm, way, target).await?;
    let now = Instant::now();
    // The request's bytes are let go with it, the answer's when the client has them.
    let mut ledger = shard.gate.ledger();
    let waiting = way.waiting.enter(target.generation, now, decision);
    let outcome = {
        // Pinned where it is made: moved on, it would have a place in this state twice.
        let sent = pin!(send(
            shard,
            &link.alarm,
            way,
            target,
            request,
            now,
            &mut ledger
        ));
        loss::unless_lost(way, target.generation, sent).await
    };
    settle(waiting, &outcome, Instant::now());
    if outcome.is_ok() && ledger.holds_any() {
        *link.answer_ledger.borrow_mut() = Some(ledger);
    }
    outcome
}

/// A request's place at a worker, once it has its turn. Other backends bound themselves.
async fn place<'a>(
    shard: &Shard,
    alarm: &Alarm,
    way: &'a Way,
    target: &Target,
) -> Result<Option<SemaphorePermit<'a>>, Fault> {
    if !target.is_unix() {
        return Ok(None);
    }
    if let Ok(place) = way.places.try_acquire() {
        return Ok(Some(place));
    }
    // Nothing closes the semaphore.
    Ok(in_time(shard, alarm, Box::pin(way.places.acquire()))
        .await?
        .ok())
}

/// What the outcome of a request says of its backend.
fn settle(waiting: Option<Waiting>, outcome: &Result<Response<Bytes>, Fault>, now: Instant) {
    match (waiting, outcome) {
        (Some(waiting), Ok(response)) if response.status().is_success() => waiting.decided(now),
        (Some(waiting), Err(Fault::TimedOut { .. })) => waiting.timed_out(),
        _ => {}
    }
}

/// The whole body; its size was bounded on the way here.
async fn read_body(link: &Link, mut body: Incoming, ledger: &mut Ledger) -> Result<Bytes, Fault> {
    let mut gathering = Gathering::new(body.size_hint());
    while !body.is_end_stream() {
        match body.frame().await {
            Some(Ok(frame)) => {
                // Trailers end here: `Trailer` is of the hop, and nobody asked for them.
                if let Ok(data) = frame.into_data() {
                    gathering.push(data);
                }
                if gathering.len() > crate::admit::UNCOUNTED_BODY {
                    ledger.hold(gathering.len())?;
                }
            }
            Some(Err(_)) => {
                // The guard knows why; the library alone finds only bad chunks.
                let known = link.body_fault.borrow_mut().take();
                link.stage.set(Stage::Shut);
                return Err(known.unwrap_or(Malformed::Chunk.into()));
            }
            None => break,
        }
    }
    Ok(gathering.finish())
}

/// Sends a request on a kept connection or a new one. Once more on a new one, if
/// the kept one died before any byte of an answer: the backend closed it while
/// the request was on its way (RFC 9110 9.2.2; a decision changes nothing, and
/// the body is here to be sent again). Nothing else is ever sent twice.
pub(crate) async fn send(
    shard: &Shard,
    alarm: &Alarm,
    way: &Way,
    target: &Target,
    mut request: Request<Full<Bytes>>,
    now: Instant,
    ledger: &mut Ledger,
) -> Result<Response<Bytes>, Fault> {
    // Boxed: its state is large, and idle connections would carry it around.
    let find =
        async |fresh| in_time(shard, alarm, Box::pin(find(shard, way, target, fresh))).await?;
    // Those that wait come first.
    let kept = if way.turns.are_taken() {
        None
    } else {
        kept(way, target, now).await
    };
    let found = match kept {
        Some(connection) => Found::Kept(connection),
        None => find(false).await?,
    };
    let mut connection = match found {
        Found::New(connection) => connection,
        Found::Kept(mut connection) => {
            shard.metrics.backend_reuses.inc();
            let spare = request.clone();
            let head = pin!(connection.begin(request));
            match on(shard, alarm, &mut connection, head, ledger).await {
                Ok(response) => {
                    way.pool.put(connection);
                    return Ok(response);
                }
                Err(Broken::Gone) if !connection.has_heard() => {
                    shard.metrics.retries.inc();
                    request = spare;
                }
                Err(broken) => return Err(broken.into_fault(&shard.config)),
            }
            match find(true).await? {
                Found::New(connection) | Found::Kept(connection) => connection,
            }
        }
    };
    let head = pin!(connection.begin(request));
    let response = on(shard, alarm, &mut connection, head, ledger)
        .await
        .map_err(|broken| broken.into_fault(&shard.config))?;
    way.pool.put(connection);
    Ok(response)
}

/// One exchange, and what it left of the connection.
async fn on(
    shard: &Shard,
    alarm: &Alarm,
    connection: &mut pool::Connection,
    head: Pin<&mut impl Future<Output = hyper::Result<Response<Incoming>>>>,
    ledger: &mut Ledger,
) -> Result<Response<Bytes>, Broken> {
    let limit = shard.config.max_response_bytes;
    let response = exchange(connection, head, alarm, limit, ledger).await?;
    match poll_fn(|cx| Poll::Ready(connection.settle(cx))).await {
        Settled::Spoiled => Err(Broken::Answer("bytes follow it that belong to no request")),
        Settled::Idle | Settled::Closed => Ok(response),
    }
}

/// A future's output, unless the alarm rings first; then 504.
async fn in_time<F: Future + Unpin>(
    shard: &Shard,
    alarm: &Alarm,
    mut future: F,
) -> Result<F::Output, Fault> {
    poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending if alarm.rang() => Poll::Ready(Err(Broken::Late.into_fault(&shard.config))),
        Poll::Pending => Poll::Pending,
    })
    .await
}
