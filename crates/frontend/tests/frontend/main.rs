//! The frontend between real sockets: raw bytes in, raw bytes out.

// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used)]

mod admin;
mod connections;
mod drain;
mod lanes;
mod limits;
mod losses;
mod requests;
mod responses;
mod support;
