//! Order of keys in memory, which equals the order in the database but is cheaper to compute.

use std::cmp::Ordering;

use redb::Key;

/// Compares two encoded keys of one table.
pub(crate) type KeyCompare = fn(&[u8], &[u8]) -> Ordering;

/// Returns true if no key fits between two ascending keys. May be false for adjacent keys.
pub(crate) type AreAdjacent = fn(&[u8], &[u8]) -> bool;

/// A type of keys whose order is known. Texts have the same encoding and order as their bytes.
/// Texts are compared as bytes, because redb would validate UTF-8 at each comparison.
pub(crate) trait Ordered: Key + 'static {
    const ORDER: KeyCompare;
}

/// Implements [`Ordered`] for a type, with the order of another type that has the same encoding.
macro_rules! ordered {
    ($($key:ty as $same:ty),+ $(,)?) => {
        $(impl Ordered for $key {
            const ORDER: KeyCompare = <$same as Key>::compare;
        })+
    };
}

ordered! {
    u32 as u32,
    u64 as u64,
    &'static [u8] as &'static [u8],
    (&'static [u8], i64) as (&'static [u8], i64),
    (&'static [u8], &'static [u8]) as (&'static [u8], &'static [u8]),
    (&'static [u8], u64, &'static [u8]) as (&'static [u8], u64, &'static [u8]),
    (u64, &'static [u8]) as (u64, &'static [u8]),
    (u32, u8, u64) as (u32, u8, u64),
    &'static str as &'static [u8],
    (&'static str, u64) as (&'static [u8], u64),
    (&'static str, &'static str) as (&'static [u8], &'static [u8]),
    (u64, &'static str) as (u64, &'static [u8]),
    (u8, u64, &'static str) as (u8, u64, &'static [u8]),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Ordered;

    fn is_same<K: Ordered>(one: &K::SelfType<'_>, other: &K::SelfType<'_>) -> bool {
        let (one, other) = (K::as_bytes(one), K::as_bytes(other));
        K::ORDER(one.as_ref(), other.as_ref()) == K::compare(one.as_ref(), other.as_ref())
    }

    proptest! {
        #[test]
        fn key_order_of_texts_equals_that_of_the_database(
            (a, b, c, d) in (".{0,12}", ".{0,12}", ".{0,4}", ".{0,4}"),
            (m, n, k) in (0_u64..4, 0_u64..4, 0_u8..3),
        ) {
            let (a, b, c, d) = (a.as_str(), b.as_str(), c.as_str(), d.as_str());
            prop_assert!(is_same::<&str>(&a, &b));
            prop_assert!(is_same::<(&str, u64)>(&(a, m), &(b, n)));
            prop_assert!(is_same::<(&str, &str)>(&(c, a), &(d, b)));
            prop_assert!(is_same::<(u64, &str)>(&(m, a), &(n, b)));
            prop_assert!(is_same::<(u8, u64, &str)>(&(k, m, a), &(k, n, b)));
            prop_assert!(is_same::<(u8, u64, &str)>(&(k, m, a), &(1, m, a)));
        }
    }
}
