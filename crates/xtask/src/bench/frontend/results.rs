//! Everything that was measured, and what can be asked of it.

use serde::Serialize;

use super::Plan;
use super::memory::Memory;
use super::rounds::Sample;
use super::servers::Target;
use crate::bench::machine::Environment;
use crate::bench::statistics::Quartiles;

/// Everything that was measured, as it was measured.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) environment: Environment,
    pub(super) plan: Plan,
    pub(super) samples: Vec<Sample>,
    pub(super) memory: Vec<Memory>,
}

impl Results {
    /// Quartiles over the rounds of one target's value.
    pub(super) fn each(
        &self,
        target: Target,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Quartiles> {
        Quartiles::of(self.of(target).filter_map(value))
    }

    /// Quartiles over the rounds of what `compare` makes of two targets' values in the same round.
    pub(super) fn paired(
        &self,
        first: Target,
        second: Target,
        value: impl Fn(&Sample) -> Option<f64>,
        compare: impl Fn(f64, f64) -> f64,
    ) -> Option<Quartiles> {
        Quartiles::of(self.of(first).filter_map(|one| {
            let other = self.of(second).find(|other| other.round == one.round)?;
            Some(compare(value(one)?, value(other)?))
        }))
    }

    fn of(&self, target: Target) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.target == target)
    }

    /// Quartiles over the starts of one proxy's memory, in MB (10^6 bytes).
    pub(super) fn megabytes(
        &self,
        target: Target,
        value: impl Fn(&Memory) -> u32,
    ) -> Option<Quartiles> {
        let mine = self.memory.iter().filter(|memory| memory.target == target);
        Quartiles::of(mine.map(|memory| f64::from(value(memory)) * 1024.0 / 1e6))
    }

    /// Everything of one target that failed, in rounds and memory starts.
    pub(super) fn errors(&self, target: Target) -> u32 {
        let memory = self.memory.iter().filter(|memory| memory.target == target);
        self.of(target).map(Sample::errors).sum::<u32>()
            + memory.map(|memory| memory.errors).sum::<u32>()
    }
}

/// Results for tests.
#[cfg(test)]
pub(super) mod fixture {
    use super::*;
    use crate::bench::frontend::client::Latency;
    use crate::bench::frontend::wrk::Load;

    fn sample(round: u32, target: Target, requests: u32, cpu_us: f64, p50_us: f64) -> Sample {
        Sample {
            round,
            target,
            load: Load::of_one_second(requests),
            cpu_seconds: (target != Target::Direct).then(|| cpu_us * f64::from(requests) / 1e6),
            latency: Latency {
                requests: 1,
                errors: 0,
                p50_us,
                p99_us: 2.0 * p50_us,
            },
            warm_up_errors: 0,
        }
    }

    fn memory(target: Target) -> Memory {
        Memory {
            target,
            idle_kb: 5_000,
            connections_kb: 16_000,
            in_flight_kb: 50_000,
            errors: 0,
        }
    }

    /// The machine is half as fast in every round as in the one before.
    pub(in crate::bench::frontend) fn results() -> Results {
        let rounds = [(1, 40_000), (2, 20_000), (3, 10_000)];
        Results {
            environment: Environment {
                date: "2026-01-01".to_owned(),
                commit: "abc".to_owned(),
                cpu: "A CPU".to_owned(),
                cores: 2,
                core: 1,
                kernel: "Linux 6".to_owned(),
                load_before: 0.1,
                programs: vec!["nginx 1".to_owned()],
            },
            plan: Plan {
                rounds: 3,
                load_seconds: 1,
                latency_milliseconds: 100,
                memory_starts: 2,
                seed: 7,
            },
            samples: rounds
                .into_iter()
                .flat_map(|(round, nginx)| {
                    [
                        sample(round, Target::OmniJev, nginx + nginx / 10, 9.0, 75.0),
                        sample(round, Target::Direct, nginx * 2, 0.0, 50.0),
                        sample(round, Target::Nginx, nginx, 10.0, 76.0),
                    ]
                })
                .collect(),
            memory: [Target::Nginx, Target::OmniJev].map(memory).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round_so_a_slow_round_does_not_move_them() {
        let ratio = fixture::results()
            .paired(
                Target::OmniJev,
                Target::Nginx,
                |sample| Some(sample.load.requests_per_second()),
                |ours, theirs| ours / theirs,
            )
            .unwrap();
        for value in [ratio.lower, ratio.median, ratio.upper] {
            assert!((value - 1.1).abs() < 1e-9, "{ratio:?}");
        }
    }
}
