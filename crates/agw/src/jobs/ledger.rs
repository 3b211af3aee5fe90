//! Ledger of the resources of the worker: what it offers, and what its jobs have. No I/O, no clock.

use std::collections::BTreeMap;

use agenix_protocol::documents::{GPUS, MEMORY, Quantities, amount_text, resource_variable};

use crate::{
    exec::job_resources::JobResources,
    resources::{AFTER_ROCR, CUDA_VISIBLE, GpuVariables, Offer, ROCR_VISIBLE},
};

/// Value of the variables of GPUs that hides all GPUs.
const NO_GPU: &str = "-1";
/// Environment variable with the order of the indices in [`CUDA_VISIBLE`], and its value for the
/// order of the bus, in which the drivers list GPUs.
const CUDA_ORDER: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");

/// Free quantities and GPUs of the worker.
#[derive(Debug, Default)]
pub(crate) struct ResourceLedger {
    offered: Quantities,
    free: BTreeMap<String, u64>,
    gpus: Vec<String>,
    gpu_variables: GpuVariables,
    /// True for each of `gpus` that no job has.
    is_free: Vec<bool>,
}

/// Quantities and GPUs that one job has until [`ResourceLedger::release`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    quantities: Quantities,
    /// Positions of the GPUs of the job.
    gpus: Vec<usize>,
}

impl ResourceLedger {
    /// Returns a ledger in which all of `offer` is free.
    pub(crate) fn new(offer: &Offer) -> Self {
        let Offer { quantities, gpus, gpu_variables } = offer.clone();
        let free = quantities.iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
        Self { offered: quantities, free, is_free: vec![true; gpus.len()], gpus, gpu_variables }
    }

    /// Returns true if `wanted` is free.
    pub(crate) fn has_free(&self, wanted: &Quantities) -> bool {
        wanted.iter().all(|(name, amount)| self.free(name) >= amount)
    }

    fn free(&self, name: &str) -> u64 {
        self.free.get(name).copied().unwrap_or_default()
    }

    /// Returns the first quantity of `wanted` that is above all that the worker offers, in words.
    pub(crate) fn never_fits(&self, wanted: &Quantities) -> Option<String> {
        let (name, amount) = wanted.iter().find(|(name, amount)| *amount > self.offered.get(name))?;
        let offered = amount_text(name, self.offered.get(name));
        Some(format!("it needs {name} {}, and this worker offers {offered}", amount_text(name, amount)))
    }

    /// Takes `wanted`, with the GPUs of the lowest positions, or returns `None` if `wanted` is not
    /// free.
    pub(crate) fn allocate(&mut self, wanted: &Quantities) -> Option<Allocation> {
        if !self.has_free(wanted) {
            return None;
        }
        for (name, amount) in wanted.iter() {
            if let Some(free) = self.free.get_mut(name) {
                *free -= amount;
            }
        }
        let count = usize::try_from(wanted.get(GPUS)).unwrap_or(usize::MAX);
        let free = (0..self.gpus.len()).filter(|&at| self.is_free[at]);
        let gpus: Vec<usize> = free.take(count).collect();
        gpus.iter().for_each(|&at| self.is_free[at] = false);
        Some(Allocation { quantities: wanted.clone(), gpus })
    }

    /// Takes back what a job had.
    pub(crate) fn release(&mut self, allocation: &Allocation) {
        for (name, amount) in allocation.quantities.iter() {
            if let Some(free) = self.free.get_mut(name) {
                *free += amount;
            }
        }
        allocation.gpus.iter().for_each(|&at| self.is_free[at] = true);
    }

    /// Returns what the tasks of a job with `allocation` get.
    pub(crate) fn job_resources(&self, allocation: &Allocation) -> JobResources {
        let Allocation { quantities, gpus } = allocation;
        let variable = |(name, amount): (&str, u64)| {
            let text = if name == MEMORY { amount.to_string() } else { amount_text(name, amount) };
            (resource_variable(name), text)
        };
        let mut environment: Vec<_> = quantities.iter().map(variable).collect();
        let mut withheld: &[&str] = &[];
        // Without GPUs here, a job keeps the variables that the worker has.
        if !self.gpus.is_empty() {
            let ids: Vec<&str> = gpus.iter().map(|&at| self.gpus[at].as_str()).collect();
            let ids = if ids.is_empty() { NO_GPU.to_owned() } else { ids.join(",") };
            if self.gpu_variables == GpuVariables::Both {
                environment.push((CUDA_ORDER.0.into(), CUDA_ORDER.1.into()));
                environment.push((CUDA_VISIBLE.into(), ids.clone()));
            } else {
                withheld = &AFTER_ROCR;
            }
            environment.push((ROCR_VISIBLE.into(), ids));
        }
        let memory = Some(quantities.get(MEMORY)).filter(|&bytes| bytes > 0);
        JobResources { environment, withheld, memory, missing: None, hold: None }
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Quantities, parse};

    use super::{AFTER_ROCR, Allocation, GpuVariables, Offer, ResourceLedger};

    fn quantities(json: &str) -> Quantities {
        parse(json.as_bytes()).unwrap()
    }

    fn ledger() -> ResourceLedger {
        let quantities = quantities(r#"{"cpus":4,"memory":"8G","gpus":4,"site-licences":3}"#);
        let gpus = ["0", "1", "2", "GPU-x"].map(String::from).into();
        ResourceLedger::new(&Offer { quantities, gpus, gpu_variables: GpuVariables::Both })
    }

    fn gpus(allocation: &Allocation) -> &[usize] {
        &allocation.gpus
    }

    #[test]
    fn ledger_gives_no_more_than_it_has() {
        let mut ledger = ledger();
        let (half, rest) = (quantities(r#"{"cpus":0.5}"#), quantities(r#"{"cpus":3.5}"#));
        let first = ledger.allocate(&half).unwrap();
        let second = ledger.allocate(&rest).unwrap();
        assert!(ledger.allocate(&quantities(r#"{"cpus":0.01}"#)).is_none());
        let both = quantities(r#"{"cpus":0.5,"memory":"8G"}"#);
        assert!(ledger.allocate(&both).is_none() && ledger.has_free(&quantities(r#"{"memory":"8G"}"#)));
        ledger.release(&first);
        let third = ledger.allocate(&both).unwrap();
        assert!(!ledger.has_free(&quantities(r#"{"memory":1}"#)));
        for allocation in [second, third] {
            ledger.release(&allocation);
        }
        assert!(ledger.has_free(&ledger.offered.clone()), "all of it is free again");
        assert!(!ledger.has_free(&quantities(r#"{"tapes":1}"#)));
    }

    #[test]
    fn gpus_are_disjoint_and_the_lowest_free_ones() {
        let mut ledger = ledger();
        let [one, two] = [1, 2].map(|count| quantities(&format!(r#"{{"gpus":{count}}}"#)));
        let first = ledger.allocate(&one).unwrap();
        let second = ledger.allocate(&two).unwrap();
        assert_eq!((gpus(&first), gpus(&second)), (&[0][..], &[1, 2][..]));
        ledger.release(&first);
        let third = ledger.allocate(&two).unwrap();
        assert_eq!(gpus(&third), [0, 3]);
        assert!(ledger.allocate(&one).is_none());
        ledger.release(&second);
        assert_eq!(gpus(&ledger.allocate(&one).unwrap()), [1]);
    }

    #[test]
    fn tasks_get_their_resources_as_variables() {
        let mut ledger = ledger();
        let all = quantities(r#"{"cpus":1.5,"memory":"1K","gpus":4,"site-licences":2}"#);
        let allocation = ledger.allocate(&all).unwrap();
        let resources = ledger.job_resources(&allocation);
        assert_eq!(resources.memory, Some(1024));
        let lines = |resources: &super::JobResources| {
            resources.environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let expected = [
            "AGX_RESOURCE_CPUS=1.5",
            "AGX_RESOURCE_GPUS=4",
            "AGX_RESOURCE_MEMORY=1024",
            "AGX_RESOURCE_SITE_LICENCES=2",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES=0,1,2,GPU-x",
            "ROCR_VISIBLE_DEVICES=0,1,2,GPU-x",
        ];
        assert_eq!(lines(&resources), expected);
        let cpus = quantities(r#"{"cpus":1}"#);
        let allocation = ledger.allocate(&cpus).unwrap();
        let resources = ledger.job_resources(&allocation);
        assert_eq!(resources.memory, None);
        assert_eq!(lines(&resources)[2..], ["CUDA_VISIBLE_DEVICES=-1", "ROCR_VISIBLE_DEVICES=-1"]);
        let mut without = ResourceLedger::new(&Offer { quantities: cpus.clone(), ..Offer::default() });
        let allocation = without.allocate(&cpus).unwrap();
        assert_eq!(lines(&without.job_resources(&allocation)), ["AGX_RESOURCE_CPUS=1"]);
    }

    #[test]
    fn tasks_on_amd_see_the_gpus_of_their_job_by_one_variable() {
        let (gpus, all) = (["0", "1"].map(String::from).into(), quantities(r#"{"gpus":2}"#));
        let mut ledger =
            ResourceLedger::new(&Offer { quantities: all, gpus, gpu_variables: GpuVariables::RocrAlone });
        let one = quantities(r#"{"gpus":1}"#);
        let first = ledger.allocate(&one).unwrap();
        let second = ledger.allocate(&one).unwrap();
        let resources = [first, second].map(|allocation| ledger.job_resources(&allocation));
        let [first, second] = resources.each_ref().map(|resources| &resources.environment[1..]);
        let rocr = |id: &str| [("ROCR_VISIBLE_DEVICES".to_owned(), id.to_owned())];
        assert_eq!((first, second), (&rocr("0")[..], &rocr("1")[..]));
        assert_eq!(resources[0].withheld, AFTER_ROCR);
    }

    #[test]
    fn quantity_above_the_offer_is_named() {
        let ledger = ledger();
        let reason = ledger.never_fits(&quantities(r#"{"cpus":4,"gpus":5}"#)).unwrap();
        assert_eq!(reason, "it needs gpus 5, and this worker offers 4");
        assert_eq!(ledger.never_fits(&ledger.offered), None);
    }
}
