//! Amount of work that is wanted of a map.

/// Amount of work that is still wanted of a running map, in decreasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopLevel {
    /// All work.
    All,
    /// No further job starts, and running jobs end by themselves.
    StartNone,
    /// No further job starts, and running jobs are cancelled a moment later.
    End,
    /// agx takes the results of ended jobs, and the action goes on without agx.
    Leave,
}
