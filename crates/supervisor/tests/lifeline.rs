//! What becomes of a worker whose supervisor is killed.

mod support;

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use omni_jev_supervisor::start;
use support::{fake, fake_spec, gone, is_alive, ready, stopped};

/// Set for the process that plays the supervisor, to its folder.
const FOLDER: &str = "SUPERVISOR_TEST_FOLDER";

#[tokio::test]
async fn a_killed_supervisor_leaves_no_worker_and_its_folder_goes_with_the_next_start() {
    let fake = fake(&["none"]);
    let mut supervisor = Command::new(env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "--nocapture",
            "supervise_until_killed",
        ])
        .env(FOLDER, fake.folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(supervisor.stdout.take().unwrap());
    let pid = output
        .lines()
        .find_map(|line| line.unwrap().split_once("worker=")?.1.parse().ok())
        .expect("the supervisor ended before its worker was ready");
    assert!(is_alive(pid));
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    gone(pid, Duration::from_secs(2)).await;

    let left_behind = fake.socket_folders();
    assert_eq!(left_behind.len(), 1);
    let next = fake.start();
    ready(&next).await;
    assert!(!left_behind[0].exists());
    stopped(&next).await;
    assert!(fake.socket_folders().is_empty());
}

#[tokio::test]
#[ignore = "the other process of the test above, not a test"]
async fn supervise_until_killed() {
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    let worker = start(fake_spec(Path::new(&folder), &["none"])).unwrap();
    let pid = ready(&worker).await.pid.unwrap();
    writeln!(std::io::stdout(), "worker={pid}").unwrap();
    worker.outcome().await;
}
