//! Sockets that listen, and the connections that come from them.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::life::Life;
use crate::shard::Shard;

/// Connections that the kernel keeps until they are accepted; it lowers this
/// to its own limit.
const BACKLOG: i32 = 4096;

/// What a connection's beginning takes, once no further one can begin.
const HANDSHAKE: Duration = Duration::from_millis(50);

/// Waits between failures to accept that a moment may mend (too many open files).
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Listens at `address`.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A restart need not wait for the last run's closed connections.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A connection on its way to another thread.
pub(crate) struct Handed {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
}

/// Where a thread gets its connections from.
pub(crate) enum Source {
    /// It accepts them, keeps its share and hands on the rest, in turn: the
    /// kernel's own sharing of a port among sockets is not even on macOS.
    Listener {
        listener: std::net::TcpListener,
        others: Vec<mpsc::UnboundedSender<Handed>>,
    },
    /// It is handed them.
    Other(mpsc::UnboundedReceiver<Handed>),
}

impl Source {
    /// Whether this is the thread that accepts: the one for what is done only once.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Self::Listener { .. })
    }

    /// Takes connections until the frontend drains, and for a grace after that.
    pub(crate) async fn accept(self, shard: Rc<Shard>, life: watch::Receiver<Life>) {
        match self {
            Self::Listener { listener, others } => {
                Acceptor::new(shard, others).run(listener, life).await;
            }
            Self::Other(mut handed) => {
                while let Some(Handed {
                    stream,
                    peer,
                    place,
                }) = handed.recv().await
                {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => shard.take(stream, peer, place),
                        Err(error) => tracing::warn!(%error, "cannot serve a connection"),
                    }
                }
            }
        }
    }
}

struct Acceptor {
    shard: Rc<Shard>,
    others: Vec<mpsc::UnboundedSender<Handed>>,
    /// Whose turn it is: 0 is this thread.
    turn: usize,
    wait: Duration,
}

impl Acceptor {
    fn new(shard: Rc<Shard>, others: Vec<mpsc::UnboundedSender<Handed>>) -> Self {
        Self {
            shard,
            others,
            turn: 0,
            wait: FIRST_WAIT,
        }
    }

    async fn run(mut self, listener: std::net::TcpListener, life: watch::Receiver<Life>) {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                return;
            }
        };
        let shard = Rc::clone(&self.shard);
        let closing = grace_over(life, shard.config.drain_grace);
        tokio::pin!(closing);
        loop {
            let place = tokio::select! {
                place = shard.gate.connection() => place,
                () = &mut closing => break,
            };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.hand(stream, peer, place),
                    Err(error) => {
                        drop(place);
                        self.pause(&error).await;
                    }
                },
                () = &mut closing => break,
            }
        }
        self.empty(listener).await;
    }

    /// Closing a listener resets the connections that it has not handed out:
    /// those that are already there are still taken.
    async fn empty(mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        if refuse_more(&listener) {
            // For those whose client already knows of them, and this side not yet.
            tokio::time::sleep(HANDSHAKE).await;
        }
        let shard = Rc::clone(&self.shard);
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    let place = shard.gate.connection().await;
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = TcpStream::from_std(stream)
                    {
                        self.hand(stream, peer, place);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.pause(&error).await,
            }
        }
    }

    fn hand(&mut self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        self.wait = FIRST_WAIT;
        self.shard.metrics.accepted.inc();
        let turn = self.turn;
        self.turn = (turn + 1) % (self.others.len() + 1);
        let Some(other) = turn.checked_sub(1).and_then(|turn| self.others.get(turn)) else {
            self.shard.take(stream, peer, place);
            return;
        };
        if let Ok(stream) = stream.into_std() {
            // A thread that is gone has failed, which its handle reports.
            let _ = other.send(Handed {
                stream,
                peer,
                place,
            });
        }
    }

    async fn pause(&mut self, error: &io::Error) {
        self.shard.metrics.accept_errors.inc();
        if is_the_connections_own(error) {
            return;
        }
        tracing::warn!(%error, wait_ms = self.wait.as_millis(), "cannot accept a connection; waiting");
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

/// Lets no further connection begin, while those that have begun still arrive:
/// one that came between the last accept and the listener's close would be reset,
/// perhaps with a request in it. A client that is not answered at all asks again
/// after a second, and is then refused. Says whether the system can do that.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn refuse_more(listener: &std::net::TcpListener) -> bool {
    use socket2::{SockFilter, SockRef};
    // A packet that begins a connection has SYN among the TCP header's flags.
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    let filter = [
        SockFilter::new(0x30, 0, 0, FLAGS),    // load that byte
        SockFilter::new(0x45, 0, 1, SYN),      // is the bit set?
        SockFilter::new(0x06, 0, 0, 0),        // keep nothing of the packet
        SockFilter::new(0x06, 0, 0, u32::MAX), // or all of it
    ];
    SockRef::from(listener).attach_filter(&filter).is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn refuse_more(_: &std::net::TcpListener) -> bool {
    false
}

/// The one connection failed before it was accepted; the next may not.
fn is_the_connections_own(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Until a drain's grace is over.
async fn grace_over(mut life: watch::Receiver<Life>, grace: Duration) {
    loop {
        let now = *life.borrow_and_update();
        match now {
            Life::Serving => {
                if life.changed().await.is_err() {
                    return;
                }
            }
            Life::Draining(since) => {
                tokio::time::sleep_until((since + grace).into()).await;
                return;
            }
            Life::Stopped => return,
        }
    }
}
