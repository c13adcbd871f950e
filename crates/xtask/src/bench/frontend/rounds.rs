//! The rounds: every target once a round, in a shuffled order.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::Plan;
use super::client::{self, Latency};
use super::memory::{self, Memory};
use super::servers::{self, Programs, Target};
use super::wrk::{Load, Wrk};
use crate::bench::process::Group;
use crate::step;

/// How long a fresh target is under load before it is measured.
const WARM_UP_SECONDS: u32 = 1;

/// One target in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) round: u32,
    pub(super) target: Target,
    pub(super) load: Load,
    /// CPU time of all the proxy's processes while under load; none without a proxy.
    pub(super) cpu_seconds: Option<f64>,
    /// With one connection, afterwards.
    pub(super) latency: Latency,
    pub(super) warm_up_errors: u32,
}

impl Sample {
    pub(super) fn errors(&self) -> u32 {
        self.load.errors() + self.latency.errors + self.warm_up_errors
    }

    /// CPU time of the proxy for one request, in microseconds.
    pub(super) fn cpu_us(&self) -> Option<f64> {
        Some(self.cpu_seconds? * 1e6 / f64::from(self.load.requests))
    }
}

/// Runs all rounds.
pub(super) fn measure(
    plan: &Plan,
    programs: &Programs,
    wrk: &Wrk,
    backend: SocketAddr,
) -> anyhow::Result<Vec<Sample>> {
    let each = u64::from(WARM_UP_SECONDS + plan.load_seconds) * 1000 + plan.latency_milliseconds;
    let total = u64::from(plan.rounds) * 3 * each / 1000;
    step::say(&format!("Measuring: the rounds take about {total} s"));
    let mut samples = Vec::new();
    for (round, order) in (1..=plan.rounds).zip(shuffled_orders(plan.seed)) {
        let names = order.map(Target::name).join(", ");
        step::say(&format!("Round {round} of {}: {names}", plan.rounds));
        for target in order {
            let sample = sample(plan, programs, wrk, backend, target)
                .with_context(|| format!("round {round}, {}", target.name()))?;
            samples.push(Sample { round, ..sample });
        }
    }
    Ok(samples)
}

/// The six orders of three targets, shuffled, and again, without end.
///
/// Six rounds thus put each target in each place, and before each other target, equally often.
fn shuffled_orders(seed: u64) -> impl Iterator<Item = [Target; 3]> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let [a, b, c] = Target::ALL;
    let orders = [
        [a, b, c],
        [a, c, b],
        [b, a, c],
        [b, c, a],
        [c, a, b],
        [c, b, a],
    ];
    std::iter::repeat_with(move || {
        let mut block = orders;
        chance.shuffle(&mut block);
        block
    })
    .flatten()
}

fn sample(
    plan: &Plan,
    programs: &Programs,
    wrk: &Wrk,
    backend: SocketAddr,
    target: Target,
) -> anyhow::Result<Sample> {
    let mut server = servers::start(programs, target, backend)?;
    let run = |seconds| wrk.run(server.address, seconds, server.folder());
    let cpu = || server.proxy().map(Group::cpu_time).transpose();
    let warm_up = run(WARM_UP_SECONDS)?;
    let before = cpu()?;
    let load = run(plan.load_seconds)?;
    let after = cpu()?;
    let time = Duration::from_millis(plan.latency_milliseconds);
    let latency = client::closed_loop(server.address, time)?;
    server.expect_running()?;
    Ok(Sample {
        round: 0,
        target,
        load,
        cpu_seconds: after
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before).as_secs_f64()),
        latency,
        warm_up_errors: warm_up.errors(),
    })
}

/// Measures the memory of each proxy, afresh each time.
pub(super) fn measure_memory(
    plan: &Plan,
    programs: &Programs,
    backend: SocketAddr,
) -> anyhow::Result<Vec<Memory>> {
    let mut memory = Vec::new();
    for start in 1..=plan.memory_starts {
        step::say(&format!("Memory, start {start} of {}", plan.memory_starts));
        for target in Target::PROXIES {
            let measured = memory::measure(programs, target, backend)
                .with_context(|| format!("memory of {}", target.name()))?;
            memory.push(measured);
        }
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_rounds_put_every_target_in_every_place_equally_often() {
        for seed in 0..20 {
            let orders: Vec<_> = shuffled_orders(seed).take(12).collect();
            for (target, place) in Target::ALL
                .into_iter()
                .flat_map(|target| [0, 1, 2].map(|place| (target, place)))
            {
                for block in orders.chunks(6) {
                    let times = block.iter().filter(|order| order[place] == target).count();
                    assert_eq!(times, 2, "{} in place {place}, seed {seed}", target.name());
                }
            }
        }
    }

    #[test]
    fn a_seed_gives_its_orders_again_and_another_gives_others() {
        let orders = |seed| shuffled_orders(seed).take(12).collect::<Vec<_>>();
        assert_eq!(orders(1), orders(1));
        assert!((2..10).any(|seed| orders(seed) != orders(1)));
    }
}
