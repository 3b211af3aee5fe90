//! Scene of attacks: agq, a worker, targets, and a job of another user that runs all the time.

use std::{
    cell::RefCell,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Child, Command, Stdio},
};

use e2e::{Agq, Agw, Lab, eventually, is_gone};
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    attack::{AttackCase, AttackConditions},
    targets::OutsideTargets,
};
use crate::support;

/// The user nobody, who runs the tasks of root.
const NOBODY: u32 = 65534;
/// Plan and action of the job of another user.
const VICTIM: &str = "victim";
/// Properties that hold without namespaces.
const NEEDS_WITHOUT_NAMESPACES: &str = r#"needs = ["files_read", "files_write", "exec", "network", "unix_sockets",
    "signals", "memory", "leftovers", "terminal", "privileges", "kernel_surface", "limits_process"]"#;
/// Program for x86-64 that ends with 42 by a call of the 32-bit interface, at 0x400078:
/// `mov eax, 1; mov ebx, 42; int 0x80`.
#[cfg(target_arch = "x86_64")]
const CALL_32: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0\x78\0\x40\0\0\0\0\0\
    \x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\x38\0\x01\0\x40\0\0\0\0\0\
    \x01\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x40\0\0\0\0\0\
    \x84\0\0\0\0\0\0\0\x84\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\xb8\x01\0\0\0\xbb\x2a\0\0\0\xcd\x80";

/// Sandbox of the worker of a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SceneRegime {
    /// No sandbox. The worker runs as the user that runs tasks in a sandbox.
    Outside,
    /// All mechanisms of the kernel.
    All,
    /// All mechanisms but namespaces.
    WithoutNamespaces,
    /// All mechanisms but Landlock.
    WithoutLandlock,
}

impl SceneRegime {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::All => "all mechanisms",
            Self::WithoutNamespaces => "without namespaces",
            Self::WithoutLandlock => "without Landlock",
        }
    }

    fn withheld(self) -> &'static str {
        match self {
            Self::Outside | Self::All => "",
            Self::WithoutNamespaces => "namespaces",
            Self::WithoutLandlock => "landlock",
        }
    }
}

/// Worker with a job of another user, and targets of attacks.
pub(super) struct Scene {
    pub(super) lab: Lab,
    pub(super) agq: Agq,
    pub(super) targets: OutsideTargets,
    pub(super) regime: SceneRegime,
    pub(super) decoy: Decoy,
    dir: TempDir,
}

/// Process of the user of the tasks that belongs to no job.
pub(super) struct Decoy(RefCell<Child>);

/// Processes that attacks name.
pub(super) struct Processes {
    worker: i32,
    supervisor: i32,
    victim: i32,
}

impl Scene {
    pub(super) fn new(regime: SceneRegime) -> Self {
        let lab = Lab::on_files();
        let agq = lab.agq(&[]);
        // The user of the tasks has to reach the targets, and the program of the worker.
        let all = Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("attacks-").permissions(all).tempdir_in("/tmp").unwrap();
        let targets = OutsideTargets::new(dir.path(), is_root().then_some(NOBODY));
        fs::copy(lab.bin().join("agw"), dir.path().join("agw")).unwrap();
        targets.program("bin/tool", b"#!/bin/sh\necho genuine\n", 0o755);
        #[cfg(target_arch = "x86_64")]
        targets.program("bin/call-32", CALL_32, 0o755);
        if is_root() {
            targets.program("bin/id-of-root", &fs::read("/usr/bin/id").unwrap(), 0o4755);
        }
        let scene = Self { lab, agq, targets, regime, decoy: Decoy::new(), dir };
        scene.lab.file("agw.toml", &scene.config());
        scene
    }

    /// Returns what decides which attacks exist on this machine.
    pub(super) fn facts(&self) -> AttackConditions {
        let call = Command::new(self.dir.path().join("bin/call-32")).status();
        let mount = statvfs(self.dir.path()).unwrap();
        let namespace = as_user_of_tasks(Command::new("unshare").args(["-Ur", "true"])).status();
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        AttackConditions {
            has_32_bit_calls: call.is_ok_and(|ended| ended.code() == Some(42)),
            permits_namespaces: namespace.is_ok_and(|ended| ended.success()),
            permits_tracing: scope.map_or(true, |scope| scope.trim() == "0"),
            honours_set_user_id: is_root() && !mount.f_flag.contains(StatVfsMountFlags::NOSUID),
        }
    }

    /// Returns the file of `--config`.
    fn config(&self) -> String {
        let needs = if self.regime == SceneRegime::WithoutNamespaces { NEEDS_WITHOUT_NAMESPACES } else { "" };
        // Without namespaces, the kernel counts the processes of all jobs, and of other workers,
        // together.
        let reader = match self.regime {
            SceneRegime::WithoutNamespaces => "limits = { processes = 1024 }",
            _ => "",
        };
        let dir = self.targets.dir.display();
        let read = format!("read = [\"{dir}/readable\", \"{dir}/bin\"]\n{needs}");
        format!(
            "[sandbox]\nmode = \"all\"\nscratch = \"{dir}/scratch\"\nspares = 0\n\
            [profiles.reader]\n{read}\n{reader}\n\
            [profiles.small]\n{read}\n\
            limits = {{ processes = 40, address_space = 536870912, file_size = 1048576, open_files = 64, \
                scratch_bytes = 1048576, scratch_inodes = 100 }}\n\
            [profiles.short]\n{read}\nlimits = {{ cpu_secs = 1 }}\n"
        )
    }

    pub(super) fn worker_command(&self) -> Command {
        let like = self.lab.command("agw");
        let mut command = Command::new(self.dir.path().join("agw"));
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for name in ["LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_NUMERIC", "TZ", "TRACEPARENT"] {
            command.env_remove(name);
        }
        let path = format!("{0}/early:{0}/bin:/usr/local/bin:/usr/bin:/bin", self.targets.dir.display());
        command.env("PATH", path).env("LANG", "C.UTF-8").env("SECRET_TOKEN", "x").env("GIT_PAGER", "x");
        command.env("AGQ_ADDR", self.agq.address()).env("AGW_SANDBOX_WITHOUT", self.regime.withheld());
        command.current_dir(self.targets.dir.join("home")).args(["--max-concurrent-jobs", "2"]);
        match self.regime {
            SceneRegime::Outside => as_user_of_tasks(&mut command),
            _ => command.arg("--config").arg(self.lab.path().join("agw.toml")),
        };
        command
    }

    /// Starts the worker, and the job of another user.
    pub(super) fn start(&self) -> (Agw, Processes) {
        let worker = self.lab.agw_by("w1", self.worker_command());
        let script = "echo kept > mine; until [ -e \"$0/go\" ]; do sleep 0.05; done; cat mine";
        let readable = self.targets.fill("{readable}");
        let mut plan = json!({
            "requires": {"tools": ["sleep", "cat"]},
            "tasks": [{"task_number": 1, "command": "sh", "args": ["-c", script, &readable]}]
        });
        if self.regime == SceneRegime::Outside {
            plan["tasks"][0]["cwd"] = json!(self.targets.dir.join("other-job"));
        }
        self.submit(VICTIM, plan, &json!({}));
        let victim = eventually("the job of another user runs", || shell_with(&readable));
        let processes =
            Processes { worker: worker.pid().cast_signed(), supervisor: parent_of(victim).unwrap(), victim };
        (worker, processes)
    }

    /// Ends the job of another user, which no attack may have disturbed.
    pub(super) fn release_victim(&self) {
        fs::write(self.targets.dir.join("readable/go"), "").unwrap();
        let job = support::ended(&self.lab, &self.agq, VICTIM);
        assert_eq!((&job["status"], &job["stdout"]), (&"completed".into(), &"kept\n".into()), "{job}");
    }

    fn submit(&self, id: &str, mut plan: Value, input: &Value) {
        plan["plan_id"] = json!(id);
        self.lab.submit_plan(&self.agq, &plan.to_string());
        self.lab.submit_action(&self.agq, id, id, &json!([input]).to_string());
    }

    /// Runs the jobs of `attack` one after the other, and returns the status of the last one.
    pub(super) fn run(&self, id: &str, attack: &AttackCase, processes: &Processes) -> Value {
        let decoy = self.decoy.living().to_string();
        let filled = |value: &Value| -> Value {
            let text = processes.fill(&self.targets.fill(&value.to_string()));
            serde_json::from_str(&text.replace("{decoy}", &decoy)).unwrap()
        };
        let mut last = Value::Null;
        for (number, plan) in (1..).zip(&attack.plans) {
            let id = format!("{id}-{number}");
            let mut plan = filled(plan);
            if self.regime == SceneRegime::Outside
                && let Some(plan) = plan.as_object_mut()
            {
                plan.remove("sandbox");
            }
            self.submit(&id, plan, &filled(&attack.input));
            last = support::ended(&self.lab, &self.agq, &id);
        }
        last
    }

    /// Plants a program first on the PATH of the worker, which already runs.
    pub(super) fn plant_program(&self) {
        self.targets.program("early/tool", b"#!/bin/sh\necho planted\n", 0o755);
    }
}

impl Processes {
    fn fill(&self, text: &str) -> String {
        text.replace("{worker}", &self.worker.to_string())
            .replace("{supervisor}", &self.supervisor.to_string())
            .replace("{victim}", &self.victim.to_string())
    }

    /// Returns the name of the first process that has ended.
    pub(super) fn ended(&self) -> Option<&'static str> {
        let all = [("worker", self.worker), ("supervisor", self.supervisor), ("other job", self.victim)];
        all.into_iter().find(|(_, pid)| is_gone(*pid)).map(|(name, _)| name)
    }
}

impl Decoy {
    fn new() -> Self {
        let mut command = Command::new("/bin/sleep");
        let command = command.arg("100000").current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        Self(RefCell::new(as_user_of_tasks(command).spawn().unwrap()))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.borrow_mut().try_wait().unwrap().is_some()
    }

    /// Returns the process id. Starts another process if an attack has ended the last one.
    fn living(&self) -> u32 {
        if self.has_ended() {
            self.0.swap(&Self::new().0);
        }
        self.0.borrow().id()
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        // The process may have ended already.
        let child = self.0.get_mut();
        let _ended = child.kill();
        let _ended = child.wait();
    }
}

/// Runs `command` as the user nobody, if the test runs as root.
fn as_user_of_tasks(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

/// Returns the shell that has `argument` in its command line, but no child that it has just forked.
fn shell_with(argument: &str) -> Option<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_shell = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.starts_with("sh\0") && words.contains(argument)
    };
    let shells = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_shell);
    let shells: Vec<i32> = shells.collect();
    let parents: Option<Vec<i32>> = shells.iter().map(|&pid| parent_of(pid)).collect();
    let parents = parents?;
    shells.iter().zip(parents).find(|(_, parent)| !shells.contains(parent)).map(|(pid, _)| *pid)
}

/// Returns the parent of a process, if the process has not ended.
fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

pub(super) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}
