//! Server with the interface of S3, which keeps objects as files in a temporary directory.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{Lab, eventually, port::unused_port};

const KEY: &str = "tests-key";
const SECRET: &str = "tests-secret";

/// Running s3s-fs with the bucket `outputs`. The drop stops the server.
pub struct S3 {
    server: Child,
    port: u16,
    dir: TempDir,
}

impl Default for S3 {
    fn default() -> Self {
        Self::new()
    }
}

impl S3 {
    /// Starts a server on a free port.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        fs::create_dir(dir.path().join("outputs")).expect("the directory can be written");
        let port = unused_port();
        Self { server: start(port, dir.path()), port, dir }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns a lab whose agq find the server at `address`, and may use it.
    pub fn known_to(&self, lab: Lab, address: &str) -> Lab {
        lab.with_variable("AWS_ENDPOINT_URL", &format!("http://{address}"))
            .with_variable("AWS_ALLOW_HTTP", "true")
            .with_variable("AWS_ACCESS_KEY_ID", KEY)
            .with_variable("AWS_SECRET_ACCESS_KEY", SECRET)
    }

    /// Stops the server. The objects stay.
    pub fn stop(&mut self) {
        self.server.kill().expect("a child can be killed");
        self.server.wait().expect("a child can be waited for");
    }

    /// Starts the server again on the same port.
    pub fn start_again(&mut self) {
        self.server = start(self.port, self.dir.path());
    }

    /// Returns the files of the objects below `prefix` in the bucket.
    pub fn objects(&self, prefix: &str) -> Vec<PathBuf> {
        let parts =
            fs::read_dir(self.dir.path().join("outputs").join(prefix)).into_iter().flatten().flatten();
        let files = |part: fs::DirEntry| fs::read_dir(part.path()).into_iter().flatten().flatten();
        parts.flat_map(files).map(|file| file.path()).collect()
    }

    /// Returns the path of the file of an object, which may be missing.
    pub fn object(&self, key: &str) -> PathBuf {
        self.dir.path().join("outputs").join(key)
    }

    /// Returns the number of parts of multipart uploads that have not ended.
    pub fn unfinished_parts(&self) -> usize {
        let files = fs::read_dir(self.dir.path()).expect("the directory can be read").flatten();
        let is_part = |file: &fs::DirEntry| file.file_name().to_string_lossy().contains(".part-");
        files.filter(is_part).count()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ended = self.server.kill();
        let _ended = self.server.wait();
    }
}

fn start(port: u16, dir: &Path) -> Child {
    let tools =
        std::env::var_os("AGENIX_TOOLS").map_or_else(|| Lab::repository("target/tools"), PathBuf::from);
    let mut command = Command::new(tools.join("bin/s3s-fs"));
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--access-key", KEY, "--secret-key", SECRET]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = command.spawn().expect("s3s-fs is installed: `cargo xtask` sees to that");
    eventually("an answer of s3s-fs", || TcpStream::connect(("127.0.0.1", port)).ok());
    server
}
