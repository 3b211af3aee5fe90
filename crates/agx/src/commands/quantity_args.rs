//! Quantities of resources that one job uses: `--cpus`, `--memory`, `--gpus` and `--resource`.

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{CPUS, GPUS, MEMORY, MemoryFactor, Plan, Quantities, parse_amount},
    ids::PlanId,
};
use agenix_rules::{capability::ClaimantCapabilities, plan::needs};
use clap::Args;
use tokio::time::{Duration, Instant, sleep};

use super::map_placement::note_without_worker;
use crate::{
    background::{embedded::EmbeddedCluster, local_cluster::MAX_WAIT},
    error::{CliError, Result},
    output::OutputFormat,
};

/// Interval between two polls for the registration of the worker of this command.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Quantities of resources.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct QuantityArgs {
    /// Processors that one job uses, as 2 or 0.5: it waits until a worker has them free
    #[arg(long, value_name = "N", value_parser = |text: &str| amount(CPUS, text))]
    cpus: Option<u64>,
    /// Memory that one job may use, as 512M or 4G; a job that takes more fails
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| amount(MEMORY, text))]
    memory: Option<u64>,
    /// If the kernel kills a task of the job for lack of memory, multiply the memory of a retry by
    /// FACTOR: above 1, at most 4, as 1.5
    #[arg(long, value_name = "FACTOR")]
    retry_memory_factor: Option<MemoryFactor>,
    /// GPUs that one job uses: it gets their indices in `CUDA_VISIBLE_DEVICES` and
    /// `ROCR_VISIBLE_DEVICES`, on a machine with AMD GPUs alone in the latter only
    #[arg(long, value_name = "N", value_parser = |text: &str| amount(GPUS, text))]
    gpus: Option<u64>,
    /// Quantity of another resource that one job uses, as licences=1: workers offer it with
    /// `agw --resource`; can be repeated
    #[arg(long = "resource", value_name = "NAME=AMOUNT", value_parser = named_amount)]
    resources: Vec<(String, u64)>,
}

fn amount(name: &str, text: &str) -> Result<u64, String> {
    parse_amount(name, text).map_err(|error| error.to_string())
}

fn named_amount(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=AMOUNT, as licences=1")?;
    Ok((name.to_owned(), amount(name, value)?))
}

impl QuantityArgs {
    /// Returns the quantities, with those of 0, which remove the quantity of a plan.
    pub(super) fn quantities(&self) -> Result<Quantities> {
        let own = [(CPUS, self.cpus), (MEMORY, self.memory), (GPUS, self.gpus)];
        let own = own.into_iter().filter_map(|(name, amount)| Some((name, amount?)));
        let others = self.resources.iter().map(|(name, amount)| (name.as_str(), *amount));
        let mut quantities = Quantities::default();
        for (name, amount) in own.chain(others) {
            if quantities.iter().any(|(earlier, _)| earlier == name) {
                return Err(CliError::usage(
                    format!("the quantity of {name} is given twice"),
                    "give it once",
                ));
            }
            quantities.set(name, amount);
        }
        Ok(quantities)
    }

    /// Returns the factor of the memory of a retry after a lack of memory.
    pub(super) fn retry_memory_factor(&self) -> Option<MemoryFactor> {
        self.retry_memory_factor
    }

    /// Returns the quantities that a plan requires. Refuses a factor of the memory without memory.
    pub(super) fn of_plan(&self) -> Result<Quantities> {
        let quantities = Quantities::default().overridden(&self.quantities()?);
        if self.retry_memory_factor.is_some() && quantities.get(MEMORY) == 0 {
            return Err(CliError::usage(
                "--retry-memory-factor is given without --memory, so a retry has no memory to raise",
                "give --memory SIZE, which is the memory of the first attempt, or leave --retry-memory-factor out",
            ));
        }
        Ok(quantities)
    }

    /// Returns the quantities that the plan of one action requires, whose jobs have this number of
    /// retries. Refuses a factor of the memory without memory or without retries.
    pub(super) fn of_single_use(&self, retries: u32) -> Result<Quantities> {
        if self.retry_memory_factor.is_some() && retries == 0 {
            return Err(CliError::usage(
                "--retry-memory-factor is given without --retries, so no job is tried again",
                "give --retries N, or leave --retry-memory-factor out",
            ));
        }
        self.of_plan()
    }
}

/// Refuses a plan that the worker of this command can never run, because this machine does not have
/// the quantities.
pub(super) async fn check_own_worker(local: &mut EmbeddedCluster, plan: &Plan) -> Result<()> {
    if plan.requires.resources.is_empty() {
        return Ok(());
    }
    let server = local.server()?;
    tokio::select! {
        checked = check_first_worker(&server, plan) => checked,
        failure = local.until_exit() => Err(failure),
    }
}

/// Waits for the first worker, and returns an error if the worker can never run a job of the plan.
async fn check_first_worker(server: &Server, plan: &Plan) -> Result<()> {
    let mut agq = Connection::open(server).await?;
    let since = Instant::now();
    let worker = loop {
        if let Some(worker) = agq.workers().await?.into_iter().next() {
            break worker;
        }
        if since.elapsed() > MAX_WAIT {
            return Ok(());
        }
        sleep(POLL_INTERVAL).await;
    };
    let missing = ClaimantCapabilities::of_status(&worker).missing(&needs(plan));
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::usage(
        format!("a job needs {}, and this machine offers {}", plan.requires.resources, worker.resources),
        "ask for less, or give the address of an agq with such a worker; AGW_RESOURCES='licences=1' declares what agx does not find",
    ))
}

/// Warns the user if no worker of the server has what the plan needs. The jobs of the plan wait for
/// such a worker.
pub(super) async fn note_workers(server: &Server, plan: &Plan, output: OutputFormat) -> Result<()> {
    if plan.requires.resources.is_empty() {
        return Ok(());
    }
    note_without_worker(&mut Connection::open(server).await?, plan, output).await
}

/// Warns the user if no worker has what the jobs of an action need, whose quantities are `own` and
/// otherwise those of the plan. The jobs wait for such a worker.
pub(super) async fn note_workers_of_action(
    agq: &mut Connection,
    plan_id: &PlanId,
    own: &Quantities,
    output: OutputFormat,
) -> Result<()> {
    let Some(plan) = agq.plan(plan_id).await? else { return Ok(()) };
    let plan = with_quantities(plan, own);
    if plan.requires.resources.is_empty() {
        return Ok(());
    }
    note_without_worker(agq, &plan, output).await
}

/// Returns the plan with the quantities of the jobs of an action, which names `own`.
fn with_quantities(mut plan: Plan, own: &Quantities) -> Plan {
    plan.requires.resources = plan.requires.resources.overridden(own);
    plan
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse;
    use agenix_rules::plan::needs;
    use clap::{Args, FromArgMatches};

    use super::{QuantityArgs, with_quantities};

    fn read(words: &[&str]) -> Result<QuantityArgs, String> {
        let command = QuantityArgs::augment_args(clap::Command::new("agx"));
        let matches = command.try_get_matches_from([&["agx"], words].concat());
        matches
            .and_then(|matches| QuantityArgs::from_arg_matches(&matches))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn quantities_are_those_of_all_options() {
        let words = ["--cpus", "1.5", "--memory=4G", "--gpus", "0", "--resource", "licences=2"];
        let args = read(&words).unwrap();
        assert_eq!(args.quantities().unwrap().to_string(), "cpus 1.5, gpus 0, licences 2, memory 4G");
        assert_eq!(args.of_plan().unwrap().to_string(), "cpus 1.5, licences 2, memory 4G");
        assert!(read(&[]).unwrap().quantities().unwrap().is_empty());
    }

    #[test]
    fn quantities_of_an_action_replace_those_of_its_plan() {
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"requires":{"resources":{"cpus":1,"gpus":1}}}"#;
        let args = read(&["--cpus", "64", "--gpus", "0"]).unwrap();
        let needs = needs(&with_quantities(parse(plan).unwrap(), &args.quantities().unwrap()));
        assert_eq!(needs.resources.unwrap().to_string(), "cpus 64");
        assert_eq!(needs.tools, ["sort"]);
    }

    #[test]
    fn memory_factor_needs_memory() {
        let of_plan = |words: &[&str]| {
            let args = read(&[&["--retry-memory-factor", "2"], words].concat()).unwrap();
            args.of_plan().map(|quantities| quantities.to_string()).map_err(|error| error.to_string())
        };
        let refused = "--retry-memory-factor is given without --memory, so a retry has no memory to raise";
        for words in [&[][..], &["--cpus", "1"], &["--memory", "0"]] {
            assert_eq!(of_plan(words), Err(refused.to_owned()), "{words:?}");
        }
        assert_eq!(of_plan(&["--memory", "1M"]), Ok("memory 1M".into()));
        assert_eq!(of_plan(&["--resource", "memory=1G"]), Ok("memory 1G".into()));
        assert!(read(&["--retry-memory-factor", "2"]).unwrap().quantities().is_ok(), "of the action's plan");
    }

    #[test]
    fn memory_factor_of_a_single_use_needs_retries() {
        let args = read(&["--retry-memory-factor", "2", "--memory", "1M"]).unwrap();
        let refused = args.of_single_use(0).unwrap_err().to_string();
        assert_eq!(refused, "--retry-memory-factor is given without --retries, so no job is tried again");
        assert_eq!(args.of_single_use(1).unwrap().to_string(), "memory 1M");
        assert!(read(&["--memory", "1M"]).unwrap().of_single_use(0).is_ok());
    }

    #[test]
    fn wrong_quantities_are_refused() {
        let twice = read(&["--cpus", "1", "--resource", "cpus=2"]).unwrap().quantities();
        assert_eq!(twice.unwrap_err().to_string(), "the quantity of cpus is given twice");
        for (words, reason) in [
            (["--cpus", "two"], "'two' is not a number of processors"),
            (["--memory", "4GB"], "'4GB' is not a size of memory"),
            (["--resource", "licences"], "write NAME=AMOUNT"),
        ] {
            let error = read(&words).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
