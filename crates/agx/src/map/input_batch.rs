//! Inputs that a map sends to agq in one command.

use serde_json::value::RawValue;

use crate::{
    map::input::MapInput,
    remote::chunked_submit::{MAX_BYTES, MAX_INPUTS},
};

/// Inputs that are sent in one command.
#[derive(Default)]
pub(super) struct InputBatch {
    pub(super) inputs: Vec<(MapInput, Box<RawValue>)>,
    bytes: usize,
}

impl InputBatch {
    pub(super) fn push(&mut self, input: MapInput, document: Box<RawValue>) {
        self.bytes += document.get().len() + 1;
        self.inputs.push((input, document));
    }

    pub(super) fn takes(&self, document: &RawValue) -> bool {
        let is_small = self.bytes + document.get().len() < MAX_BYTES;
        self.inputs.is_empty() || (self.inputs.len() < MAX_INPUTS && is_small)
    }

    pub(super) fn documents(&self) -> Vec<&RawValue> {
        self.inputs.iter().map(|(_, document)| &**document).collect()
    }

    /// Keeps the first `stored` inputs, and returns the number of the others. A halt that is met
    /// while agq stores a batch in chunks leaves the last inputs out.
    pub(super) fn truncate(&mut self, stored: u64) -> u64 {
        let all = self.inputs.len();
        self.inputs.truncate(usize::try_from(stored).unwrap_or(usize::MAX));
        (all - self.inputs.len()) as u64
    }

    /// Splits the batch into two halves.
    pub(super) fn split(mut self) -> (Self, Self) {
        let second = self.inputs.split_off(self.inputs.len() / 2);
        (Self { inputs: self.inputs, bytes: 0 }, Self { inputs: second, bytes: 0 })
    }
}

/// Returns the number of inputs in all batches.
pub(super) fn inputs_of(batches: &[InputBatch]) -> u64 {
    batches.iter().map(|batch| batch.inputs.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{InputBatch, MAX_BYTES, MAX_INPUTS, MapInput, inputs_of};

    fn document(bytes: usize) -> Box<RawValue> {
        RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()
    }

    fn batch(documents: &[usize]) -> InputBatch {
        let mut batch = InputBatch::default();
        for (seq, &bytes) in (1..).zip(documents) {
            batch.push(MapInput { seq, args: Vec::new(), block: None }, document(bytes));
        }
        batch
    }

    fn numbers(batch: &InputBatch) -> Vec<u64> {
        batch.inputs.iter().map(|(input, _)| input.seq).collect()
    }

    #[test]
    fn truncated_batch_keeps_the_stored_inputs_and_counts_the_others() {
        for (stored, kept, others) in
            [(0, vec![], 3), (2, vec![1, 2], 1), (3, vec![1, 2, 3], 0), (9, vec![1, 2, 3], 0)]
        {
            let mut batch = batch(&[2; 3]);
            assert_eq!((batch.truncate(stored), numbers(&batch)), (others, kept), "{stored}");
        }
    }

    #[test]
    fn batches_are_bounded_before_they_are_sent() {
        assert!(batch(&[]).takes(&document(3 * MAX_BYTES)), "one may be larger, and travels alone");
        assert!(!batch(&[MAX_BYTES / 2]).takes(&document(MAX_BYTES / 2)));
        assert!(batch(&[MAX_BYTES / 2]).takes(&document(MAX_BYTES / 2 - 2)));
        assert!(!batch(&vec![2; MAX_INPUTS]).takes(&document(2)));
    }

    #[test]
    fn split_batches_keep_all_inputs_in_order() {
        let (first, second) = batch(&[2; 5]).split();
        assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2], vec![3, 4, 5]));
        assert_eq!(inputs_of(&[first, second]), 5);
    }
}
