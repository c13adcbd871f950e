//! What is written when, and what becomes of lines that nobody takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::*;

const LONG: Duration = Duration::from_secs(30);

/// Sends each write to the test, which may leave it waiting.
struct Writes(mpsc::SyncSender<String>);

impl Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0
            .send(text)
            .map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn nobody(_: u64) {}

/// A sink whose thread writes up to `room` times before a write is taken from the other end.
fn sink(room: usize, tell: fn(u64)) -> (&'static Sink, mpsc::Receiver<String>) {
    let (sender, writes) = mpsc::sync_channel(room);
    let sink = Box::leak(Box::new(Sink::new(Box::new(Writes(sender)), tell)));
    (sink, writes)
}

/// A sink whose first write is on its way and stuck: from here on everything is queued.
fn stuck(tell: fn(u64)) -> (&'static Sink, mpsc::Receiver<String>) {
    let (sink, writes) = sink(0, tell);
    sink.start();
    sink.push(b"first\n", Rank::Usual);
    while !sink.lock().lines.is_empty() {
        thread::yield_now();
    }
    (sink, writes)
}

#[test]
fn an_access_line_is_written_soon_without_another() {
    let (sink, writes) = sink(10, nobody);
    sink.start();
    for _ in 0..2 {
        sink.push(b"a\n", Rank::Access);
        assert_eq!(writes.recv_timeout(LONG).unwrap(), "a\n");
    }
}

#[test]
fn lines_are_written_in_order_and_together() {
    let (sink, writes) = stuck(nobody);
    sink.push(b"a\n", Rank::Access);
    sink.push(b"b\n", Rank::Warning);
    sink.push(b"c\n", Rank::Usual);
    assert_eq!(writes.recv_timeout(LONG).unwrap(), "first\n");
    assert_eq!(writes.recv_timeout(LONG).unwrap(), "a\nb\nc\n");
}

#[test]
fn only_so_much_of_the_access_log_is_held() {
    let (sink, _writes) = stuck(nobody);
    sink.push(&vec![b'x'; MOST_HELD - 1], Rank::Access);
    assert_eq!(sink.lock().due, Due::Soon);
    sink.push(b"x", Rank::Access);
    assert_eq!(sink.lock().due, Due::Now);
}

#[test]
fn without_a_thread_every_line_is_written_at_once() {
    let (sink, writes) = sink(1, nobody);
    sink.push(b"a\n", Rank::Access);
    assert_eq!(writes.try_recv().unwrap(), "a\n");
    assert!(sink.flush(LONG));
}

#[test]
fn a_flush_writes_what_is_held() {
    let (sink, writes) = sink(10, nobody);
    sink.start();
    sink.push(b"a\n", Rank::Access);
    assert!(sink.flush(LONG));
    assert_eq!(writes.try_recv().unwrap(), "a\n");
    sink.push(b"b\n", Rank::Access);
    assert_eq!(sink.flush_unless_busy(LONG), Some(true));
    assert_eq!(writes.try_recv().unwrap(), "b\n");
}

#[test]
fn a_flush_of_what_nobody_takes_gives_up() {
    let (sink, _writes) = stuck(nobody);
    assert!(!sink.flush(Duration::from_millis(10)));
    let _in_use = sink.lock();
    assert_eq!(sink.flush_unless_busy(LONG), None);
}

#[test]
fn lines_that_do_not_fit_are_left_out_and_told_of_once_it_writes_again() {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let (sink, writes) = stuck(|lines| {
        TOLD.fetch_add(lines, Ordering::Relaxed);
    });
    let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
    let taken = (0..10_000)
        .filter(|_| sink.push(&line, Rank::Usual))
        .count();
    assert_eq!(taken, MOST_WAITING / 1024);
    assert!(sink.push(b"a warning\n", Rank::Warning));
    assert_eq!(TOLD.load(Ordering::Relaxed), 0);
    assert_eq!(writes.recv_timeout(LONG).unwrap(), "first\n");
    let rest = writes.recv_timeout(LONG).unwrap();
    assert!(rest.ends_with("a warning\n"));
    assert!(sink.flush(LONG));
    assert!(sink.push(b"more\n", Rank::Usual));
    assert_eq!(writes.recv_timeout(LONG).unwrap(), "more\n");
    assert_eq!(TOLD.load(Ordering::Relaxed), 10_000 - as_u64(taken));
}

#[test]
fn lines_whose_write_fails_count_as_left_out() {
    let (sink, writes) = sink(10, nobody);
    sink.start();
    drop(writes);
    sink.push(b"a\nb\n", Rank::Usual);
    assert!(sink.flush(LONG));
    assert_eq!(sink.lock().dropped, 2);
}
