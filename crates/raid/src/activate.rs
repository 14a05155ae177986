//! What is done to the members of an array, once it is known who they are, before it serves.
//!
//! Invariant: a start has failed, or was given up ⟹ it asks nothing more of a member,
//!            which may be one of another start by then

use crate::array::Array;
use crate::core::Core;
use crate::member::Member;
use block::IoResult;
use layout::BLOCK_BYTES;
use std::rc::Rc;

/// How an array is assembled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Start although members are absent that may hold newer data.
    pub degraded: bool,
}

/// Members that return, with their roles and whether they lack everything.
pub(crate) type Returned = Vec<(usize, Rc<Member>, bool)>;

/// Brings what the members hold into a state in which they can serve.
pub(crate) async fn activate(core: Rc<Core>, returned: Returned, start: Start) -> IoResult<Array> {
    let starting = Starting(Some(core.clone()));
    let begun = core.until_silent(begin(&core, returned, start)).await;
    if let Err(error) = begun {
        drop(starting);
        core.released().await;
        return Err(error);
    }
    starting.succeeded();
    Ok(Array::start(core))
}

/// While an array starts.
struct Starting(Option<Rc<Core>>);

impl Starting {
    fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(core) = &self.0 {
            core.abandon("it has not started");
        }
    }
}

async fn begin(core: &Rc<Core>, returned: Returned, start: Start) -> IoResult {
    core.want_commit();
    core.commit().await?;
    take_over_bitmap(core).await?;
    if !core.journals.is_empty() {
        let stripes = core.replay(start.degraded).await?;
        if stripes > 0 {
            core.log(format!(
                "{}: {stripes} {} done again from the journal",
                core.name,
                if stripes == 1 {
                    "stripe was"
                } else {
                    "stripes were"
                }
            ));
        }
    }
    for (role, member, whole) in returned {
        let name = member.name.clone();
        let adopted = core.adopt(core.claim(role)?, member, whole).await;
        // It was missing in any case; the others carry the array, or say that they cannot.
        if let Err(error) = adopted {
            core.check_up()?;
            core.log(format!(
                "{}: member {role}, {name}, cannot be filled: {error}; replace it, or give it \
                 again once it works",
                core.name
            ));
        }
    }
    Ok(())
}

/// Reads which regions may differ, from every member that is in sync.
async fn take_over_bitmap(core: &Rc<Core>) -> IoResult {
    let Some(bitmap) = &core.bitmap else {
        return Ok(());
    };
    for (role, member) in core.live() {
        if !core.is_in_sync(role) {
            continue;
        }
        for block in 0..bitmap.blocks() {
            let buf = core.env.pool.take(BLOCK_BYTES);
            let (mut buf, result) = member.read_meta(bitmap.place(block), buf).await;
            if result.is_err() {
                buf.fill(0);
            }
            bitmap.adopt(block, &buf, core.meta().array);
        }
    }
    if core.journals.is_empty() {
        *core.unsynced.borrow_mut() = bitmap.marked_regions().into_iter().collect();
    }
    if !bitmap.is_clear() {
        bitmap.write_now(core).await?;
    }
    Ok(())
}
