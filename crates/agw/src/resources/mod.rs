//! Resources that the worker offers to jobs: what this machine has, and what its owner declares.

mod gpus;
mod machine;
mod offer;

pub(crate) use gpus::{AFTER_ROCR, CUDA_VISIBLE, GpuVariables, ROCR_VISIBLE};
pub(crate) use machine::MachineResources;
pub(crate) use offer::{DeclaredResource, Offer, ResourceList, parse_all};
