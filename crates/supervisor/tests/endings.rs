//! How it ends: given up, stopped, killed; and what is left behind, which is nothing.

mod support;

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use omni_jev_supervisor::{Failure, FailureKind, Outcome, WorkerState};
use support::log::Log;
use support::{fake, gone, outcome, ready, ready_after, send, stopped, until};

async fn failure(worker: &omni_jev_supervisor::Handle) -> Failure {
    match outcome(worker).await {
        Outcome::Failed(failure) => failure,
        stopped @ Outcome::Stopped { .. } => panic!("{stopped:?}"),
    }
}

#[tokio::test]
async fn configuration_errors_are_not_retried_and_give_their_reason() {
    for code in [64, 78] {
        let fake = fake(&["exit", &code.to_string(), "no such checkpoint"]);
        let worker = fake.start();
        let failure = failure(&worker).await;
        assert_eq!(failure.kind, FailureKind::Configuration);
        assert_eq!(failure.reason, "cannot go on: no such checkpoint");
        assert_eq!(failure.exit_code, Some(code));
        let status = worker.status().borrow().clone();
        assert_eq!((status.state, status.generation), (WorkerState::Failed, 1));
        assert!(
            !status.message.contains("checkpoint"),
            "for clients: {}",
            status.message
        );
    }
}

#[tokio::test]
async fn repeated_failures_wait_longer_each_time_and_are_given_up() {
    let (log, _guard) = Log::capture();
    let mut fake = fake(&["exit", "3", "boom"]);
    fake.spec.policy.restart.first_delay = Duration::from_millis(100);
    fake.spec.policy.restart.jitter = 0.0;
    let begun = Instant::now();
    let worker = fake.start();
    let failure = failure(&worker).await;
    assert_eq!(
        (failure.kind, failure.exit_code),
        (FailureKind::GaveUp, Some(3))
    );
    assert!(failure.reason.contains("5 times"), "{failure}");
    assert!(failure.reason.contains("cannot go on: boom"), "{failure}");
    assert!(begun.elapsed() >= Duration::from_millis(100 + 200 + 400 + 800));
    let waits: Vec<String> = log
        .events()
        .iter()
        .filter_map(|event| Some(event.message().split_once("next start in ")?.1.to_owned()))
        .collect();
    assert_eq!(waits, ["0.1 s", "0.2 s", "0.4 s", "0.8 s"]);
    assert_eq!(worker.status().borrow().restarts, 4);
    assert!(fake.socket_folders().is_empty());
}

#[tokio::test]
async fn a_worker_that_dies_after_each_ready_is_given_up() {
    let mut fake = fake(&["die-later", "1.0"]);
    fake.spec.policy.restart.max_failures = 2;
    let worker = fake.start();
    let first = ready(&worker).await;
    ready_after(&worker, &first).await;
    assert_eq!(failure(&worker).await.kind, FailureKind::GaveUp);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_failure_that_names_it() {
    let mut fake = fake(&["none"]);
    fake.spec.program = "/nonexistent/python".into();
    let worker = fake.start();
    let failure = failure(&worker).await;
    assert_eq!(failure.kind, FailureKind::CannotRun);
    assert!(failure.reason.contains("/nonexistent/python"), "{failure}");
    assert_eq!(failure.exit_code, None);
}

#[tokio::test]
async fn a_worker_without_progress_is_ended_after_the_deadline() {
    let mut fake = fake(&["never-ready"]);
    fake.spec.policy.start_deadline = Duration::from_secs(2);
    fake.spec.policy.restart.max_failures = 1;
    let worker = fake.start();
    let loading = until(&worker, |status| status.phase.is_some()).await;
    assert_eq!(
        loading.message,
        "the worker is starting: loading the checkpoint"
    );
    let failure = failure(&worker).await;
    assert!(failure.reason.contains("no progress"), "{failure}");
    gone(loading.pid.unwrap(), Duration::ZERO).await;
}

#[tokio::test]
async fn a_worker_that_ignores_sigterm_is_killed_after_its_grace() {
    let mut fake = fake(&["ignore-sigterm"]);
    fake.spec.policy.stop_grace = Duration::from_millis(500);
    let worker = fake.start();
    let status = ready(&worker).await;
    let asked_at = Instant::now();
    worker.stop();
    assert_eq!(outcome(&worker).await, Outcome::Stopped { forced: true });
    assert!(asked_at.elapsed() >= Duration::from_millis(500), "no grace");
    gone(status.pid.unwrap(), Duration::ZERO).await;
}

#[tokio::test]
async fn a_second_stop_kills_without_waiting_for_the_grace() {
    let mut fake = fake(&["ignore-sigterm"]);
    fake.spec.policy.stop_grace = support::PATIENCE * 2;
    let worker = fake.start();
    ready(&worker).await;
    worker.stop();
    until(&worker, |status| status.state == WorkerState::Stopping).await;
    worker.kill();
    assert_eq!(outcome(&worker).await, Outcome::Stopped { forced: true });
}

#[tokio::test]
async fn a_stop_between_two_processes_ends_at_once() {
    let mut fake = fake(&["none"]);
    fake.spec.policy.restart.first_delay = support::PATIENCE * 2;
    fake.spec.policy.restart.max_delay = support::PATIENCE * 2;
    let worker = fake.start();
    let status = ready(&worker).await;
    send(status.pid.unwrap(), Signal::SIGKILL);
    until(&worker, |status| status.state == WorkerState::Restarting).await;
    stopped(&worker).await;
}

#[tokio::test]
async fn a_grandchild_dies_with_a_stop_and_with_a_crash() {
    let fake = fake(&["grandchild"]);
    let worker = fake.start();
    let first = ready(&worker).await;
    send(first.pid.unwrap(), Signal::SIGKILL);
    ready_after(&worker, &first).await;
    stopped(&worker).await;
    let grandchildren = fake.notes();
    assert_eq!(grandchildren.len(), 2);
    for pid in grandchildren {
        gone(pid.parse().unwrap(), Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn dropping_the_last_handle_stops_the_worker() {
    let fake = fake(&["none"]);
    let worker = fake.start();
    let copy = worker.clone();
    let pid = ready(&worker).await.pid.unwrap();
    drop(worker);
    let still_there = copy.status().borrow().state;
    assert_eq!(still_there, WorkerState::Ready);
    drop(copy);
    gone(pid, support::PATIENCE).await;
}
