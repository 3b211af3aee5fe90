//! `agx action list`

use clap::Args;

use super::{
    labels::{Label, labels, parse_label},
    overview::list_text,
};
use crate::{
    connection_args::ConnectionArgs,
    error::Result,
    output::OutputFormat,
    remote::overview::{actions_with, descriptions},
};

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only actions that have this label; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<Label>,
    /// Maximum number of actions
    #[arg(short = 'n', long = "most", value_name = "N", default_value_t = 20)]
    pub(crate) most: usize,
}

pub(super) async fn run(server: &ConnectionArgs, args: ListArgs, output: OutputFormat) -> Result<()> {
    let wanted = labels(args.labels)?;
    let connection = server.connect().await?;
    let mut latest = actions_with(&connection, wanted.clone()).await?;
    let found = latest.len();
    latest.truncate(args.most);
    let plans = descriptions(&connection, &latest).await?;
    let none = if wanted.is_empty() { "there are no actions yet" } else { "no action has these labels" };
    output.show("action.list", &latest, |latest| list_text(latest, found, &plans, none))
}
