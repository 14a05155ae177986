//! Counters of reports: by name in JSON, by [`Counter`] in code.
//!
//! Invariant: each counter is there once, in the order of `Counter::ALL`.
//!
//! Counters that this version does not know are left out when a report is read.

use cache::Counter;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Index;

/// Counters under their names; see `docs/commands/status.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedCounters(Vec<(Counter, u64)>);

impl NamedCounters {
    /// The name and the meaning of each counter.
    pub fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = Counter::ALL.iter();
        all.map(|counter| (counter.name(), counter.help()))
    }

    /// The value of a counter; 0 if it is absent.
    pub fn value(&self, counter: Counter) -> u64 {
        // In a whole report, each counter has its own place.
        match self.0.get(counter as usize) {
            Some((found, n)) if *found == counter => *n,
            _ => self.find(|other| other == counter).copied().unwrap_or(0),
        }
    }

    /// The value of the counter `name`, if present.
    pub fn get(&self, name: &str) -> Option<&u64> {
        self.find(|counter| counter.name() == name)
    }

    fn find(&self, is: impl Fn(Counter) -> bool) -> Option<&u64> {
        let found = self.0.iter().find(|(counter, _)| is(*counter));
        found.map(|(_, n)| n)
    }

    /// All counters, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(counter, n)| (counter.name(), *n))
    }

    /// The counters that are among `kept`.
    pub fn only(&self, kept: &[Counter]) -> NamedCounters {
        let kept = self.0.iter().filter(|(counter, _)| kept.contains(counter));
        NamedCounters(kept.copied().collect())
    }
}

impl From<&cache::CounterSnapshot> for NamedCounters {
    fn from(snapshot: &cache::CounterSnapshot) -> NamedCounters {
        NamedCounters(snapshot.iter().collect())
    }
}

impl Index<&str> for NamedCounters {
    type Output = u64;

    fn index(&self, name: &str) -> &u64 {
        self.get(name).expect("a counter of that name")
    }
}

impl Serialize for NamedCounters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for NamedCounters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamedCounters, D::Error> {
        deserializer.deserialize_map(CounterMap)
    }
}

struct CounterMap;

impl<'de> Visitor<'de> for CounterMap {
    type Value = NamedCounters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counters by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedCounters, A::Error> {
        let mut counters = Vec::with_capacity(Counter::ALL.len());
        let mut next = 0;
        while let Some(counter) = map.next_key_seed(CounterKey(next))? {
            let n = map.next_value()?;
            if let Some(counter) = counter {
                counters.push((counter, n));
                next = counter as usize + 1;
            }
        }
        counters.sort_by_key(|(counter, _)| *counter as u8);
        counters.dedup_by_key(|(counter, _)| *counter);
        Ok(NamedCounters(counters))
    }
}

/// A name, most likely that of the counter with this number.
struct CounterKey(usize);

impl<'de> DeserializeSeed<'de> for CounterKey {
    type Value = Option<Counter>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Option<Counter>, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for CounterKey {
    type Value = Option<Counter>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a counter")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<Counter>, E> {
        let mut all = Counter::ALL.iter();
        let likely = Counter::ALL.get(self.0).filter(|c| c.name() == name);
        Ok(likely.or_else(|| all.find(|c| c.name() == name)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_the_same_in_any_order() {
        let all = Counter::ALL.iter().zip(1..).map(|(c, n)| (*c, n));
        let all = NamedCounters(all.collect());
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<NamedCounters>(&text).unwrap(), all);
        let sorted: std::collections::BTreeMap<String, u64> = serde_json::from_str(&text).unwrap();
        let text = serde_json::to_string(&sorted).unwrap();
        assert_eq!(serde_json::from_str::<NamedCounters>(&text).unwrap(), all);
        for counter in Counter::ALL {
            assert_eq!(all.value(*counter), all[counter.name()]);
        }
    }

    #[test]
    fn what_is_unknown_is_left_out_and_what_lacks_is_nothing() {
        let some: NamedCounters =
            serde_json::from_str(r#"{"new":1,"writes":3,"reads_hit":2}"#).unwrap();
        assert_eq!(
            some.iter().collect::<Vec<_>>(),
            [("reads_hit", 2), ("writes", 3)]
        );
        assert_eq!(
            (some.value(Counter::Writes), some.value(Counter::BlocksHit)),
            (3, 0)
        );
        assert_eq!(some.only(&[Counter::Writes]).iter().count(), 1);
        serde_json::from_str::<NamedCounters>(r#"{"writes":-1}"#).unwrap_err();
    }
}
