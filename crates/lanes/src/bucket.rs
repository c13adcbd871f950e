//! Lengths and question counts that are measured together.

/// The upper ends of the lengths' buckets, in tokens; the last one has no end.
pub const LENGTHS: [u32; 14] = [
    16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096,
];

/// The upper ends of the question counts' buckets; the last one has no end.
const QUESTIONS: [u32; 9] = [1, 2, 3, 4, 6, 8, 16, 32, 64];

pub(crate) const LENGTH_BUCKETS: usize = LENGTHS.len();
pub(crate) const QUESTION_BUCKETS: usize = QUESTIONS.len();

/// The number of the bucket that rows of so many tokens are in.
pub fn length_bucket(tokens: u32) -> usize {
    place(&LENGTHS, tokens)
}

/// The number of the bucket that requests of so many questions are in.
pub fn question_bucket(questions: u32) -> usize {
    place(&QUESTIONS, questions)
}

fn place(ends: &[u32], value: u32) -> usize {
    ends.partition_point(|&end| end < value).min(ends.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buckets_end_is_in_it_and_the_last_has_no_end() {
        assert_eq!(length_bucket(0), 0);
        assert_eq!(length_bucket(16), 0);
        assert_eq!(length_bucket(17), 1);
        assert_eq!(length_bucket(u32::MAX), LENGTHS.len() - 1);
        assert_eq!(question_bucket(1), 0);
        assert_eq!(question_bucket(5), question_bucket(6));
    }
}
