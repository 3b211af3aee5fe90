//! Rows of the table of attacks: the plans of an attack, and the outcomes that show whether it
//! succeeded.

use serde_json::{Value, json};

/// Facts about this machine that decide which attacks exist, and how they end.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttackConditions {
    /// True if the kernel has the 32-bit interface of x86.
    pub(super) has_32_bit_calls: bool,
    /// True if users may create namespaces outside a sandbox.
    pub(super) permits_namespaces: bool,
    /// True if users may trace their other processes outside a sandbox.
    pub(super) permits_tracing: bool,
    /// True if a program outside a sandbox gets the privileges of its set-user-ID bit.
    pub(super) honours_set_user_id: bool,
}

/// Evidence that an attack succeeds outside a sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outside {
    /// stdout of the last task contains this text.
    Prints(&'static str),
    /// The files of the target differ.
    Changes,
    /// The attack is not tried, for this reason.
    NotTried(&'static str),
}

/// End of an attack that was stopped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stopped {
    /// The last task has this exit code and this stdout.
    Ends(i32, &'static str),
    /// The last task has this exit code. The stdout of the task has no meaning.
    EndsWithCode(i32),
    /// stdout of the last task lacks this text.
    Lacks(&'static str),
    /// This sandbox does not stop the attack, for the reason in the text. The attack is not tried.
    NotEnforced(&'static str),
}

/// Attack on a sandbox, by one job or by several jobs one after the other.
#[derive(Debug)]
pub(super) struct AttackCase {
    /// Number in the threat model.
    pub(super) number: u8,
    /// Description that follows "a task".
    pub(super) name: String,
    /// Property of the sandbox that stops the attack. A text with a blank names another wall.
    pub(super) wall: &'static str,
    /// Plans without ids.
    pub(super) plans: Vec<Value>,
    /// Input of the jobs.
    pub(super) input: Value,
    pub(super) outside: Outside,
    pub(super) inside: Stopped,
    /// End in a sandbox without namespaces, if it is another one.
    pub(super) without_namespaces: Option<Stopped>,
    /// Part of stderr, of the reason or of the explanation of the last task.
    pub(super) says: &'static str,
    /// True if the last job has to have left processes behind.
    pub(super) leaves_strays: bool,
    /// True if a program is planted on the PATH of the worker before the attack.
    pub(super) plants_program: bool,
}

impl AttackCase {
    /// Creates an attack by the tasks of one plan.
    pub(super) fn tasks(number: u8, name: impl Into<String>, wall: &'static str, tasks: Value) -> Self {
        let Value::Array(tasks) = tasks else { panic!("{number}: the tasks are no list") };
        let numbered = (1..).zip(tasks).map(|(number, mut task)| {
            task["task_number"] = json!(number);
            task
        });
        Self {
            number,
            name: name.into(),
            wall,
            plans: vec![json!({ "tasks": numbered.collect::<Vec<_>>() })],
            input: json!({}),
            outside: Outside::NotTried("the attack has no case outside"),
            inside: Stopped::Ends(0, "denied\n"),
            without_namespaces: None,
            says: "",
            leaves_strays: false,
            plants_program: false,
        }
    }

    /// Creates an attack by a shell script that uses `programs`.
    pub(super) fn script(
        number: u8,
        name: impl Into<String>,
        wall: &'static str,
        (programs, script): (&[&str], &str),
    ) -> Self {
        let attack = Self::tasks(number, name, wall, json!([{"command": "sh", "args": ["-c", script]}]));
        attack.using(programs)
    }

    /// Creates an attack by a program in Perl.
    pub(super) fn perl(number: u8, name: impl Into<String>, wall: &'static str, program: &str) -> Self {
        Self::tasks(number, name, wall, json!([{"command": "perl", "args": ["-e", program]}]))
    }

    /// Adds programs that the last plan names.
    fn using(mut self, programs: &[&str]) -> Self {
        if let Some(plan) = self.plans.last_mut() {
            plan["requires"] = json!({ "tools": programs });
        }
        self
    }

    /// Adds a job after those before.
    pub(super) fn then(mut self, programs: &[&str], script: &str) -> Self {
        let task = json!({"task_number": 1, "command": "sh", "args": ["-c", script]});
        self.plans.push(json!({ "tasks": [task] }));
        self.using(programs)
    }

    /// Runs the jobs in another profile than that for strangers.
    pub(super) fn profile(mut self, profile: &str) -> Self {
        for plan in &mut self.plans {
            plan["sandbox"] = json!({ "profile": profile });
        }
        self
    }

    pub(super) fn input(self, input: Value) -> Self {
        Self { input, ..self }
    }

    pub(super) fn outside(self, outside: Outside) -> Self {
        Self { outside, ..self }
    }

    pub(super) fn prints_outside(self, text: &'static str) -> Self {
        self.outside(Outside::Prints(text))
    }

    pub(super) fn not_tried_outside(self, reason: &'static str) -> Self {
        self.outside(Outside::NotTried(reason))
    }

    pub(super) fn stopped(self, inside: Stopped) -> Self {
        Self { inside, ..self }
    }

    /// Sets the exit code and stdout of an attack that was stopped.
    pub(super) fn ends(self, code: i32, stdout: &'static str) -> Self {
        self.stopped(Stopped::Ends(code, stdout))
    }

    pub(super) fn without_namespaces(self, stopped: Stopped) -> Self {
        Self { without_namespaces: Some(stopped), ..self }
    }

    pub(super) fn says(self, says: &'static str) -> Self {
        Self { says, ..self }
    }

    pub(super) fn leaves_strays(self) -> Self {
        Self { leaves_strays: true, ..self }
    }

    pub(super) fn plants_program(self) -> Self {
        Self { plants_program: true, ..self }
    }
}
