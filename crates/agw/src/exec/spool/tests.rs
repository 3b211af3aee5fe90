//! Tests of the spool.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::FileExt,
};

use super::{Spool, SpoolFile, kept};
use crate::exec::resource_wait::is_shortage;

#[test]
fn spool_file_has_no_name_and_kept_bytes_are_capped() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    let mut file = Spool::new(dir.path()).file_with(b"hello").unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(kept(&file, 5).unwrap().bytes, b"hello");
    let cut = kept(&file, 4).unwrap();
    assert_eq!((cut.bytes.as_slice(), cut.total), (&b"hell"[..], 5));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a spool file has a name");
}

#[test]
fn spool_creates_its_directory_again() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("tmp/spool");
    let spool = Spool::new(&directory);
    spool.file_with(b"x").unwrap();
    fs::remove_dir_all(dir.path().join("tmp")).unwrap();
    spool.file_with(b"x").unwrap();
    assert!(directory.is_dir());
}

#[test]
fn spool_that_cannot_be_used_is_a_shortage_and_not_a_missing_program() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("file");
    fs::write(&place, "").unwrap();
    for directory in [place.join("spool"), place] {
        let error = Spool::new(&directory).file().unwrap_err();
        assert!(is_shortage(&error), "{error}");
        assert_ne!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(&directory.display().to_string()), "{error}");
    }
}

#[test]
fn spool_never_truncates_a_file_of_the_user() {
    let mut theirs = tempfile::tempfile().unwrap();
    theirs.write_all(b"theirs").unwrap();
    let mut again = SpoolFile::from(theirs.try_clone().unwrap()).open().unwrap();
    let mut text = String::new();
    again.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), theirs.metadata().unwrap().len()), ("theirs", 6));
}

#[cfg(target_os = "linux")]
#[test]
fn spool_recycles_a_file_only_if_no_process_has_it_open() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::new(dir.path());
    let inode = |file: &SpoolFile| file.metadata().unwrap().ino();
    let first = spool.file().unwrap();
    let (number, mut task) = (inode(&first), first.open().unwrap());
    task.write_all(b"of the first").unwrap();
    drop(first);
    let second = spool.file().unwrap();
    assert_ne!(inode(&second), number, "its task has it");
    assert_eq!(second.metadata().unwrap().len(), 0);
    drop(task);
    let number = inode(&second);
    second.open().unwrap().write_all(b"of the second").unwrap();
    drop(second);
    let third = spool.file().unwrap();
    assert_eq!((inode(&third), third.metadata().unwrap().len()), (number, 0));
    // A child counts too, although this process has closed its copy.
    let mut child = std::process::Command::new("cat");
    let mut child = child.stdin(std::process::Stdio::piped()).stdout(third.open().unwrap()).spawn().unwrap();
    drop(third);
    assert_ne!(inode(&spool.file().unwrap()), number);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn spool_neither_recycles_nor_gives_away_a_file_that_a_task_has_linked_to_a_name() {
    use rustix::fs::{AtFlags, CWD, linkat};

    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::new(dir.path());
    let (file, linked) = (spool.file().unwrap(), dir.path().join("linked"));
    let mut task = file.open().unwrap();
    task.write_all(b"output").unwrap();
    linkat(CWD, super::name(&task), CWD, &linked, AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(task);
    assert!(!file.give(6), "the owner of the name may write to it");
    drop(file);
    assert!(spool.0.free().is_empty());
    assert_eq!(std::fs::read(&linked).unwrap(), b"output");
}

#[cfg(target_os = "linux")]
#[test]
fn spool_gives_away_only_a_file_of_its_own_that_no_process_has_open() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::new(dir.path());
    let file = spool.file().unwrap();
    let mut task = file.open().unwrap();
    task.write_all(b"output").unwrap();
    assert!(!file.give(6), "its task has it");
    drop(task);
    assert!(file.give(6));
    let agq = file.open().unwrap();
    file.write_all_at(b"checksum", 6).unwrap();
    assert_eq!((file.length(), file.metadata().unwrap().len()), (6, 14));
    drop(agq);
    drop(file);
    assert!(spool.0.free().is_empty(), "it is not recycled");
    assert!(!SpoolFile::from(tempfile::tempfile().unwrap()).give(0), "it is a file of the user");
}

#[cfg(target_os = "linux")]
#[test]
fn spool_pool_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::new(dir.path());
    let many: Vec<_> = (0..=super::MAX_FREE).map(|_| spool.file().unwrap()).collect();
    drop(many);
    assert_eq!(spool.0.free().len(), super::MAX_FREE);
}
