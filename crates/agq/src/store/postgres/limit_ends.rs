//! Ends of jobs with limits, which the documents of limits do not count (`agq.limit_ends`).

use agenix_protocol::documents::to_json;
use agenix_rules::limit::Limit;
use sqlx::{Error, Result, Row, postgres::PgRow};

use super::sql_types;

/// Query for documents, with the ends that the documents of limits do not count.
macro_rules! documents {
    ($which:literal) => {
        concat!(
            "SELECT kind, id, json, (SELECT sum(ended)::bigint FROM agq.limit_ends AS e \
             WHERE n.kind = 'limit' AND e.limit_key = n.id) AS ended FROM agq.notes AS n ",
            $which
        )
    };
}
pub(super) use documents;

/// Returns the text of a document of [`documents`].
pub(super) fn document_in(row: &PgRow) -> Result<String> {
    let json: String = row.try_get("json")?;
    let Some(ended) = row.try_get("ended")? else { return Ok(json) };
    let limit: Limit = serde_json::from_str(&json).map_err(|error| Error::Decode(Box::new(error)))?;
    Ok(to_json(&limit.less(sql_types::count(ended))))
}
