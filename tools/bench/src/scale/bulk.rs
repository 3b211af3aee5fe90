//! An action that stays open, and gets jobs by the thousand.

use std::io;

use agenix_harness::resp::Resp;

use super::stand::{Stand, must};

/// Inputs of a command.
const PIECE: usize = 5000;
const OPEN: &str = r#"{"action_id":"bulk","plan_id":"nothing","open":true}"#;

pub(super) struct Bulk {
    resp: Resp,
}

impl Bulk {
    pub(super) fn open(stand: &Stand) -> io::Result<Self> {
        let mut resp = stand.connect()?;
        must(&mut resp, &["ACTION.SUBMIT", OPEN])?;
        Ok(Self { resp })
    }

    /// Adds so many small jobs.
    pub(super) fn add(&mut self, count: usize) -> io::Result<()> {
        for start in (0..count).step_by(PIECE) {
            let inputs: Vec<_> =
                (start..count.min(start + PIECE)).map(|n| format!(r#"{{"line":"{n}"}}"#)).collect();
            self.add_inputs(&inputs)?;
        }
        Ok(())
    }

    /// Adds a job for each of these inputs.
    pub(super) fn add_inputs(&mut self, inputs: &[String]) -> io::Result<()> {
        must(&mut self.resp, &["ACTION.ADD", "bulk", &format!("[{}]", inputs.join(","))])
    }
}
