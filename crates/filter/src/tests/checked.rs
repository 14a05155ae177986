//! `Checked` notices each breach that it names.

use super::common::on_disk;
use super::contract::Checked;
use block::{
    Buf, Content, Device, Env, Extent, Fua, Geometry, IoErrorKind, IoResult, Lba, Sectors,
    SharedBuf,
};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    SwapsBuffers,
    AcceptsAnything,
    RefusesAll,
    LeavesAGap,
    StopsShort,
}

struct Broken {
    geometry: Geometry,
    env: Env,
    flaw: Flaw,
}

impl Broken {
    fn answer(&self) -> IoResult {
        match self.flaw {
            Flaw::RefusesAll => Err(self.geometry.error(IoErrorKind::Invalid, "no")),
            _ => Ok(()),
        }
    }
}

impl Device for Broken {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    async fn read(&self, _: Lba, buf: Buf) -> (Buf, IoResult) {
        if self.flaw == Flaw::SwapsBuffers {
            return (self.env.pool.get(buf.len()).await, Ok(()));
        }
        (buf, self.answer())
    }
    async fn write(&self, _: Lba, _: SharedBuf, _: Fua) -> IoResult {
        self.answer()
    }
    async fn zero(&self, _: Extent) -> IoResult {
        self.answer()
    }
    async fn flush(&self) -> IoResult {
        self.answer()
    }
    async fn discard(&self, _: Extent) -> IoResult {
        self.answer()
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let (start, len) = (extent.start, extent.len);
        let run = match self.flaw {
            Flaw::LeavesAGap => Extent::new(start + Sectors(1), len - Sectors(1)),
            _ => Extent::new(start, len - Sectors(1)),
        };
        out.push((run, Content::Data));
        self.answer()
    }
}

/// Returns the message of a panic of `future` at its first poll, if there is one.
async fn panics(future: impl Future) -> Option<String> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(cx).is_ready());
        Poll::Ready(match catch_unwind(poll) {
            Ok(_) => None,
            Err(panic) => Some(*panic.downcast::<String>().expect("a formatted message")),
        })
    })
    .await
}

#[test]
fn breaches_of_the_device_panic() {
    on_disk(1, 1, async |_, env| {
        let broken = |flaw| {
            let geometry = Geometry::new("broken", Sectors(64), Sectors(1));
            let env = env.clone();
            Checked::new(Broken {
                geometry,
                env,
                flaw,
            })
        };
        let whole = Extent::new(Lba(0), Sectors(8));
        let past = Extent::new(Lba(60), Sectors(8));
        let read = async |flaw, at| {
            let buf = env.pool.get(4096).await;
            panics(broken(flaw).read(at, buf)).await
        };
        let extents = async |flaw| panics(broken(flaw).extents(whole, &mut Vec::new())).await;
        let said = [
            (read(Flaw::SwapsBuffers, Lba(0)).await, "another buffer"),
            (
                read(Flaw::AcceptsAnything, Lba(60)).await,
                "which is invalid",
            ),
            (read(Flaw::RefusesAll, Lba(0)).await, "which is valid"),
            (
                panics(broken(Flaw::AcceptsAnything).zero(past)).await,
                "which is invalid",
            ),
            (
                panics(broken(Flaw::RefusesAll).flush()).await,
                "which is valid",
            ),
            (extents(Flaw::LeavesAGap).await, "is due"),
            (extents(Flaw::StopsShort).await, "end at sector 7"),
        ];
        for (message, expected) in said {
            let message = message.unwrap_or_else(|| panic!("no panic where {expected:?} is due"));
            assert!(message.contains(expected), "{message}");
        }
    });
}

#[test]
fn overlapping_changes_panic_and_neighbours_do_not() {
    on_disk(1, 1, async |disk, env| {
        let checked = Checked::new(disk);
        let data = env.pool.get(4096).await.share();
        let mut first = pin!(checked.write(Lba(8), data.clone(), Fua::No));
        assert_eq!(panics(first.as_mut()).await, None);
        assert_eq!(
            panics(checked.write(Lba(16), data.clone(), Fua::No)).await,
            None
        );
        let overlap = panics(checked.write(Lba(15), data.clone(), Fua::No)).await;
        assert!(
            overlap
                .expect("an overlap")
                .contains("while Write of sectors 8+8")
        );
        let overlap = panics(checked.zero(Extent::new(Lba(0), Sectors(9)))).await;
        assert!(overlap.expect("an overlap").contains("Zero of sectors 0+9"));
        first.await.expect("a sound write");
        assert_eq!(panics(checked.write(Lba(15), data, Fua::No)).await, None);
    });
}
