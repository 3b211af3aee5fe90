//! Merkle tree of the inputs of an order, as in RFC 9162: the order has the root, and each input
//! has a proof that the input is a leaf. The proof is a field of the input, so that agq stores it
//! like any other field.

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::canonical::{canonical_json, canonical_leaf};

/// Field of an input with its proof: an array of steps from the leaf to the root. A step is `L` or
/// `R`, the side of the other node, and the hash of this node in hexadecimal digits. No placeholder
/// can name the field, so the proof, which is not a part of the leaf, cannot get into a command.
pub const PROOF_FIELD: &str = "$proof";

/// Prefix of the bytes that give the hash of a leaf.
const LEAF: u8 = 0;
/// Prefix of the bytes that give the hash of a node, so that no node passes for a leaf.
const NODE: u8 = 1;
/// Maximum number of steps of a proof.
const MAX_STEPS: usize = 64;

type Hash = [u8; 32];

/// Returns the root of the tree of one input: the SHA-256 of a zero byte and the canonical JSON of
/// the input (RFC 8785), in hexadecimal digits. Returns `None` for text that is not JSON, for
/// numbers that are not 64-bit integers, and for objects with two fields of one name.
///
/// ```
/// use agenix_order::inputs_root;
///
/// assert_eq!(inputs_root(r#"{"b": 1, "a": "x"}"#), inputs_root(r#"{"a":"x","b":1}"#));
/// assert_ne!(inputs_root(r#"{"a":"x"}"#), inputs_root(r#"{"a":"y"}"#));
/// ```
pub fn inputs_root(input: &str) -> Option<String> {
    canonical_json(input).map(|canonical| hex(&leaf_hash(&canonical)))
}

/// Tree of the inputs that an order permits.
#[derive(Debug, Clone)]
pub struct InputTree {
    /// Hashes from the leaves to the root. The last node of a level with an odd number of nodes is
    /// that of the next level, too.
    levels: Vec<Vec<Hash>>,
}

impl InputTree {
    /// Makes the tree of `inputs`, which are JSON objects without [`PROOF_FIELD`].
    ///
    /// # Errors
    ///
    /// Returns the index of the first input that has no canonical form (RFC 8785), or 0 if there is
    /// none at all. Numbers have to be 64-bit integers, and the names of fields unique.
    pub fn of(inputs: &[Box<RawValue>]) -> Result<Self, usize> {
        let leaf = |at: usize| match canonical_leaf(&inputs[at], PROOF_FIELD) {
            Some((canonical, None)) => Ok(leaf_hash(&canonical)),
            _ => Err(at),
        };
        let leaves: Vec<Hash> = (0..inputs.len()).map(leaf).collect::<Result<_, _>>()?;
        if leaves.is_empty() {
            return Err(0);
        }
        let mut levels = vec![leaves];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            let above = level.chunks(2).map(|pair| match pair {
                [left, right] => node_hash(left, right),
                alone => alone[0],
            });
            let above: Vec<Hash> = above.collect();
            levels.push(above);
        }
        Ok(Self { levels })
    }

    /// Returns the root in hexadecimal digits, as `inputs_sha256` of the terms has it.
    pub fn root(&self) -> String {
        self.levels.last().and_then(|level| level.first()).map(hex).unwrap_or_default()
    }

    /// Returns the input at `index` with its proof.
    ///
    /// # Panics
    ///
    /// The tree has no input at `index`, or `input` is no JSON object.
    pub fn proved(&self, index: usize, input: &RawValue) -> String {
        let object = input.get().trim().strip_suffix('}').expect("the tree was made of objects").trim_end();
        let comma = if object.ends_with('{') { "" } else { "," };
        let proof = serde_json::to_string(&self.proof(index)).expect("texts become JSON");
        format!("{object}{comma}\"{PROOF_FIELD}\":{proof}}}")
    }

    fn proof(&self, index: usize) -> Vec<String> {
        let (mut steps, mut at) = (Vec::new(), index);
        for level in &self.levels {
            let (other, side) = if at % 2 == 0 { (at + 1, 'R') } else { (at - 1, 'L') };
            if let Some(hash) = level.get(other) {
                steps.push(format!("{side}{}", hex(hash)));
            }
            at /= 2;
        }
        steps
    }
}

/// Returns true if the tree with this root has the input as a leaf, as the proof in the input
/// shows. An input without a proof is the only one of its tree.
pub(crate) fn is_leaf(input: &RawValue, root: &str) -> bool {
    let proved = || {
        let (canonical, proof) = canonical_leaf(input, PROOF_FIELD)?;
        let steps: Vec<&str> =
            proof.map_or(Some(Vec::new()), |proof| serde_json::from_str(proof.get()).ok())?;
        if steps.len() > MAX_STEPS {
            return None;
        }
        let mut hash = leaf_hash(&canonical);
        for step in steps {
            let (side, other) = (step.get(..1)?, bytes(step.get(1..)?)?);
            hash = match side {
                "L" => node_hash(&other, &hash),
                "R" => node_hash(&hash, &other),
                _ => return None,
            };
        }
        Some(hex(&hash))
    };
    proved().is_some_and(|of_input| of_input == root)
}

fn leaf_hash(canonical: &str) -> Hash {
    Sha256::new().chain_update([LEAF]).chain_update(canonical).finalize().into()
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([NODE]).chain_update(left).chain_update(right).finalize().into()
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a hash of lower-case hexadecimal digits.
fn bytes(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::RawValue};

    use super::{InputTree, is_leaf};
    use crate::inputs_root;

    fn raw(text: impl Into<String>) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    fn inputs(count: usize) -> Vec<Box<RawValue>> {
        (0..count).map(|n| raw(json!({"file": format!("/data/{n}"), "n": n}).to_string())).collect()
    }

    #[test]
    fn every_input_of_a_tree_is_proved_and_no_other() {
        for count in 1..20 {
            let (inputs, tree) = (inputs(count), InputTree::of(&inputs(count)).unwrap());
            let root = tree.root();
            for (at, input) in inputs.iter().enumerate() {
                let proved = tree.proved(at, input);
                assert!(is_leaf(&raw(proved.as_str()), &root), "{at} of {count}: {proved}");
                let mut changed: Value = serde_json::from_str(&proved).unwrap();
                changed["n"] = json!(99);
                assert!(!is_leaf(&raw(changed.to_string()), &root), "{at} of {count}");
                assert_eq!(is_leaf(input, &root), count == 1, "{at} of {count}, without a proof");
                let others = tree.proved((at + 1) % count, input);
                assert_eq!(is_leaf(&raw(others), &root), count == 1, "{at} of {count}, with another proof");
            }
        }
    }

    #[test]
    fn tree_of_one_input_has_the_root_of_this_input() {
        let one = inputs(1);
        assert_eq!(InputTree::of(&one).unwrap().root(), inputs_root(one[0].get()).unwrap());
    }

    #[test]
    fn node_of_the_tree_is_no_leaf() {
        // The hash of a node is that of 65 bytes, which begin with another byte than a leaf.
        let tree = InputTree::of(&inputs(2)).unwrap();
        let steps = tree.proof(0);
        let forged = json!({"file": "/etc/shadow", "$proof": steps});
        assert!(!is_leaf(&raw(forged.to_string()), &tree.root()));
    }

    #[test]
    fn proof_of_another_form_is_refused() {
        let (inputs, tree) = (inputs(3), InputTree::of(&inputs(3)).unwrap());
        let proved: Value = serde_json::from_str(&tree.proved(0, &inputs[0])).unwrap();
        let upper = json!([proved["$proof"][0].as_str().unwrap().to_uppercase(), proved["$proof"][1]]);
        for proof in
            [json!("L"), json!(["X"]), json!([""]), json!(["ä"]), json!([7]), upper, json!(vec!["L00"; 65])]
        {
            let mut wrong = proved.clone();
            wrong["$proof"] = proof;
            assert!(!is_leaf(&raw(wrong.to_string()), &tree.root()), "{wrong}");
        }
        let twice = tree.proved(0, &inputs[0]).replacen('{', r#"{"$proof":[],"#, 1);
        assert!(!is_leaf(&raw(twice), &tree.root()), "two proofs");
    }

    #[test]
    fn placeholder_cannot_name_the_proof() {
        let fields = |text: &str| agenix_protocol::template::fields(text).map(|fields| fields.len());
        assert_eq!(fields("{{input.proof}}"), Ok(1));
        assert!(fields("{{input.$proof}}").is_err());
        assert_eq!(agenix_protocol::template::list("{{input.$proof[]}}"), None);
    }

    #[test]
    fn input_without_a_canonical_form_is_named() {
        assert_eq!(InputTree::of(&[]).unwrap_err(), 0);
        let with = |text: &str| InputTree::of(&[raw("{}"), raw(text)]).map(|_| ());
        for text in [r#"{"a":1.5}"#, r#"{"$proof":[]}"#, r#"{"a":1,"a":1}"#, "7"] {
            assert_eq!(with(text), Err(1), "{text}");
        }
        let tree = InputTree::of(&[raw("{ }"), raw(r#"{"a":"}"} "#)]).unwrap();
        assert!(is_leaf(&raw(tree.proved(0, &raw("{ }"))), &tree.root()));
        assert!(is_leaf(&raw(tree.proved(1, &raw(r#"{"a":"}"} "#))), &tree.root()));
    }
}
