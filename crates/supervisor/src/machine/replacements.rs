//! Lives in which a worker that works is replaced: by hand, over its memory, without its device.

use std::time::Duration;

use super::life::Life;
use super::*;
use crate::{Outcome, WorkerState};

const QUIET: Duration = Duration::from_millis(500);

/// Lets the last request be answered and the moment be quiet.
fn quiet(life: &mut Life) {
    life.load(0, None);
    life.after(QUIET, Event::Tick);
}

fn asked_to_recover(life: &Life) -> bool {
    life.last.contains(&Action::Recover { generation: 1 })
}

fn recovered(failure: Option<&str>) -> Event {
    Event::Recovered {
        generation: 1,
        failure: failure.map(str::to_owned),
    }
}

fn memory(mebibytes: u64) -> Event {
    Event::Memory {
        generation: 1,
        bytes: mebibytes << 20,
    }
}

fn limited() -> Life {
    Life::ready_with(Policy {
        max_memory: Some(100 << 20),
        ..Policy::default()
    })
}

#[test]
fn a_restart_takes_no_new_request_answers_the_old_ones_and_is_no_failure() {
    let mut life = Life::ready();
    life.load(2, Some(1));
    life.on(Event::RestartAsked);
    assert!(matches!(life.last[0], Action::Announce(_)));
    assert_eq!(life.state(), WorkerState::Restarting);
    assert_eq!(
        life.machine.status().message,
        "the worker is being replaced by a new one"
    );
    assert_eq!(life.signals(), [], "two requests have no answer yet");
    life.after(Duration::from_secs(5), Event::Tick);
    life.load(1, Some(1));
    assert_eq!(life.signals(), []);
    life.load(0, None);
    assert_eq!(life.signals(), [], "one may still be on its way");
    life.after(QUIET, Event::Tick);
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.exits(Exit::Code(0), None);
    let status = life.machine.status();
    let last = status.last_exit.clone().unwrap();
    assert!(last.planned);
    assert_eq!(last.reason, "a restart was asked for (exit code 0)");
    assert_eq!(
        life.machine
            .failures
            .record(life.now, &life.machine.policy.restart),
        1
    );
    life.spawned_now();
    life.probed(true);
    assert_eq!((life.state(), life.generation()), (WorkerState::Ready, 2));
    assert_eq!(life.machine.status().history.len(), 1);
}

#[test]
fn a_restart_does_not_wait_for_ever_for_a_request() {
    let mut life = Life::ready();
    life.load(1, Some(1));
    life.on(Event::RestartAsked);
    life.after(Duration::from_secs(59), Event::Tick);
    assert_eq!(life.signals(), []);
    life.after(Duration::from_secs(1), Event::Tick);
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.wake();
    assert_eq!(life.signals(), [Signal::Kill]);
}

#[test]
fn where_nobody_counts_requests_a_restart_does_not_wait() {
    let mut life = Life::ready();
    life.on(Event::RestartAsked);
    assert_eq!(life.signals(), [Signal::Terminate]);
}

#[test]
fn a_worker_stopped_by_hand_stays_so_until_a_restart() {
    let mut life = Life::ready();
    life.on(Event::HaltAsked);
    assert_eq!(life.state(), WorkerState::Stopping);
    life.exits(Exit::Code(0), None);
    assert_eq!(life.state(), WorkerState::Halted);
    assert_eq!(life.machine.next_wake(), None);
    assert_eq!(life.outcome(), None);
    life.after(Duration::from_hours(1), Event::Tick);
    life.on(Event::RestartAsked);
    life.spawned_now();
    life.probed(true);
    assert_eq!((life.state(), life.generation()), (WorkerState::Ready, 2));

    let mut life = Life::ready();
    life.on(Event::HaltAsked);
    life.exits(Exit::Code(0), None);
    life.on(Event::StopAsked);
    assert_eq!(life.outcome(), Some(&Outcome::Stopped { forced: false }));
}

#[test]
fn a_worker_over_its_memory_is_replaced_in_a_quiet_moment_and_it_counts() {
    let mut life = limited();
    life.load(1, Some(0));
    life.on(memory(99));
    life.on(memory(101));
    assert_eq!(life.machine.status().memory, Some(101 << 20));
    assert_eq!(life.state(), WorkerState::Ready, "a request is in flight");
    quiet(&mut life);
    assert_eq!(life.state(), WorkerState::Restarting);
    quiet(&mut life);
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.exits(Exit::Code(0), None);
    let reason = &life.machine.status().last_exit.as_ref().unwrap().reason;
    assert!(
        reason.starts_with("its memory of 101 MiB is over the limit of 100 MiB"),
        "{reason}"
    );
    let policy = life.machine.policy.restart.clone();
    assert_eq!(life.machine.failures.record(life.now, &policy), 2);
}

#[test]
fn without_a_quiet_moment_a_worker_over_its_memory_is_replaced_all_the_same() {
    let mut life = limited();
    life.load(1, Some(0));
    life.on(memory(101));
    life.after(Duration::from_secs(29), Event::Tick);
    assert_eq!(life.state(), WorkerState::Ready);
    life.after(Duration::from_secs(1), Event::Tick);
    assert_eq!(life.state(), WorkerState::Restarting);
    assert_eq!(life.signals(), [], "its request is answered first");
}

#[test]
fn a_worker_that_lost_its_device_is_asked_to_return_and_is_left_alone_if_it_does() {
    let mut life = Life::ready();
    life.degrades(true);
    assert!(asked_to_recover(&life), "{:?}", life.last);
    life.degrades(true);
    assert!(!asked_to_recover(&life), "asked twice");
    life.on(recovered(None));
    life.probed(true);
    assert_eq!(life.state(), WorkerState::Ready);
    // Soon after, it is not asked again.
    life.degrades(true);
    assert!(!asked_to_recover(&life));
    life.after(Duration::from_mins(1), Event::Tick);
    assert!(asked_to_recover(&life), "{:?}", life.last);
}

#[test]
fn a_worker_that_has_not_answered_is_not_asked_to_return_a_second_time() {
    let mut life = Life::ready();
    life.degrades(true);
    assert!(asked_to_recover(&life));
    // Back by itself, and lost again.
    life.probed(true);
    life.degrades(true);
    life.after(Duration::from_mins(2), Event::Tick);
    assert!(!asked_to_recover(&life), "{:?}", life.last);
    life.on(recovered(None));
    assert!(asked_to_recover(&life), "{:?}", life.last);
}

#[test]
fn a_worker_that_cannot_return_to_its_device_is_replaced_in_a_quiet_moment() {
    let mut life = Life::ready();
    life.load(1, Some(0));
    life.degrades(true);
    life.on(recovered(Some("no memory")));
    life.after(Duration::from_mins(10), Event::Tick);
    assert_eq!(life.state(), WorkerState::Degraded, "it serves meanwhile");
    quiet(&mut life);
    assert_eq!(life.state(), WorkerState::Restarting);
    quiet(&mut life);
    life.exits(Exit::Code(0), None);
    let reason = &life.machine.status().last_exit.as_ref().unwrap().reason;
    assert!(reason.contains("no memory"), "{reason}");
    // Its successor never was on the device: another restart would not help.
    life.spawned_now();
    life.degrades(true);
    assert_eq!(life.state(), WorkerState::Degraded);
    life.after(Duration::from_mins(10), Event::Tick);
    assert!(
        !life
            .last
            .iter()
            .any(|a| matches!(a, Action::Recover { .. }))
    );
}

#[test]
fn a_device_is_not_recovered_where_that_is_turned_off_or_it_is_not_the_device() {
    let mut life = Life::ready_with(Policy {
        recover_device: false,
        ..Policy::default()
    });
    life.degrades(true);
    assert!(!asked_to_recover(&life));
    let mut life = Life::ready();
    life.degrades(false);
    assert!(!asked_to_recover(&life));
}

#[test]
fn a_stop_does_not_wait_for_a_replacement_to_be_over() {
    let mut life = Life::ready();
    life.load(1, Some(0));
    life.on(Event::RestartAsked);
    life.on(Event::StopAsked);
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.exits(Exit::Code(0), None);
    assert_eq!(life.outcome(), Some(&Outcome::Stopped { forced: false }));
}
