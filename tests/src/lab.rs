//! Lab: the directory, the session key and the binaries of one test.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

#[cfg(feature = "schema")]
use crate::schema;
use crate::{Agq, Agw, Database};

/// Environment in which a test runs the binaries. The directory is removed on drop.
pub struct Lab {
    dir: TempDir,
    bin: PathBuf,
    key: String,
    /// Database of agq if its store is PostgreSQL.
    database: Option<Database>,
    /// Variables of all commands, besides those of the test.
    variables: Vec<(String, String)>,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub struct Ran {
    /// Exit code, or -1 after a signal.
    pub code: i32,
    /// Bytes of stdout as text.
    pub out: String,
    /// Bytes of stderr as text.
    pub err: String,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    /// Creates a lab with a new directory and key, and with the binaries in `AGENIX_BIN` or of the
    /// release build.
    pub fn new() -> Self {
        Self::with_binaries(std::env::var_os("AGENIX_BIN").map_or_else(release_dir, PathBuf::from))
    }

    /// Creates a lab with a new directory and key, and with the binaries in `bin`.
    pub fn with_binaries(bin: PathBuf) -> Self {
        assert!(
            bin.join("agq").exists(),
            "there is no agq in {}: `cargo xtask e2e` builds it",
            bin.display()
        );
        let dir =
            tempfile::Builder::new().prefix("agenix-").tempdir().expect("a temporary directory can be made");
        let mut random = [0; 32];
        let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
        read.expect("the system gives random bytes");
        let key = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let database = Self::is_on_postgres().then(Database::new);
        Self { dir, bin, key, database, variables: Vec::new() }
    }

    /// Returns true if every agq of this run stores its data in PostgreSQL, because `AGENIX_STORE`
    /// is `postgres`.
    pub fn is_on_postgres() -> bool {
        std::env::var_os("AGENIX_STORE").is_some_and(|store| store == "postgres")
    }

    /// Returns true if the agq of this lab store their data in PostgreSQL.
    pub fn has_database(&self) -> bool {
        self.database.is_some()
    }

    /// Creates a lab whose agq store their data in files, regardless of `AGENIX_STORE`.
    pub fn on_files() -> Self {
        Self { database: None, ..Self::new() }
    }

    /// Creates a lab whose agq are nodes on one PostgreSQL database.
    pub fn of_nodes() -> Self {
        let lab = Self::new();
        Self { database: Some(lab.database.unwrap_or_default()), ..lab }
    }

    /// Sets an environment variable of all commands.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns the directory of the lab.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the session key of the lab.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the database of all agq in the lab, if they store their data in PostgreSQL.
    pub fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    /// Returns the directory of the binaries.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Writes a file into the directory of the lab, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("the lab's directory can be written");
        path
    }

    /// Returns the path of a file of the repository.
    pub fn repository(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
    }

    /// Starts agq on a free port, with its data in the directory of the lab.
    pub fn agq(&self, args: &[&str]) -> Agq {
        Agq::start(self, args)
    }

    /// Starts a worker and waits until it is registered.
    pub fn agw(&self, agq: &Agq, id: &str, args: &[&str]) -> Agw {
        Agw::start(self, agq, id, args)
    }

    /// Starts a worker with a prepared `command`, and waits until the worker is registered.
    pub fn agw_by(&self, id: &str, command: Command) -> Agw {
        Agw::start_by(self, id, command)
    }

    /// Returns a command for one of the binaries, with the key and the variables of the lab, and
    /// without other variables of agq, agw and AWS.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(self.dir.path()).stdin(Stdio::null()).env("AGQ_SESSION_KEY", &self.key);
        command.env("AGX_HOME", self.dir.path().join("agx-home")).env_remove("AGX_PROFILE");
        for (name, _) in std::env::vars_os() {
            let is_ours = name
                .to_str()
                .is_some_and(|name| ["AGQ_", "AGW_", "AWS_"].iter().any(|ours| name.starts_with(ours)));
            if is_ours && name != "AGQ_SESSION_KEY" {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs agx to its end, against `agq`.
    pub fn agx(&self, agq: &Agq, args: &[&str]) -> Ran {
        let output = self.command("agx").env("AGQ_ADDR", agq.address()).args(args).output();
        Ran::from(output.expect("agx can be started"))
    }

    /// Stores a plan.
    pub fn submit_plan(&self, agq: &Agq, json: &str) {
        let file = self.file("plan.json", json);
        self.agx(agq, &["plan", "submit", &file.display().to_string()]).expect(0);
    }

    /// Submits an action with the id `id`.
    pub fn submit_action(&self, agq: &Agq, plan: &str, id: &str, inputs: &str) {
        let file = self.file("inputs.json", inputs);
        self.agx(agq, &["action", "submit", plan, "--id", id, "--inputs", &file.display().to_string()])
            .expect(0);
    }
}

impl Ran {
    /// Checks the exit code. Panics with the output if the exit code is not `code`.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Returns the `data` of a `--json` result.
    #[track_caller]
    pub fn data(&self) -> serde_json::Value {
        let document: serde_json::Value =
            serde_json::from_str(&self.out).expect("one JSON document is on stdout");
        assert_eq!(document["schema"], "agx/1");
        document["data"].clone()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            #[cfg(feature = "schema")]
            schema::hold(&text);
            text
        };
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Returns `target/release` beside the profile directory of this test program.
fn release_dir() -> PathBuf {
    let here = std::env::current_exe().expect("a program knows where it is");
    let target = here.ancestors().find(|dir| dir.join("release").is_dir());
    target.map_or_else(|| PathBuf::from("target/release"), |target| target.join("release"))
}
