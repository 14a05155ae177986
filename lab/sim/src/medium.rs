//! A disk's bytes, as seen from behind its driver: by a server's administrator, a
//! back end that takes and restores snapshots, a test that checks durable bytes.
//!
//! An action here takes no time, meets no fault and is no event of the world:
//! a caller that changes bytes ensures that no operations are in flight there.

use crate::contents::DiskContents;
use crate::pages::PageMap;
use block::Lba;
use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

/// The bytes of a disk; clones are the same.
#[derive(Clone)]
pub struct Medium(Rc<RefCell<DiskContents>>);

/// The bytes of a disk at one moment.
#[derive(Clone)]
pub struct MediumImage(PageMap);

impl Medium {
    pub(crate) fn new(contents: DiskContents) -> Medium {
        Medium(Rc::new(RefCell::new(contents)))
    }

    #[inline]
    pub(crate) fn get(&self) -> Ref<'_, DiskContents> {
        self.0.borrow()
    }

    #[inline]
    pub(crate) fn get_mut(&self) -> RefMut<'_, DiskContents> {
        self.0.borrow_mut()
    }

    /// The bytes that a read of the disk would return now.
    pub fn latest(&self, at: Lba, out: &mut [u8]) {
        self.get().read(at, out);
    }

    /// The bytes that are left if all that is not durable is lost.
    pub fn durable(&self, at: Lba, out: &mut [u8]) {
        self.get().read_durable(at, out);
    }

    /// Puts `data` at `at`, durably.
    pub fn write(&self, at: Lba, data: &[u8]) {
        let pieces = PageMap::pieces_of_write(at, data);
        self.get_mut().write(pieces, true);
    }

    /// All bytes as a read would return them.
    pub fn save(&self) -> MediumImage {
        MediumImage(self.get().image())
    }

    /// Makes the disk equal to `image`, durably.
    pub fn restore(&self, image: &MediumImage) {
        self.get_mut().become_image(image.0.clone());
    }
}
