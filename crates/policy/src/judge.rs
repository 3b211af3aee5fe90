//! Judgement of the tasks of a plan.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{InputType, Plan, STDERR_TO_STDOUT, Task},
    template,
};

use crate::{
    argv,
    inputs::Types,
    judgement::{Decision, FileUse, Finding, Judgement, TaskJudgement},
    path::Access,
    policy::Policy,
    scope::{Fault, Scope, WorkingDirectory},
    tool::{Class, Tool},
    value_type::ValueType,
    word::Word,
};

impl Policy {
    /// Judges all tasks of a plan.
    #[must_use]
    pub fn judge(&self, plan: &Plan) -> Judgement {
        let tasks: Vec<TaskJudgement> =
            plan.tasks.iter().map(|task| self.judge_task(task, &plan.inputs)).collect();
        let mut findings = Vec::new();
        if let (Some(own), Some(asked)) = (&self.profile, &plan.sandbox)
            && *own != asked.profile
        {
            let reason = format!("the policy names the sandbox profile '{own}', not '{}'", asked.profile);
            let fault = Fault::new(reason, format!("leave sandbox out, or name {own}"));
            findings.push(finding("sandbox.profile".into(), None, fault));
        }
        let profile = plan.sandbox.as_ref().map(|sandbox| &sandbox.profile).or(self.profile.as_ref());
        if let Some(reason) = profile.and_then(|profile| self.asks.about_profile(profile)) {
            findings.push(asking("sandbox.profile", reason));
        }
        let strictest = tasks.iter().map(|task| task.decision).max().unwrap_or(Decision::Allow);
        Judgement {
            decision: strictest.max(Finding::strictest(&findings)),
            profile: self.profile.clone(),
            findings,
            tasks,
        }
    }

    /// Judges one command. Placeholders of plans are placeholders here too.
    #[must_use]
    pub fn judge_argv(&self, program: &str, args: &[String]) -> TaskJudgement {
        let (command, args) = (program.to_owned(), args.to_vec());
        self.judge_task(&Task { task_number: 1, command, args, ..Task::default() }, &BTreeMap::new())
    }

    fn judge_task(&self, task: &Task, inputs: &BTreeMap<String, InputType>) -> TaskJudgement {
        let tool = self.tool(&task.command);
        let mut parts = Parts::default();
        match tool {
            Some(tool) => {
                let (types, cwd) = (Types::new(inputs), WorkingDirectory::Default);
                parts.judge(Scope { policy: self, types, cwd }, task, tool);
            }
            None => {
                let fault = self.unlisted(&task.command);
                parts.findings.push(finding("command".into(), None, fault));
            }
        }
        TaskJudgement {
            task_number: task.task_number,
            command: task.command.clone(),
            decision: Finding::strictest(&parts.findings),
            rule: tool.map(|tool| tool.rule.clone()),
            path: tool.and_then(|tool| tool.path.clone()),
            sha256: tool.and_then(|tool| tool.sha256.clone()),
            findings: parts.findings,
            files: parts.files,
        }
    }

    /// Returns the fault of a tool that is not listed.
    fn unlisted(&self, command: &str) -> Fault {
        let shown = command.escape_debug();
        let reason = format!("the tool '{shown}' is not listed");
        if command.contains('/') {
            return Fault::new(reason, "name a listed tool without a path");
        }
        let tools = self.tools();
        Fault::new(reason, format!("use one of {}", tools.join(", ")))
    }
}

/// Findings and files of one task.
#[derive(Default)]
struct Parts {
    findings: Vec<Finding>,
    files: Vec<FileUse>,
}

impl Parts {
    /// Judges all parts of a task.
    fn judge(&mut self, mut scope: Scope<'_>, task: &Task, tool: &Tool) {
        if let Some(cwd) = &task.cwd {
            let path = self.file(&scope, "cwd", Access::Read, cwd);
            scope.cwd = match path {
                Some(path) if !cwd.contains("{{") => WorkingDirectory::Known(path),
                _ => WorkingDirectory::Unknown,
            };
        }
        if tool.class == Some(Class::Interpreter) {
            self.ask(format!("{} is an interpreter: it runs code of the plan", tool.rule));
        } else {
            if tool.ask {
                self.ask(format!("{} asks for approval", tool.rule));
            }
            self.arguments(&scope, tool, &task.args);
        }
        let stderr = task.stderr.as_ref().filter(|stderr| *stderr != STDERR_TO_STDOUT);
        let redirected = [
            ("stdin_file", Access::Read, task.stdin_file.as_ref()),
            ("stdout", Access::Write, task.stdout.as_ref()),
            ("stderr", Access::Write, stderr),
        ];
        for (place, access, path) in redirected {
            if let Some(path) = path {
                self.file(&scope, place, access, path);
            }
        }
        for (name, value) in &task.env {
            self.variable(&scope, tool, name, value);
        }
    }

    fn ask(&mut self, reason: String) {
        self.findings.push(asking("command", reason));
    }

    fn arguments(&mut self, scope: &Scope<'_>, tool: &Tool, args: &[String]) {
        let mut words = Vec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            match Word::parse(arg) {
                Ok(word) => words.push(word),
                Err(error) => return self.refuse_argument(index, invalid(&error)),
            }
        }
        match argv::files(&tool.grammar, scope, &words) {
            Err((index, fault)) => self.refuse_argument(index, fault),
            Ok(files) => self.files.extend(files.into_iter().map(|(index, access, path)| FileUse {
                access,
                place: format!("args[{index}]"),
                argument: Some(index),
                path,
            })),
        }
    }

    fn refuse_argument(&mut self, index: usize, fault: Fault) {
        self.findings.push(finding(format!("args[{index}]"), Some(index), fault));
    }

    /// Checks a part of the task that names a file, and returns the normalized path.
    fn file(&mut self, scope: &Scope<'_>, place: &str, access: Access, text: &str) -> Option<String> {
        let word = Word::parse(text).map_err(|error| invalid(&error));
        match word.and_then(|word| scope.file(access, word.value())) {
            Ok((access, path)) => {
                let place = place.to_owned();
                self.files.push(FileUse { access, place, argument: None, path: path.clone() });
                Some(path)
            }
            Err(fault) => {
                self.findings.push(finding(place.to_owned(), None, fault));
                None
            }
        }
    }

    /// Checks an environment variable of the task.
    fn variable(&mut self, scope: &Scope<'_>, tool: &Tool, name: &str, text: &str) {
        let value_type = tool.env.get(name).or_else(|| scope.policy.env.get(name));
        let checked = match value_type {
            None => {
                let reason = format!("the variable '{}' is not listed", name.escape_debug());
                Err(Fault::new(reason, "leave it out"))
            }
            Some(value_type) if let Some(secret) = template::secret(text) => {
                secret_fault(tool, value_type, secret).map_or(Ok(None), Err)
            }
            Some(value_type) => {
                let word = Word::parse(text).map_err(|error| invalid(&error));
                word.and_then(|word| scope.value(value_type, word.value()))
            }
        };
        let place = format!("env.{name}");
        match checked {
            Err(fault) => self.findings.push(finding(place, None, fault)),
            Ok(Some((access, path))) => self.files.push(FileUse { access, place, argument: None, path }),
            Ok(None) => {}
        }
    }
}

/// Returns the reason for which a variable of this type may not have the secret, if there is one.
fn secret_fault(tool: &Tool, value_type: &ValueType, secret: &str) -> Option<Fault> {
    if !tool.secrets.iter().any(|allowed| allowed == secret) {
        let reason = format!("the secret '{secret}' is not listed in secrets of {}", tool.rule);
        return Some(Fault::new(reason, "leave it out"));
    }
    // The policy does not know the value.
    let reason = format!("a secret may be any text, and the variable has to be {value_type}");
    (!value_type.is_any_text()).then(|| Fault::new(reason, "leave it out"))
}

/// Returns a finding that asks for approval.
fn asking(place: &str, reason: String) -> Finding {
    let place = place.to_owned();
    Finding { decision: Decision::Ask, place, argument: None, reason, instead: None }
}

fn finding(place: String, argument: Option<usize>, fault: Fault) -> Finding {
    let Fault { reason, instead } = fault;
    Finding { decision: Decision::Refuse, place, argument, reason, instead }
}

fn invalid(error: &template::TemplateError) -> Fault {
    Fault { reason: error.to_string(), instead: None }
}
