//! Weights of shares: of a key in the config file, and of named shares in an option.

use std::collections::BTreeMap;

use agenix_protocol::ids::ShareName;
use agenix_rules::fair_share::{MAX_WEIGHT, named_share};
use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, de::Error};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareWeight(u32);

impl ShareWeight {
    fn new(weight: u32) -> Result<Self, String> {
        if (1..=MAX_WEIGHT).contains(&weight) {
            Ok(Self(weight))
        } else {
            Err(format!("weight is {weight}: use 1 to {MAX_WEIGHT}"))
        }
    }

    pub(super) fn get(self) -> u32 {
        self.0
    }
}

impl<'de> Deserialize<'de> for ShareWeight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(u32::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Parses `night=3,ci=1`, the weights of named shares. Returns the weights by their shares.
pub(super) fn parse(text: &str) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut weights = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, weight)) = part.split_once('=') else {
            bail!("share-weights has '{part}': write NAME=WEIGHT, such as night=3");
        };
        let place = || format!("share-weights has '{part}'");
        let name: ShareName = name.parse().with_context(place)?;
        let weight = weight.parse().map_err(|_| format!("weight is {weight}: use 1 to {MAX_WEIGHT}"));
        let weight = weight.and_then(ShareWeight::new).map_err(anyhow::Error::msg).with_context(place)?;
        weights.insert(named_share(&name), weight.get());
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn weights_are_parsed_by_the_shares_that_they_name() {
        assert!(parse("").unwrap().is_empty());
        let weights = parse("night=3, ci=1000").unwrap();
        let expected = [("share:ci".to_owned(), 1000), ("share:night".to_owned(), 3)];
        assert_eq!(weights.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn wrong_weights_are_refused_with_their_place() {
        for (text, words) in [
            ("night", "share-weights has 'night': write NAME=WEIGHT"),
            ("night=0", "weight is 0: use 1 to 1000"),
            ("a=1,night=1001", "share-weights has 'night=1001'"),
            ("night=much", "weight is much"),
            ("a b=1", "share 'a b' is not valid"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
