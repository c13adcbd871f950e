//! A look at each lane's own health now and then: whether its answers still agree with the reference,
//! and whether it serves what was measured there.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Uri};
use http_body_util::Full;
use omni_jev_lanes::Identity;
use serde_json::Value;

use crate::forward;
use crate::forward::upstream::{Target, Upstream};
use crate::shard::Shard;

/// Between two looks. A lane that loses parity answers wrongly for no longer than that.
const EVERY: Duration = Duration::from_secs(1);
/// What a look may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Looks for ever. Whoever has no health or no engine of this kind is taken at its answers.
pub(crate) async fn watch(shard: Rc<Shard>, lane: usize) {
    let mut known = true;
    loop {
        tokio::time::sleep(EVERY).await;
        let upstream = shard.ways[lane].upstream(&shard.config);
        let (Upstream::Ready(target), Some(lanes)) = (&*upstream, &shard.lanes) else {
            known = true;
            continue;
        };
        let Some(good) = Box::pin(ask(&shard, lane, target)).await else {
            continue;
        };
        if good != known {
            let lane = lanes.name(lane);
            if good {
                tracing::info!(lane, "the lane's answers agree with the reference again");
            } else {
                tracing::error!(
                    lane,
                    "the lane's answers no longer agree with the reference: it loses its traffic"
                );
            }
        }
        known = good;
        lanes.set_parity(lane, good);
    }
}

/// What a health says of parity, of each checkpoint that is loaded.
fn agrees(health: &Value) -> bool {
    let models = health["models"].as_object().into_iter();
    let models = models.flat_map(|models| models.values());
    !models.chain([health]).any(fails)
}

/// Whether what answers fails. A worker that runs torch although more was asked of it, since the gate did
/// not pass, answers as the reference does, and says that its parity is not of what is served. One that
/// says nothing of that is taken by its engine's name.
fn fails(part: &Value) -> bool {
    let (engine, parity) = (&part["engine"], &part["parity"]);
    let other = engine.as_str().is_some_and(|name| name != "torch");
    let served = parity["served"].as_bool().unwrap_or(other);
    engine["parity"]["passed"] == false || served && parity["passed"] == false
}

/// Whether the lane passes its own parity check; `None` if it does not answer.
async fn ask(shard: &Shard, lane: usize, target: &Target) -> Option<bool> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = Uri::try_from(format!("{}/health", target.prefix)).ok()?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, target.host.clone());
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let (alarm, now) = (shard.clock.alarm(), Instant::now());
    alarm.set(now + LIMIT);
    let mut ledger = shard.gate.ledger();
    let way = &shard.ways[lane];
    let mut sent = pin!(forward::send(
        shard,
        &alarm,
        way,
        target,
        request,
        now,
        &mut ledger
    ));
    let answer = poll_fn(|cx| {
        alarm.watch(cx);
        sent.as_mut().poll(cx)
    });
    let answer = answer.await.ok()?;
    let health: Value = serde_json::from_slice(answer.body()).ok()?;
    if let (Some(lanes), true) = (&shard.lanes, answer.status().is_success()) {
        lanes.identify(lane, &Identity::of(&health));
    }
    Some(agrees(&health))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_engine_whose_answers_do_not_agree_is_told_from_a_gate_that_left_torch_in_place() {
        let failed = json!({"passed": false});
        let served = |served: bool| json!({"passed": false, "served": served});
        for (health, good) in [
            (json!({}), true),
            (json!({"engine": "torch", "parity": failed}), true),
            (json!({"engine": "onnx", "parity": null}), true),
            (json!({"engine": "onnx", "parity": {"passed": true}}), true),
            (json!({"engine": "onnx", "parity": failed}), false),
            (json!({"engine": {"name": "onnx", "parity": failed}}), false),
            (json!({"engine": "torch", "parity": served(true)}), false),
            (json!({"engine": "torch", "parity": served(false)}), true),
            (json!({"engine": "onnx", "parity": served(false)}), true),
            (
                json!({"engine": "torch", "parity": null, "models": {
                    "english": {"engine": "torch", "parity": null},
                    "multilingual": {"engine": "onnx", "parity": served(true)},
                }}),
                false,
            ),
        ] {
            assert_eq!(agrees(&health), good, "{health}");
        }
    }
}
