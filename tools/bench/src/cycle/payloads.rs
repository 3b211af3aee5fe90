//! Inputs and results: random letters and digits, which do not compress well. Each cycle has
//! payloads of its own, and all contenders get the same payloads.

use std::sync::Arc;

const RESULT_BYTES: usize = 1024;
const SOURCE_BYTES: usize = 65_536;
/// Distance between the positions of two consecutive payloads in the source.
const STEP: usize = 131;

pub(super) struct Payloads {
    source: String,
    input_bytes: usize,
}

impl Payloads {
    /// Makes payloads whose inputs have `input_bytes` bytes.
    pub(super) fn new(input_bytes: usize) -> Arc<Self> {
        let mut random = fastrand::Rng::with_seed(1);
        let source = std::iter::repeat_with(|| random.alphanumeric()).take(SOURCE_BYTES).collect();
        Arc::new(Self { source, input_bytes })
    }

    pub(super) fn input(&self, number: usize) -> &str {
        self.text(number, self.input_bytes)
    }

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
    use super::Payloads;

    #[test]
    fn payloads_differ_and_have_the_given_length() {
        let payloads = Payloads::new(100);
        assert_eq!((payloads.input(0).len(), payloads.result(usize::MAX).len()), (100, 1024));
        assert_ne!(payloads.input(7), payloads.input(8));
        assert_eq!(payloads.input(7), Payloads::new(100).input(7));
    }
}
