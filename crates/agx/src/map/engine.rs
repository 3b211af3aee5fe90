//! Runs a map: sends inputs to agq, takes results, and loses no ended job on an early end.

use std::time::Duration;

use agenix_client::{Connection, Server};
use agenix_protocol::{
    documents::{ActionSubmission, Halt, Plan},
    ids::ActionId,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};

use crate::{
    error::{CliError, Result},
    map::{
        collector::{Collector, CollectorState, MapCounts},
        delivery::Delivery,
        fields::InputFields,
        halt::with_total,
        live::{Grouping, LiveJobs},
        pace::SubmissionPace,
        read_ahead::ReadAhead,
        reading::ArrivingInputs,
        stop_level::StopLevel,
        submitter::{InputSubmitter, UnsentInputs},
    },
    remote::{full_queue::FullQueueWait, retrying_client::RetryingClient},
    util::signals::stop_requested,
    watch::progress::ProgressLine,
};

/// Maximum time to take the results of ended jobs on an early end.
const LAST_POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// Plan, action and options of a map, and the delivery of its results.
pub(crate) struct Engine {
    pub(crate) server: Server,
    pub(crate) plan: Plan,
    /// Action without its inputs.
    pub(crate) action: ActionSubmission,
    pub(crate) action_id: ActionId,
    pub(crate) fields: InputFields,
    pub(crate) delivery: Delivery,
    pub(crate) grouping: Grouping,
    pub(crate) halt: Option<Halt>,
    /// Pause between submissions.
    pub(crate) pace: SubmissionPace,
    /// Number of jobs at once, if it is known.
    pub(crate) slots: Option<u64>,
    /// Number of results that agx takes while an output waits at agq for its turn.
    pub(crate) most_waited: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct MapOutcome {
    pub(crate) collected: MapCounts,
    pub(crate) unsent: UnsentInputs,
    /// Halt policy, which was met if the map is halted.
    pub(crate) halt: Option<Halt>,
}

impl Engine {
    /// Runs the map to its end, or to the end that `stop_level` asks for.
    pub(crate) async fn run(
        mut self,
        ArrivingInputs { inputs, total }: ArrivingInputs,
        stop_level: &watch::Sender<StopLevel>,
    ) -> Result<MapOutcome> {
        if let Some(total) = total {
            self.limit_halt(total, stop_level).await;
        }
        let output = self.delivery.output;
        let connect = async || {
            Ok::<_, CliError>(RetryingClient::new(
                self.server.clone(),
                Connection::open_without_timeout(&self.server).await?,
                output,
            ))
        };
        let (mut agq, mut feeding) = (connect().await?, connect().await?);
        feeding.ensure_plan(&self.plan).await?;
        let (send, sent) = mpsc::unbounded_channel();
        let (begin, begun) = oneshot::channel();
        let ahead = ReadAhead::new(self.slots.unwrap_or_default());
        let feed = InputSubmitter {
            agq: feeding,
            action: self.action,
            action_id: self.action_id.clone(),
            fields: self.fields,
            sent: send,
            begun: Some(begin),
            ahead: ahead.clone(),
            stop_level: stop_level.subscribe(),
            full_queue: FullQueueWait::new(output),
            count: 0,
            refused: None,
            pace: self.pace,
        };
        let live = LiveJobs::new(output, self.grouping, self.delivery.tags);
        let mut line = match live {
            // The progress line would be within the output on the same terminal.
            Some(_) => ProgressLine::hidden(output),
            None => ProgressLine::for_a_filter(output, self.slots),
        };
        let collector = Collector {
            agq: &mut agq,
            action_id: &self.action_id,
            begun,
            sent,
            ahead,
            most_waited: self.most_waited,
            halt: self.halt,
            stop_level: stop_level.clone(),
            delivery: self.delivery,
            live,
            line: &mut line,
            state: CollectorState::default(),
        };
        let feeding = async {
            let fed = feed.run(inputs).await;
            if fed.is_err() {
                // The jobs that agq has end early, and agx takes the results of ended ones.
                stop_level.send_modify(|stop_level| *stop_level = (*stop_level).max(StopLevel::End));
            }
            Ok(fed)
        };
        let both = async { tokio::try_join!(feeding, collector.run()) };
        let mapped = both.await;
        line.clear();
        let failure = match mapped {
            Ok((fed, (collected, mut delivery))) => match (fed, delivery.printer.take_failure()) {
                (Ok(unsent), None) => return Ok(MapOutcome { collected, unsent, halt: self.halt }),
                (Err(failure), _) | (_, Some(failure)) => failure,
            },
            Err(failure) => failure,
        };
        // Nobody would take the results any more.
        let _may_be_gone = timeout(LAST_POLL_TIMEOUT, agq.cancel_action(&self.action_id)).await;
        Err(failure)
    }

    /// Replaces the percentage of the halt policy by a number, when the inputs are counted.
    async fn limit_halt(&mut self, total: oneshot::Receiver<u64>, stop_level: &watch::Sender<StopLevel>) {
        let mut stop_levels = stop_level.subscribe();
        let total = tokio::select! {
            total = total => total.ok(),
            _ = stop_levels.wait_for(|&stop_level| stop_level != StopLevel::All) => None,
        };
        // Without a total no job runs: the inputs cannot be read, or none is wanted.
        let of_total = |halt: Option<Halt>| halt.zip(total).map(|(halt, total)| with_total(halt, total));
        (self.halt, self.action.halt) = (of_total(self.halt), of_total(self.action.halt));
    }
}

/// Takes results for at most [`LAST_POLL_TIMEOUT`], and ends at `level`. A second signal ends at
/// once.
pub(crate) async fn end(
    mapped: impl Future<Output = Result<MapOutcome>>,
    stop_level: &watch::Sender<StopLevel>,
    level: StopLevel,
) -> Option<Result<MapOutcome>> {
    stop_level.send_modify(|stop_level| *stop_level = (*stop_level).max(level));
    tokio::select! {
        mapped = timeout(LAST_POLL_TIMEOUT, mapped) => mapped.ok(),
        () = stop_requested() => None,
    }
}
