//! Programs that a plan can use: those of the workers, or of this machine if there is no worker.

use std::collections::BTreeSet;

use agenix_policy::Policy;
use agenix_protocol::{
    documents::{CapabilityList, Plan},
    printable::one_line,
};
use agenix_rules::plan::needs;

use crate::{
    error::{CliError, Result},
    output::counted,
    server_args::ServerArgs,
    util::{path_lookup, shorten::shortened},
};

/// Maximum number of programs that the model is told about, because the context of small models
/// is short.
const MAX_SHOWN: usize = 200;
/// Maximum number of programs that agx reads from agq.
const MAX_READ: usize = 50_000;
/// Policy with all tools of the library, which are the programs that most plans need.
const LIBRARY: &str = "version = 1\nlibrary = true";

/// Programs for a plan.
#[derive(Debug)]
pub(super) struct Programs {
    /// Programs that the model is told about, each with the description of an agentic unit.
    shown: Vec<(String, Option<String>)>,
    /// Number of programs that the model is not told about.
    left_out: usize,
    /// Names of all programs of the workers, if they are known.
    on_workers: Option<BTreeSet<String>>,
    /// Owner of the programs, for a message.
    owner: String,
}

impl Programs {
    /// Asks agq for the programs of the workers. If none is configured or running, or it has no
    /// worker, takes common programs of this machine.
    pub(super) async fn find(server: &ServerArgs, policy: Option<&Policy>) -> Result<Self> {
        let known = match known_programs(server).await {
            Ok(list) if list.workers > 0 => return Ok(Self::of_workers(list, policy)),
            Ok(_) => "the agq has no worker",
            Err(CliError::NoServer { .. }) if server.given()?.is_none() => "no agq can be reached",
            Err(failure) => return Err(failure),
        };
        let library = library();
        let named = policy.map_or_else(|| library.tools(), Policy::tools);
        let here = path_lookup::on(&std::env::var_os("PATH").unwrap_or_default());
        let shown = named.into_iter().filter(|name| here.contains(*name));
        let shown = shown.map(|name| (name.to_owned(), None)).collect();
        Ok(Self::first(shown, None, format!("this machine, because {known}")))
    }

    fn of_workers(list: CapabilityList, policy: Option<&Policy>) -> Self {
        let is_whole = list.programs.len() as u64 == list.total;
        let names = list.programs.iter().map(|program| program.name.clone());
        let on_workers = is_whole.then(|| names.collect());
        let library = library();
        let (common, allowed) = (library.tools(), policy.map(Policy::tools));
        let is_allowed = |name: &str| allowed.as_ref().is_none_or(|allowed| allowed.contains(&name));
        let mut shown: Vec<_> = list
            .programs
            .into_iter()
            .filter(|program| is_allowed(&program.name))
            .map(|program| (program.name, program.description))
            .collect();
        // The sort is stable, so that the names of a group stay sorted.
        shown.sort_by_key(|(name, description)| (description.is_none(), !common.contains(&name.as_str())));
        let owner = counted(list.workers, "worker", "workers");
        Self::first(shown, on_workers, owner)
    }

    fn first(
        mut shown: Vec<(String, Option<String>)>,
        on_workers: Option<BTreeSet<String>>,
        owner: String,
    ) -> Self {
        let left_out = shown.len().saturating_sub(MAX_SHOWN);
        shown.truncate(MAX_SHOWN);
        Self { shown, left_out, on_workers, owner }
    }

    /// Describes for the user which programs the model is told about.
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

    /// Checks that a worker has each program of the plan, if the programs of the workers are known.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        let Some(known) = &self.on_workers else { return Ok(()) };
        let Some(missing) = needs(plan).tools.into_iter().find(|tool| !known.contains(tool)) else {
            return Ok(());
        };
        let place = match plan.tasks.iter().position(|task| task.command == missing) {
            Some(at) => format!("tasks[{at}].command"),
            None => "requires.tools".into(),
        };
        let nearest = path_lookup::nearest(&missing, known.iter().map(String::as_str));
        let nearest = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        Err(format!("{place} is '{missing}': no worker has this program{nearest}"))
    }

    /// Returns the programs of a worker that has these.
    #[cfg(test)]
    pub(super) fn of_names(names: &[&str]) -> Self {
        let shown = names.iter().map(|&name| (name.to_owned(), None)).collect();
        let known = names.iter().map(|&name| name.to_owned()).collect();
        Self::first(shown, Some(known), "1 worker".into())
    }
}

async fn known_programs(server: &ServerArgs) -> Result<CapabilityList> {
    Ok(server.connect().await?.capabilities("", MAX_READ).await?)
}

/// Returns a policy with all tools of the library.
fn library() -> Policy {
    Policy::parse(LIBRARY).expect("the library is valid, as its tests check")
}

#[cfg(test)]
mod tests {
    use agenix_policy::Policy;
    use agenix_protocol::documents::{CapabilityList, OfferedProgram, parse};

    use super::{MAX_SHOWN, Programs};

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
        let programs = Programs::of_workers(list(&all), None);
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
        let programs = Programs::of_workers(list(&[("sh", None), ("wc", None)]), Some(&policy));
        assert_eq!(programs.list(), "Programs: wc\n");
        assert_eq!(programs.about(), "the names of 1 program of 1 worker");
    }

    #[test]
    fn unknown_programs_are_found_only_in_a_whole_list() {
        let plan = |command: &str, tool: &str| {
            let json = format!(
                r#"{{"tasks":[{{"task_number":1,"command":"{command}"}}],"requires":{{"tools":["{tool}"]}}}}"#
            );
            parse(json.as_bytes()).unwrap()
        };
        let programs = Programs::of_workers(list(&[("sort", None)]), None);
        assert_eq!(programs.check(&plan("sort", "sort")), Ok(()));
        let wrong = programs.check(&plan("sort", "jq"));
        assert_eq!(wrong.unwrap_err(), "requires.tools is 'jq': no worker has this program");
        let part = CapabilityList { total: 2, ..list(&[("sort", None)]) };
        assert_eq!(Programs::of_workers(part, None).check(&plan("sort", "jq")), Ok(()));
    }
}
