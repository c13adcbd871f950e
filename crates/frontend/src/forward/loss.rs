//! Requests whose backend is gone.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http::Response;

use crate::connection::Link;
use crate::fault::Fault;
use crate::shard::Shard;
use crate::way::Way;

/// The outcome of sending a request, unless the backend's process is known to be gone: something
/// else may hold its connections open, and nothing will ever come over them.
pub(super) async fn unless_lost(
    way: &Way,
    generation: u64,
    mut sent: Pin<&mut impl Future<Output = Result<Response<Bytes>, Fault>>>,
) -> Result<Response<Bytes>, Fault> {
    if let Some(fault) = way.lost(generation) {
        // The news of the next process is on its way; nothing more is sent to this one.
        return Err(fault);
    }
    poll_fn(|cx| match sent.as_mut().poll(cx) {
        Poll::Pending => match way.lost(generation) {
            Some(fault) => Poll::Ready(Err(fault)),
            None => Poll::Pending,
        },
        outcome @ Poll::Ready(_) => outcome,
    })
    .await
}

/// Whether the end of the backend's process would look like this.
pub(super) fn is_a_loss(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Unreachable | Fault::Died | Fault::AnswerBroken(_)
    )
}

/// A loss with its reason, if that is told soon.
pub(super) async fn explained(
    shard: &Shard,
    link: &Link,
    way: &Way,
    generation: u64,
    answer: Result<Response<Bytes>, Fault>,
) -> Result<Response<Bytes>, Fault> {
    match answer {
        Err(fault) => Err(explain(shard, link, way, generation, fault).await),
        answered => answered,
    }
}

/// Waits a moment to learn why: a broken connection is seen before its process is.
async fn explain(shard: &Shard, link: &Link, way: &Way, generation: u64, fault: Fault) -> Fault {
    if shard.config.loss_grace.is_zero() || !is_a_loss(&fault) {
        return fault;
    }
    link.alarm.set(Instant::now() + shard.config.loss_grace);
    let known = poll_fn(|_| match way.lost(generation) {
        None if !link.alarm.rang() => Poll::Pending,
        known => Poll::Ready(known),
    })
    .await;
    known.unwrap_or(fault)
}
