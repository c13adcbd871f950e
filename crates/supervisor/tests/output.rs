//! What a worker writes: it comes out in the log, whatever it is, and never holds the worker up.

mod support;

use std::time::Duration;

use support::log::Log;
use support::{fake, ready, stopped};
use tracing::Level;

#[tokio::test]
async fn log_lines_keep_their_level_and_fields_and_name_their_worker() {
    let (log, _guard) = Log::capture();
    let fake = fake(&["exit", "78", "no key"]);
    let worker = fake.start();
    support::outcome(&worker).await;
    let line = log.find("cannot go on: no key").unwrap();
    assert_eq!((line.target.as_str(), line.level), ("worker", Level::ERROR));
    assert_eq!(line.fields["worker"], "fake");
    assert!(line.fields["pid"].parse::<u32>().is_ok());

    let fake = support::fake(&["none"]);
    let worker = fake.start();
    let status = ready(&worker).await;
    stopped(&worker).await;
    let line = log.find("listening").unwrap();
    assert_eq!(line.level, Level::INFO);
    assert_eq!(line.fields["phase"], "ready");
    assert_eq!(line.fields["fields"], r#"{"color":"green"}"#);
    assert_eq!(line.fields["pid"], status.pid.unwrap().to_string());
}

#[tokio::test]
async fn a_line_of_ten_megabytes_is_cut_and_what_follows_is_whole() {
    let (log, _guard) = Log::capture();
    let fake = fake(&["long-line"]);
    let worker = fake.start();
    ready(&worker).await;
    stopped(&worker).await;
    let cut = log.find("xxxx").unwrap();
    let kept = cut.message().len();
    let dropped: usize = cut.fields["dropped_bytes"].parse().unwrap();
    assert_eq!(kept + dropped, 10_000_000);
    assert!(kept < 100_000);
    assert_eq!(log.find("after the long line").unwrap().target, "worker");
}

#[tokio::test]
async fn binary_rubbish_is_taken_as_text() {
    let (log, _guard) = Log::capture();
    let fake = fake(&["rubbish"]);
    let worker = fake.start();
    ready(&worker).await;
    stopped(&worker).await;
    assert!(log.find("plain words").is_some());
    assert!(
        log.events()
            .iter()
            .any(|event| event.message().contains('\u{fffd}'))
    );
}

#[tokio::test]
async fn a_worker_that_floods_its_output_becomes_ready_and_stays_so() {
    let (log, _guard) = Log::capture();
    let fake = fake(&["flood"]);
    let worker = fake.start();
    let status = ready(&worker).await;
    let flooded = async {
        while log.len() < 30_000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, flooded)
        .await
        .unwrap();
    assert_eq!(ready(&worker).await.generation, status.generation);
    stopped(&worker).await;
}

#[tokio::test]
async fn a_log_that_takes_nothing_does_not_hold_the_worker_up() {
    let (log, _guard) = Log::capture();
    let fake = fake(&["flood-once"]);
    log.get_stuck();
    let worker = fake.start();
    ready(&worker).await;
    assert_eq!(log.len(), 0);
    log.get_free();
    stopped(&worker).await;
    let warning = log.find("lines of the worker were dropped").unwrap();
    assert_eq!(warning.level, Level::WARN);
}
