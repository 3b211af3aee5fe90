//! Inputs and results: letters and digits at random, so that nobody can compress them, another text for every cycle, the same
//! texts for every peer.

use std::sync::Arc;

const RESULT_BYTES: usize = 1024;
const SOURCE_BYTES: usize = 65_536;
/// A step between two texts, and between those of two clients, that comes round late.
const STEP: usize = 131;

/// All texts of a contest.
pub(super) struct Texts {
    source: String,
    input_bytes: usize,
}

impl Texts {
    /// Inputs of so many bytes.
    pub(super) fn new(input_bytes: usize) -> Arc<Self> {
        let mut random = fastrand::Rng::with_seed(1);
        let source = std::iter::repeat_with(|| random.alphanumeric()).take(SOURCE_BYTES).collect();
        Arc::new(Self { source, input_bytes })
    }

    /// The input of a job.
    pub(super) fn input(&self, number: usize) -> &str {
        self.text(number, self.input_bytes)
    }

    /// The result of a job.
    pub(super) fn result(&self, number: usize) -> &str {
        self.text(number, RESULT_BYTES)
    }

    fn text(&self, number: usize, bytes: usize) -> &str {
        let start = number.wrapping_mul(STEP) % (SOURCE_BYTES - bytes);
        &self.source[start..start + bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::Texts;

    #[test]
    fn texts_differ_and_are_as_long_as_they_shall_be() {
        let texts = Texts::new(100);
        assert_eq!((texts.input(0).len(), texts.result(usize::MAX).len()), (100, 1024));
        assert_ne!(texts.input(7), texts.input(8));
        assert_eq!(texts.input(7), Texts::new(100).input(7));
    }
}
