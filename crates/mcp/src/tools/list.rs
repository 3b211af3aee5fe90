//! `agx_tools`: programs of the workers.

use agenix_protocol::{
    documents::{CapabilityList, OfferedProgram},
    printable::one_line,
};

use crate::{arguments::ToolsArguments, error::Result, queue::Queue};

/// Maximum number of programs in a report.
const MAX_PROGRAMS: usize = 1000;

pub(crate) async fn run(queue: &Queue, arguments: ToolsArguments) -> Result<CapabilityList> {
    let (query, limit) = (&arguments.query.unwrap_or_default(), arguments.limit.min(MAX_PROGRAMS));
    let list = queue.call(|mut agq| async move { agq.capabilities(query, limit).await }).await?;
    Ok(printable(list))
}

/// Escapes the texts of workers.
fn printable(list: CapabilityList) -> CapabilityList {
    let program = |program: OfferedProgram| OfferedProgram {
        name: one_line(&program.name),
        description: program.description.map(|text| one_line(&text)),
        ..program
    };
    CapabilityList {
        programs: list.programs.into_iter().map(program).collect(),
        profiles: list.profiles.iter().map(|name| one_line(name)).collect(),
        ..list
    }
}
