//! Rules for paths: the directories below which tasks may read and write.
//!
//! The rules judge the text of a path. Symbolic links do not exist for the rules, so the sandbox of
//! the worker has to enforce the same directories.

use serde::Deserialize;

/// Root that stands for the whole working directory of a task without `cwd`.
const WORKING_DIRECTORY: &str = ".";

/// Directories of a policy, as in the file. A relative directory is in the working directory of a
/// task without `cwd`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Paths {
    /// Directories and files that tasks read.
    read: Vec<String>,
    /// Directories and files that tasks read and write.
    write: Vec<String>,
}

/// Kind of access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The task reads the file or the directory.
    Read,
    /// The task writes the file.
    Write,
    /// The task writes files whose names begin with the path.
    WritePrefix,
}

/// Path that is not allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathFault {
    pub(crate) reason: String,
    pub(crate) instead: String,
}

impl Paths {
    /// Checks and normalizes the roots.
    pub(crate) fn checked(self) -> Result<Self, String> {
        let root = |root: &String| match &**root {
            path if path.is_empty() || path.contains('\0') => Err(format!("'{path}' is not a path")),
            path => normal(path).ok_or_else(|| format!("'{path}' has '..': name the directory itself")),
        };
        let all = |roots: &[String]| roots.iter().map(root).collect::<Result<Vec<_>, _>>();
        Ok(Self { read: all(&self.read)?, write: all(&self.write)? })
    }

    /// Returns the normalized path that `path` means in the directory `cwd`.
    ///
    /// # Errors
    ///
    /// Returns the reason if the path is not below a root.
    pub(crate) fn check(&self, access: Access, path: &str, cwd: Option<&str>) -> Result<String, PathFault> {
        let whole = match cwd.filter(|_| !path.starts_with('/')) {
            Some(cwd) => format!("{cwd}/{path}"),
            None => path.to_owned(),
        };
        let fault =
            |reason: &str, instead: String| PathFault { reason: format!("'{path}' {reason}"), instead };
        if path.is_empty() {
            return Err(fault("is an empty path", "name a file".into()));
        }
        if path.contains('\0') {
            return Err(fault("contains a NUL", "name a file".into()));
        }
        let Some(normal) = normal(&whole) else {
            return Err(fault("has '..'", "name the file by its path below a root of the policy".into()));
        };
        let own: &[String] = if access == Access::Read { &self.read } else { &[] };
        let mut roots = own.iter().chain(&self.write);
        if roots.any(|root| is_below(&normal, root, access)) {
            return Ok(normal);
        }
        let verb = if access == Access::Read { "read" } else { "written" };
        let reason = format!("is not below a directory that may be {verb}");
        Err(fault(&reason, self.advice(access)))
    }

    fn advice(&self, access: Access) -> String {
        let own: &[String] = if access == Access::Read { &self.read } else { &[] };
        let roots: Vec<&str> = own.iter().chain(&self.write).map(|root| &**root).collect();
        match (roots.is_empty(), access) {
            (false, _) => format!("name a file below {}", roots.join(", ")),
            (true, Access::Read) => "leave the file out: the tool reads stdin".into(),
            (true, _) => "leave the file out: stdout is kept as the result".into(),
        }
    }
}

/// Returns the path without empty components and `.`, or `None` if it has `..`.
fn normal(path: &str) -> Option<String> {
    let mut normal = String::with_capacity(path.len());
    let is_absolute = path.starts_with('/');
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            part => {
                if is_absolute || !normal.is_empty() {
                    normal.push('/');
                }
                normal.push_str(part);
            }
        }
    }
    if normal.is_empty() {
        normal.push(if is_absolute { '/' } else { '.' });
    }
    Some(normal)
}

/// Returns true if `path` is `root` or below it. Names that begin with a path are below a root only
/// if the path itself is.
fn is_below(path: &str, root: &str, access: Access) -> bool {
    if path == root {
        return access != Access::WritePrefix;
    }
    match root {
        WORKING_DIRECTORY => !path.starts_with('/'),
        "/" => path.starts_with('/'),
        root => path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Paths};

    fn paths(read: &[&str], write: &[&str]) -> Paths {
        let owned = |roots: &[&str]| roots.iter().map(ToString::to_string).collect();
        Paths { read: owned(read), write: owned(write) }.checked().unwrap()
    }

    #[test]
    fn path_below_a_root_is_normalized() {
        let paths = paths(&["/data/"], &["/data/out"]);
        let read = |path, cwd| paths.check(Access::Read, path, cwd).ok();
        assert_eq!(read("/data//a/./b", None).as_deref(), Some("/data/a/b"));
        assert_eq!(read("a", Some("/data/x")).as_deref(), Some("/data/x/a"));
        assert_eq!(read("/data", None).as_deref(), Some("/data"));
        for outside in ["/database", "/etc/passwd", "a", "", "/data/../etc", "..", "/data/x/..", "/data/\0"] {
            assert_eq!(read(outside, None), None, "{outside}");
        }
        assert!(paths.check(Access::Write, "/data/out/a", None).is_ok());
        assert!(paths.check(Access::Write, "/data/a", None).is_err());
        assert!(paths.check(Access::WritePrefix, "/data/out/x", None).is_ok());
        assert!(paths.check(Access::WritePrefix, "/data/out", None).is_err(), "it would write /data/outaa");
        assert!(paths.check(Access::WritePrefix, "/data/out/", None).is_err());
    }

    #[test]
    fn relative_paths_need_the_root_of_the_working_directory() {
        let here = paths(&["."], &[]);
        assert_eq!(here.check(Access::Read, "./a", None).as_deref(), Ok("a"));
        assert!(here.check(Access::Read, "/a", None).is_err());
        assert!(here.check(Access::Read, "a/../../b", None).is_err());
        assert!(here.check(Access::Read, "a", Some("/data")).is_err());
        let below = paths(&[], &["./out"]);
        assert!(below.check(Access::Write, "out/a", None).is_ok());
        assert!(below.check(Access::Write, "a", None).is_err());
    }

    #[test]
    fn roots_name_no_parent() {
        for wrong in ["data/..", "/data/..", "/a\0", ""] {
            assert!(Paths { read: vec![wrong.into()], write: Vec::new() }.checked().is_err(), "{wrong}");
        }
    }
}
