//! Globs of Redis: `*`, `?`, `[abc]`, `[^a]`, `[a-z]`, and `\` before a literal character.

/// Returns true if all of `text` matches, in steps of at most the product of both lengths.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Place in the pattern after the last star, and place in the text up to which the star matches.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(read) {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
        } else if let Some(next) = one(pattern, at, *byte) {
            (at, read) = (next, read + 1);
        } else {
            let Some((after, matched)) = star else { return false };
            star = Some((after, matched + 1));
            (at, read) = (after, matched + 1);
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the place after the element at `at`, if it matches `byte`. A star is no element.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match &pattern[at..] {
        [] => None,
        [b'?', ..] => Some(at + 1),
        [b'[', ..] => class(pattern, at + 1, byte),
        [b'\\', literal, ..] => (*literal == byte).then_some(at + 2),
        [literal, ..] => (*literal == byte).then_some(at + 1),
    }
}

/// Matches a class, which extends to its `]` or, without one, to the end of the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut is_in = false;
    loop {
        let (hit, length) = match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => (*literal == byte, 2),
            [one, b'-', other, ..] => ((*one.min(other)..=*one.max(other)).contains(&byte), 3),
            [literal, ..] => (*literal == byte, 1),
        };
        is_in |= hit;
        at += length;
    }
    (is_in != is_negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    fn hits(pattern: &str, texts: &[&str]) -> Vec<bool> {
        texts.iter().map(|text| matches(pattern.as_bytes(), text.as_bytes())).collect()
    }

    #[test]
    fn glob_matches_stars_and_single_bytes() {
        assert_eq!(hits("*", &["", "a", "worker:1"]), [true, true, true]);
        assert_eq!(hits("h?llo", &["hello", "hllo", "heello"]), [true, false, false]);
        assert_eq!(
            hits("job:*:worker", &["job:1:worker", "job:1:2:worker", "job:1:workers"]),
            [true, true, false]
        );
        assert_eq!(hits("a*b*c**", &["abc", "aXbXc", "acb", "abbcc"]), [true, true, false, true]);
        assert_eq!(hits("", &["", "a"]), [true, false]);
    }

    #[test]
    fn glob_matches_classes_and_escapes() {
        assert_eq!(hits("h[ae]llo", &["hello", "hallo", "hillo"]), [true, true, false]);
        assert_eq!(hits("h[^e]llo", &["hello", "hallo"]), [false, true]);
        assert_eq!(hits("[z-a0]", &["m", "0", "1", "A"]), [true, true, false, false]);
        assert_eq!(hits(r"[\]]x", &["]x", "ax"]), [true, false]);
        assert_eq!(hits(r"\*\", &[r"*\", "a"]), [true, false]);
        assert_eq!(hits("[ab", &["a", "c"]), [true, false]);
        assert_eq!(hits("[]", &["", "]"]), [false, false]);
    }

    #[test]
    fn glob_with_many_stars_is_not_exponential() {
        let (pattern, text) = ("a*".repeat(200) + "b", "a".repeat(5000));
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }
}
