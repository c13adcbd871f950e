//! Resident memory of a proxy that idles, that keeps connections, and that has requests in flight.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::client::{Client, get, post};
use super::servers::{self, Programs, Server, Target};
use crate::bench::interrupt;

/// The connections, and then the requests in flight.
const MANY: usize = 1000;

/// How long after a change memory is read.
const SETTLE: Duration = Duration::from_millis(500);

/// How long it may take until the backend holds every request.
const HOLD_LIMIT: Duration = Duration::from_secs(10);

/// What one freshly started proxy had resident, in kB (1,024 bytes).
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    pub(super) target: Target,
    /// After one request.
    pub(super) idle_kb: u32,
    /// With 1,000 connections open, each of which has been answered once.
    pub(super) connections_kb: u32,
    /// With a request in flight on each of them.
    pub(super) in_flight_kb: u32,
    pub(super) errors: u32,
}

/// Starts `target` and measures it.
///
/// # Errors
///
/// When it does not take 1,000 connections or 1,000 requests, or when interrupted. An answer that
/// fails is counted.
pub(super) fn measure(
    programs: &Programs,
    target: Target,
    backend: SocketAddr,
) -> anyhow::Result<Memory> {
    let server = servers::start(programs, target, backend)?;
    let idle_kb = settled(&server)?;
    let mut errors = 0;
    let mut clients = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        interrupt::check()?;
        let mut client = Client::connect(server.address)?;
        errors += u32::from(client.ask(&post("/v1/systemone")).is_err());
        clients.push(client);
    }
    let connections_kb = settled(&server)?;

    let held = post("/held");
    for client in &mut clients {
        client.send(&held)?;
    }
    let mut control = Client::connect(backend)?;
    wait_until_held(&mut control)?;
    let in_flight_kb = settled(&server)?;
    control.ask(&post("/release"))?;
    for client in &mut clients {
        interrupt::check()?;
        errors += u32::from(client.receive().is_err());
    }
    Ok(Memory {
        target,
        idle_kb,
        connections_kb,
        in_flight_kb,
        errors,
    })
}

fn settled(server: &Server) -> anyhow::Result<u32> {
    interrupt::sleep(SETTLE)?;
    server
        .proxy()
        .context("memory is measured of a proxy only")?
        .resident_kb()
}

fn wait_until_held(control: &mut Client) -> anyhow::Result<()> {
    let mut held = String::new();
    let all = interrupt::wait_for(HOLD_LIMIT, || {
        held = control.ask(&get("/held"))?;
        Ok((held == MANY.to_string()).then_some(()))
    })?;
    if all.is_none() {
        bail!("of {MANY} requests in flight only {held} reached the backend in {HOLD_LIMIT:?}");
    }
    Ok(())
}
