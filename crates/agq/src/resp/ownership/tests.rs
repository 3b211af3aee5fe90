//! Matrix of the role agent: every command with a record of the agent, and with one of another
//! owner.

use std::{collections::BTreeMap, sync::Arc};

use agenix_protocol::{
    request::{AgentAccess, Command, Request},
    resp::Reply,
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::hidden;
use crate::{
    app::{AppState, Caller},
    auth::keyring::{Identity, Role},
    resp::dispatch,
    startup::services::without_tasks,
};

/// BLAKE3 hash of `hello`.
const HELLO: &str = "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f";

/// Commands that an agent may not use at all.
const REFUSED: &str = "INFO MULTI EXEC DISCARD SUBSCRIBE PSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE PUBLISH \
    JOB.CLAIM JOB.UPDATE JOB.INPUT OUTPUT.WRITE OUTPUT.COPY OUTPUT.COMMIT \
    PLAN.APPROVE PLAN.REJECT APPROVAL.LIST \
    WORKER.REGISTER WORKER.HEARTBEAT WORKER.UNREGISTER WORKER.ANSWER WORKER.OUTPUT WORKER.LIST WORKER.GET \
    WORKER.DRAIN WORKER.TERMINATE WORKER.RESUME WORKER.VERIFY \
    QUEUE.STATS QUEUE.PEEK QUEUE.PAUSE QUEUE.RESUME \
    SCHEDULE.SET SCHEDULE.GET SCHEDULE.LIST SCHEDULE.DELETE \
    WORKFLOW.SUBMIT WORKFLOW.STATUS WORKFLOW.LIST WORKFLOW.CANCEL METRICS BACKUP \
    GET SET INCR DECR INCRBY DECRBY MGET MSET DEL EXISTS EXPIRE PEXPIRE TTL PTTL PERSIST TYPE KEYS SCAN DBSIZE \
    LPUSH RPUSH LPOP RPOP LLEN LRANGE LREM LMOVE BLMOVE BRPOP BLPOP \
    ZADD ZRANGE ZRANGEBYSCORE ZREM ZCARD ZSCORE ZPOPMIN SMEMBERS SISMEMBER HGETALL HGET";
/// Commands that name no record of an owner.
const PERMITTED: &str =
    "AUTH HELLO CLIENT PING ECHO SELECT RESET QUIT COMMAND CAPABILITY.SEARCH CAPABILITY.LIST BUDGET.GET";

/// Command on a record that may be the agent's.
struct Row {
    /// Command. `{plan}` and other placeholders stand for ids of one owner.
    line: &'static str,
    /// Beginning of the reply for a record of the agent.
    own: &'static str,
    /// Reply for a record of another owner.
    other: &'static str,
}

const fn row(line: &'static str, own: &'static str, other: &'static str) -> Row {
    Row { line, own, other }
}

const NO_ACTION: &str = "-ERR Action not found: {open}";
const NO_WAITING: &str = "-ERR Job not found: {waiting}";
const NO_FAILED: &str = "-ERR Job not found: {failed}";

/// Commands whose reply is the same as for a record that nobody owns.
#[rustfmt::skip]
const OWN: &[Row] = &[
    row("PLAN.GET {plan}", "{\"plan_id\":\"{plan}\"", "nil"),
    row("PLAN.STATUS {plan}", "{\"plan_id\":\"{plan}\"", "nil"),
    row("PLAN.ORDER {plan}", "nil", "nil"),
    row("PLAN.LIST {plan}", "[{plan}]", "[]"),
    row("PLAN.DELETE {spare}", ":1", ":0"),
    row("ACTION.SUBMIT {\"plan_id\":\"{plan}\",\"inputs\":[{}]}", "+OK action_id=", "-ERR Plan not found: {plan}"),
    row("ACTION.STATUS {open}", "{\"action_id\":\"{open}\"", "nil"),
    row("ACTION.LIST {open}", "[{open}]", "[]"),
    row("ACTION.LIST LABEL of={owner}", "[{open}]", "[]"),
    row("ACTION.ADD {open} [{}]", "+OK action_id={open} jobs_created=1 total_jobs=2", NO_ACTION),
    row("ACTION.ADD {open} no-json", "-ERR Invalid action schema: ", NO_ACTION),
    row("ACTION.CLOSE {open}", "+OK", NO_ACTION),
    row("ACTION.CANCEL {open}", "+OK cancelled=1", NO_ACTION),
    row("ACTION.CANCEL {open} UNSTARTED", "+OK cancelled=1", NO_ACTION),
    row("ACTION.RETRY {ended}", "+OK retried=1", "-ERR Action not found: {ended}"),
    row("JOB.STATUS {waiting}", "{\"job_id\":\"{waiting}\"", "nil"),
    row("JOB.LIST {open}", "[{waiting}]", "[]"),
    row("JOB.LIST {ended} failed LIMIT 1", "[{failed}]", "[]"),
    row("JOB.RETRY {failed}", "+OK job re-queued", NO_FAILED),
    row("JOB.RETRY {failed} FORCE", "+OK job re-queued", NO_FAILED),
    row("JOB.CANCEL {waiting}", "+OK job cancelled", NO_WAITING),
    row("JOB.FORGET {failed}", "+OK job forgotten", NO_FAILED),
    row("JOB.FORGET {waiting}", "-ERR Job has not ended: pending", NO_WAITING),
    row("JOB.EXPLAIN {waiting}", "{\"job_id\":\"{waiting}\"", NO_WAITING),
    row("JOB.OUTPUT {waiting}", "nil", NO_WAITING),
    row("JOB.OUTPUT {waiting} no-json", "-ERR Invalid output: ", NO_WAITING),
    row("JOB.RESULT {failed} 1 stdout", "[:3, out]", "nil"),
    row("JOB.RESULT {failed} 1 stdout 9 1", "-ERR Invalid range: ", "nil"),
    row("JOB.FILE {failed} 1 stdout", "-ERR Unreadable file: ", "nil"),
    row("JOBS.SEARCH ACTION {open}", "[{waiting}]", "[]"),
    row("JOBS.SEARCH failed {plan}", "[{failed}]", "[]"),
    row("INPUT.WRITE {upload} 5 more", ":9", "-ERR Invalid upload: offset is 5, but the upload has 0 bytes"),
    row("INPUT.COMMIT {upload} 5 {hello}", "+OK", "-ERR Invalid upload: it has 0 bytes, not 5"),
];

/// Commands that add a record under an id. The id of another owner is refused without its content.
#[rustfmt::skip]
const TAKEN: &[Row] = &[
    row("PLAN.SUBMIT {\"plan_id\":\"{plan}\",\"tasks\":[{\"task_number\":1,\"command\":\"true\"}]}",
        "-ERR Plan already exists: {plan}", "-ERR Plan already exists: {plan}"),
    row("ACTION.SUBMIT {\"action_id\":\"{again}\",\"plan_id\":\"{agents}\",\"inputs\":[{}]}",
        "+OK action_id={again} jobs_created=1", "-ERR Action already exists with other content: {again}"),
];

struct OwnershipFixture {
    app: Arc<AppState>,
    _dir: tempfile::TempDir,
}

/// Ids of the records of one owner, by the names of their placeholders.
type Ids = BTreeMap<&'static str, String>;

fn caller(identity: Identity) -> Arc<Caller> {
    Arc::new(Caller::new("connection:1".into(), 1, "test", Some(identity)))
}

fn agent() -> Arc<Caller> {
    caller(Identity::new(Role::Agent, "one"))
}

fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) => format!("+{text}"),
        Reply::Error(line) => format!("-{line}"),
        Reply::Integer(number) => format!(":{number}"),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Nil => "nil".into(),
        Reply::Array(all) => format!("[{}]", all.iter().map(shown).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

fn filled(text: &str, ids: &Ids) -> String {
    ids.iter().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("{{{name}}}"), id))
}

fn parsed(line: &str) -> (&'static Command, Request) {
    let words: Vec<Bytes> = line.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
    Request::parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
}

impl OwnershipFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { app: without_tasks(dir.path(), |_| {}), _dir: dir }
    }

    async fn run(&self, caller: &Arc<Caller>, line: &str) -> String {
        let (command, request) = parsed(line);
        shown(&dispatch::run(Arc::clone(&self.app), Arc::clone(caller), command, request).await.reply)
    }

    async fn job_of(&self, caller: &Arc<Caller>, action: &str) -> String {
        let found = self.run(caller, &format!("JOB.LIST {action}")).await;
        found.trim_matches(['[', ']']).to_owned()
    }

    /// Stores one record of each kind for `owner`.
    async fn records_of(&self, caller: &Arc<Caller>, owner: &str) -> Ids {
        let id = |kind: &str| format!("{kind}-{owner}");
        for plan in [id("plan"), id("spare")] {
            let json = json!({"plan_id": plan, "tasks": [{"task_number": 1, "command": "true"}]});
            assert!(self.run(caller, &format!("PLAN.SUBMIT {json}")).await.starts_with("+OK"));
        }
        let submit = |action: &str, more: Value| {
            let mut json =
                json!({"action_id": action, "plan_id": id("plan"), "inputs": [{}], "queue": id("q")});
            json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            format!("ACTION.SUBMIT {json}")
        };
        let ended = submit(&id("ended"), json!({}));
        assert!(self.run(caller, &ended).await.starts_with("+OK"));
        let failed = self.job_of(caller, &id("ended")).await;
        let worker = caller_of_worker();
        assert!(self.run(&worker, &format!("RPOP queue:{}", id("q"))).await.contains(&failed));
        let result = json!({"task_number": 1, "command": "true", "exit_code": 1, "stdout": "out", "stderr": "",
            "duration_ms": 1});
        let report = json!({"status": "failed", "task_results": [result]});
        assert_eq!(self.run(&worker, &format!("JOB.UPDATE {failed} {report}")).await, "+OK");
        let open = submit(&id("open"), json!({"open": true, "labels": {"of": owner}}));
        assert!(self.run(caller, &open).await.starts_with("+OK"));
        let again = json!({"action_id": id("again"), "plan_id": id("plan"), "inputs": [{}]});
        assert!(self.run(caller, &format!("ACTION.SUBMIT {again}")).await.starts_with("+OK"));
        assert_eq!(self.run(caller, &format!("INPUT.WRITE {} 0 hello", id("upload"))).await, ":5");
        let waiting = self.job_of(caller, &id("open")).await;
        let named = ["plan", "spare", "ended", "open", "again", "upload"].map(|kind| (kind, id(kind)));
        let mut ids = Ids::from(named);
        ids.extend([
            ("failed", failed),
            ("waiting", waiting),
            ("owner", owner.into()),
            ("hello", HELLO.into()),
        ]);
        ids.insert("agents", "plan-one".into());
        ids
    }

    /// Returns everything that the session key sees of the records of an owner.
    async fn seen(&self, ids: &Ids) -> Vec<String> {
        let all = caller(Identity::of_session_key());
        let mut seen = Vec::new();
        for line in [
            "PLAN.GET {plan}",
            "PLAN.GET {spare}",
            "ACTION.STATUS {open}",
            "ACTION.STATUS {ended}",
            "ACTION.STATUS {again}",
            "JOB.STATUS {waiting}",
            "JOB.STATUS {failed}",
            "JOB.LIST {open}",
        ] {
            seen.push(self.run(&all, &filled(line, ids)).await);
        }
        seen
    }
}

fn caller_of_worker() -> Arc<Caller> {
    Arc::new(Caller::new("connection:9".into(), 9, "test", Some(Identity::of_session_key())))
}

/// Returns ids that no record has.
fn missing(of: &Ids) -> Ids {
    let is_id = |name: &&str| !["hello", "agents"].contains(name);
    let gone = |(name, id): (&&'static str, &String)| {
        (*name, if is_id(name) { format!("gone-{name}") } else { id.clone() })
    };
    of.iter().map(gone).collect()
}

#[test]
fn every_command_has_a_row() {
    let words = |list: &str| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (refused, permitted) = (words(REFUSED), words(PERMITTED));
    let own: Vec<&str> = OWN.iter().chain(TAKEN).map(|row| row.line.split(' ').next().unwrap()).collect();
    for command in Command::all() {
        let name = command.name;
        let is_in = [
            refused.iter().any(|word| word == name),
            permitted.iter().any(|word| word == name),
            own.contains(&name),
        ];
        let expected = [AgentAccess::Refused, AgentAccess::Permitted, AgentAccess::Own]
            .map(|access| access == command.agent);
        assert_eq!(is_in, expected, "{name} is refused, permitted, permitted for own records");
    }
    assert_eq!(
        refused.len() + permitted.len(),
        Command::all().filter(|c| c.agent != AgentAccess::Own).count()
    );
}

#[tokio::test]
async fn agents_may_use_commands_on_their_own_records_alone() {
    for row in OWN.iter().chain(TAKEN) {
        let fixture = OwnershipFixture::new();
        let agent = agent();
        let own = fixture.records_of(&agent, "one").await;
        let other = fixture.records_of(&caller(Identity::new(Role::Client, "alice")), "alice").await;
        let before = fixture.seen(&other).await;
        let reply = fixture.run(&agent, &filled(row.line, &other)).await;
        assert_eq!(reply, filled(row.other, &other), "{}", row.line);
        assert_eq!(fixture.seen(&other).await, before, "{} has changed a record of another owner", row.line);
        let reply = fixture.run(&agent, &filled(row.line, &own)).await;
        let expected = filled(row.own, &own);
        assert!(reply.starts_with(&expected), "{}: {reply}, not {expected}", row.line);
        assert_eq!(fixture.seen(&other).await, before, "{}", row.line);
    }
}

/// The replies differ in the id alone, so that an agent cannot find out the ids of others.
#[tokio::test]
async fn records_of_others_are_like_records_that_do_not_exist() {
    let fixture = OwnershipFixture::new();
    let agent = agent();
    fixture.records_of(&agent, "one").await;
    let other = fixture.records_of(&caller(Identity::new(Role::Agent, "two")), "two").await;
    let gone = missing(&other);
    for row in OWN {
        let reply = fixture.run(&agent, &filled(row.line, &other)).await;
        assert_eq!(reply, filled(row.other, &other), "{}", row.line);
        assert_eq!(
            fixture.run(&agent, &filled(row.line, &gone)).await,
            filled(row.other, &gone),
            "{}",
            row.line
        );
        // Only the handler reads these arguments, and this agq has no path for a client over TCP.
        let is_read_first = row.line.contains("no-json") || row.line.contains("JOB.FILE");
        if !is_read_first && !row.line.starts_with("INPUT.") {
            let client = caller(Identity::new(Role::Client, "alice"));
            let for_people = fixture.run(&client, &filled(row.line, &gone)).await;
            assert_eq!(for_people, filled(row.other, &gone), "{}", row.line);
        }
    }
}

#[tokio::test]
async fn file_of_an_output_of_somebody_else_is_hidden() {
    let fixture = OwnershipFixture::new();
    let agent = agent();
    let own = fixture.records_of(&agent, "one").await;
    let other = fixture.records_of(&caller(Identity::of_session_key()), "admin").await;
    for (ids, expected) in [(own, None), (other, Some(Reply::Nil))] {
        let (command, request) = parsed(&filled("JOB.FILE {failed} 1 stdout", &ids));
        let hidden = hidden(&fixture.app, agent.agent().unwrap(), command, &request).await;
        assert_eq!(hidden.unwrap(), expected);
    }
}

#[tokio::test]
async fn refused_commands_do_not_reach_their_handlers() {
    let fixture = OwnershipFixture::new();
    for line in ["RPOP queue:ready", "GET plan:p", "QUEUE.STATS", "SCHEDULE.LIST", "WORKER.LIST", "METRICS"] {
        let name = line.split(' ').next().unwrap();
        let refusal = format!("-NOPERM This key is an agent's and may not use {name}");
        assert_eq!(fixture.run(&agent(), line).await, refusal);
    }
}

/// A plan that was deleted and submitted again by another owner is not the plan of the agent.
#[tokio::test]
async fn agents_do_not_run_a_plan_that_somebody_else_has_submitted_again() {
    let fixture = OwnershipFixture::new();
    let (agent, alice) = (agent(), caller(Identity::new(Role::Client, "alice")));
    let own = fixture.records_of(&agent, "one").await;
    for line in ["ACTION.CANCEL {open}", "ACTION.CANCEL {again}"] {
        assert!(fixture.run(&agent, &filled(line, &own)).await.starts_with("+OK"));
    }
    let later = json!({"action_id": "later", "plan_id": "plan-one", "open": true});
    assert!(fixture.run(&agent, &format!("ACTION.SUBMIT {later}")).await.starts_with("+OK"));
    assert_eq!(fixture.run(&agent, "PLAN.DELETE plan-one").await, ":1");
    let plan =
        json!({"plan_id": "plan-one", "tasks": [{"task_number": 1, "command": "true", "args": ["secret"]}]});
    assert!(fixture.run(&alice, &format!("PLAN.SUBMIT {plan}")).await.starts_with("+OK"));
    for line in
        ["ACTION.ADD later [{}]", "ACTION.RETRY {ended}", "JOB.RETRY {failed}", "JOB.RETRY {failed} FORCE"]
    {
        assert_eq!(fixture.run(&agent, &filled(line, &own)).await, "-ERR Plan not found: plan-one", "{line}");
    }
    let again = json!({"action_id": "again-one", "plan_id": "plan-one", "inputs": [{}]});
    assert_eq!(fixture.run(&agent, &format!("ACTION.SUBMIT {again}")).await, "-ERR Plan not found: plan-one");
}
