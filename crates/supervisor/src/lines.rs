//! Lines of a stream, whatever the stream holds: any bytes, lines of any length, no end of line.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The most of one line that is kept, in bytes. The rest is read and counted, never stored.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// Reads by line in bounded memory.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    kept: Vec<u8>,
    dropped: usize,
}

/// One line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its text; bytes that are no UTF-8 have become U+FFFD.
    pub(crate) text: String,
    /// How many bytes more it had.
    pub(crate) dropped: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::new(reader),
            kept: Vec::new(),
            dropped: 0,
        }
    }

    /// The next line that is not empty; none at the end of the stream. A carriage return ends a
    /// line as well: progress bars never write anything else.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let buffer = self.reader.fill_buf().await?;
            if buffer.is_empty() {
                return Ok(self.take());
            }
            let end = buffer.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let fits = part.len().min(MAX_LINE - self.kept.len());
            self.kept.extend_from_slice(&part[..fits]);
            self.dropped += part.len() - fits;
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some()
                && let Some(line) = self.take()
            {
                return Ok(Some(line));
            }
        }
    }

    fn take(&mut self) -> Option<Line> {
        if self.kept.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&self.kept).into_owned();
        self.kept.clear();
        Some(Line {
            text,
            dropped: std::mem::take(&mut self.dropped),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Vec<(String, usize)> {
        let mut lines = Lines::new(bytes);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push((line.text, line.dropped));
        }
        all
    }

    #[tokio::test]
    async fn lines_end_at_newlines_carriage_returns_and_the_end_of_the_stream() {
        let lines = read(b"one\n\n 10%\r 20%\r\nlast").await;
        let texts: Vec<&str> = lines.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["one", " 10%", " 20%", "last"]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_cut_and_the_next_one_is_whole() {
        let mut bytes = vec![b'x'; 10 * 1024 * 1024];
        bytes.extend_from_slice(b"\nnext\n");
        let lines = read(&bytes).await;
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].0.len(), MAX_LINE);
        assert_eq!(lines[0].1, 10 * 1024 * 1024 - MAX_LINE);
        assert_eq!(lines[1], ("next".to_owned(), 0));
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(
            read(b"\xff\xfeok\n").await,
            [("\u{fffd}\u{fffd}ok".to_owned(), 0)]
        );
    }
}
