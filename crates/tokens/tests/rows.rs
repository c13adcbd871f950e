//! The count against the worker's own rows of generated requests, which
//! `python -m tests.harness.token_rows` keeps in `rows.jsonl`.

// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use omni_jev_tokens::Counter;

#[derive(serde::Deserialize)]
struct Row {
    body: String,
    longest: usize,
}

#[test]
fn generated_requests_have_the_lengths_that_the_worker_gives_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let counter = Counter::of(&root.join("recipe/demo/checkpoint")).unwrap();
    let lines = include_str!("rows.jsonl").lines();
    let mut lengths = 0;
    for (number, line) in lines.enumerate() {
        let row: Row = serde_json::from_str(line).unwrap();
        let longest = counter.longest(row.body.as_bytes());
        assert_eq!(longest, Some(row.longest), "line {}", number + 1);
        lengths += 1;
    }
    assert!(lengths > 100);
}

#[test]
fn a_folder_that_is_no_checkpoint_is_said_to_be_none() {
    let error = Counter::of(Path::new("/nowhere")).unwrap_err().to_string();
    assert!(
        error.starts_with("/nowhere/rl_agent_config.json cannot be read"),
        "{error}"
    );
}
