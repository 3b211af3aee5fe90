//! AGEniX as a contender: an agq, a worker with two slots, and two plans, one of which streams.

use std::io;

use agenix_harness::resp::{Resp, RespReply, unexpected};
use anyhow::Context;
use e2e::{Agq, Agw, Lab};

use crate::scale::job_events::{self, JobEvents};

#[derive(Debug, Clone, Copy)]
pub(super) enum PipelinePlan {
    Streamed,
    OneByOne,
}

pub(super) struct AgenixPipeline {
    resp: Resp,
    job_events: JobEvents,
    actions: usize,
    _agw: Agw,
    _agq: Agq,
}

impl PipelinePlan {
    fn id(self) -> &'static str {
        match self {
            Self::Streamed => "streamed",
            Self::OneByOne => "one-by-one",
        }
    }

    fn json(self) -> String {
        let stream = matches!(self, Self::Streamed);
        format!(
            r#"{{"plan_id":"{}","tasks":[
                {{"task_number":1,"command":"cat","args":["{{{{input.file}}}}"]}},
                {{"task_number":2,"command":"tr","args":["a-z","A-Z"],"input_from_task":1,"stream":{stream}}},
                {{"task_number":3,"command":"wc","args":["-c"],"input_from_task":2,"stream":{stream}}}]}}"#,
            self.id()
        )
    }
}

impl AgenixPipeline {
    pub(super) fn start(lab: &Lab) -> anyhow::Result<Self> {
        let agq = lab.agq(&[]);
        for plan in [PipelinePlan::Streamed, PipelinePlan::OneByOne] {
            lab.submit_plan(&agq, &plan.json());
        }
        let agw = lab.agw(&agq, "worker", &["--max-concurrent-jobs", "2"]);
        let connect = || -> io::Result<_> {
            Ok((Resp::open(&agq.address(), lab.key())?, JobEvents::open(&agq.address(), lab.key())?))
        };
        let (resp, job_events) = connect()?;
        Ok(Self { resp, job_events, actions: 0, _agw: agw, _agq: agq })
    }

    /// Runs the plan on each file, and returns the ids of the jobs when all have completed.
    pub(super) fn run(&mut self, plan: PipelinePlan, files: &[String]) -> anyhow::Result<Vec<String>> {
        self.actions += 1;
        let action = format!("action-{}", self.actions);
        let inputs: Vec<_> = files.iter().map(|file| format!(r#"{{"file":"{file}"}}"#)).collect();
        let submission = format!(
            r#"{{"action_id":"{action}","plan_id":"{}","inputs":[{}]}}"#,
            plan.id(),
            inputs.join(",")
        );
        match self.resp.ask(&["ACTION.SUBMIT", &submission])? {
            RespReply::Line(_ok) => self.job_events.completed(&action, files.len()),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Returns the sum of the counts of these jobs.
    pub(super) fn counted(&mut self, jobs: &[String]) -> anyhow::Result<usize> {
        let mut counted = 0;
        for job in jobs {
            let count = job_events::stdout(&mut self.resp, job)?;
            counted += count.trim().parse::<usize>().with_context(|| format!("wc printed '{count}'"))?;
        }
        Ok(counted)
    }
}
