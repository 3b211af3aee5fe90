//! Proquints (Wilkerson, "A Proposal for Proquints: Identifiers that are Readable, Spellable, and
//! Pronounceable"): words of five letters for 16 bits each, which people can compare by ear.

const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 4] = b"aiou";

/// Returns the proquints of `bytes`, joined by `-`. A last odd byte is left out.
pub(crate) fn proquints(bytes: &[u8]) -> String {
    let words: Vec<String> =
        bytes.chunks_exact(2).map(|pair| proquint(u16::from_be_bytes([pair[0], pair[1]]))).collect();
    words.join("-")
}

fn proquint(value: u16) -> String {
    let consonant = |shift: u32| char::from(CONSONANTS[usize::from(value >> shift & 0xf)]);
    let vowel = |shift: u32| char::from(VOWELS[usize::from(value >> shift & 0x3)]);
    [consonant(12), vowel(10), consonant(6), vowel(4), consonant(0)].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::proquints;

    /// Examples of the proposal: IPv4 addresses.
    #[test]
    fn proquints_are_those_of_the_proposal() {
        assert_eq!(proquints(&[127, 0, 0, 1]), "lusab-babad");
        assert_eq!(proquints(&[63, 84, 220, 193]), "gutih-tugad");
        assert_eq!(proquints(&[140, 98, 193, 141]), "mudof-sakat");
        assert_eq!(proquints(&[255]), "");
    }
}
