//! Ctrl-C and SIGTERM as an error that the waiting code returns.
//!
//! The signal only raises a flag. Whoever waits looks at it and returns, so that every guard on the
//! way out is dropped: programs are killed and temporary folders removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static RAISED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// How often a wait looks at what it waits for; rare enough to cost the measured core nothing.
const SLICE: Duration = Duration::from_millis(20);

/// From here on a signal no longer ends the process by itself.
pub(crate) fn watch() -> anyhow::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&RAISED))
            .with_context(|| format!("cannot watch for signal {signal}"))?;
    }
    Ok(())
}

/// Fails once a signal has come.
pub(crate) fn check() -> anyhow::Result<()> {
    if RAISED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps, or fails when a signal comes.
pub(crate) fn sleep(time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(SLICE));
    }
}

/// Asks `ready` again and again until it has a value; `None` when it has none within `limit`.
pub(crate) fn wait_for<T>(
    limit: Duration,
    mut ready: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = ready()? {
            return Ok(Some(value));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        sleep(SLICE)?;
    }
}
