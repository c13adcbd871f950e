//! Two ends of a connection in memory, with a size for each direction.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, SimplexStream, WriteHalf, simplex};

use crate::validate::guard::Socket;

/// One end.
pub(super) struct End {
    reader: ReadHalf<SimplexStream>,
    writer: WriteHalf<SimplexStream>,
}

/// A client's end and a server's. At most `towards_server` bytes are on their way
/// to the server at once, which is also the most that it reads in one go.
pub(super) fn pair(towards_server: usize, towards_client: usize) -> (End, End) {
    let (at_server, from_client) = simplex(towards_server);
    let (at_client, from_server) = simplex(towards_client);
    let client = End {
        reader: at_client,
        writer: from_client,
    };
    let server = End {
        reader: at_server,
        writer: from_server,
    };
    (client, server)
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for End {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}

impl Socket for End {
    fn give_up(&self) {}
}

/// What is dropped closes, as a socket does: a simplex stream alone would leave
/// its reader waiting.
impl Drop for End {
    fn drop(&mut self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = Pin::new(&mut self.writer).poll_shutdown(&mut cx);
    }
}
