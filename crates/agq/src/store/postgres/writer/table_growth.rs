//! Growth of the tables by the writes of a node. The database has to analyse its tables again,
//! because query plans for small tables are not right for large ones.

use std::time::Duration;

use sqlx::raw_sql;
use tokio::{runtime::Handle, time::timeout};
use tracing::debug;

use crate::store::postgres::connection::Pool;

/// Number of written rows after which the database analyses its tables for the first time. The next
/// analysis is due after twice as many rows as at the latest one, plus `FIRST`. The autovacuum of
/// the database does the same, but a minute or more later.
const FIRST: usize = 5_000;
const ANALYZE: &str = "ANALYZE agq.jobs, agq.ended, agq.inputs, agq.results";

/// Maximum duration of `ANALYZE`. The connection of the statement must return to the pool even
/// without an answer.
const MAX_ANALYZE_TIME: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(crate) struct Growth {
    written: usize,
    analyzed_at: usize,
}

impl Growth {
    /// Counts `rows`, and starts `ANALYZE` if it is due, after which sessions plan again.
    pub(crate) fn note(&mut self, rows: usize, runtime: &Handle, pool: &Pool) {
        if self.is_due(rows) {
            let pool = pool.clone();
            runtime.spawn(async move {
                match timeout(MAX_ANALYZE_TIME, raw_sql(ANALYZE).execute(&pool)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => debug!(%error, "the tables could not be analysed"),
                    Err(_elapsed) => debug!("the tables were not analysed in time"),
                }
            });
        }
    }

    fn is_due(&mut self, rows: usize) -> bool {
        self.written += rows;
        let is_due = self.written >= 2 * self.analyzed_at + FIRST;
        if is_due {
            self.analyzed_at = self.written;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::Growth;

    #[test]
    fn tables_are_analyzed_each_time_they_have_doubled() {
        let mut growth = Growth::default();
        let due = (1..=100_000).filter(|_row| growth.is_due(1)).collect::<Vec<_>>();
        assert_eq!(due, [5_000, 15_000, 35_000, 75_000]);
        // A large submission causes one `ANALYZE`, not many.
        assert!(growth.is_due(800_000));
        assert!(!growth.is_due(800_000));
    }
}
