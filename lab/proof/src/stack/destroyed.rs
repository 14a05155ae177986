//! The value of a write-back volume's origin alone, once all else is destroyed.
//!
//! Its file system must be sound and its database recover. Commits may be lost, but of each
//! client the last ones only, and none that was acknowledged more than `max_lag` before the
//! last.

use super::database::{CLIENT, DatabaseServer, check_file_system};
use super::place::StackDirectory;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use testbed::mounted::MountedFileSystem;

/// The volume's longest lag.
pub(super) const MAX_LAG: Duration = Duration::from_secs(2);
/// Delay with which a client's process may see an answer on a busy machine.
const LATE: Duration = Duration::from_secs(1);

/// A transaction, and the moment at which its commit was acknowledged.
pub(super) type Commit = (u64, Instant);

/// The findings.
#[derive(Debug)]
pub(super) struct OriginAlone {
    /// Transactions that the origin has.
    pub(super) rows: BTreeSet<u64>,
    /// Commits that the origin lacks.
    pub(super) lost: u64,
    /// Time between the acknowledgements of the oldest lost commit and of the last of all.
    pub(super) oldest: Duration,
}

/// Recovers the database on the origin alone.
pub(super) fn recover(
    place: &StackDirectory,
    program: &Path,
    commits: &[Commit],
) -> Result<OriginAlone, String> {
    place.recover(program)?;
    let origin = place.path("origin");
    check_file_system(&origin)?;
    let mounted = MountedFileSystem::new(&origin, &place.path("mount"))?;
    let server = DatabaseServer::start(&mounted.at().join("data"), &place.path("sockets"))?;
    let rows = server.rows()?;
    server.stop("fast")?;
    mounted.unmount()?;
    judge(commits, rows)
}

fn judge(commits: &[Commit], rows: BTreeSet<u64>) -> Result<OriginAlone, String> {
    let last = commits.iter().map(|(_, at)| *at).max();
    let mut first_lost = BTreeMap::new();
    let (mut lost, mut oldest) = (0, Duration::ZERO);
    for (id, at) in commits {
        if rows.contains(id) {
            continue;
        }
        lost += 1;
        oldest = oldest.max(last.expect("there is one") - *at);
        let first = first_lost.entry(id / CLIENT).or_insert(*id);
        *first = *id.min(first);
    }
    let after = |id: &&u64| {
        first_lost
            .get(&(**id / CLIENT))
            .is_some_and(|first| *id > first)
    };
    if let Some(id) = rows.iter().find(after) {
        return Err(format!(
            "row {id} is there, and an earlier one of its client is lost"
        ));
    }
    match oldest > MAX_LAG + LATE {
        true => Err(format!(
            "a commit is lost that was acknowledged {oldest:?} before the last"
        )),
        false => Ok(OriginAlone { rows, lost, oldest }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits of two clients, one a millisecond.
    fn commits() -> Vec<Commit> {
        let begin = Instant::now();
        let at = |n: u64| (n % 2 * CLIENT + n / 2, begin + Duration::from_millis(n));
        (0..10_000).map(at).collect()
    }

    fn found(has: impl Fn(u64) -> bool) -> Result<OriginAlone, String> {
        let commits = commits();
        let rows = commits.iter().enumerate();
        let rows = rows.filter(|(n, _)| has(*n as u64)).map(|(_, (id, _))| *id);
        judge(&commits, rows.collect())
    }

    #[test]
    fn the_newest_may_be_lost_and_no_others() {
        let alone = found(|n| n < 9_000).unwrap();
        assert_eq!(
            (alone.lost, alone.oldest),
            (1_000, Duration::from_millis(999))
        );
        let of_one = found(|n| n < 9_000 || n % 2 == 0).unwrap();
        assert_eq!(of_one.lost, 500, "clients are of no order");
        assert!(
            found(|n| n < 6_000).unwrap_err().contains("3.999s"),
            "older than it may lag"
        );
        assert!(
            found(|n| n != 9_000)
                .unwrap_err()
                .contains("an earlier one")
        );
    }
}
