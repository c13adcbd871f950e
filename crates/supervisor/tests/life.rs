//! How a worker becomes ready, and becomes ready again.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use omni_jev_supervisor::{Exit, Phase, WorkerState};
use support::{fake, gone, ready, ready_after, send, stopped, until};

#[tokio::test]
async fn a_worker_becomes_ready_on_a_private_socket_and_stops_when_asked() {
    let fake = fake(&["none"]);
    let worker = fake.start();
    let status = ready(&worker).await;
    let socket = status.socket.clone().unwrap();
    let folder = socket.parent().unwrap();
    assert_eq!(
        folder.metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert!(socket.exists());
    assert_eq!((status.generation, status.restarts), (1, 0));
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(status.estimated_wait(Instant::now()), Some(Duration::ZERO));

    stopped(&worker).await;
    gone(status.pid.unwrap(), Duration::ZERO).await;
    assert!(!folder.exists());
    assert_eq!(worker.status().borrow().state, WorkerState::Stopping);
}

#[tokio::test]
async fn a_worker_gets_the_environment_and_the_group_that_were_agreed() {
    let mut fake = fake(&["environment"]);
    fake.spec.env.push(("EXTRA".into(), "more".into()));
    let worker = fake.start();
    let status = ready(&worker).await;
    let expected = [
        "OMNI_JEV_LIFELINE=stdin".to_owned(),
        format!("OMNI_JEV_SUPERVISOR_PID={}", std::process::id()),
        format!("OMNI_JEV_INSTANCE={}", status.instance.unwrap()),
        "EXTRA=more".to_owned(),
        "group=True".to_owned(),
    ];
    assert_eq!(fake.notes(), expected);
    stopped(&worker).await;
}

#[tokio::test]
async fn a_killed_worker_is_not_ready_at_once_and_ready_again_as_another() {
    let mut fake = fake(&["none"]);
    // Long enough not to be missed.
    fake.spec.policy.restart.first_delay = Duration::from_secs(3);
    let worker = fake.start();
    let first = ready(&worker).await;
    let killed_at = Instant::now();
    send(first.pid.unwrap(), Signal::SIGKILL);
    let between = until(&worker, |status| !status.state.is_serving()).await;
    assert!(
        killed_at.elapsed() < Duration::from_secs(2),
        "noticed too late"
    );
    assert_eq!(between.state, WorkerState::Restarting);
    assert!(between.pid.is_none() && between.socket.is_none());
    assert!(between.estimated_wait(Instant::now()).unwrap() >= Duration::from_secs(1));
    let reason = between.last_exit.unwrap().reason;
    assert!(
        reason.contains("SIGKILL") && reason.contains("memory"),
        "{reason}"
    );

    let second = ready_after(&worker, &first).await;
    assert_eq!((second.generation, second.restarts), (2, 1));
    assert_ne!(second.instance, first.instance);
    assert_ne!(second.socket, first.socket);
    assert!(!first.socket.unwrap().exists());
    assert_eq!(second.exits[&Exit::Signal(9)], 1);
    stopped(&worker).await;
}

#[tokio::test]
async fn a_stopped_process_is_found_and_replaced() {
    let mut fake = fake(&["none"]);
    fake.spec.policy.probe.timeout = Duration::from_millis(500);
    fake.spec.policy.probe.max_failures = 2;
    let worker = fake.start();
    let first = ready(&worker).await;
    send(first.pid.unwrap(), Signal::SIGSTOP);
    let second = ready_after(&worker, &first).await;
    let reason = second.last_exit.unwrap().reason;
    assert!(
        reason.contains("health failed") && reason.contains("SIGABRT"),
        "{reason}"
    );
    gone(first.pid.unwrap(), Duration::ZERO).await;
    stopped(&worker).await;
}

#[tokio::test]
async fn health_answered_by_another_instance_is_not_ready() {
    let mut fake = fake(&["other-instance"]);
    fake.spec.policy.start_deadline = Duration::from_secs(3);
    fake.spec.policy.restart.max_failures = 1;
    let worker = fake.start();
    let mut status = worker.status();
    while status.changed().await.is_ok() {
        let status = status.borrow_and_update();
        assert!(!status.state.is_serving(), "{status:?}");
    }
    let status = worker.status().borrow().clone();
    assert_eq!(status.state, WorkerState::Failed);
    assert!(status.last_exit.unwrap().reason.contains("no progress"));
}

#[tokio::test]
async fn a_worker_that_answers_not_ready_is_not_ready() {
    let fake = fake(&["answers-not-ready"]);
    let worker = fake.start();
    let status = until(&worker, |status| status.phase == Some(Phase::Ready)).await;
    assert_eq!(status.state, WorkerState::Starting);
    let time_for_probes = Duration::from_secs(1);
    let served = tokio::time::timeout(time_for_probes, ready(&worker)).await;
    assert!(served.is_err());
    stopped(&worker).await;
}

#[tokio::test]
async fn a_worker_on_another_device_is_degraded_and_serves() {
    let fake = fake(&["degraded"]);
    let worker = fake.start();
    let status = until(&worker, |status| status.state.is_serving()).await;
    assert_eq!(status.state, WorkerState::Degraded);
    assert_eq!(status.degraded.unwrap(), "asked for mps, it runs on cpu");
    stopped(&worker).await;
}
