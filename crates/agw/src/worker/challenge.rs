//! Challenges: agq asks the worker to prove a capability. The worker runs the command and sends its
//! output (worker spec §7.3).

use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

use agenix_client::Connection;
use agenix_protocol::{
    byte_escape::encode_os,
    documents::{Challenge, ChallengeAnswer},
};
use tokio::sync::Semaphore;
use tracing::{debug, info};

use crate::exec::{helper_command, programs::not_offered, sandbox::job::JobSandbox, start::ExecContext};

/// Maximum run time of a command, less than the ten seconds that agq waits for the answer.
const BOUND: Duration = Duration::from_secs(8);
/// Maximum number of commands that run at the same time.
const AT_ONCE: usize = 4;

const OUT_OF_TIME: i32 = 124;
const NOT_RUNNABLE: i32 = 126;
const NOT_OURS: i32 = 127;

/// Accepted challenges. agq repeats each challenge with every heartbeat until the worker answers
/// the challenge.
pub(crate) struct PendingChallenges {
    taken: BTreeSet<String>,
    slots: Arc<Semaphore>,
}

impl Default for PendingChallenges {
    fn default() -> Self {
        Self { taken: BTreeSet::new(), slots: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl PendingChallenges {
    /// Runs the challenges among `wanted` that are new, and sends the answers over `connection`.
    pub(crate) fn take(&mut self, wanted: &[Challenge], context: &Arc<ExecContext>, connection: &Connection) {
        for challenge in self.new_among(wanted) {
            let (slots, context) = (Arc::clone(&self.slots), Arc::clone(context));
            let mut connection = connection.clone();
            tokio::spawn(async move {
                let _slot = slots.acquire().await;
                let answer = answer(&challenge, &context).await;
                let Challenge { challenge_id, command, .. } = &challenge;
                info!(exit_code = answer.exit_code, "agq has tested the command '{command}'");
                if let Err(error) = connection.answer_challenge(challenge_id, &answer).await {
                    debug!(%error, "the answer to a challenge could not be sent");
                }
            });
        }
    }

    /// Returns and records the new challenges. Forgets the challenges that agq no longer repeats.
    fn new_among(&mut self, wanted: &[Challenge]) -> Vec<Challenge> {
        self.taken.retain(|id| wanted.iter().any(|challenge| challenge.challenge_id == *id));
        let is_new = |challenge: &&Challenge| self.taken.insert(challenge.challenge_id.clone());
        wanted.iter().filter(is_new).cloned().collect()
    }
}

async fn answer(challenge: &Challenge, context: &ExecContext) -> ChallengeAnswer {
    let name = &challenge.command;
    let Some(program) = context.programs.path(name) else {
        let output = not_offered(name);
        return ChallengeAnswer { exit_code: NOT_OURS, output };
    };
    // Otherwise, a challenge would be a way around the signatures of plans.
    if context.admission.has_trust() && context.sandboxes.is_none() {
        let output = "refused: this worker only runs plans that are signed".into();
        return ChallengeAnswer { exit_code: NOT_OURS, output };
    }
    // Otherwise, a challenge would be a way around the policy.
    if let Err(reason) = context.admission.admit_argv(name, &challenge.args, &context.programs) {
        return ChallengeAnswer { exit_code: NOT_OURS, output: format!("refused: {reason}") };
    }
    let ran = async {
        // Otherwise, a challenge would be a way around the sandbox of jobs.
        let sandbox = sandbox(program, context).await?;
        helper_command::run((program, name), &challenge.args, BOUND, sandbox).await
    };
    match ran.await {
        Ok(output) if output.timed_out => {
            let output = format!("'{name}' did not end within {} seconds", BOUND.as_secs());
            ChallengeAnswer { exit_code: OUT_OF_TIME, output }
        }
        Ok(output) => {
            let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
            ChallengeAnswer { exit_code: output.exit_code, output: text }
        }
        Err(error) => {
            let output = format!("'{name}' could not be run: {error}");
            ChallengeAnswer { exit_code: NOT_RUNNABLE, output }
        }
    }
}

/// Begins a job in the sandbox of jobs whose plan names no profile, if the worker has one.
async fn sandbox(program: &Path, context: &ExecContext) -> io::Result<Option<JobSandbox>> {
    let Some(sandboxes) = &context.sandboxes else { return Ok(None) };
    let profile = sandboxes.profile_of(None).map_err(io::Error::other)?;
    let Some(profile) = profile else { return Ok(None) };
    let programs = vec![encode_os(program.as_os_str())];
    sandboxes.begin(profile, programs, None).await.map(Some)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use agenix_protocol::documents::{Challenge, ChallengeAnswer};

    use super::{PendingChallenges, answer};
    use crate::exec::{programs::OfferedPrograms, start::ExecContext};

    fn challenge(id: &str, command: &str, args: &[&str]) -> Challenge {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Challenge { challenge_id: id.into(), command: command.into(), args }
    }

    #[test]
    fn challenge_is_accepted_once_while_it_is_repeated() {
        let mut challenges = PendingChallenges::default();
        let mut taken = |ids: &[&str]| {
            let wanted: Vec<_> = ids.iter().map(|id| challenge(id, "sort", &[])).collect();
            let new = challenges.new_among(&wanted).into_iter().map(|challenge| challenge.challenge_id);
            new.collect::<Vec<_>>()
        };
        assert_eq!(taken(&["a"]), ["a"]);
        assert_eq!(taken(&["a", "b"]), ["b"]);
        assert_eq!(taken(&["b"]), [""; 0]);
        assert_eq!(taken(&["a"]), ["a"], "it was forgotten");
    }

    #[tokio::test]
    async fn challenge_runs_only_offered_tools_and_returns_their_output() {
        let dir = tempfile::tempdir().unwrap();
        let programs = OfferedPrograms::find(OsStr::new("/usr/bin:/bin"), Some(&["sh".to_owned()]));
        let context = ExecContext::for_tests(dir.path(), programs);
        let output = answer(&challenge("a", "sh", &["-c", "echo 1.0; echo x >&2"]), &context).await;
        assert_eq!(output, ChallengeAnswer { exit_code: 0, output: "1.0\n".into() });
        let output = answer(&challenge("a", "sh", &["-c", "echo broken >&2; exit 3"]), &context).await;
        assert_eq!(output, ChallengeAnswer { exit_code: 3, output: "broken\n".into() });
        let output = answer(&challenge("a", "cat", &["x"]), &context).await;
        assert_eq!(output.exit_code, 127);
        assert!(output.output.starts_with("this worker has no program 'cat': "), "{}", output.output);
    }
}
