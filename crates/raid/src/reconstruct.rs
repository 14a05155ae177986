//! RAID 5: reading without a member.

use crate::core::ArrayCore;
use crate::levels::{LegPiece, ParityStripe, Roles};
use crate::member::{ArrayMember, is_loss};
use crate::xor::xor;
use block::{Access, Buf, Grant, IoError, IoErrorKind, IoResult, Lba, SECTOR_BYTES, Sectors};
use futures_util::future::join_all;
use std::rc::Rc;

impl ArrayCore {
    /// Reads a piece of a member that cannot be read itself. `missing` means that the member was
    /// not in sync.
    pub async fn read_from_others(
        self: &Rc<ArrayCore>,
        piece: LegPiece,
        missing: bool,
        mut buf: Buf,
    ) -> (Buf, IoResult) {
        let stripe = self.shape.stripe_at(piece.extent.start);
        let leg = piece.legs()[0];
        let grant = self.grant_reconstruct(0, buf.len()).await;
        let _busy = self.busy.lock(stripe.extent(), Access::Shared).await;
        // Updates were cut short, which only replaying the journals makes whole.
        if let Some(why) = &*self.down.borrow() {
            let what = format!("what a missing member held cannot be computed: {why}");
            return (buf, Err(self.error(IoErrorKind::Gone, what)));
        }
        // A rebuild may have ended while this waited for it, and another member may have been lost
        // since.
        if let Some(member) = self.in_sync(leg.member).filter(|_| missing) {
            let result;
            (buf, result) = self.read_of(leg.member, &member, leg.at, buf).await;
            self.judge_read(&member, &result);
            if result.is_ok() {
                return (buf, Ok(()));
            }
        }
        self.reconstruct(stripe, leg.member, leg.at - stripe.row(), buf, &grant)
            .await
    }

    /// Computes the data of `role` from `from` on in its chunk of `stripe`. No write to the stripe
    /// may be in flight. Takes memory from `grant` and gives it back.
    pub async fn reconstruct(
        self: &Rc<ArrayCore>,
        stripe: ParityStripe,
        role: usize,
        from: Sectors,
        mut buf: Buf,
        grant: &Grant,
    ) -> (Buf, IoResult) {
        let others: Vec<usize> = (0..self.shape.members()).filter(|r| *r != role).collect();
        let step = self.reconstruct_step(buf.len());
        let mut done = 0;
        while done < buf.len() {
            let len = step.min(buf.len() - done);
            let all = grant.take(len * others.len());
            let at = stripe.row() + from + Sectors((done / SECTOR_BYTES as usize) as u64);
            let (all, lost) = self.read_band(at, &others, all).await;
            if !lost.is_empty() {
                grant.give_back(all);
                let error = self.two_illegible("another member cannot be read either");
                return (buf, Err(error));
            }
            let into = &mut buf[done..done + len];
            into.fill(0);
            all.chunks_exact(len).for_each(|chunk| xor(into, chunk));
            grant.give_back(all);
            done += len;
        }
        (buf, Ok(()))
    }

    /// Makes the error for data that needs two unreadable members: the array is lost, or sectors
    /// are.
    pub fn two_illegible(&self, what: &'static str) -> IoError {
        let roles = 0..self.shape.members();
        let missing = roles.filter(|role| self.in_sync(*role).is_none()).count();
        let is_lost = missing > 1 || self.down.borrow().is_some();
        self.error(
            if is_lost {
                IoErrorKind::Gone
            } else {
                IoErrorKind::Media
            },
            what,
        )
    }

    /// Reads the same run of all `roles` into `all`; returns the roles that could not be read.
    pub async fn read_band(
        self: &Rc<ArrayCore>,
        at: Lba,
        roles: &[usize],
        all: Buf,
    ) -> (Buf, Roles) {
        let len = all.len() / roles.len();
        let (mut reads, mut rest) = (Vec::new(), all);
        for role in roles {
            let (mine, tail) = rest.split_at(len);
            reads.push(async move {
                let Some(member) = self.in_sync(*role) else {
                    return (mine, false);
                };
                let (mine, result) = self.read_of(*role, &member, at, mine).await;
                self.judge_read(&member, &result);
                (mine, result.is_ok())
            });
            rest = tail;
        }
        drop(rest);
        let (mut parts, mut lost) = (Vec::with_capacity(roles.len()), Roles::default());
        for (role, (part, good)) in roles.iter().zip(join_all(reads).await) {
            if !good {
                lost.add(*role);
            }
            parts.push(part);
        }
        (Buf::join(parts, &self.env.pool), lost)
    }

    pub fn judge_read(self: &Rc<ArrayCore>, member: &ArrayMember, result: &IoResult) {
        if let Err(error) = result
            && is_loss(error)
        {
            self.fail(member, error);
        }
    }
}
