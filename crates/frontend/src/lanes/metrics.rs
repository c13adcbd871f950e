//! The lanes in `/metrics`, as they are when it is asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use omni_jev_lanes::{Chooser, LaneView};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::lock;

/// Asks the chooser at each look, so that nothing is counted twice.
#[derive(Debug)]
pub(crate) struct LaneMetrics {
    pub(crate) chooser: Arc<Mutex<Chooser>>,
    /// Lines that the trace left out.
    pub(crate) dropped: Option<Arc<AtomicU64>>,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;
type Written = Result<(), std::fmt::Error>;

impl Collector for LaneMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Written {
        let lanes = lock(&self.chooser).view(Instant::now());
        counters(&mut encoder, &lanes)?;
        gauges(&mut encoder, &lanes)?;
        if let Some(dropped) = &self.dropped {
            let count = ConstCounter::new(dropped.load(Ordering::Relaxed));
            let help = "Lines that the trace left out";
            family(
                &mut encoder,
                "trace_lines_dropped",
                help,
                [(Vec::new(), count)],
            )?;
        }
        Ok(())
    }
}

fn counters(encoder: &mut DescriptorEncoder<'_>, lanes: &[LaneView]) -> Written {
    let outcomes = lanes.iter().flat_map(|lane| {
        let counts = lane.counts;
        let counts = [
            ("served", counts.served),
            ("busy", counts.busy),
            ("refused", counts.refused),
            ("failed", counts.failed),
            ("abandoned", counts.abandoned),
        ];
        counts.map(|(result, count)| (with(lane, "result", result), ConstCounter::new(count)))
    });
    let help = "Decisions that a lane was asked for, by what came of it";
    family(encoder, "lane_requests", help, outcomes)?;
    let reasons = lanes.iter().flat_map(|lane| {
        let reasons = lane.reasons.iter();
        reasons.map(|(reason, count)| {
            let labels = with(lane, "reason", reason.name());
            (labels, ConstCounter::new(*count))
        })
    });
    let help = "Requests sent to a lane, by the rule that chose it";
    family(encoder, "lane_routed", help, reasons)?;
    let opened = lanes
        .iter()
        .map(|lane| (of(lane), ConstCounter::new(lane.opened)));
    let help = "How often a lane's breaker has opened";
    family(encoder, "lane_breaker_opened", help, opened)
}

fn gauges(encoder: &mut DescriptorEncoder<'_>, lanes: &[LaneView]) -> Written {
    let in_flight = lanes.iter().map(|lane| {
        let count = u32::try_from(lane.in_flight).unwrap_or(u32::MAX);
        (of(lane), ConstGauge::new(f64::from(count)))
    });
    let help = "Decisions at a lane now";
    family(encoder, "lane_in_flight", help, in_flight)?;
    let backlog = lanes
        .iter()
        .map(|lane| (of(lane), ConstGauge::new(lane.backlog.as_secs_f64())));
    let help = "Seconds that a lane's estimates give it for what it has";
    family(encoder, "lane_backlog_seconds", help, backlog)?;
    let ready = lanes.iter().map(|lane| (of(lane), flag(lane.ready)));
    family(encoder, "lane_ready", "Whether a lane can be asked", ready)?;
    let states = lanes.iter().flat_map(|lane| {
        let its = lane.breaker.name();
        ["closed", "half_open", "open"]
            .map(|state| (with(lane, "state", state), flag(its == state)))
    });
    let help = "1 for the state that a lane's breaker is in";
    family(encoder, "lane_breaker", help, states)?;
    let troubles = lanes.iter().flat_map(|lane| {
        let its = lane.breaker.trouble().map(omni_jev_lanes::Trouble::name);
        ["failing", "parity", "slow"]
            .map(|trouble| (with(lane, "trouble", trouble), flag(its == Some(trouble))))
    });
    let help = "1 for what a lane's breaker is not closed for";
    family(encoder, "lane_trouble", help, troubles)
}

/// Writes one metric with all its labels.
fn family<'a, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (Labels<'a>, M)>,
) -> Written {
    let mut rows = rows.into_iter().peekable();
    let Some((_, first)) = rows.peek() else {
        return Ok(());
    };
    let mut metric = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, value) in rows {
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn of(lane: &LaneView) -> Labels<'_> {
    vec![("lane", &lane.name)]
}

fn with<'a>(lane: &'a LaneView, label: &'static str, value: &'a str) -> Labels<'a> {
    vec![("lane", &lane.name), (label, value)]
}

fn flag(is: bool) -> ConstGauge<f64> {
    ConstGauge::new(f64::from(u8::from(is)))
}
