//! Single lives, written down event by event.

use std::time::Duration;

use super::life::Life;
use super::*;
use crate::{About, FailureKind, Outcome, Phase, WorkerState};

#[test]
fn a_ready_phase_is_probed_at_once_and_only_the_probe_makes_it_ready() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Warmup);
    assert_eq!(
        life.machine.status().message,
        "the worker is starting: warming up"
    );
    life.says(Phase::Ready);
    assert!(
        life.last.contains(&Action::Probe { generation: 1 }),
        "{:?}",
        life.last
    );
    assert_eq!(life.state(), WorkerState::Starting);
    life.probed(true);
    assert_eq!(life.state(), WorkerState::Ready);
}

#[test]
fn an_answer_from_another_instance_is_not_ready() {
    let mut life = Life::new();
    life.spawned();
    life.on(Event::Probed {
        generation: 1,
        answer: ProbeAnswer::Answered {
            instance: "someone-else".to_owned(),
            ready: true,
            degraded: None,
            about: About::default(),
        },
    });
    assert_eq!(life.state(), WorkerState::Starting);
}

#[test]
fn progress_extends_the_start_deadline_and_repeating_oneself_does_not() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Download);
    life.after(Duration::from_secs(599), Event::Tick);
    life.says(Phase::Load);
    life.after(Duration::from_secs(599), Event::Tick);
    life.says(Phase::Load);
    assert_eq!(life.signals(), []);
    life.after(Duration::from_secs(1), Event::Tick);
    assert_eq!(life.signals(), [Signal::Abort]);
    life.wake();
    assert_eq!(life.signals(), [Signal::Kill]);
    life.exits(Exit::Signal(9), None);
    let reason = &life.machine.status().last_exit.as_ref().unwrap().reason;
    assert!(
        reason.starts_with("no progress for 600 s while loading"),
        "{reason}"
    );
    assert!(!reason.contains("memory"), "{reason}");
}

#[test]
fn a_wait_is_noted_every_ten_seconds_with_the_last_words_or_the_phase() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Load);
    let wait = |s| format!("still waiting for the worker after {s} s: loading the checkpoint");
    assert_eq!(waits(&mut life), [wait(10), wait(20), wait(30)]);
    // It has loaded, and its phase is that of what it did.
    life.reports(Phase::Load, "loaded english ");
    assert_eq!(
        waits(&mut life)[0],
        "still waiting for the worker after 40 s: the last it said, 5 s ago, was \"loaded english\""
    );
}

/// The notes of 35 seconds.
fn waits(life: &mut Life) -> Vec<String> {
    let mut notes = Vec::new();
    for _ in 0..350 {
        life.after(Duration::from_millis(100), Event::Tick);
        notes.extend(life.last.iter().filter_map(|action| match action {
            Action::Note { text, .. } => Some(text.clone()),
            _ => None,
        }));
    }
    notes
}

#[test]
fn failed_probes_in_a_row_are_a_hang_unless_it_said_it_is_busy() {
    let mut life = Life::ready();
    life.probe_failed();
    life.probed(true);
    for _ in 0..2 {
        life.probe_failed();
        assert_eq!(life.state(), WorkerState::Ready);
    }
    life.says(Phase::Preparing);
    life.probe_failed();
    assert_eq!(
        life.state(),
        WorkerState::Ready,
        "preparing a checkpoint is no hang"
    );
    life.says(Phase::Ready);
    life.probe_failed();
    assert_eq!(life.signals(), [Signal::Abort]);
    assert_eq!(life.state(), WorkerState::Restarting);
}

#[test]
fn a_request_that_is_too_old_is_a_hang_although_health_answers() {
    let mut life = Life::ready();
    life.load(1, Some(74));
    life.on(Event::Load {
        generation: 2,
        load: Load {
            in_flight: 1,
            unanswered_for: Some(Duration::from_secs(80)),
        },
    });
    assert_eq!(life.state(), WorkerState::Ready);
    life.says(Phase::Preparing);
    life.load(1, Some(80));
    assert_eq!(life.state(), WorkerState::Ready, "preparing is no hang");
    life.says(Phase::Ready);
    life.load(0, Some(80));
    assert_eq!(
        life.state(),
        WorkerState::Ready,
        "it has only just begun again"
    );
    life.after(Duration::from_secs(74), Event::Tick);
    life.load(0, Some(154));
    assert_eq!(life.state(), WorkerState::Ready);
    life.after(Duration::from_secs(1), Event::Tick);
    life.load(0, Some(155));
    assert_eq!(life.signals(), [Signal::Abort]);
}

#[test]
fn readiness_taken_back_and_given_again_is_the_same_process() {
    let mut life = Life::ready();
    life.probed(false);
    assert_eq!(life.state(), WorkerState::Starting);
    life.probed(true);
    assert_eq!((life.state(), life.generation()), (WorkerState::Ready, 1));
}

#[test]
fn a_sigkill_from_elsewhere_is_reported_as_memory() {
    let mut life = Life::ready();
    life.exits(Exit::Signal(9), None);
    assert_eq!(life.state(), WorkerState::Restarting);
    let status = life.machine.status();
    assert!(status.last_exit.as_ref().unwrap().reason.contains("memory"));
    assert_eq!(status.exits[&Exit::Signal(9)], 1);
    life.spawned();
    life.probed(true);
    assert_eq!(
        (life.state(), life.machine.status().restarts),
        (WorkerState::Ready, 1)
    );
}

#[test]
fn a_worker_that_dies_soon_after_each_ready_is_given_up() {
    let mut life = Life::ready();
    for failure in 1..=5 {
        assert_eq!(life.outcome(), None, "given up after {failure} failures");
        life.after(Duration::from_secs(5), Event::Tick);
        life.exits(Exit::Code(1), Some("boom"));
        if failure < 5 {
            life.spawned();
            life.probed(true);
        }
    }
    let Some(Outcome::Failed(failure)) = life.outcome() else {
        panic!("{:?}", life.last);
    };
    assert_eq!(
        (failure.kind, failure.exit_code),
        (FailureKind::GaveUp, Some(1))
    );
    assert!(failure.reason.contains("boom"), "{failure}");
    assert_eq!(life.state(), WorkerState::Failed);
    assert_eq!(life.machine.status().estimated_wait(life.now), None);
}

#[test]
fn the_estimate_is_the_last_start_less_what_has_passed() {
    let mut life = Life::ready();
    let wait = |life: &Life| life.machine.status().estimated_wait(life.now).unwrap();
    assert_eq!(wait(&life), Duration::ZERO);
    life.exits(Exit::Code(1), None);
    assert!(
        wait(&life) > Duration::from_secs(3),
        "the rest before it counts"
    );
    life.spawned();
    assert_eq!(wait(&life), Duration::from_secs(3));
    life.after(Duration::from_secs(1), Event::Tick);
    assert_eq!(wait(&life), Duration::from_secs(2));
    life.after(Duration::from_secs(5), Event::Tick);
    assert_eq!(wait(&life), Duration::from_secs(5), "overdue: nobody knows");
}

#[test]
fn a_program_that_cannot_run_is_given_up_the_first_time_and_retried_later() {
    let fails = |generation| Event::SpawnFailed {
        generation,
        reason: "cannot run /x: not found".to_owned(),
        cannot_run: true,
    };
    let mut life = Life::new();
    life.wake();
    life.on(fails(1));
    assert!(matches!(life.outcome(), Some(Outcome::Failed(failure))
            if failure.kind == FailureKind::CannotRun && failure.reason.contains("/x")));
    let mut life = Life::ready();
    life.exits(Exit::Code(1), None);
    life.wake();
    life.on(fails(2));
    assert_eq!(life.outcome(), None);
    life.spawned();
}

#[test]
fn a_stop_is_announced_before_the_signal_and_a_second_one_kills_now() {
    let mut life = Life::ready();
    life.on(Event::StopAsked);
    assert!(
        matches!(life.last[0], Action::Announce(_)),
        "{:?}",
        life.last
    );
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.on(Event::StopAsked);
    assert_eq!(life.signals(), []);
    life.on(Event::KillAsked);
    assert_eq!(life.signals(), [Signal::Kill]);
    life.exits(Exit::Signal(9), None);
    assert_eq!(life.outcome(), Some(&Outcome::Stopped { forced: true }));
}

#[test]
fn a_stop_while_a_process_is_being_spawned_ends_that_process() {
    let mut life = Life::new();
    life.wake();
    life.on(Event::StopAsked);
    assert_eq!(life.outcome(), None);
    life.on(Event::Spawned {
        generation: 1,
        pid: 101,
        instance: "instance-1".to_owned(),
        socket: "1.sock".into(),
    });
    assert_eq!(life.signals(), [Signal::Terminate]);
    assert_eq!(life.state(), WorkerState::Stopping);
}

#[test]
fn a_process_that_is_being_ended_is_no_longer_ready_or_degraded_whatever_it_says() {
    let mut life = Life::new();
    life.spawned();
    life.on(Event::StopAsked);
    life.probed(true);
    assert_eq!(life.last, [], "nothing to announce or to note");

    let mut life = Life::ready();
    life.degrades(false);
    assert_eq!(life.state(), WorkerState::Degraded);
    life.on(Event::StopAsked);
    assert_eq!(life.state(), WorkerState::Stopping);
    assert_eq!(life.machine.status().degraded, None);
}

#[test]
fn a_worker_that_somebody_else_stops_is_left_to_finish_and_no_hang() {
    let mut life = Life::ready();
    life.load(1, Some(1));
    life.says(Phase::Draining);
    assert_eq!(life.state(), WorkerState::Restarting);
    // Its socket is closed, and what it has takes long.
    for _ in 0..20 {
        life.probe_failed();
        life.after(Duration::from_secs(3), Event::Tick);
        assert_eq!(life.signals(), []);
    }
    life.load(0, None);
    life.exits(Exit::Code(0), None);
    let status = life.machine.status();
    let last = status.last_exit.clone().unwrap();
    assert!(last.planned);
    assert_eq!(last.reason, "somebody else asked it to stop (exit code 0)");
    life.spawned();
}

#[test]
fn a_worker_that_somebody_else_stops_and_that_never_ends_is_ended() {
    let policy = Policy::default();
    let limit = policy.leave_limit + policy.stop_grace;
    let mut life = Life::ready();
    life.says(Phase::Draining);
    life.after(limit, Event::Tick);
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.wake();
    assert_eq!(life.signals(), [Signal::Kill]);
}

#[test]
fn the_last_process_serves_on_and_its_end_is_no_failure() {
    let mut life = Life::ready();
    life.on(Event::RetireAsked);
    assert_eq!(life.state(), WorkerState::Ready);
    life.exits(Exit::Code(0), None);
    assert_eq!(life.outcome(), Some(&Outcome::Stopped { forced: false }));
    let warns =
        |action: &Action| matches!(action, Action::Note { level, .. } if *level != NoteLevel::Info);
    assert!(!life.last.iter().any(warns), "{:?}", life.last);
}

#[test]
fn an_exit_0_before_the_first_phase_is_not_retried_and_one_after_it_is() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Import);
    life.exits(Exit::Code(0), None);
    assert_eq!(life.outcome(), None);
    life.spawned();
    life.exits(Exit::Code(0), Some("usage: worker [--help]"));
    let Some(Outcome::Failed(failure)) = life.outcome() else {
        panic!("{:?}", life.last);
    };
    assert_eq!(failure.kind, FailureKind::CannotRun);
    assert!(failure.reason.contains("exit code 0"), "{failure}");
}

#[test]
fn last_words_that_are_known_to_be_hopeless_are_not_retried_and_give_the_cure() {
    let policy = Policy {
        hopeless: Some(crate::Hopeless {
            last_words: "No module named worker".to_owned(),
            cure: "install the worker".to_owned(),
        }),
        ..Policy::default()
    };
    let mut life = Life::with(policy);
    life.spawned();
    life.exits(Exit::Code(1), Some("python: No module named other"));
    assert_eq!(life.outcome(), None);
    life.spawned();
    life.exits(Exit::Code(1), Some("python: No module named worker"));
    let Some(Outcome::Failed(failure)) = life.outcome() else {
        panic!("{:?}", life.last);
    };
    assert_eq!(
        (failure.kind, failure.reason.as_str()),
        (FailureKind::CannotRun, "install the worker")
    );
}
