//! Programs that a plan can use: those of the workers, or of this machine if there is no worker.

use std::collections::BTreeSet;

use agenix_client::{ClientError, Connection, Server};
use agenix_policy::Policy;
use agenix_protocol::{
    documents::{CapabilityList, Plan, WorkerStatus},
    errors::ErrorKind,
    printable::one_line,
};
use agenix_rules::plan::needs;

use crate::{
    connection_args::{ConnectionArgs, is_absent},
    error::{CliError, Result},
    output::counted,
    util::{path_lookup, shorten::shortened},
};

/// Maximum number of programs in the prompt of the model, because the context of small models is
/// short.
const MAX_SHOWN: usize = 200;
/// Maximum number of programs that agx reads from agq.
const MAX_READ: usize = 50_000;
/// Policy with all tools of the library, which are the programs that most plans need.
const LIBRARY: &str = "version = 1\nlibrary = true";

/// Programs for a plan.
#[derive(Debug)]
pub(super) struct AvailablePrograms {
    /// Programs in the prompt of the model, each with the description of an agentic unit.
    shown: Vec<(String, Option<String>)>,
    /// Number of programs that the prompt of the model omits.
    left_out: usize,
    /// Names of all programs of the workers, if they are known.
    on_workers: Option<BTreeSet<String>>,
    /// Different sets of programs of the workers, if they are known.
    sets: BTreeSet<BTreeSet<String>>,
    /// Names of the programs that the policy lists, if there is one.
    allowed: Option<BTreeSet<String>>,
    /// Owner of the programs, for a message.
    owner: String,
}

impl AvailablePrograms {
    /// Asks agq for the programs of the workers. If no agq is configured or running, or agq has no
    /// worker, takes common programs of this machine.
    pub(super) async fn find(server: &ConnectionArgs, policy: Option<&Policy>) -> Result<Self> {
        let is_named = server.given()?.is_some();
        let why = match server.server() {
            Ok(agq) => match offered(&agq).await {
                Ok((list, workers)) if list.workers > 0 => {
                    return Ok(Self::of_workers(list, &workers, policy));
                }
                Ok(_) => "the agq has no worker",
                Err(failure) if !is_named && is_absent(&failure) => "no agq can be reached",
                Err(failure) => return Err(failure.into()),
            },
            Err(CliError::NoServer { .. }) if !is_named => "no agq is configured",
            Err(failure) => return Err(failure),
        };
        let library = library();
        let named = policy.map_or_else(|| library.tools(), Policy::tools);
        let here = path_lookup::on(&std::env::var_os("PATH").unwrap_or_default());
        let shown = named.into_iter().filter(|name| here.contains(*name));
        let shown = shown.map(|name| (name.to_owned(), None)).collect();
        Ok(Self::limited(shown, format!("this machine, because {why}")))
    }

    fn of_workers(list: CapabilityList, workers: &[WorkerStatus], policy: Option<&Policy>) -> Self {
        let is_whole = list.programs.len() as u64 == list.total;
        let names = list.programs.iter().map(|program| program.name.clone());
        let on_workers = is_whole.then(|| names.collect());
        let living = workers.iter().filter(|worker| worker.state != "dead");
        let sets = living.map(|worker| worker.capabilities.commands().cloned().collect()).collect();
        let allowed: Option<BTreeSet<String>> =
            policy.map(|policy| policy.tools().into_iter().map(str::to_owned).collect());
        let library = library();
        let common = library.tools();
        let mut shown: Vec<_> = list
            .programs
            .into_iter()
            .filter(|program| allowed.as_ref().is_none_or(|allowed| allowed.contains(&program.name)))
            .map(|program| (program.name, program.description))
            .collect();
        // The sort is stable, so that the names of a group stay sorted.
        shown.sort_by_cached_key(|(name, description)| {
            (description.is_none(), !common.contains(&name.as_str()))
        });
        let owner = counted(list.workers, "worker", "workers");
        Self { on_workers, sets, allowed, ..Self::limited(shown, owner) }
    }

    /// Returns at most [`MAX_SHOWN`] programs for the model.
    fn limited(mut shown: Vec<(String, Option<String>)>, owner: String) -> Self {
        let left_out = shown.len().saturating_sub(MAX_SHOWN);
        shown.truncate(MAX_SHOWN);
        Self { shown, left_out, on_workers: None, sets: BTreeSet::new(), allowed: None, owner }
    }

    /// Describes for the user which programs are in the prompt of the model.
    pub(super) fn about(&self) -> String {
        let programs = counted(self.shown.len() as u64, "program", "programs");
        let left_out = match self.left_out {
            0 => String::new(),
            left_out => format!(", and not the other {left_out}"),
        };
        format!("the names of {programs} of {}{left_out}", self.owner)
    }

    /// Lists the programs for the model.
    pub(super) fn list(&self) -> String {
        let plain = self.shown.iter().filter(|(_, description)| description.is_none());
        let plain: Vec<String> = plain.map(|(name, _)| one_line(name)).collect();
        let described = self.shown.iter().filter_map(|(name, description)| {
            Some(format!("- {}: {}\n", one_line(name), shortened(&one_line(description.as_ref()?))))
        });
        let more = if self.left_out > 0 { ", and other common programs" } else { "" };
        format!("Programs: {}{more}\n{}", plain.join(", "), described.collect::<String>())
    }

    /// Returns the reasons for which no worker can run the plan, as far as the programs of the
    /// workers are known.
    pub(super) fn missing(&self, plan: &Plan) -> Vec<String> {
        let Some(known) = &self.on_workers else { return Vec::new() };
        let tools = needs(plan).tools;
        let missing: Vec<String> = tools
            .iter()
            .filter(|tool| !known.contains(*tool))
            .map(|tool| {
                let (place, nearest) = (place(plan, tool), self.nearest(tool, known));
                format!("{place} is '{tool}': no worker has this program{nearest}")
            })
            .collect();
        let lacks = |set: &BTreeSet<String>| -> Vec<&str> {
            tools.iter().filter(|tool| !set.contains(*tool)).map(String::as_str).collect()
        };
        match self.sets.iter().map(lacks).min_by_key(Vec::len) {
            Some(absent) if missing.is_empty() && !absent.is_empty() => {
                let (all, absent) = (tools.join(", "), absent.join(", "));
                vec![format!("no worker has all programs: {all}; the nearest worker lacks {absent}")]
            }
            _ => missing,
        }
    }

    /// Suggests the program of a worker with the name most similar to `tool`, if the policy allows
    /// it.
    fn nearest(&self, tool: &str, known: &BTreeSet<String>) -> String {
        let is_allowed = |name: &&String| self.allowed.as_ref().is_none_or(|all| all.contains(*name));
        let nearest = path_lookup::nearest(tool, known.iter().filter(is_allowed).map(String::as_str));
        nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default()
    }

    /// Returns the programs of a worker that has the programs `names`.
    #[cfg(test)]
    pub(super) fn of_names(names: &[&str]) -> Self {
        let shown = names.iter().map(|&name| (name.to_owned(), None)).collect();
        let known = names.iter().map(|&name| name.to_owned()).collect();
        Self { on_workers: Some(known), ..Self::limited(shown, "1 worker".into()) }
    }
}

/// Returns the place of a program in a plan.
fn place(plan: &Plan, tool: &str) -> String {
    match plan.tasks.iter().position(|task| task.command == tool) {
        Some(at) => format!("tasks[{at}].command"),
        None => "requires.tools".into(),
    }
}

/// Returns the programs of the workers, and the workers if their programs differ. A key that may
/// not list the workers gets no workers.
async fn offered(server: &Server) -> Result<(CapabilityList, Vec<WorkerStatus>), ClientError> {
    let mut connection = Connection::open(server).await?;
    let list = connection.capabilities("", MAX_READ).await?;
    if list.programs.iter().all(|program| program.workers == list.workers) {
        return Ok((list, Vec::new()));
    }
    match connection.workers().await {
        Ok(workers) => Ok((list, workers)),
        Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::NotPermitted => {
            Ok((list, Vec::new()))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns a policy with all tools of the library.
fn library() -> Policy {
    Policy::parse(LIBRARY).expect("the library is valid, as its tests check")
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;
    use agenix_policy::Policy;
    use agenix_protocol::documents::{CapabilityList, OfferedProgram, Plan, WorkerStatus, parse};

    use super::{AvailablePrograms, MAX_SHOWN, is_absent};

    fn list(programs: &[(&str, Option<&str>)]) -> CapabilityList {
        let program = |&(name, description): &(&str, Option<&str>)| OfferedProgram {
            name: name.into(),
            workers: 1,
            description: description.map(str::to_owned),
        };
        let programs: Vec<_> = programs.iter().map(program).collect();
        CapabilityList { workers: 1, total: programs.len() as u64, programs, profiles: Vec::new() }
    }

    #[test]
    fn units_and_common_programs_come_first() {
        let names: Vec<String> = (0..MAX_SHOWN).map(|n| format!("a{n}")).collect();
        let mut all: Vec<(&str, Option<&str>)> = names.iter().map(|name| (name.as_str(), None)).collect();
        all.extend([("sort", None), ("agx-ocr", Some("Reads\ntext"))]);
        let programs = AvailablePrograms::of_workers(list(&all), &[], None);
        assert_eq!(programs.shown[0].0, "agx-ocr");
        assert_eq!(programs.shown[1].0, "sort");
        assert_eq!((programs.shown.len(), programs.left_out), (MAX_SHOWN, 2));
        assert_eq!(programs.about(), "the names of 200 programs of 1 worker, and not the other 2");
        let text = programs.list();
        assert!(text.starts_with("Programs: sort, a0, "), "{text}");
        assert!(text.ends_with(", and other common programs\n- agx-ocr: Reads\\ntext\n"), "{text}");
    }

    #[test]
    fn policy_selects_the_programs_that_are_shown() {
        let policy = Policy::parse("version = 1\nuse = [\"wc\", \"sort\"]").unwrap();
        let programs = AvailablePrograms::of_workers(list(&[("sh", None), ("wc", None)]), &[], Some(&policy));
        assert_eq!(programs.list(), "Programs: wc\n");
        assert_eq!(programs.about(), "the names of 1 program of 1 worker");
    }

    /// Returns a plan with these commands, which also requires `tool`.
    fn plan(commands: &[&str], tool: &str) -> Plan {
        let task =
            |(at, command): (usize, &&str)| format!(r#"{{"task_number":{},"command":"{command}"}}"#, at + 1);
        let tasks: Vec<String> = commands.iter().enumerate().map(task).collect();
        let json = format!(r#"{{"tasks":[{}],"requires":{{"tools":["{tool}"]}}}}"#, tasks.join(","));
        parse(json.as_bytes()).unwrap()
    }

    fn worker(state: &str, tools: &[&str]) -> WorkerStatus {
        let json = serde_json::json!({
            "worker_id": "w", "state": state, "hostname": "h", "platform": "p", "agw_version": "1",
            "capabilities": tools, "max_concurrent_jobs": 1, "active_jobs": 0,
            "registered_at": "2026-01-01T00:00:00.000000Z",
            "last_seen_at": "2026-01-01T00:00:00.000000Z", "stats": null,
        });
        parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn all_missing_programs_are_named_with_programs_that_the_policy_allows() {
        let all = list(&[("sort", None), ("sed", None)]);
        let programs = AvailablePrograms::of_workers(all.clone(), &[], None);
        assert!(programs.missing(&plan(&["sort"], "sort")).is_empty());
        assert_eq!(
            programs.missing(&plan(&["sort", "sedd"], "jq")),
            [
                "requires.tools is 'jq': no worker has this program",
                "tasks[1].command is 'sedd': no worker has this program; did you mean sed?"
            ]
        );
        let policy = Policy::parse("version = 1\nuse = [\"sort\"]").unwrap();
        let programs = AvailablePrograms::of_workers(all, &[], Some(&policy));
        let missing = programs.missing(&plan(&["sedd"], "sort"));
        assert_eq!(missing, ["tasks[0].command is 'sedd': no worker has this program"]);
        let part = CapabilityList { total: 2, ..list(&[("sort", None)]) };
        assert!(AvailablePrograms::of_workers(part, &[], None).missing(&plan(&["sort"], "jq")).is_empty());
    }

    #[test]
    fn one_worker_has_to_have_all_programs() {
        let all = list(&[("jq", None), ("sed", None), ("sort", None)]);
        let mut workers = vec![
            worker("active", &["sed", "sort"]),
            worker("active", &["jq"]),
            worker("dead", &["jq", "sed", "sort"]),
        ];
        let missing = |workers: &[WorkerStatus], plan: &Plan| {
            AvailablePrograms::of_workers(all.clone(), workers, None).missing(plan)
        };
        assert!(missing(&workers, &plan(&["sed"], "sort")).is_empty());
        assert_eq!(
            missing(&workers, &plan(&["sed", "jq"], "sort")),
            ["no worker has all programs: jq, sed, sort; the nearest worker lacks jq"]
        );
        workers.push(worker("draining", &["jq", "sed", "sort"]));
        assert!(missing(&workers, &plan(&["sed", "jq"], "sort")).is_empty());
    }

    #[test]
    fn programs_of_this_machine_replace_only_an_agq_that_does_not_answer() {
        let (address, reason) = ("a:1".to_owned(), "Connection refused".to_owned());
        assert!(is_absent(&ClientError::Unreachable { address: address.clone(), reason: reason.clone() }));
        assert!(!is_absent(&ClientError::Unauthenticated { address: address.clone(), reason }));
        assert!(!is_absent(&ClientError::Tls { address, reason: "expired".into(), help: "renew it" }));
        assert!(!is_absent(&ClientError::Rejected("NOPERM".into())));
    }
}
