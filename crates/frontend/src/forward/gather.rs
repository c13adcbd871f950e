//! Bodies put together from the pieces that they arrive in.

use bytes::{Bytes, BytesMut};
use http_body::SizeHint;

/// Most bytes reserved for a length that was only announced.
const TRUSTED: usize = 256 * 1024;

/// The pieces so far. One piece, the usual case, is not copied; more are, since
/// many tiny ones would hold far more memory than their bytes.
pub(crate) struct Gathering {
    expected: usize,
    only: Bytes,
    many: BytesMut,
}

impl Gathering {
    pub(crate) fn new(hint: SizeHint) -> Self {
        Self {
            expected: usize::try_from(hint.lower()).unwrap_or(usize::MAX),
            only: Bytes::new(),
            many: BytesMut::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.only.len() + self.many.len()
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.only = piece;
            return;
        }
        if self.many.is_empty() {
            let whole = self
                .expected
                .min(TRUSTED)
                .max(self.only.len() + piece.len());
            self.many.reserve(whole);
            self.many.extend_from_slice(&std::mem::take(&mut self.only));
        }
        self.many.extend_from_slice(&piece);
    }

    pub(crate) fn finish(self) -> Bytes {
        if self.many.is_empty() {
            self.only
        } else {
            self.many.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_in_order_and_a_single_one_is_not_copied() {
        let piece = Bytes::from(vec![7; 100]);
        let mut one = Gathering::new(SizeHint::default());
        one.push(piece.clone());
        assert_eq!(one.finish().as_ptr(), piece.as_ptr());

        let mut many = Gathering::new(SizeHint::with_exact(6));
        for piece in ["ab", "", "cd", "ef"] {
            many.push(Bytes::from_static(piece.as_bytes()));
        }
        assert_eq!(many.len(), 6);
        assert_eq!(many.finish(), "abcdef");
    }
}
