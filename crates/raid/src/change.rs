//! Writes of the levels that keep copies or nothing.
//!
//! A write goes to every live leg. Before its acknowledgement a leg in sync has it, and no member
//! that lacks it counts as in sync, durably.
//!
//! Not here: RAID 5's writes (`parity`).

use crate::core::ArrayCore;
use crate::levels::{LEGS_MAX, LegPiece, Roles};
use crate::member::ArrayMember;
use arrayvec::ArrayVec;
use block::{Access, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Proof, SharedBuf};
use futures_util::future::{join, join_all};
use std::rc::Rc;

/// A change of an extent.
#[derive(Clone)]
pub(crate) enum ExtentChange {
    Data(SharedBuf, Fua),
    Zero,
    Discard,
}

/// Result of a change on one leg; without a member that was lost before.
struct LegOutcome {
    role: usize,
    member: Option<Rc<ArrayMember>>,
    result: IoResult,
}

/// Result of a change.
#[derive(Default)]
struct ChangeOutcome {
    took: Roles,
    failed: Option<IoError>,
}

impl ChangeOutcome {
    /// Adds the result of a leg: a member that did not take the change is evicted.
    fn add(&mut self, core: &Rc<ArrayCore>, leg: LegOutcome) {
        match (leg.result, leg.member) {
            (Ok(()), _) => self.took.add(leg.role),
            (Err(error), Some(member)) if !core.fail(&member, &error) => self.failed = Some(error),
            (Err(_), _) => {}
        }
    }
}

impl ArrayCore {
    /// Changes `extent` on every live leg of a level that keeps copies.
    pub async fn change(self: Rc<ArrayCore>, extent: Extent, change: ExtentChange) -> IoResult {
        let _under_way = self.late.begin();
        self.last_use.set(self.env.timer.now());
        if matches!(change, ExtentChange::Discard) {
            // Members would answer a discard differently, and copies would differ.
            return Ok(());
        }
        let bitmap = self.bitmap.as_ref().expect("copies have superblocks");
        self.check_up()?;
        let _busy = self.busy.lock(extent, Access::Shared).await;
        let marked = bitmap.begin(&self, extent).await;
        let result = match marked {
            Ok(marked) => self.change_legs(extent, &change, marked).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.mark_out_of_sync(extent);
        }
        bitmap.end(extent, self.env.timer.now());
        // The write is acknowledged.
        result.map(drop)
    }

    /// Changes `extent` of a level without redundancy: there is nothing to keep in agreement.
    pub async fn change_plain(&self, extent: Extent, change: ExtentChange) -> IoResult {
        self.last_use.set(self.env.timer.now());
        let first = self.shape.first_piece(extent);
        if first.extent == extent {
            return self
                .change_leg(&first, 0, extent.start, &change)
                .await
                .result;
        }
        let pieces = self.shape.pieces(extent);
        let changes = pieces.map(|piece| self.change_leg(&piece, 0, extent.start, &change));
        let ended = Box::pin(join_all(changes)).await;
        ended.into_iter().try_for_each(|leg| leg.result)
    }

    /// Changes one leg, and returns its member, which is chosen at once.
    fn change_leg(
        &self,
        piece: &LegPiece,
        index: usize,
        start: Lba,
        change: &ExtentChange,
    ) -> impl Future<Output = LegOutcome> + use<> {
        let leg = piece.legs()[index];
        let there = Extent::new(leg.at, piece.extent.len);
        let change = match change {
            ExtentChange::Data(data, fua) => {
                ExtentChange::Data(data.slice(piece.bytes(start)), *fua)
            }
            other => other.clone(),
        };
        let role = leg.member;
        let member = self.writable(role);
        let member = member.ok_or_else(|| self.error(IoErrorKind::Gone, "the member is lost"));
        async move {
            let (member, result) = match member {
                Ok(member) => {
                    let result = member.change(there, change).await;
                    (Some(member), result)
                }
                Err(error) => (None, Err(error)),
            };
            LegOutcome {
                role,
                member,
                result,
            }
        }
    }

    async fn change_legs(
        self: &Rc<ArrayCore>,
        extent: Extent,
        change: &ExtentChange,
        _marked: Proof,
    ) -> IoResult<Proof> {
        let mut outcome = ChangeOutcome::default();
        let first = self.shape.first_piece(extent);
        let whole = first.extent == extent;
        if whole {
            self.change_piece(&first, change, &mut outcome).await;
        } else {
            // Boxed, so that the futures of short requests stay small.
            Box::pin(self.change_pieces(extent, change, &mut outcome)).await;
        }
        let known = self.committed().await?;
        self.check_up()?;
        if let Some(error) = outcome.failed {
            return Err(error);
        }
        // A leg that was in sync at the time may have been evicted since.
        let took = |piece: &LegPiece| {
            let mut legs = piece.legs().iter().map(|leg| leg.member);
            legs.any(|role| outcome.took.has(role) && self.is_in_sync(role))
        };
        let untaken = match whole {
            true => Some(first).filter(|piece| !took(piece)),
            false => self.shape.pieces(extent).find(|piece| !took(piece)),
        };
        if let Some(piece) = untaken {
            let error = self.error(IoErrorKind::Gone, "no member took the write");
            return Err(error.at(piece.extent));
        }
        let legs = |piece: LegPiece| {
            let legs = piece.legs().to_vec().into_iter();
            legs.map(move |leg| (leg.member, Extent::new(leg.at, piece.extent.len)))
        };
        let written = self.shape.pieces(extent).flat_map(legs);
        self.clear_lost(Some(extent), written).await?;
        Ok(known)
    }

    /// Returns the legs of `piece` that take writes, by their index.
    fn live_legs(&self, piece: &LegPiece) -> ArrayVec<usize, LEGS_MAX> {
        let all = 0..piece.legs().len();
        all.filter(|leg| self.writable(piece.legs()[*leg].member).is_some())
            .collect()
    }

    /// Changes an extent of one piece.
    async fn change_piece(
        self: &Rc<ArrayCore>,
        piece: &LegPiece,
        change: &ExtentChange,
        outcome: &mut ChangeOutcome,
    ) {
        let of = |leg: usize| self.change_leg(piece, leg, piece.extent.start, change);
        match self.live_legs(piece)[..] {
            [one] => outcome.add(self, of(one).await),
            [one, other] => {
                let (one, other) = join(of(one), of(other)).await;
                outcome.add(self, one);
                outcome.add(self, other);
            }
            ref legs => {
                let ended = Box::pin(join_all(legs.iter().map(|leg| of(*leg)))).await;
                ended.into_iter().for_each(|leg| outcome.add(self, leg));
            }
        }
    }

    async fn change_pieces(
        self: &Rc<ArrayCore>,
        extent: Extent,
        change: &ExtentChange,
        outcome: &mut ChangeOutcome,
    ) {
        let legs = self.shape.pieces(extent).flat_map(|piece| {
            let live = self.live_legs(&piece).into_iter();
            live.map(move |leg| self.change_leg(&piece, leg, extent.start, change))
        });
        // The members that take part are chosen here, before any of them is polled.
        let legs: Vec<_> = legs.collect();
        for ended in join_all(legs).await {
            outcome.add(self, ended);
        }
    }
}
