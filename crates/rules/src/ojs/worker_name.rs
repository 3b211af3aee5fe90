//! Worker ids of the Open Job Spec, which has no rule for them.

use agenix_protocol::ids::WorkerId;

use crate::hash;

/// Maximum number of bytes of a worker id of the Open Job Spec.
const MAX_BYTES: usize = 255;
/// Number of characters with which the derived id begins.
const KEPT_CHARS: usize = 40;
/// Number of hexadecimal digits of the hash with which the derived id ends.
const HASH_DIGITS: usize = 16;

/// Returns the worker whose id an OJS worker chose: the id itself if it is legal, and otherwise one
/// that is derived from it. Returns `None` for an id that is empty, has more than 255 bytes, or has
/// white space or control characters.
pub fn worker_of(name: &str) -> Option<WorkerId> {
    if let Ok(legal) = WorkerId::new(name) {
        return Some(legal);
    }
    let is_blank = |c: char| c.is_control() || c.is_whitespace();
    if name.is_empty() || name.len() > MAX_BYTES || name.contains(is_blank) {
        return None;
    }
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let kept: String = name.chars().take(KEPT_CHARS).map(legal).collect();
    let hash = hash::of_json(&name);
    WorkerId::new(format!("{kept}-{}", &hash[..HASH_DIGITS])).ok()
}

#[cfg(test)]
mod tests {
    use super::worker_of;

    fn derived(name: &str) -> String {
        worker_of(name).unwrap().to_string()
    }

    #[test]
    fn worker_with_a_legal_id_keeps_it() {
        for name in ["w", "worker_host-1", &"w".repeat(64)] {
            assert_eq!(derived(name), name);
        }
    }

    #[test]
    fn worker_with_another_id_gets_a_legal_one_of_its_own() {
        let of_host = derived("worker_mac.local_4711_1767225600000000000");
        assert!(of_host.starts_with("worker_mac-local_4711_176722560000000000-"), "{of_host}");
        assert_eq!(of_host.len(), 57);
        assert_eq!(derived(&of_host), of_host);
        let pod = "payments-email-worker-7d9f8b6c5d-x2x7k_1_17672256000000000";
        let [one, two] = ["00", "01"].map(|end| derived(&format!("{pod}{end}00000")));
        assert_ne!(one, two, "they have the same beginning");
        assert_ne!(derived("a.b"), derived("a-b"));
        assert_ne!(derived("a.b"), derived("a:b"));
        assert!(derived("ü").starts_with("--"));
    }

    #[test]
    fn worker_id_with_white_space_or_of_no_length_is_refused() {
        for wrong in ["", " ", "a b", "a\nb", "a\u{7f}b", &"w".repeat(256)] {
            assert_eq!(worker_of(wrong), None, "{wrong:?}");
        }
        assert!(worker_of(&"w".repeat(255)).is_some());
    }
}
