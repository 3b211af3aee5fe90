//! Tag of `--tag`: the input and a tab before each line of output.

use std::borrow::Cow;

use crate::{
    map::input::MapInput,
    util::printable::{bytes_for, one_line_with_bytes},
};

/// Returns the tag, with byte escapes.
pub(crate) fn tag_of(input: &MapInput) -> String {
    one_line_with_bytes(&input.args.join(" ")) + "\t"
}

/// Puts a tag in front of the lines of a stream that comes in chunks.
#[derive(Debug)]
pub(crate) struct Tagger {
    tag: Option<Vec<u8>>,
    is_in_line: bool,
}

impl Tagger {
    /// Creates a tagger for a stream that is escaped for a terminal, or not. Without a tag, the
    /// stream stays as it is.
    pub(crate) fn new(tag: Option<&str>, is_escaped: bool) -> Self {
        Self { tag: tag.map(|tag| bytes_for(is_escaped, tag)), is_in_line: false }
    }

    /// Returns the next chunk of the stream with its tags.
    pub(crate) fn tagged<'p>(&mut self, chunk: &'p [u8]) -> Cow<'p, [u8]> {
        let Some(tag) = &self.tag else { return Cow::Borrowed(chunk) };
        let mut tagged = Vec::with_capacity(chunk.len() + tag.len());
        for line in chunk.split_inclusive(|&byte| byte == b'\n') {
            if !self.is_in_line {
                tagged.extend(tag);
            }
            tagged.extend(line);
            self.is_in_line = !line.ends_with(b"\n");
        }
        tagged.into()
    }
}

#[cfg(test)]
mod tests {
    use super::Tagger;

    #[test]
    fn tagged_output_has_the_tag_on_every_line() {
        let tagged = |bytes, tag| Tagger::new(tag, false).tagged(bytes).into_owned();
        assert_eq!(tagged(b"a\nb", Some("x\t")), b"x\ta\nx\tb");
        assert_eq!(tagged(b"", Some("x\t")), b"");
        assert_eq!(tagged(b"a\n", None), b"a\n");
    }

    #[test]
    fn tagged_chunks_are_those_of_the_whole() {
        let mut tagger = Tagger::new(Some("x:"), false);
        let chunks = [&b"a"[..], b"b\nc", b"\n", b"d"].map(|chunk| tagger.tagged(chunk));
        assert_eq!(chunks.concat(), b"x:ab\nx:c\nx:d");
    }
}
