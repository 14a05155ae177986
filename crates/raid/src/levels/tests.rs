use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn shapes() -> impl Strategy<Value = ArrayShape> {
    let level = prop::sample::select(Level::ALL.to_vec());
    (
        level,
        1..9_usize,
        1..5_u64,
        prop::collection::vec(40..200_u64, 9),
    )
        .prop_map(|(level, members, pages, sizes)| {
            let (fewest, most) = level.members();
            let members = members.clamp(fewest, most);
            let sizes: Vec<_> = sizes[..members].iter().map(|s| Sectors(*s)).collect();
            ArrayShape::new(level, &sizes, Sectors(8 * pages)).unwrap()
        })
}

/// True if the copies of chunks end with each row.
fn fills_rows(shape: &ArrayShape) -> bool {
    match shape.level() {
        Level::Raid10 => shape.members().is_multiple_of(2),
        _ => true,
    }
}

proptest! {
    #[test]
    fn every_sector_has_places_of_its_own(shape in shapes()) {
        let mut taken = HashSet::new();
        let all = Extent::new(Lba::ZERO, shape.sectors());
        let mut next = Lba::ZERO;
        for piece in shape.pieces(all) {
            prop_assert_eq!(piece.extent.start, next);
            next = piece.extent.end();
            let members: HashSet<_> = piece.legs().iter().map(|leg| leg.member).collect();
            prop_assert_eq!(members.len(), piece.legs().len());
            for leg in piece.legs() {
                let there = Extent::new(leg.at, piece.extent.len);
                let has_place = shape.level().is_redundant();
                let expected = has_place.then_some(piece.extent).into_iter().collect::<Vec<_>>();
                prop_assert_eq!(shape.sectors_at(leg.member, there), expected);
                for at in leg.at.0..leg.at.0 + piece.extent.len.0 {
                    prop_assert!(at < shape.member_sectors(leg.member).0);
                    prop_assert!(taken.insert((leg.member, at)));
                }
            }
        }
        prop_assert_eq!(next, all.end());
        let used: u64 = (0..shape.members()).map(|m| shape.member_sectors(m).0).sum();
        let idle = match shape.level() {
            Level::Raid5 => shape.member_sectors(0).0,
            Level::Raid10 => used - taken.len() as u64,
            _ => 0,
        };
        prop_assert_eq!(taken.len() as u64 + idle, used);
        prop_assert!(idle < used);
    }

    #[test]
    fn a_part_lies_where_the_whole_does(shape in shapes(), start in 0..1000_u64, len in 1..300_u64) {
        let sectors = shape.sectors().0;
        let start = start % sectors;
        let part = Extent::new(Lba(start), Sectors(len.min(sectors - start)));
        for piece in shape.pieces(part) {
            let whole = shape.pieces(Extent::new(Lba::ZERO, shape.sectors()));
            let holder = whole.into_iter().find(|w| w.extent.overlaps(piece.extent)).unwrap();
            prop_assert!(holder.extent.contains(piece.extent));
            let offset = piece.extent.start - holder.extent.start;
            for (a, b) in piece.legs().iter().zip(holder.legs()) {
                prop_assert_eq!((a.member, a.at), (b.member, b.at + offset));
            }
        }
    }

    #[test]
    fn an_array_runs_exactly_when_each_sector_has_a_source(shape in shapes(), lost in 0..512_u32) {
        let present = |role: usize| lost & (1 << role) == 0;
        let all = Extent::new(Lba::ZERO, shape.sectors());
        let readable = match shape.level() {
            Level::Raid5 => (0..shape.members()).filter(|r| !present(*r)).count() <= 1,
            _ => shape.pieces(all).all(|p| p.legs().iter().any(|leg| present(leg.member))),
        };
        // A small array may not use all groups of members that could hold a chunk.
        if shape.can_run(present) {
            prop_assert!(readable);
        } else if fills_rows(&shape) {
            prop_assert!(!readable);
        }
    }
}

#[test]
fn a_stripes_columns_are_the_other_members() {
    let shape = ArrayShape::new(Level::Raid5, &[Sectors(800); 5], Sectors(8)).unwrap();
    for number in 0..20 {
        let stripe = shape.stripe(number);
        assert_eq!(stripe.column(stripe.parity), None);
        for column in 0..stripe.columns() {
            assert_eq!(stripe.column(stripe.data(column)), Some(column));
            let piece = shape.first_piece(stripe.place(column, Sectors(3), Sectors(2)));
            assert_eq!(piece.legs()[0].member, stripe.data(column));
            assert_eq!(piece.legs()[0].at, stripe.row() + Sectors(3));
        }
    }
    let parities: Vec<_> = (0..6).map(|n| shape.stripe(n).parity).collect();
    assert_eq!(parities, [4, 3, 2, 1, 0, 4]);
}

#[test]
fn impossible_shapes_are_refused_with_the_remedy() {
    let refused = |level, members: usize, chunk| {
        let sizes = vec![Sectors(100); members];
        ArrayShape::new(level, &sizes, Sectors(chunk))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(Level::Raid1, 5, 8).contains("from 2 to 4"));
    assert!(refused(Level::Raid5, 2, 8).contains("from 3 to 32"));
    assert!(refused(Level::Raid0, 2, 9).contains("multiple of 4 KiB"));
    assert!(refused(Level::Raid0, 2, 128).contains("too small"));
}

#[test]
fn levels_are_known_by_their_names() {
    let names: Vec<_> = Level::ALL.iter().map(|level| level.name()).collect();
    assert_eq!(names, ["linear", "raid0", "raid1", "raid10", "raid5"]);
    for (code, level) in Level::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(level.code()), code);
        assert_eq!(Level::from_name(level.name()), Some(level));
    }
    assert_eq!(Level::from_name("raid6"), None);
}

/// The chunk matters to striped levels alone.
#[test]
fn a_chunk_is_a_multiple_of_a_page_up_to_4_mib() {
    for level in Level::ALL {
        let takes = |chunk| ArrayShape::new(level, &[Sectors(1 << 20); 3], Sectors(chunk)).is_ok();
        for chunk in [8, 16, 8192] {
            assert!(takes(chunk), "{level:?}: {chunk}");
        }
        for chunk in [0, 4, 12, 8200, 16384] {
            assert_eq!(takes(chunk), !level.is_striped(), "{level:?}: {chunk}");
        }
    }
    assert!(!Level::Linear.is_striped() && !Level::Raid1.is_striped());
}

#[test]
fn a_set_has_the_roles_that_were_added() {
    let mut roles = Roles::default();
    assert!(roles.is_empty());
    let added = [0, 3, MEMBERS_MAX - 1];
    added.into_iter().for_each(|role| roles.add(role));
    assert!(!roles.is_empty());
    assert_eq!(roles.iter().collect::<Vec<_>>(), added);
    assert!(roles.has(3) && !roles.has(2));
}

#[test]
fn a_stripe_of_data_is_best_transferred_at_once() {
    let widths = Level::ALL.map(|level| {
        let shape = ArrayShape::new(level, &[Sectors(1 << 20); 4], Sectors(64)).unwrap();
        shape.width().0
    });
    assert_eq!(widths, [8, 256, 8, 128, 192]);
}

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
