//! A line of JSON for each decision: where it went, why, and when what happened to it.
//!
//! A thread of its own writes. Lines that it cannot take at once are left out and counted: a slow
//! disk costs lines, never requests.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use http::header::HeaderValue;
use omni_jev_lanes::{Ask, Reason};
use serde_json::{Value, json};

use super::Lanes;
use super::timing::Told;

/// Lines that wait to be written; more are left out.
const WAITING: usize = 8192;
/// The status of a line whose client left before its answer, as in the access log.
const CLIENT_LEFT: u16 = 499;
/// How long the end waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where lines go. Dropped, it waits a moment for the last of them.
#[derive(Debug)]
pub(crate) struct Trace {
    lines: Option<SyncSender<String>>,
    /// Says that all is written. Behind a lock only because whoever holds this may be shared.
    written: Mutex<Receiver<()>>,
    dropped: Arc<AtomicU64>,
    /// What the times of all lines are counted from.
    pub(crate) start: Instant,
}

impl Trace {
    /// Appends to a file, which is made if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // To open a pipe for writing alone waits until somebody reads it.
        let file = OpenOptions::new()
            .read(is_pipe(path))
            .create(true)
            .append(true)
            .open(path)?;
        let start = Instant::now();
        let (lines, queue) = sync_channel(WAITING);
        let (done, written) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                write(&queue, file, &count);
                let _ = done.send(());
            })?;
        let trace = Self {
            lines: Some(lines),
            written: Mutex::new(written),
            dropped,
            start,
        };
        trace.say(began());
        Ok(trace)
    }

    /// How many lines were left out, for whoever shows it.
    pub(crate) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Writes a line some time, or counts it.
    pub(crate) fn say(&self, line: String) {
        let sent = self.lines.as_ref().map(|lines| lines.try_send(line));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) = sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.lines = None;
        if let Ok(written) = self.written.get_mut() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    std::fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

/// The first line: when the times of the others are counted from.
fn began() -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "trace": "omni-jev lanes",
        "version": env!("CARGO_PKG_VERSION"),
        "start": since_1970.unwrap_or_default().as_secs_f64(),
    })
    .to_string()
}

fn write(queue: &Receiver<String>, file: File, dropped: &AtomicU64) {
    let mut out = BufWriter::new(file);
    let mut told = 0;
    let mut disk = Disk::default();
    while let Some(line) = next(queue, &mut out, &mut disk) {
        let mut lines = line;
        lines.push('\n');
        let now = dropped.load(Ordering::Relaxed);
        if now > told {
            lines = format!("{}\n{lines}", json!({ "dropped": now - told }));
        }
        if disk.takes(&out.write_all(lines.as_bytes())) {
            told = now;
        } else {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The next line. What was written is in the file before it is waited for.
fn next(queue: &Receiver<String>, out: &mut BufWriter<File>, disk: &mut Disk) -> Option<String> {
    match queue.try_recv() {
        Ok(line) => Some(line),
        Err(TryRecvError::Empty) => {
            disk.takes(&out.flush());
            queue.recv().ok()
        }
        Err(TryRecvError::Disconnected) => None,
    }
}

/// Whether the file could be written of late: a change is told, not each line.
#[derive(Default)]
struct Disk {
    fails: bool,
}

impl Disk {
    fn takes(&mut self, written: &io::Result<()>) -> bool {
        let fails = written.is_err();
        if let (Err(error), false) = (written, self.fails) {
            tracing::warn!(%error, "the trace cannot be written: lines are left out");
        }
        self.fails = fails;
        !fails
    }
}

/// What the trace says of one decision, when it is dropped: of one whose client has left as well.
pub(crate) struct Line {
    lanes: Arc<Lanes>,
    id: HeaderValue,
    submit: Instant,
    ask: Ask,
    routed: Option<Routed>,
    dispatched: Option<Instant>,
    service: Option<(Instant, Instant)>,
    before: Vec<usize>,
    answered: Option<(Instant, StatusCode)>,
}

struct Routed {
    at: Instant,
    lane: usize,
    reason: Reason,
    estimate: Duration,
    backlogs: Vec<Duration>,
}

impl Line {
    /// A decision of which the first byte came at `submit`.
    pub(crate) fn new(lanes: &Arc<Lanes>, id: &HeaderValue, submit: Instant, ask: Ask) -> Self {
        Self {
            lanes: Arc::clone(lanes),
            id: id.clone(),
            submit,
            ask,
            routed: None,
            dispatched: None,
            service: None,
            before: Vec::new(),
            answered: None,
        }
    }

    /// A lane was chosen, and it stands in its line.
    pub(crate) fn routed(
        &mut self,
        lane: usize,
        reason: Reason,
        estimate: Duration,
        backlogs: &[Duration],
    ) {
        self.routed = Some(Routed {
            at: Instant::now(),
            lane,
            reason,
            estimate,
            backlogs: backlogs.to_vec(),
        });
    }

    /// It was sent, and came back; the lane may have told when it worked on it.
    pub(crate) fn at_lane(&mut self, sent: Instant, back: Instant, told: Option<Told>) {
        self.dispatched = Some(sent);
        self.service = told.map(|told| {
            let begun = (sent + told.queue).min(back);
            (begun, (begun + told.work).min(back))
        });
    }

    /// The lane refused it or was lost with it.
    pub(crate) fn moved_on(&mut self, lane: usize) {
        self.before.push(lane);
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.answered = Some((Instant::now(), status));
    }

    fn text(&self, start: Instant) -> String {
        let at = |at: Instant| at.saturating_duration_since(start).as_secs_f64();
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let name = |lane: usize| self.lanes.name(lane);
        let read = Some(self.ask).filter(|ask| ask.is_read);
        let routed = self.routed.as_ref();
        let backlogs = routed.map(|routed| {
            let backlogs = routed.backlogs.iter().enumerate();
            let named = backlogs.map(|(lane, &left)| (name(lane).to_owned(), json!(millis(left))));
            named.collect::<serde_json::Map<String, Value>>()
        });
        json!({
            "id": self.id.to_str().unwrap_or_default(),
            "tokens": read.map(|ask| ask.tokens.count),
            "tokens_exact": read.map(|ask| ask.tokens.exact),
            "questions": read.map(|ask| ask.questions),
            "lane": routed.map(|routed| name(routed.lane)),
            "reason": routed.map(|routed| routed.reason.name()),
            "estimate_ms": routed.map(|routed| millis(routed.estimate)),
            "backlog_ms": backlogs,
            "lanes_before": self.before.iter().map(|&lane| name(lane)).collect::<Vec<_>>(),
            "submit": at(self.submit),
            "routed": routed.map(|routed| at(routed.at)),
            "queued": routed.map(|routed| at(routed.at)),
            "dispatched": self.dispatched.map(at),
            "service_start": self.service.map(|(begun, _)| at(begun)),
            "service_end": self.service.map(|(_, ended)| at(ended)),
            "answered": self.answered.map(|(answered, _)| at(answered)),
            "status": self.answered.map_or(CLIENT_LEFT, |(_, status)| status.as_u16()),
        })
        .to_string()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(trace) = &self.lanes.trace {
            trace.say(self.text(trace.start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_in_the_file_when_the_trace_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        for _ in 0..2 {
            let trace = Trace::open(&path).unwrap();
            trace.say("{\"id\":\"1\"}".to_owned());
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("\"start\":"));
        assert_eq!((lines[1], lines[3]), ("{\"id\":\"1\"}", "{\"id\":\"1\"}"));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_that_nobody_reads_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let (opened, done) = sync_channel(1);
        std::thread::spawn(move || opened.send(Trace::open(&path).is_ok()));
        assert_eq!(done.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[cfg(unix)]
    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_never_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let reader = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let trace = Trace::open(&path).unwrap();
        let line = "x".repeat(100);
        let begun = Instant::now();
        for _ in 0..WAITING * 4 {
            trace.say(line.clone());
        }
        assert!(trace.dropped.load(Ordering::Relaxed) > 0);
        assert!(begun.elapsed() < Duration::from_secs(10));
        drop(trace);
        drop(reader);
    }
}
