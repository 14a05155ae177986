//! The requests of a monitor, message by message: rings are set up, started and stopped.

use crate::device::{DiskParts, VirtioDisk};
use crate::inflight::{self, Marks};
use crate::kicks::{self, Sender};
use crate::layout;
use crate::memory::Memory;
use crate::ring::RingBroken;
use crate::shape::{Bell, Bells, QUEUES_MAX, RING_MAX};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::{Arc, MutexGuard};
use vhost::vhost_user::message::{
    VHOST_USER_CONFIG_OFFSET, VhostTransferStateDirection, VhostTransferStatePhase,
    VhostUserConfigFlags, VhostUserInflight, VhostUserLog, VhostUserMemoryRegion,
    VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags,
    VhostUserVringState,
};
use vhost::vhost_user::{Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_queue::QueueT;
use vm_memory::{FileOffset, GuestAddress, MmapRegion};

/// Bytes of the configuration space that a monitor may request; unused ones are zero.
const CONFIG_BYTES_MAX: usize = 256;

/// A connection of a monitor.
pub(crate) struct MonitorHandler {
    disk: Arc<DiskParts>,
    kicks: Sender,
    bells: Bells,
    memory: Option<Arc<Memory>>,
    regions: Vec<GuestRegion>,
    marks: Option<Marks>,
}

/// A part of the guest's memory at the monitor's addresses, by which the monitor places rings.
struct GuestRegion {
    theirs: u64,
    guest: u64,
    len: u64,
}

impl MonitorHandler {
    pub(crate) fn new(disk: Arc<DiskParts>, kicks: Sender, bells: Bells) -> MonitorHandler {
        MonitorHandler {
            disk,
            kicks,
            bells,
            memory: None,
            regions: Vec::new(),
            marks: None,
        }
    }

    /// Makes the bell for a monitor, if the monitor wants one.
    fn bell(&self, event: Option<File>) -> Result<Option<Bell>> {
        let bell = event.map(|event| (self.bells)(event.into()));
        bell.transpose().map_err(failed)
    }

    /// The number of a ring, and the part of the disk that has the ring.
    fn ring(&self, index: u32) -> Result<(usize, MutexGuard<'_, VirtioDisk>)> {
        let at = ring(index)?;
        Ok((at, self.disk.of(at).lock()))
    }

    fn guest_address(&self, theirs: u64) -> Result<GuestAddress> {
        let inside = |region: &&GuestRegion| theirs.wrapping_sub(region.theirs) < region.len;
        let region = self.regions.iter().find(inside);
        let region = region.ok_or(Error::InvalidParam)?;
        Ok(GuestAddress(region.guest + (theirs - region.theirs)))
    }
}

/// Checks the number of a ring.
fn ring(index: u32) -> Result<usize> {
    match index < u32::from(QUEUES_MAX) {
        true => Ok(index as usize),
        false => Err(Error::InvalidParam),
    }
}

fn failed(cause: io::Error) -> Error {
    Error::ReqHandlerError(cause)
}

fn broken(RingBroken(why): RingBroken) -> Error {
    failed(io::Error::other(why))
}

/// Refuses memory that is not the kernel's own. A page of another file depends on its file system,
/// and an access would wait for that: the process behind it may not answer.
fn is_memory(file: &File) -> Result<()> {
    const HUGETLBFS: libc::c_long = 0x9584_58f6;
    let mut about = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the structure is writable, and all zeroes is a valid one.
    let (failure, kind) = unsafe {
        let failure = libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr());
        (failure, about.assume_init().f_type)
    };
    if failure != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    match kind as libc::c_long {
        libc::TMPFS_MAGIC | HUGETLBFS => Ok(()),
        _ => {
            let what = "its memory is of a file system other than tmpfs and hugetlbfs; give the \
                        virtual machine memory of memory-backend-memfd";
            Err(failed(io::Error::other(what)))
        }
    }
}

impl VhostUserBackendReqHandlerMut for MonitorHandler {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_features(&mut self) -> Result<u64> {
        let read_only = self.disk.first().lock().shape.read_only;
        Ok(layout::features(read_only) | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::InvalidParam);
        }
        let always = features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0;
        for part in self.disk.all() {
            let mut device = part.lock();
            device.features = features;
            for ring in &mut device.rings {
                ring.queue.set_event_idx(layout::has_event_index(features));
                // Without that feature no message would enable the rings.
                ring.enabled |= always;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let mut parts = Vec::new();
        let mut regions = Vec::new();
        for (region, file) in table.iter().zip(files) {
            is_memory(&file)?;
            let (len, offset) = (region.memory_size, region.mmap_offset);
            let bytes = file.metadata().map_err(failed)?.len();
            if offset.checked_add(len).is_none_or(|end| end > bytes) {
                return Err(Error::InvalidParam);
            }
            let map = MmapRegion::from_file(FileOffset::new(file, offset), len as usize);
            let map = map.map_err(|cause| failed(io::Error::other(cause)))?;
            parts.push((GuestAddress(region.guest_phys_addr), map));
            regions.push(GuestRegion {
                theirs: region.user_addr,
                guest: region.guest_phys_addr,
                len,
            });
        }
        let memory = Arc::new(Memory::new(parts).map_err(failed)?);
        for part in self.disk.all() {
            let mut device = part.lock();
            let rings = device.rings.iter_mut();
            rings.for_each(|ring| ring.move_to(&memory));
        }
        self.regions = regions;
        self.memory = Some(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let len = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        let (at, mut device) = self.ring(index)?;
        let queue = device.rings[at].unserved().map_err(broken)?;
        queue.try_set_size(len).map_err(|_| Error::InvalidParam)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let descriptors = self.guest_address(descriptor)?;
        let (used, available) = (self.guest_address(used)?, self.guest_address(available)?);
        let (at, mut device) = self.ring(index)?;
        let queue = device.rings[at].unserved().map_err(broken)?;
        queue
            .try_set_desc_table_address(descriptors)
            .and_then(|()| queue.try_set_avail_ring_address(available))
            .and_then(|()| queue.try_set_used_ring_address(used))
            .map_err(|_| Error::InvalidParam)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        let (at, mut device) = self.ring(index)?;
        let queue = device.rings[at].unserved().map_err(broken)?;
        queue.set_next_avail(base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let at = ring(index)?;
        let device = self.disk.of(at).stop(|n| n == at);
        let base = device.rings[at].queue.next_avail();
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let at = ring(index.into())?;
        // Rings are not polled here.
        let kick = fd.filter(kicks::is_event).ok_or(Error::InvalidParam)?;
        let memory = self.memory.clone().ok_or(Error::InvalidParam)?;
        let mut device = self.disk.of(at).lock();
        let ring = &mut device.rings[at];
        // A ring that is served gets another event, and no other change.
        if !ring.has_started() {
            let len = ring.queue.size();
            let marks = self.marks.as_ref().map(|marks| {
                let marks = marks.ring(index.into(), len);
                marks.ok_or(Error::InvalidParam)
            });
            let repeated = ring.start(memory, marks.transpose()?).map_err(broken)?;
            device.counters.repeated += repeated as u64;
        }
        device.rouse();
        drop(device);
        self.kicks.send(index.into(), kick);
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let bell = self.bell(fd)?;
        let (at, mut device) = self.ring(index.into())?;
        device.rings[at].call = bell;
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let bell = self.bell(fd)?;
        let (at, mut device) = self.ring(index.into())?;
        device.rings[at].err = bell;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let (at, mut device) = self.ring(index)?;
        device.rings[at].enabled = enable;
        device.rouse();
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        // QEMU counts offsets from the beginning of the space; cloud-hypervisor, from its place in
        // old devices.
        let of_old = offset.checked_sub(VHOST_USER_CONFIG_OFFSET);
        let offset = of_old.unwrap_or(offset);
        let mut bytes = [0; CONFIG_BYTES_MAX];
        let known = layout::config(&self.disk.first().lock().shape.geometry, QUEUES_MAX);
        bytes[..known.len()].copy_from_slice(&known);
        let asked = bytes
            .get(offset as usize..)
            .and_then(|b| b.get(..size as usize));
        asked.map(Vec::from).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _at: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    /// See `channel`.
    fn set_backend_req_fd(&mut self, _backend: Backend) {}

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (rings, len) = (asked.num_queues, asked.queue_size);
        if !(1..=QUEUES_MAX).contains(&rings) || !(1..=RING_MAX).contains(&len) {
            return Err(Error::InvalidParam);
        }
        let (file, bytes) = inflight::create(rings, len).map_err(failed)?;
        Ok((VhostUserInflight::new(bytes as u64, 0, rings, len), file))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let (rings, len) = (given.num_queues, given.queue_size);
        if !(1..=QUEUES_MAX).contains(&rings) || !(1..=RING_MAX).contains(&len) {
            return Err(Error::InvalidParam);
        }
        is_memory(&file)?;
        let marks = Marks::map(file, given.mmap_offset, rings, len).map_err(failed)?;
        self.marks = Some(marks);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }
}
