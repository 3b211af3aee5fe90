//! Masking of secrets in a stream of bytes.
//!
//! The bytes of a secret and their base64 are masked, with both alphabets, also in the middle of a
//! longer text. Other encodings are not masked: a task can disclose its secret in another encoding.

use std::sync::Arc;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};

/// Text in place of a secret.
const MASK: &[u8] = b"***";

/// Byte strings that are masked.
pub(crate) struct Patterns {
    patterns: Vec<Vec<u8>>,
    /// True for each byte with which a pattern begins.
    first: [bool; 256],
}

impl std::fmt::Debug for Patterns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Patterns(***)")
    }
}

impl Patterns {
    /// Returns the patterns of secrets that are not empty.
    pub(crate) fn of<'s>(secrets: impl Iterator<Item = &'s [u8]>) -> Self {
        let mut patterns: Vec<Vec<u8>> =
            secrets.flat_map(|secret| in_base64(secret).chain([secret.to_vec()])).collect();
        patterns.sort();
        patterns.dedup();
        let mut first = [false; 256];
        for byte in patterns.iter().filter_map(|pattern| pattern.first()) {
            first[usize::from(*byte)] = true;
        }
        Self { patterns, first }
    }

    /// Returns `text` with masks in place of the secrets.
    pub(crate) fn masked(this: &Arc<Self>, text: &[u8]) -> Vec<u8> {
        let (mut masker, mut masked) = (Masker::new(Arc::clone(this)), Vec::with_capacity(text.len()));
        masker.push(text, &mut masked);
        masker.end(&mut masked);
        masked
    }

    fn may_begin(&self, byte: u8) -> bool {
        self.first[usize::from(byte)]
    }

    /// Returns the length of the longest pattern with which `bytes` begin, and whether they are the
    /// beginning of a longer one.
    fn at(&self, bytes: &[u8]) -> (usize, bool) {
        let (mut longest, mut is_beginning) = (0, false);
        for pattern in &self.patterns {
            if bytes.starts_with(pattern) {
                longest = longest.max(pattern.len());
            } else if pattern.starts_with(bytes) {
                is_beginning = true;
            }
        }
        (longest, is_beginning)
    }
}

/// Returns the base64 of `secret`, alone and as a part of longer texts. In a longer text, the bytes
/// before the secret decide on one of three forms, and the neighbours of the secret share the first
/// and the last character of the form.
fn in_base64(secret: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let alone = [&STANDARD, &URL_SAFE].map(|alphabet| alphabet.encode(secret));
    let inside = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].into_iter().flat_map(move |alphabet| {
        [(0, 0), (1, 2), (2, 3)].map(move |(before, shared)| {
            let bytes = [&vec![0; before][..], secret].concat();
            let whole = bytes.len() * 8 / 6;
            alphabet.encode(bytes)[shared..whole].to_owned()
        })
    });
    alone.into_iter().chain(inside).map(String::into_bytes)
}

/// Masks the secrets in one stream. Bytes that may be the beginning of a secret are held back.
pub(crate) struct Masker {
    patterns: Arc<Patterns>,
    held: Vec<u8>,
    /// Number of the first bytes of `held` that belong to a secret that was masked.
    masked: usize,
}

impl Masker {
    pub(crate) fn new(patterns: Arc<Patterns>) -> Self {
        Self { patterns, held: Vec::new(), masked: 0 }
    }

    /// Appends the masked form of the next `bytes` to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.held.extend_from_slice(bytes);
        self.mask(false, out);
    }

    /// Appends the bytes that were held back.
    pub(crate) fn end(mut self, out: &mut Vec<u8>) {
        self.mask(true, out);
    }

    /// Masks what was held back. Secrets that overlap have one mask.
    fn mask(&mut self, is_end: bool, out: &mut Vec<u8>) {
        let (mut at, mut masked_to) = (0, self.masked);
        while at < self.held.len() {
            if at >= masked_to {
                let rest = &self.held[at..];
                let plain = rest.iter().position(|byte| self.patterns.may_begin(*byte));
                let plain = plain.unwrap_or(rest.len());
                out.extend_from_slice(&rest[..plain]);
                at += plain;
            }
            let rest = &self.held[at..];
            let Some(first) = rest.first() else { break };
            let (length, is_beginning) = self.patterns.at(rest);
            if is_beginning && !is_end {
                break;
            }
            if length > 0 && at >= masked_to {
                out.extend_from_slice(MASK);
            }
            masked_to = masked_to.max(at + length);
            if at >= masked_to {
                out.push(*first);
            }
            at += 1;
        }
        self.masked = masked_to.saturating_sub(at);
        self.held.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::{
        Engine,
        engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
    };

    use super::{Masker, Patterns};

    /// Masks `secrets` in `chunks`.
    fn masked(secrets: &[&str], chunks: &[&[u8]]) -> String {
        let patterns = Arc::new(Patterns::of(secrets.iter().map(|secret| secret.as_bytes())));
        let (mut masker, mut out) = (Masker::new(patterns), Vec::new());
        chunks.iter().for_each(|chunk| masker.push(chunk, &mut out));
        masker.end(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn secrets_are_masked_wherever_a_stream_is_split() {
        let text = b"a s3cret-key b s3cret-ke s3cret-keys3cret-key s3cr";
        let expected = "a *** b s3cret-ke ****** s3cr";
        assert_eq!(masked(&["s3cret-key"], &[text]), expected);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(masked(&["s3cret-key"], &bytes), expected);
        for at in 0..text.len() {
            assert_eq!(masked(&["s3cret-key"], &[&text[..at], &text[at..]]), expected, "at {at}");
        }
    }

    #[test]
    fn overlapping_secrets_leave_no_rest() {
        for size in [1, 2, 3, 5, 100] {
            let chunks = |text: &'static str| text.as_bytes().chunks(size).collect::<Vec<_>>();
            assert_eq!(masked(&["abcdefgh", "efghijkl"], &chunks("-abcdefghijkl-")), "-***-");
            assert_eq!(masked(&["abcdefgh", "abcdefghijkl"], &chunks("-abcdefghijkl-")), "-***-");
            assert_eq!(masked(&["abcdefgh", "abcdefghijkl"], &chunks("-abcdefghijk-")), "-***ijk-");
            assert_eq!(masked(&["abcdefghijkl", "cdefghij"], &chunks("abcdefghijk-")), "ab***k-");
            assert_eq!(masked(&["aaaaaaaa"], &chunks("aaaaaaaaaaab")), "***b");
        }
    }

    /// Masks by a search of the whole text: bytes of any occurrence are left out, and each
    /// occurrence that begins outside of others is replaced.
    fn expected(secrets: &[&str], text: &str) -> String {
        let (mut shown, mut masked_to) = (String::new(), 0);
        for (at, c) in text.char_indices() {
            let found =
                secrets.iter().filter(|secret| text[at..].starts_with(**secret)).map(|secret| secret.len());
            if let Some(longest) = found.max() {
                if at >= masked_to {
                    shown.push_str("***");
                }
                masked_to = masked_to.max(at + longest);
            }
            if at >= masked_to {
                shown.push(c);
            }
        }
        shown
    }

    #[test]
    fn masks_of_a_stream_are_those_of_the_whole_text() {
        let secrets = ["abababab", "babaabab", "aaaaaaaabaa", "abababababab"];
        let mut random = 1_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        for _round in 0..300 {
            let words = ["a", "b", "ab", "abab", "aaaaaaaa", "abababab", "babaabab", "c"];
            let text: String = (0..40).map(|_| words[usize::try_from(next(8)).unwrap()]).collect();
            let mut chunks = Vec::new();
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rest.len().min(usize::try_from(next(20)).unwrap() + 1));
                chunks.push(chunk);
                rest = after;
            }
            assert_eq!(masked(&secrets, &chunks), expected(&secrets, &text), "{text}");
        }
    }

    #[test]
    fn base64_of_secrets_is_masked_also_inside_of_longer_texts() {
        let secret = "pa55w?rd>~\u{ff}";
        for before in ["", "u", "us", "user:", "someone@example.com:"] {
            for after in ["", "\n", ":x", "trail"] {
                let text = format!("{before}{secret}{after}");
                for encoded in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    let shown = masked(&[secret], &[encoded.as_bytes()]);
                    assert!(shown.contains("***"), "{encoded}: {shown}");
                    // At most the characters that the neighbours share are left.
                    let left = shown.replace("***", "");
                    let shared = STANDARD.encode(before).len() + STANDARD.encode(after).len() + 4;
                    assert!(left.len() <= shared, "{encoded}: {shown}");
                }
            }
        }
        assert_eq!(masked(&[secret], &[STANDARD.encode(secret).as_bytes()]), "***");
    }

    #[test]
    fn text_without_secrets_is_unchanged() {
        let text = "no secret here, s3cret, s3cret-ke\n".repeat(100);
        assert_eq!(masked(&["s3cret-key"], &[text.as_bytes()]), text);
        assert_eq!(masked(&["s3cret-key"], &[]), "");
    }

    #[test]
    fn patterns_do_not_show_themselves() {
        let patterns = Patterns::of([&b"s3cret-key"[..]].into_iter());
        assert_eq!(format!("{patterns:?}"), "Patterns(***)");
    }
}
