//! Placing members so that the loss of a failure domain does not stop the array.

use crate::levels::{ArrayShape, Level};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Orders the roles for devices of these failure `domains`: neighbours, which hold each other's
/// copies, are in different domains where possible.
pub fn order(level: Level, domains: &[Arc<str>]) -> Vec<usize> {
    let all: Vec<usize> = (0..domains.len()).collect();
    if !level.pairs_neighbours() {
        return all;
    }
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for index in all.into_iter().rev() {
        groups.entry(&domains[index]).or_default().push(index);
    }
    let mut order: Vec<usize> = Vec::new();
    while order.len() < domains.len() {
        let last = order.last().map(|index| &*domains[*index]);
        let pairs = order.len() % 2 == 1;
        // The fullest domain first, so that it does not remain alone; the one just taken only if
        // there is no other.
        let next = groups
            .iter()
            .filter(|(_, left)| !left.is_empty())
            .max_by_key(|(name, left)| {
                let apart = !pairs || Some(**name) != last;
                (apart, left.len(), std::cmp::Reverse(**name))
            })
            .map(|(name, _)| *name);
        let group = next.and_then(|name| groups.get_mut(name));
        order.extend(group.and_then(Vec::pop));
    }
    order
}

/// Returns a sentence for each failure domain that would stop the array if lost, given the domains
/// of `members`.
pub fn warnings(shape: &ArrayShape, members: &[(usize, Arc<str>)]) -> Vec<String> {
    if !shape.level().is_redundant() {
        return Vec::new();
    }
    let mut domains: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (role, domain) in members {
        domains.entry(domain).or_default().push(*role);
    }
    let takes_all = |roles: &Vec<usize>| {
        let stays = |role| members.iter().any(|(r, _)| *r == role) && !roles.contains(&role);
        !shape.can_run(stays)
    };
    let fatal = domains.iter().filter(|(_, roles)| takes_all(roles));
    fatal
        .map(|(domain, roles)| {
            let roles: Vec<_> = roles.iter().map(ToString::to_string).collect();
            let roles = roles.join(", ");
            format!("losing {domain} (members {roles}) stops the array; spread its members over more controllers")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Sectors;

    fn domains(names: &str) -> Vec<Arc<str>> {
        names.chars().map(|c| c.to_string().into()).collect()
    }

    fn placed(level: Level, names: &str) -> (String, usize) {
        let domains = domains(names);
        let order = order(level, &domains);
        let shape = ArrayShape::new(level, &vec![Sectors(800); names.len()], Sectors(8)).unwrap();
        let members: Vec<_> = order
            .iter()
            .map(|i| domains[*i].clone())
            .enumerate()
            .collect();
        let text = members.iter().map(|(_, name)| name.to_string()).collect();
        (text, warnings(&shape, &members).len())
    }

    #[test]
    fn copies_lie_in_different_domains_where_that_is_possible() {
        assert_eq!(placed(Level::Raid10, "aaaabbbb"), ("abababab".into(), 0));
        assert_eq!(placed(Level::Raid10, "aabbcc").1, 0);
        assert_eq!(placed(Level::Raid10, "aabc").1, 0);
        assert_eq!(placed(Level::Raid10, "aaab").1, 1);
        assert_eq!(placed(Level::Raid1, "ab").1, 0);
        assert_eq!(placed(Level::Raid1, "aa").1, 1);
        assert_eq!(placed(Level::Raid5, "abc").1, 0);
        assert_eq!(placed(Level::Raid5, "aab").1, 1);
        assert_eq!(placed(Level::Raid0, "aa").1, 0);
    }
}
