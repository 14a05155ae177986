//! What the journals of RAID 5 still announce, after a crash: done again, so
//! that every stripe's parity is right before anything is served.
//!
//! It may be interrupted and begin anew: records stay until a flush has covered
//! what they announce.

use crate::core::Core;
use crate::format::BLOCK_BYTES;
use crate::format::journal::{Intent, Record, Run};
use crate::levels::Stripe;
use crate::member::Member;
use crate::xor::xor;
use block::{Fua, IoResult, Sectors};
use std::collections::BTreeMap;
use std::rc::Rc;

impl Core {
    /// Does what the journals announce; returns how many stripes that were.
    pub async fn replay(self: &Rc<Core>) -> IoResult<usize> {
        let mut stripes = 0;
        for role in 0..self.journals.len() {
            let Some(member) = self.in_sync(role) else {
                continue;
            };
            let records = self.read_journal(role, &member).await?;
            stripes += records.len();
            for (stripe, records) in records {
                self.replay_stripe(role, &member, self.shape.stripe(stripe), records)
                    .await?;
            }
        }
        self.flush_members().await?;
        for journal in &self.journals {
            journal.retire(self).await?;
        }
        Ok(stripes)
    }

    /// The records that are not done with, in order, by stripe.
    async fn read_journal(
        &self,
        role: usize,
        member: &Member,
    ) -> IoResult<BTreeMap<u64, Vec<Record>>> {
        let journal = &self.journals[role];
        let mut records = Vec::new();
        for slot in 0..journal.slots() {
            let buf = self.env.pool.get(BLOCK_BYTES).await;
            let (buf, result) = member.read_meta(journal.place(slot), buf).await;
            // A header that cannot be read was being written, or its member is
            // beyond trust; its stripe is then treated like one at rest.
            if result.is_ok() {
                let members = self.shape.members();
                let array = self.meta().array;
                records.extend(Record::decode(&buf, array, members, self.shape.chunk()));
            }
        }
        let last = records.iter().map(|record| record.number).max();
        journal.resume_after(last.unwrap_or(0));
        let tail = records.iter().map(|record| record.tail).max().unwrap_or(0);
        records.retain(|record| record.number >= tail && record.intent != Intent::Retire);
        records.sort_by_key(|record| record.number);
        let mut stripes: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
        let count = self.geometry.sectors.0 / self.shape.width().0;
        for record in records.into_iter().filter(|record| record.stripe < count) {
            // A stripe written whole leaves nothing of what was there before.
            if matches!(record.intent, Intent::Whole(_) | Intent::Stays) {
                stripes.remove(&record.stripe);
            }
            if record.intent != Intent::Stays {
                stripes.entry(record.stripe).or_default().push(record);
            }
        }
        Ok(stripes)
    }

    async fn replay_stripe(
        self: &Rc<Core>,
        role: usize,
        keeper: &Member,
        stripe: Stripe,
        records: Vec<Record>,
    ) -> IoResult {
        let mut whole = None;
        for record in records {
            match &record.intent {
                Intent::Whole(sums) => whole = Some(sums.clone()),
                Intent::Redo { runs, sum } => {
                    // A partial write begins only once what was written whole
                    // has been flushed.
                    if self
                        .redo(role, keeper, stripe, record.number, runs, *sum)
                        .await?
                    {
                        whole = None;
                    }
                }
                Intent::Retire | Intent::Stays => {}
            }
        }
        match whole {
            Some(sums) => self.settle_whole(stripe, &sums).await,
            None => Ok(()),
        }
    }

    /// Writes what a record holds; `false` if not all of it had been written.
    async fn redo(
        self: &Rc<Core>,
        role: usize,
        keeper: &Member,
        stripe: Stripe,
        number: u64,
        runs: &[Run],
        sum: u32,
    ) -> IoResult<bool> {
        let bytes: u64 = runs.iter().map(|run| run.len.bytes()).sum();
        let place = Sectors(self.journals[role].place(number).0 + BLOCK_BYTES as u64 / 512);
        let buf = self.env.pool.get(bytes as usize).await;
        let (buf, result) = keeper.read_meta(place, buf).await;
        if result.is_err() || crc32c::crc32c(&buf) != sum {
            return Ok(false);
        }
        let (data, mut from) = (buf.share(), 0);
        for run in runs {
            let to = from + run.len.bytes() as usize;
            self.rewrite(run.member, stripe, run.from, data.slice(from..to))
                .await?;
            from = to;
        }
        Ok(true)
    }

    async fn rewrite(
        self: &Rc<Core>,
        role: usize,
        stripe: Stripe,
        from: Sectors,
        data: block::Shared,
    ) -> IoResult {
        let Some(member) = self.writable(role) else {
            return Ok(());
        };
        match member.write(stripe.row() + from, data, Fua::No).await {
            Err(error) if !self.fail(role, &error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A stripe was being written whole. With all chunks there its parity is
    /// computed; one that cannot be read is computed if all others are new, and
    /// lost if not.
    async fn settle_whole(self: &Rc<Core>, stripe: Stripe, sums: &[u32]) -> IoResult {
        let len = self.shape.chunk().bytes() as usize;
        let mut parity = self.env.pool.get(len).await;
        let mut absent = self.env.pool.get(len).await;
        parity.fill(0);
        absent.fill(0);
        let (mut missing, mut all_new) = (Vec::new(), true);
        for (role, sum) in sums.iter().enumerate() {
            let buf = self.env.pool.get(len).await;
            let (buf, result) = match self.in_sync(role) {
                Some(member) => member.read(stripe.row(), buf).await,
                None => (buf, Err(self.error(block::Kind::Gone, "missing"))),
            };
            match result {
                Err(_) => missing.push(role),
                Ok(()) => {
                    all_new &= crc32c::crc32c(&buf) == *sum;
                    xor(&mut absent, &buf);
                    if role != stripe.parity {
                        xor(&mut parity, &buf);
                    }
                }
            }
        }
        all_new &= !missing.contains(&stripe.parity);
        missing.retain(|role| *role != stripe.parity);
        if missing.is_empty() {
            return self
                .rewrite(stripe.parity, stripe, Sectors::ZERO, parity.share())
                .await;
        }
        if let [role] = missing[..]
            && all_new
        {
            // What can be read of it may be from before.
            return self
                .rewrite(role, stripe, Sectors::ZERO, absent.share())
                .await;
        }
        for role in &missing {
            let column = stripe.column(*role).expect("not the parity");
            self.add_bad(stripe.place(column, Sectors::ZERO, self.shape.chunk()))?;
        }
        self.commit().await?;
        // Zeroes take their place, with a parity that fits: a member that is here
        // may hold sectors that can be read beside one that cannot.
        let mut zeroes = self.env.pool.get(len).await;
        zeroes.fill(0);
        let zeroes = zeroes.share();
        for role in missing {
            self.rewrite(role, stripe, Sectors::ZERO, zeroes.clone())
                .await?;
        }
        self.rewrite(stripe.parity, stripe, Sectors::ZERO, parity.share())
            .await
    }
}
