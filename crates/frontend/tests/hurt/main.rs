//! What an unkind world does to it.

// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used)]

mod chaos;
mod ends;
mod panics;
mod slow;
#[allow(dead_code)]
#[path = "../frontend/support.rs"]
mod support;
