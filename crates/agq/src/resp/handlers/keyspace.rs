//! Commands on users' keys: strings, lists and sorted sets, as in Redis (RESP spec §5.2).
//! `virtual_keys` answers commands on reserved keys.

use agenix_protocol::{
    request::{BlockingPop, KeyCommand},
    reserved_keys::is_reserved,
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::rejection::Rejection;

use crate::{
    app::AppState,
    error::Result,
    redis,
    resp::outcome::CommandResult,
    store::{KeyReader, change, look, scan},
};

/// Rejects a reserved key. `operation` is the participle of the command, for example "written".
pub(crate) fn refuse_reserved(key: &[u8], operation: &'static str) -> Result<(), Rejection> {
    if !is_reserved(key) {
        return Ok(());
    }
    let key = String::from_utf8_lossy(key).escape_debug().to_string();
    let instead = "use the PLAN, ACTION, JOB, WORKER and QUEUE commands";
    Err(Rejection::ReservedKey { key, operation, instead })
}

pub(crate) async fn users(app: &AppState, command: KeyCommand) -> CommandResult {
    if command.is_write() {
        let replies = transaction(app, vec![command]).await?;
        return Ok(replies.into_iter().next().unwrap_or(Reply::Nil));
    }
    let is_long = is_long(&command);
    let (store, now) = (&*app.store, app.clock.now());
    let work = move |all: &dyn KeyReader| redis::ruled(redis::read(all, &command, now));
    let reply = if is_long { scan(store, work).await? } else { look(store, work).await? };
    Ok(reply?)
}

/// Does not wait. Returns `None` if the command is no short read, or the store cannot read at once.
pub(crate) fn users_at_once(app: &AppState, command: &KeyCommand, now: Timestamp) -> Option<CommandResult> {
    if command.is_write() || is_long(command) {
        return None;
    }
    let mut reply = None;
    app.store.read_at_once(&mut |all| reply = Some(redis::ruled(redis::read(all, command, now))));
    reply.map(|reply| Ok(reply??))
}

fn is_long(command: &KeyCommand) -> bool {
    matches!(
        command,
        KeyCommand::Keys { .. }
            | KeyCommand::Scan { .. }
            | KeyCommand::LRange { .. }
            | KeyCommand::ZRange { .. }
            | KeyCommand::MGet { .. }
    )
}

pub(crate) async fn count(app: &AppState) -> Result<u64> {
    let now = app.clock.now();
    Ok(look(&*app.store, move |all| all.count(now)).await?)
}

pub(crate) async fn transaction(app: &AppState, commands: Vec<KeyCommand>) -> Result<Vec<Reply>> {
    let (store, now) = (&*app.store, app.clock.now());
    let replies = if commands.iter().any(KeyCommand::is_write) {
        let bytes = commands.iter().map(KeyCommand::byte_len).sum();
        change(store, bytes, move |all| redis::apply_all(all, &commands, now)).await?
    } else {
        scan(store, move |all| redis::read_all(all, &commands, now)).await?
    };
    Ok(replies)
}

/// BRPOP, BLPOP and BLMOVE of users' lists. The reply to BLMOVE is the element without its key.
pub(crate) async fn blocking_pop(app: &AppState, pop: BlockingPop, is_pair: bool) -> CommandResult {
    pop.keys.iter().try_for_each(|key| refuse_reserved(key, "popped"))?;
    if let Some((target, _)) = &pop.to {
        refuse_reserved(target, "written")?;
    }
    let is_move = pop.to.is_some();
    let Some(handoff) = app.waiters.element(pop).await?? else {
        return Ok(if is_pair || is_move { Reply::NilArray } else { Reply::Nil });
    };
    let element = handoff.take();
    Ok(if is_pair && !is_move {
        Reply::bulks([element.key, element.value])
    } else {
        Reply::Bulk(element.value)
    })
}
