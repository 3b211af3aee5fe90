//! Stop level of a running map.

/// Amount of work that is still wanted of a running map, in decreasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopLevel {
    /// All work.
    All,
    /// No further job starts, and running jobs end by themselves.
    StartNone,
    /// No further job starts, and running jobs are cancelled a moment later.
    End,
    /// As [`Self::End`], and waiting jobs are not cancelled: their agq ends with the map.
    EndWithServer,
    /// agx takes the results of ended jobs, and the action continues without agx.
    Leave,
}
