//! New connections to the backend. Never through a proxy: nothing here reads one.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;

use super::nudge::{Nudge, Sleeper};
use super::pool::Connection;
use super::upstream::Target;
use crate::Config;
use crate::fault::Fault;
use crate::metrics::Metrics;

/// Most headers that a response may have; the library's own limit is 100.
const MAX_RESPONSE_HEADERS: usize = 512;

const FULL_IS_REFUSED: bool = cfg!(not(target_os = "linux"));
/// How long a refusal may come from a full queue.
const DOUBT: Duration = Duration::from_millis(100);
/// What came of connecting.
pub(crate) enum Opened {
    Connected(Box<Connection>),
    /// The backend's socket has no room for a connection before others are accepted.
    Behind,
}

/// Connects, within the time that connecting may take, to a backend that is needed since `begun`.
pub(crate) async fn connect(
    target: &Target,
    config: &Config,
    metrics: &Metrics,
    begun: Instant,
) -> Result<Opened, Fault> {
    let deadline = Instant::now() + config.connect_timeout;
    let opened = tokio::time::timeout_at(deadline.into(), open(target, deadline)).await;
    let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    match opened {
        Ok(stream) => {
            metrics.backend_connected.inc();
            let connection = handshake(stream, target.generation).await?;
            Ok(Opened::Connected(connection))
        }
        Err(error)
            if target.is_unix() && is_behind(error.kind(), begun.elapsed(), FULL_IS_REFUSED) =>
        {
            Ok(Opened::Behind)
        }
        Err(error) => {
            metrics.backend_connect_failed.inc();
            tracing::warn!(backend = %target.endpoint, %error, "cannot connect to the backend");
            Err(Fault::Unreachable)
        }
    }
}

async fn handshake(stream: Stream, generation: u64) -> Result<Box<Connection>, Fault> {
    let nudge = Nudge::new();
    let heard = Rc::new(Cell::new(false));
    let io = TokioIo::new(Heard {
        stream,
        any: Rc::clone(&heard),
        sleeper: nudge.sleeper(),
    });
    let (sender, driver) = hyper::client::conn::http1::Builder::new()
        .max_headers(MAX_RESPONSE_HEADERS)
        .handshake(io)
        .await
        .map_err(|_| Fault::Unreachable)?;
    let connection = Connection::new(sender, driver, nudge, heard, generation);
    Ok(Box::new(connection))
}

async fn open(target: &Target, deadline: Instant) -> io::Result<Stream> {
    #[cfg(any(test, feature = "fuzzing"))]
    if let Some(stream) = crate::fuzzing::backend() {
        return Ok(Stream::Memory(stream));
    }
    let Some(host) = target.endpoint.host() else {
        return open_unix(target).await;
    };
    let tcp = open_tcp(host, target.endpoint.port(), deadline).await?;
    let Some(tls) = &target.tls else {
        return Ok(Stream::Tcp(tcp));
    };
    let stream = tls.connector.connect(tls.name.clone(), tcp).await?;
    Ok(Stream::Tls(Box::new(stream)))
}

#[cfg(unix)]
async fn open_unix(target: &Target) -> io::Result<Stream> {
    let path = target.endpoint.socket_path().unwrap_or("".as_ref());
    UnixStream::connect(path).await.map(Stream::Unix)
}

#[cfg(not(unix))]
async fn open_unix(_: &Target) -> io::Result<Stream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Tries every address of a name: `localhost` may be `::1` first while the backend
/// listens on 127.0.0.1 only. An address that says nothing gets its share of the
/// time, so that the ones after it have theirs.
async fn open_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => tokio::net::lookup_host((host, port)).await?.collect(),
    };
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        left -= 1;
        match tokio::time::timeout(
            share.max(Duration::from_millis(1)),
            TcpStream::connect(address),
        )
        .await
        {
            Ok(Ok(stream)) => {
                // Requests are written whole; see the client's side.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Whether the server of a Unix socket may only be behind with accepting. For TCP the system
/// itself tries again; here Linux says at once that the queue is full (connect(2), `EAGAIN`).
/// Elsewhere that is refused as if nobody listened, which is believed only after a while.
fn is_behind(error: io::ErrorKind, waited: Duration, full_is_refused: bool) -> bool {
    let refused = error == io::ErrorKind::ConnectionRefused;
    error == io::ErrorKind::WouldBlock || (full_is_refused && refused && waited < DOUBT)
}

/// A socket to the backend, of any kind.
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(any(test, feature = "fuzzing"))]
    Memory(tokio::io::DuplexStream),
}

/// A stream that notes whether the backend has said anything, and wakes the task
/// that waits for that.
pub(crate) struct Heard {
    stream: Stream,
    any: Rc<Cell<bool>>,
    sleeper: Sleeper,
}

/// Calls a method of whichever stream it is.
macro_rules! each {
    ($stream:expr, $io:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($io) => $call,
            #[cfg(unix)]
            Stream::Unix($io) => $call,
            Stream::Tls($io) => $call,
            #[cfg(any(test, feature = "fuzzing"))]
            Stream::Memory($io) => $call,
        }
    };
}

impl Heard {
    /// Polls the stream for the task that sleeps until it is ready.
    fn poll<T>(&mut self, poll: impl FnOnce(&mut Stream, &mut Context<'_>) -> T) -> T {
        poll(
            &mut self.stream,
            &mut Context::from_waker(&self.sleeper.borrow()),
        )
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll(|io, cx| each!(io, io => Pin::new(io).poll_read(cx, buffer))))?;
        if buffer.filled().len() > before {
            self.any.set(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|io, cx| each!(io, io => Pin::new(io).poll_write(cx, bytes)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|io, cx| each!(io, io => Pin::new(io).poll_write_vectored(cx, parts)))
    }

    fn is_write_vectored(&self) -> bool {
        each!(&self.stream, io => io.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|io, cx| each!(io, io => Pin::new(io).poll_flush(cx)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|io, cx| each!(io, io => Pin::new(io).poll_shutdown(cx)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};

    #[test]
    fn a_refusal_is_doubted_for_a_while_where_a_full_queue_is_one() {
        let soon = Duration::ZERO;
        for full_is_refused in [false, true] {
            assert!(is_behind(WouldBlock, Duration::MAX, full_is_refused));
            assert!(!is_behind(NotFound, soon, full_is_refused));
            assert_eq!(
                is_behind(ConnectionRefused, soon, full_is_refused),
                full_is_refused
            );
            assert!(!is_behind(ConnectionRefused, DOUBT, full_is_refused));
        }
    }
}
