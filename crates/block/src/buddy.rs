//! Which pages of the pool's arena are free: a buddy allocator.
//!
//! Invariants:
//!     a free block of order `o` starts at a multiple of `2^o` pages
//!     two free buddies are merged, unless one is kept whole on a quick list
//!     `free_pages` counts the pages of every free block, quick ones included
//!
//! Knuth, "The Art of Computer Programming", volume 1, 2.5.

/// Sizes of block: one page and its doubles.
pub(crate) const ORDERS: usize = 11;
/// No page.
pub(crate) const NIL: u32 = u32::MAX;
/// Freed blocks of one order kept whole, so that steady traffic of one size
/// neither splits nor merges.
const QUICK: usize = 64;
const NOT_FREE: u8 = u8::MAX;

pub(crate) struct Lists {
    first: [u32; ORDERS],
    quick: [Vec<u32>; ORDERS],
    next: Vec<u32>,
    prev: Vec<u32>,
    /// The order of the free block that starts at this page, or `NOT_FREE`.
    free_order: Vec<u8>,
    pub(crate) free_pages: u32,
}

impl Lists {
    pub(crate) fn new(pages: u32) -> Lists {
        let mut lists = Lists {
            first: [NIL; ORDERS],
            quick: std::array::from_fn(|_| Vec::with_capacity(QUICK)),
            next: vec![NIL; pages as usize],
            prev: vec![NIL; pages as usize],
            free_order: vec![NOT_FREE; pages as usize],
            free_pages: pages,
        };
        let top = (pages.ilog2() as usize).min(ORDERS - 1);
        for page in (0..pages).step_by(1 << top).rev() {
            lists.link(page, top);
        }
        lists
    }

    #[inline]
    pub(crate) fn take(&mut self, order: usize) -> Option<u32> {
        let page = match self.quick[order].pop() {
            Some(page) => page,
            None => {
                let from = (order..ORDERS).find(|&o| self.first[o] != NIL)?;
                let page = self.first[from];
                self.unlink(page);
                for o in (order..from).rev() {
                    self.link(page + (1 << o), o);
                }
                page
            }
        };
        self.free_pages -= 1 << order;
        Some(page)
    }

    #[inline]
    pub(crate) fn give(&mut self, page: u32, order: usize) {
        self.free_pages += 1 << order;
        if self.quick[order].len() < QUICK {
            self.quick[order].push(page);
        } else {
            self.merge(page, order);
        }
    }

    pub(crate) fn merge_quick(&mut self) {
        for order in 0..ORDERS {
            while let Some(page) = self.quick[order].pop() {
                self.merge(page, order);
            }
        }
    }

    fn merge(&mut self, mut page: u32, mut order: usize) {
        while order < ORDERS - 1 {
            let buddy = page ^ (1 << order);
            if self.free_order.get(buddy as usize) != Some(&(order as u8)) {
                break;
            }
            self.unlink(buddy);
            page = page.min(buddy);
            order += 1;
        }
        self.link(page, order);
    }

    fn link(&mut self, page: u32, order: usize) {
        let first = self.first[order];
        self.free_order[page as usize] = order as u8;
        self.prev[page as usize] = NIL;
        self.next[page as usize] = first;
        if first != NIL {
            self.prev[first as usize] = page;
        }
        self.first[order] = page;
    }

    fn unlink(&mut self, page: u32) {
        let order = std::mem::replace(&mut self.free_order[page as usize], NOT_FREE) as usize;
        let (prev, next) = (self.prev[page as usize], self.next[page as usize]);
        if prev == NIL {
            self.first[order] = next;
        } else {
            self.next[prev as usize] = next;
        }
        if next != NIL {
            self.prev[next as usize] = prev;
        }
    }
}
