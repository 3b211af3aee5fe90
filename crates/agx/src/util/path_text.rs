//! Paths in the JSON files of agx.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
};

use agenix_protocol::byte_escape::{decode_os, encode_os};
use serde::{Deserialize, Serialize};

/// Path that JSON has as text with byte escapes, because a path may have any bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct PathText(PathBuf);

impl Deref for PathText {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl From<PathBuf> for PathText {
    fn from(path: PathBuf) -> Self {
        Self(path)
    }
}

impl From<String> for PathText {
    fn from(text: String) -> Self {
        Self(decode_os(&text).into())
    }
}

impl From<PathText> for String {
    fn from(path: PathText) -> Self {
        encode_os(path.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

    use agenix_protocol::documents::{parse, to_json};

    use super::PathText;

    #[test]
    fn path_text_keeps_all_bytes() {
        for bytes in [&b"/a b"[..], b"/caf\xe9", "/\u{10fee9}".as_bytes()] {
            let path = Path::new(OsStr::from_bytes(bytes));
            let read: PathText = parse(to_json(&PathText::from(path.to_owned())).as_bytes()).unwrap();
            assert_eq!(&*read, path);
        }
    }
}
