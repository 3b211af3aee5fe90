//! Syncs of directories. The sync of a file does not include its entry in the directory (fsync(2)).

use std::{
    fs::File,
    io::{self, ErrorKind},
    path::Path,
    sync::Once,
};

use tracing::warn;

/// Syncs the entries of a directory. A file system without such a sync, as that of some shared
/// folders of virtual machines, counts as synced. The first such call logs a warning.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    judge(dir, File::open(dir)?.sync_all())
}

/// Returns the result of the sync of a directory, which may be unsupported.
fn judge(dir: &Path, synced: io::Result<()>) -> io::Result<()> {
    static WARNED: Once = Once::new();
    match synced {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            WARNED.call_once(|| {
                let directory = dir.display();
                warn!(%directory, %error, "the file system cannot sync directories: a power failure may lose new files");
            });
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Error, ErrorKind},
        path::Path,
    };

    use super::{judge, sync_directory};

    #[test]
    fn sync_that_a_file_system_does_not_have_is_no_error() {
        let dir = Path::new("/");
        assert!(sync_directory(dir).is_ok());
        // EINVAL is the answer of such a file system.
        for unsupported in [Error::from_raw_os_error(22), ErrorKind::Unsupported.into()] {
            assert!(judge(dir, Err(unsupported)).is_ok());
        }
        for failed in [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::Other] {
            assert_eq!(judge(dir, Err(failed.into())).unwrap_err().kind(), failed);
        }
        assert_eq!(sync_directory(Path::new("/none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
