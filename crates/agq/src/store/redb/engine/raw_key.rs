//! Keys of tables in memory, as bytes in the order of their table.

use std::{cmp::Ordering, fmt};

use smallvec::SmallVec;

use crate::store::redb::schema::{KeyCompare, Ordered};

/// Maximum length of a key without an allocation, in bytes. A job id with two numbers fits.
const MAX_INLINE: usize = 54;

/// A key as redb encodes it, with the order of its table.
#[derive(Clone)]
pub(crate) struct RawKey {
    bytes: SmallVec<[u8; MAX_INLINE]>,
    order: KeyCompare,
}

impl RawKey {
    pub(crate) fn of<K: Ordered>(key: &K::SelfType<'_>) -> Self {
        Self { bytes: SmallVec::from_slice(K::as_bytes(key).as_ref()), order: K::ORDER }
    }

    pub(crate) fn from_bytes(bytes: &[u8], order: KeyCompare) -> Self {
        Self { bytes: SmallVec::from_slice(bytes), order }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for RawKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RawKey {}

impl PartialOrd for RawKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RawKey {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.order)(&self.bytes, &other.bytes)
    }
}

impl fmt::Debug for RawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.escape_ascii().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::RawKey;

    #[test]
    fn raw_keys_have_the_order_of_their_table() {
        assert!(RawKey::of::<u32>(&255) < RawKey::of::<u32>(&256));
        assert!(RawKey::of::<(&str, u64)>(&("b", 1)) < RawKey::of::<(&str, u64)>(&("b", 256)));
        assert!(RawKey::of::<(&str, u64)>(&("a", 9)) < RawKey::of::<(&str, u64)>(&("aa", 1)));
    }
}
