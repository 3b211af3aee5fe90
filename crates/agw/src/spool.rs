//! Files without a name that hold what tasks write. A task's stdout becomes the next one's stdin without a copy in our
//! memory; the file is gone when the last one closes it, whatever happens.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use agenix_protocol::documents::Kept;

/// The directory that spool files are made in. None is used twice: what has escaped its task may still write to it.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    directory: PathBuf,
    /// `/dev/null`, opened once.
    nothing: Option<Arc<File>>,
}

impl Spool {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), nothing: File::open("/dev/null").ok().map(Arc::new) }
    }

    /// A stdin that ends at once.
    pub(crate) fn nothing(&self) -> Stdio {
        let again = self.nothing.as_ref().and_then(|nothing| nothing.try_clone().ok());
        again.map_or_else(Stdio::null, Stdio::from)
    }

    /// An empty file.
    pub(crate) fn file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.directory)
    }

    /// A file that holds `text`, at its beginning.
    pub(crate) fn file_with(&self, text: &str) -> io::Result<File> {
        let mut file = self.file()?;
        file.write_all(text.as_bytes())?;
        rewound(&file)
    }
}

/// The file again, at its beginning. Both share one offset: nobody may still write.
pub(crate) fn rewound(file: &File) -> io::Result<File> {
    let mut again = file.try_clone()?;
    again.seek(SeekFrom::Start(0))?;
    Ok(again)
}

/// The first `cap` bytes, and how many there are.
pub(crate) fn kept(file: &File, cap: usize) -> io::Result<Kept> {
    let total = file.metadata()?.len();
    let keep = usize::try_from(total).unwrap_or(usize::MAX).min(cap);
    let mut bytes = vec![0; keep];
    file.read_exact_at(&mut bytes, 0)?;
    let mut kept = Kept { bytes, total };
    kept.truncate(cap);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{Spool, kept, rewound};

    #[test]
    fn what_is_written_can_be_read_again_and_is_capped() {
        let dir = tempfile::tempdir().unwrap();
        let file = Spool::new(dir.path()).file_with("hello").unwrap();
        let mut text = String::new();
        rewound(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert_eq!(kept(&file, 5).unwrap().bytes, b"hello");
        let cut = kept(&file, 4).unwrap();
        assert_eq!((cut.bytes.as_slice(), cut.total), (&b"hell"[..], 5));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a spool file has a name");
    }
}
