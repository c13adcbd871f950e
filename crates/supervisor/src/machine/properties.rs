//! What holds for every life, checked on made-up ones. The [world](super::world) does the checking
//! while a life goes on.

use std::time::Duration;

use proptest::prelude::*;

use super::world::{MAX_FAILURES, ProbeKind, Step, StrayKind, World};
use super::*;
use crate::{FailureKind, Outcome, Phase};

fn any_exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        8 => prop_oneof![Just(Exit::Code(0)), Just(Exit::Code(1)), Just(Exit::Code(127))],
        4 => prop_oneof![Just(Exit::Signal(6)), Just(Exit::Signal(9)), Just(Exit::Unknown)],
        1 => prop_oneof![Just(Exit::Code(64)), Just(Exit::Code(78))],
    ]
}

fn any_probe() -> impl Strategy<Value = ProbeKind> {
    prop_oneof![
        4 => Just(ProbeKind::Ready),
        1 => Just(ProbeKind::Degraded),
        1 => Just(ProbeKind::NotReady),
        1 => Just(ProbeKind::OtherInstance),
        2 => Just(ProbeKind::Failed),
    ]
}

fn any_stray() -> impl Strategy<Value = Step> {
    let answers = prop_oneof![Just(StrayKind::Spawned), Just(StrayKind::SpawnFailed)];
    let all = prop_oneof![
        Just(StrayKind::Spawned),
        Just(StrayKind::SpawnFailed),
        Just(StrayKind::Exited),
        Just(StrayKind::Probed),
        Just(StrayKind::Progress),
    ];
    let offset = prop_oneof![Just(1), Just(2), Just(u64::MAX), Just(u64::MAX - 1)];
    prop_oneof![
        answers.prop_map(|kind| Step::Stray { offset: 0, kind }),
        (offset, all).prop_map(|(offset, kind)| Step::Stray { offset, kind }),
    ]
}

fn any_load() -> impl Strategy<Value = Step> {
    let unanswered = prop::option::of((0_u64..100).prop_map(Duration::from_secs));
    (0_usize..2, unanswered).prop_map(|(in_flight, unanswered)| Step::Load {
        in_flight,
        unanswered,
    })
}

/// Anything but a stop.
fn any_step() -> impl Strategy<Value = Step> {
    let phase = prop_oneof![
        Just(Phase::Load),
        Just(Phase::Ready),
        Just(Phase::Preparing),
        Just(Phase::Draining)
    ];
    prop_oneof![
        4 => (0_u64..30_000).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
        8 => Just(Step::Wake),
        8 => Just(Step::SpawnWorks),
        1 => any::<bool>().prop_map(|cannot_run| Step::SpawnFails { cannot_run }),
        2 => any_exit().prop_map(Step::Exits),
        8 => any_probe().prop_map(Step::ProbeEnds),
        2 => phase.prop_map(Step::Says),
        2 => any_load(),
        1 => any::<bool>().prop_map(|over| Step::Memory { over }),
        2 => any::<bool>().prop_map(|works| Step::Recovered { works }),
        1 => prop_oneof![2 => Just(Step::Restart), 1 => Just(Step::Halt)],
        1 => any_stray(),
    ]
}

fn any_life() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any_step(), 0..120)
}

fn any_stop() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Stop), Just(Step::Kill)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_life_has_two_processes_or_is_ready_without_one(seed: u64, steps in any_life()) {
        let mut world = World::new(seed);
        world.live(&steps);
    }

    #[test]
    fn a_stop_always_ends_it_even_if_the_process_never_does(
        seed: u64, steps in any_life(), stop in any_stop(), more in any_life(), dies: bool,
    ) {
        let mut world = World::new(seed);
        world.live(&steps);
        world.step(&stop);
        // Whatever else happens meanwhile, but nothing dies by itself.
        for step in more {
            if !matches!(step, Step::Exits(_) | Step::Wait(_)) {
                world.step(&step);
            }
        }
        let asked_at = world.now;
        for _ in 0..8 {
            if dies && world.signalled {
                world.step(&Step::Exits(Exit::Signal(15)));
            }
            world.step(&Step::SpawnWorks);
            world.step(&Step::Wake);
        }
        prop_assert!(world.outcome.is_some(), "still going");
        prop_assert!(world.now - asked_at <= Duration::from_secs(20), "too slow");
    }

    #[test]
    fn the_last_process_has_no_successor_and_its_end_is_the_end(
        seed: u64, steps in any_life(), more in any_life(), exit in any_exit(),
    ) {
        let mut world = World::new(seed);
        world.live(&steps);
        world.step(&Step::Retire);
        world.live(&more);
        world.step(&Step::SpawnWorks);
        world.step(&Step::Exits(exit));
        prop_assert!(world.outcome.is_some(), "still going");
    }

    #[test]
    fn it_goes_on_trying_while_the_window_allows_it(seed: u64, steps in any_life()) {
        let mut world = World::new(seed);
        for step in steps {
            world.step(&step);
            if world.counted() < MAX_FAILURES && !world.never_again {
                prop_assert_eq!(&world.outcome, &None);
            }
            if world.outcome.is_some() {
                return Ok(());
            }
        }
    }

    #[test]
    fn a_configuration_error_is_the_end_and_keeps_its_code(
        seed: u64, steps in any_life(), code in prop_oneof![Just(64), Just(78)],
    ) {
        let mut world = World::new(seed);
        world.live(&steps);
        if world.living.is_some() && world.outcome.is_none() {
            world.step(&Step::Exits(Exit::Code(code)));
            match world.outcome {
                Some(Outcome::Failed(failure)) => {
                    prop_assert_eq!(failure.kind, FailureKind::Configuration);
                    prop_assert_eq!(failure.exit_code, Some(code));
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
