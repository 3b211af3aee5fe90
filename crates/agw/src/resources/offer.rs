//! Offer of the worker: the resources of its machine, changed by those that its owner declares. No
//! I/O.

use agenix_protocol::documents::{
    CPUS, GPUS, MAX_RESOURCES, MEMORY, Quantities, check_resource_variables, parse_amount,
};
use anyhow::{Context, bail};

use super::{GpuVariables, MachineResources, gpus::normalized};

/// Maximum number of GPUs of a worker, each of which has an entry in memory.
const MAX_GPUS: u64 = 10_000;
const FORM: &str = "write NAME=AMOUNT, as cpus=3.5, memory=16G, gpus=0,1 or licences=3";

/// Resource that the owner of the worker declares with `--resource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredResource {
    name: String,
    amount: u64,
    /// GPUs by index or UUID, if they are named.
    gpus: Option<Vec<String>>,
}

/// Resources of one `--resource`, or of the variable that replaces the option.
#[derive(Debug, Clone)]
pub(crate) struct ResourceList(pub(crate) Vec<DeclaredResource>);

/// Resources that the worker offers to jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offer {
    pub(crate) quantities: Quantities,
    /// GPUs by index or UUID, as many as the quantity.
    pub(crate) gpus: Vec<String>,
    pub(crate) gpu_variables: GpuVariables,
}

/// Parses resources with blanks or line breaks between.
pub(crate) fn parse_all(text: &str) -> Result<ResourceList, String> {
    let all: Vec<_> = text.split_ascii_whitespace().map(parse).collect::<Result<_, _>>()?;
    if all.is_empty() { Err(FORM.into()) } else { Ok(ResourceList(all)) }
}

/// Parses `NAME=AMOUNT`, or `gpus=0,1` with indices or UUIDs. A list of one GPU ends with a comma.
fn parse(text: &str) -> Result<DeclaredResource, String> {
    let Some((name, value)) = text.split_once('=') else { return Err(FORM.into()) };
    let is_list = value.contains(',') || value.starts_with("GPU-") || value.starts_with("MIG-");
    if name != GPUS || !is_list {
        let amount = parse_amount(name, value).map_err(|error| error.to_string())?;
        if name == GPUS && amount > MAX_GPUS {
            return Err(format!("a worker offers at most {MAX_GPUS} GPUs"));
        }
        return Ok(DeclaredResource { name: name.to_owned(), amount, gpus: None });
    }
    let list = value.strip_suffix(',').unwrap_or(value).split(',');
    let gpus: Vec<String> = list.map(|id| normalized(id.trim())).collect();
    if let Some(wrong) = gpus.iter().find(|id| !is_gpu(id)) {
        return Err(format!("'{wrong}' is not the index or the UUID of a GPU"));
    }
    if let Some(twice) = gpus.iter().enumerate().find(|(at, id)| gpus[..*at].contains(id)) {
        return Err(format!("it has the GPU '{}' twice", twice.1));
    }
    Ok(DeclaredResource { name: name.to_owned(), amount: gpus.len() as u64, gpus: Some(gpus) })
}

fn is_gpu(id: &str) -> bool {
    let is_index = !id.is_empty() && id.len() <= 4 && id.bytes().all(|byte| byte.is_ascii_digit());
    let is_uuid = id.starts_with("GPU-") || id.starts_with("MIG-");
    is_index || is_uuid && id.len() <= 80 && id.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Offer {
    /// Returns the resources of `machine` with the amounts of `declared` instead of those of the
    /// same names. An amount of 0 withdraws a resource.
    pub(crate) fn of(declared: &[DeclaredResource], machine: &MachineResources) -> anyhow::Result<Self> {
        let mut amounts = Quantities::default();
        amounts.set(CPUS, machine.cpus);
        amounts.set(MEMORY, machine.memory.unwrap_or_default());
        amounts.set(GPUS, machine.gpus.len() as u64);
        let mut gpus = machine.gpus.clone();
        for (at, DeclaredResource { name, amount, gpus: named }) in declared.iter().enumerate() {
            if declared[..at].iter().any(|earlier| earlier.name == *name) {
                bail!("--resource {name} is given twice: give it once");
            }
            if name == MEMORY && *amount > 0 && machine.memory.is_none() {
                bail!(
                    "--resource memory: this system cannot bound the memory of a job, so the worker cannot offer memory: leave the option out"
                );
            }
            if name == GPUS {
                gpus = named.clone().unwrap_or_else(|| first(*amount, &machine.gpus));
            }
            amounts.set(name, *amount);
        }
        let quantities = Quantities::default().overridden(&amounts);
        if quantities.iter().count() > MAX_RESOURCES {
            bail!("--resource: a worker offers at most {MAX_RESOURCES} resources");
        }
        check_resource_variables(&quantities).context("--resource")?;
        Ok(Self { quantities, gpus, gpu_variables: machine.gpu_variables })
    }
}

/// Returns the first `count` GPUs of the machine, or as many indices if the machine shows fewer.
fn first(count: u64, found: &[String]) -> Vec<String> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count <= found.len() {
        return found[..count].to_vec();
    }
    (0..count).map(|index| index.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::{MachineResources, Offer, parse};

    fn machine() -> MachineResources {
        let gpus = vec!["1".into(), "3".into()];
        MachineResources { cpus: 800, memory: Some(16 << 30), gpus, ..MachineResources::default() }
    }

    fn offer(declared: &[&str], machine: &MachineResources) -> Result<(String, Vec<String>), String> {
        let declared: Vec<_> = declared.iter().map(|text| parse(text).unwrap()).collect();
        let offer = Offer::of(&declared, machine).map_err(|error| format!("{error:#}"))?;
        Ok((offer.quantities.to_string(), offer.gpus))
    }

    #[test]
    fn offer_is_that_of_the_machine_unless_its_owner_declares_another() {
        let of = |declared: &[&str]| offer(declared, &machine()).unwrap();
        assert_eq!(of(&[]), ("cpus 8, gpus 2, memory 16G".into(), vec!["1".into(), "3".into()]));
        let (quantities, gpus) = of(&["cpus=3.5", "memory=0", "gpus=1", "licences=3"]);
        assert_eq!((quantities.as_str(), gpus), ("cpus 3.5, gpus 1, licences 3", vec!["1".into()]));
        let (quantities, gpus) = of(&["cpus=0", "memory=1G", "gpus=0"]);
        assert_eq!((quantities.as_str(), gpus), ("memory 1G", Vec::<String>::new()));
        let (_, gpus) = of(&["gpus=3"]);
        assert_eq!(gpus, ["0", "1", "2"]);
        for (declared, named) in
            [("gpus=0,1", &["0", "1"][..]), ("gpus=5,", &["5"]), ("gpus=GPU-8932f937", &["GPU-8932f937"])]
        {
            let (quantities, gpus) = offer(&[declared], &MachineResources::default()).unwrap();
            assert_eq!(
                (quantities, gpus),
                (format!("gpus {}", named.len()), named.iter().map(|&id| id.into()).collect())
            );
        }
    }

    #[test]
    fn wrong_declarations_are_refused() {
        for (text, reason) in [
            ("cpus", "write NAME=AMOUNT"),
            ("cpus=x", "'x' is not a number of processors"),
            ("memory=1.5G", "'1.5G' is not a size of memory"),
            ("GPU=1", "'GPU' is not the name of a resource"),
            ("licences=1,2", "'1,2' is not an amount"),
            ("gpus=0,x", "'x' is not the index"),
            ("gpus=,", "'' is not the index"),
            ("gpus=10001", "at most 10000 GPUs"),
            ("gpus=0,1,0", "it has the GPU '0' twice"),
            ("gpus=0,00", "it has the GPU '0' twice"),
            ("gpus=0,+1", "'+1' is not the index"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = offer(&["cpus=1", "cpus=2"], &machine()).unwrap_err();
        assert_eq!(error, "--resource cpus is given twice: give it once");
        let error = offer(&["a-b=1", "a_b=1"], &machine()).unwrap_err();
        assert!(error.starts_with("--resource: 'a-b' and 'a_b' are both AGX_RESOURCE_A_B"), "{error}");
        assert!(offer(&["a-b=1", "a_b=0"], &machine()).is_ok());
        let without_memory = MachineResources { memory: None, ..machine() };
        assert!(offer(&["memory=1G"], &without_memory).unwrap_err().contains("cannot bound the memory"));
        assert_eq!(offer(&["memory=0"], &without_memory).unwrap().0, "cpus 8, gpus 2");
    }
}
