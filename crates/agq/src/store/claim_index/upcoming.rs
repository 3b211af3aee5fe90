//! Lanes that the next claims check, for a store that reads several lanes at once.

use agenix_protocol::time::Timestamp;

use super::{ClaimIndex, PassedGroups, Turn};
use crate::store::Claimant;

impl<T: Turn> ClaimIndex<T> {
    /// Returns lanes that the next claims of a claimant from a queue probably check, at most
    /// `most`: the first lanes of the first groups, and, for at least half of `most`, further lanes
    /// of these groups.
    pub(crate) fn upcoming(
        &mut self,
        queue: &str,
        claimant: &Claimant,
        most: usize,
        now: Timestamp,
    ) -> Vec<u32> {
        let mut passed = PassedGroups::default();
        let mut lanes = Vec::new();
        while lanes.len() < most.div_ceil(2)
            && let Some((_, lane)) = self.first(queue, claimant, &mut passed, now)
        {
            lanes.push(lane);
            passed.pass();
        }
        if lanes.is_empty() {
            return lanes;
        }
        let of_each = (most - lanes.len()).div_ceil(lanes.len());
        let groups = lanes.iter().filter_map(|lane| self.groups.get(&self.lanes.get(lane)?.group));
        let further = groups.flat_map(|group| group.listed.iter().skip(1).take(of_each));
        let further: Vec<u32> = further.map(|(_, lane)| *lane).collect();
        lanes.extend(further);
        lanes.truncate(most);
        lanes
    }
}
