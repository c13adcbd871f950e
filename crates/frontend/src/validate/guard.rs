//! Stands between a client's socket and the HTTP library.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::inspector::Inspector;
use super::pace::Pace;
use super::{Limits, head};
use crate::connection::{Link, Refusal, Stage};
use crate::fault::{Fault, Malformed};
use crate::shard::Shard;

/// Bytes kept of requests that a client sends before it has its answer.
const AHEAD: usize = 16 * 1024;

/// How long, and for how many bytes, what a client still sends is read and
/// dropped after a refusal. Closing with unread bytes would reset the connection,
/// and the client might never read why (RFC 9112 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 32 * 1024 * 1024;

/// How long a drain waits for the first request on a connection that was only just
/// opened: its client has no way to know that it came late.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// How long a connection must have been idle before another client gets its place: far
/// longer than a client that goes on asking pauses.
const IDLE_ENOUGH: Duration = Duration::from_secs(5);

/// Passes on to the HTTP library what the inspector lets on, one request at a time.
pub(crate) struct Guard<S> {
    io: S,
    shard: Rc<Shard>,
    link: Rc<Link>,
    inspector: Inspector,
    /// Read and not yet passed on; empty, and without memory, nearly always.
    held: Vec<u8>,
    /// How many bytes of `held` may go on.
    cleared: usize,
    /// `held` has bytes past those that the inspector has not seen.
    unseen: bool,
    pace: Pace,
    /// How fast the client takes its answer, once it has made it wait.
    sending: Option<Pace>,
    closing: Closing,
    client_left: bool,
    /// Until the first answer, when the connection was opened.
    opened: Option<Instant>,
}

enum Closing {
    No,
    /// The library has nothing more to write; so many more bytes are dropped.
    Lingering(usize),
}

impl<S> Guard<S> {
    pub(crate) fn new(io: S, shard: Rc<Shard>, link: Rc<Link>) -> Self {
        let now = Instant::now();
        // A connection that never says anything is let go as a slow head would be.
        link.alarm.set(now + shard.config.head_timeout);
        Self {
            io,
            inspector: Inspector::new(Limits::from(&*shard.config)),
            shard,
            link,
            held: Vec::new(),
            cleared: 0,
            unseen: false,
            pace: Pace::new(now),
            sending: None,
            closing: Closing::No,
            client_left: false,
            opened: Some(now),
        }
    }

    /// Passes on what was held and cleared.
    fn deliver(&mut self, out: &mut ReadBufCursor<'_>) {
        let length = self.cleared.min(out.remaining());
        out.put_slice(&self.held[..length]);
        if length == self.held.len() {
            // Gives the memory back: an idle connection holds none.
            self.held = Vec::new();
        } else {
            self.held.drain(..length);
        }
        self.cleared -= length;
    }

    /// Moves on to the stage that the inspector has reached, and bounds it.
    fn follow(&mut self, now: Instant, cleared: usize) {
        let link = &self.link;
        if self.inspector.is_complete() {
            link.alarm.clear();
            link.stage.set(Stage::Busy);
        } else if self.inspector.is_in_body() {
            if link.stage.replace(Stage::Body) != Stage::Body {
                self.pace = Pace::new(now);
            }
            let allowed = self.shard.config.body_timeout;
            link.alarm.set(self.pace.deadline(now, cleared, allowed));
        } else if link.stage.replace(Stage::Head) != Stage::Head {
            link.alarm
                .set(link.begun.get() + self.shard.config.head_timeout);
        }
    }

    /// Refuses the current request: as a whole if the library has seen nothing
    /// of it yet, else by cutting its body short.
    fn refuse(&mut self, fault: Fault, head: &[u8]) -> io::Result<()> {
        let was_in_body = self.link.stage.get() == Stage::Body;
        self.link.stage.set(Stage::Shut);
        self.link.alarm.clear();
        if was_in_body {
            self.held = Vec::new();
            self.cleared = 0;
            *self.link.body_fault.borrow_mut() = Some(fault);
            return Err(io::ErrorKind::InvalidData.into());
        }
        let about = head::describe(head);
        self.held = head::stand_in(about.method.as_ref()).to_vec();
        self.cleared = self.held.len();
        *self.link.refusal.borrow_mut() = Some(Refusal { fault, about });
        Ok(())
    }

    fn inspect_held(&mut self) -> io::Result<()> {
        self.unseen = false;
        match self.inspector.advance(&self.held) {
            Ok(cleared) => {
                self.cleared = cleared;
                self.follow(Instant::now(), cleared);
                Ok(())
            }
            Err(fault) => {
                let head = std::mem::take(&mut self.held);
                self.refuse(fault, &head)
            }
        }
    }

    /// Bytes came from the socket while none were held: the common case, in
    /// which they go straight on. What may not go on yet is held.
    fn receive(&mut self, bytes: &[u8], out: &mut ReadBufCursor<'_>) -> io::Result<bool> {
        let now = Instant::now();
        if self.link.stage.get() == Stage::Idle {
            self.link.begun.set(now);
        }
        match self.inspector.advance(bytes) {
            Ok(cleared) => {
                out.put_slice(&bytes[..cleared]);
                self.held.extend_from_slice(&bytes[cleared..]);
                self.follow(now, cleared);
                Ok(cleared > 0)
            }
            Err(fault) => self.refuse(fault, bytes).map(|()| false),
        }
    }

    /// The alarm rang while the client was to send something.
    fn on_late(&mut self) -> io::Result<Late> {
        match self.link.stage.get() {
            Stage::Idle => Ok(Late::Close),
            Stage::Head => {
                let head = std::mem::take(&mut self.held);
                self.refuse(Fault::HeadTooSlow, &head).map(|()| Late::Told)
            }
            _ => self.refuse(Fault::BodyTooSlow, &[]).map(|()| Late::Told),
        }
    }

    /// The client will send nothing more.
    fn on_end(&mut self) -> io::Result<Late> {
        self.client_left = true;
        match self.link.stage.get() {
            Stage::Idle => Ok(Late::Close),
            Stage::Head => {
                let head = std::mem::take(&mut self.held);
                self.refuse(Malformed::HeadCut.into(), &head)
                    .map(|()| Late::Told)
            }
            _ => self
                .refuse(Malformed::BodyCut.into(), &[])
                .map(|()| Late::Told),
        }
    }

    /// The answer is written: the next request may come.
    fn on_answered(&mut self, cx: &Context<'_>) {
        let link = &self.link;
        link.answer_taken.set(false);
        self.sending = None;
        self.opened = None;
        // Let go of only now: until here its bytes were in memory.
        drop(link.answer_ledger.borrow_mut().take());
        // Dropping it writes its line.
        let record = link.record.borrow_mut().take();
        let now = Instant::now();
        if let Some(mut record) = record {
            record.sent(now);
        }
        if link.stage.get() != Stage::Busy {
            return;
        }
        self.inspector.begin();
        link.stage.set(Stage::Idle);
        link.begun.set(now);
        link.alarm.set(match self.shard.drain_grace_end() {
            Some(end) => end,
            None => now + self.shard.config.keep_alive,
        });
        if !self.held.is_empty() {
            // The next request is already here, and no event will say so.
            self.unseen = true;
            cx.waker().wake_by_ref();
        }
    }

    /// A drain has begun: an idle connection is kept only for its grace.
    fn note_drain(&self) {
        if self.link.stage.get() == Stage::Idle
            && let Some(end) = self.shard.drain_grace_end()
            && !self.link.alarm.rang()
        {
            let first = self.opened.map(|opened| opened + FIRST_REQUEST);
            self.link
                .alarm
                .set(first.map_or(end, |first| first.max(end)));
        }
    }

    /// Ends a connection that has been idle for a while, where new ones wait for a place.
    fn make_room(&self) {
        let (link, room) = (&self.link, self.shard.gate.room());
        if !room.is_wanted() {
            return;
        }
        let had_an_answer = self.opened.is_none();
        let is_idle = had_an_answer && link.stage.get() == Stage::Idle && !link.alarm.rang();
        let now = Instant::now();
        if is_idle && now.duration_since(link.begun.get()) >= IDLE_ENOUGH && room.give() {
            // Once: until it has rung, it is asked for no more.
            link.begun.set(now);
            link.alarm.set(now);
            self.shard.metrics.gave_way.inc();
        }
    }
}

/// What becomes of a connection whose client did not send what was due.
enum Late {
    Close,
    Told,
}

/// A client's socket.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Makes its close end the connection at once. The system would otherwise go on
    /// sending, from its own memory, to a client that does not take it.
    fn give_up(&self);
}

impl Socket for TcpStream {
    fn give_up(&self) {
        // Where that cannot be, it ends as slowly as the client likes.
        let _ = self.set_zero_linger();
    }
}

impl<S: Socket> Guard<S> {
    /// Reads up to `most` bytes from the socket and hands them over.
    fn poll_socket<T>(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        take: impl FnOnce(&mut Self, &[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let shard = Rc::clone(&self.shard);
        let mut scratch = shard.scratch.borrow_mut();
        let most = most.min(scratch.len());
        let mut buffer = ReadBuf::new(&mut scratch[..most]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(self, buffer.filled())))
    }

    /// Waits, while an answer is made, only for the client to leave.
    fn poll_leaving(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let room = AHEAD.saturating_sub(self.held.len());
            if room == 0 {
                return Poll::Pending;
            }
            let ended = ready!(self.poll_socket(cx, room, |this, bytes| {
                this.held.extend_from_slice(bytes);
                bytes.is_empty()
            }))?;
            if ended {
                self.client_left = true;
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Drops what the client still sends, until it closes or has had its time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Closing::Lingering(left) = self.closing {
            match self.poll_socket(cx, usize::MAX, |_, bytes| bytes.len()) {
                Poll::Ready(Ok(read)) if read > 0 && read <= left => {
                    self.closing = Closing::Lingering(left - read);
                }
                Poll::Pending if !self.link.alarm.rang() => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(())
    }

    /// Keeps a client from taking for ever to take its answer.
    fn watch_write(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let alarm = &self.link.alarm;
        // While the answer is being made, the alarm is the backend's.
        if !self.link.answer_taken.get() {
            return written;
        }
        match &written {
            Poll::Pending if alarm.rang() => {
                self.io.give_up();
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending if !alarm.is_set() => {
                let now = Instant::now();
                let pace = self.sending.get_or_insert_with(|| Pace::new(now));
                alarm.set(pace.deadline(now, 0, self.shard.config.send_timeout));
                written
            }
            Poll::Ready(taken) => {
                if alarm.is_set() {
                    alarm.clear();
                }
                if let (Some(pace), Ok(bytes)) = (&mut self.sending, taken) {
                    pace.advance(*bytes);
                }
                written
            }
            Poll::Pending => written,
        }
    }
}

impl<S: Socket> Read for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.cleared > 0 {
                this.deliver(&mut out);
                return Poll::Ready(Ok(()));
            }
            match this.link.stage.get() {
                Stage::Busy => return this.poll_leaving(cx),
                Stage::Shut => return Poll::Pending,
                Stage::Idle | Stage::Head | Stage::Body => {}
            }
            if this.unseen {
                this.inspect_held()?;
                continue;
            }
            this.note_drain();
            this.make_room();
            let straight = this.held.is_empty();
            let got = this.poll_socket(cx, out.remaining(), |this, bytes| {
                if bytes.is_empty() {
                    return Ok(Got::End);
                }
                if straight {
                    return this
                        .receive(bytes, &mut out)
                        .map(|passed| if passed { Got::Passed } else { Got::Held });
                }
                this.held.extend_from_slice(bytes);
                this.unseen = true;
                Ok(Got::Held)
            });
            let late = match got {
                Poll::Ready(got) => match got?? {
                    Got::Passed => return Poll::Ready(Ok(())),
                    Got::Held => continue,
                    Got::End => this.on_end()?,
                },
                Poll::Pending if this.link.alarm.rang() => this.on_late()?,
                Poll::Pending => return Poll::Pending,
            };
            match late {
                // No byte and no error: the end of the stream.
                Late::Close => return Poll::Ready(Ok(())),
                Late::Told => {}
            }
        }
    }
}

/// What came of reading the socket once.
enum Got {
    /// Bytes went on to the library.
    Passed,
    /// Bytes are held, or a stand-in for them is.
    Held,
    /// There are no more.
    End,
}

impl<S: Socket> Write for Guard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.watch_write(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, parts);
        this.watch_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Called by the library when all that it had to write is written.
        ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        if this.link.answer_taken.get() {
            this.on_answered(cx);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Closing::No = this.closing {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            let more = this.link.stage.get() == Stage::Shut
                || this.inspector.is_in_body()
                || !this.held.is_empty();
            if this.client_left || !more {
                return Poll::Ready(Ok(()));
            }
            this.closing = Closing::Lingering(LINGER_BYTES);
            this.link.alarm.set(Instant::now() + LINGER);
        }
        this.poll_linger(cx).map(Ok)
    }
}
