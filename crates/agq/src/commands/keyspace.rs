//! The users' keys: strings, lists, sorted sets, as in Redis (seed 003 §5.2).

use agenix_protocol::{names::is_reserved, resp::Reply};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::Outcome;
use crate::house::House;

/// Refuses a key that agq keeps for itself.
pub(super) fn refuse_reserved(key: &[u8], what: &'static str) -> Result<(), Rejection> {
    if !is_reserved(key) {
        return Ok(());
    }
    let key = String::from_utf8_lossy(key).escape_debug().to_string();
    let instead = "use the PLAN, ACTION, JOB, WORKER and QUEUE commands";
    Err(Rejection::ReservedKey { key, what, instead })
}

/// SET
pub(super) async fn set(house: &House, key: Bytes, value: Bytes) -> Outcome {
    refuse_reserved(&key, "written")?;
    house.store.set(key, value).await?;
    Ok(Reply::ok())
}

/// GET
pub(super) async fn get(house: &House, key: Bytes) -> Outcome {
    refuse_reserved(&key, "read")?;
    Ok(Reply::bulk_or_nil(house.store.get(key).await??))
}

/// DEL
pub(super) async fn del(house: &House, keys: Vec<Bytes>) -> Outcome {
    keys.iter().try_for_each(|key| refuse_reserved(key, "deleted"))?;
    Ok(Reply::count(house.store.del(keys).await?))
}

/// EXISTS
pub(super) async fn exists(house: &House, keys: Vec<Bytes>) -> Outcome {
    keys.iter().try_for_each(|key| refuse_reserved(key, "read"))?;
    Ok(Reply::count(house.store.exists(keys).await?))
}

/// LPUSH
pub(super) async fn push(house: &House, key: Bytes, values: Vec<Bytes>) -> Outcome {
    refuse_reserved(&key, "written")?;
    Ok(Reply::count(house.store.push_head(key, values).await??))
}

/// ZADD
pub(super) async fn add_scored(house: &House, key: Bytes, score: f64, member: Bytes) -> Outcome {
    refuse_reserved(&key, "written")?;
    Ok(Reply::Integer(house.store.add_scored(key, score, member).await??.into()))
}

/// ZRANGEBYSCORE
pub(super) async fn range_by_score(house: &House, key: Bytes, min: f64, max: f64) -> Outcome {
    refuse_reserved(&key, "read")?;
    Ok(Reply::bulks(house.store.range_by_score(key, min, max).await??))
}
