//! A monitor as cloud-hypervisor is one, message by message, beside what QEMU shows in a guest.

use super::*;
use crate::fault::tests::file;
use crate::guest::{BASE, BYTES, Guest};
use crate::hostile::{offer_read, serve_all, was_read};
use block::{Geometry, Pool, Sectors};
use std::io::Read;
use std::os::fd::IntoRawFd;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    VHOST_USER_CONFIG_OFFSET, VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, MmapRegion};
use vmm_sys_util::eventfd::EventFd;

const RING: u16 = 16;
/// The bytes of `virtio_blk_config` up to the limits of zeroing.
const CONFIG_BYTES: u32 = 60;

/// A monitor, its guest and the events between it and a disk.
struct Monitor {
    frontend: Frontend,
    guest: Guest,
    memory: VhostUserMemoryRegionInfo,
    kick: File,
    call: File,
    _file: File,
}

impl Monitor {
    fn connect(path: &Path) -> Monitor {
        let file = file(BYTES as usize);
        let backed = FileOffset::new(file.try_clone().unwrap(), 0);
        let map = MmapRegion::from_file(backed, BYTES as usize).unwrap();
        let memory = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: BYTES,
            userspace_addr: map.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        Monitor {
            frontend: Frontend::connect(path, 2).unwrap(),
            guest: Guest::with(RING, map),
            memory,
            kick: event().unwrap(),
            call: event().unwrap(),
            _file: file,
        }
    }

    /// Takes the features that both have: what the protocol offers, and the size in sectors.
    fn negotiate(&mut self) -> (VhostUserProtocolFeatures, u64) {
        let frontend = &mut self.frontend;
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap();
        assert_ne!(
            features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(),
            0
        );
        let offered = frontend.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::BACKEND_REQ;
        frontend.set_protocol_features(offered & wanted).unwrap();
        assert!(frontend.get_queue_num().unwrap() >= 2);
        let flags = VhostUserConfigFlags::WRITABLE;
        let sectors = |frontend: &mut Frontend, offset| {
            let room = [0; CONFIG_BYTES as usize];
            let got = frontend.get_config(offset, CONFIG_BYTES, flags, &room);
            u64::from_le_bytes(got.unwrap().1[..8].try_into().unwrap())
        };
        let size = sectors(frontend, VHOST_USER_CONFIG_OFFSET);
        assert_eq!(size, sectors(frontend, 0), "as QEMU asks");
        frontend.set_features(features).unwrap();
        (offered, size)
    }

    /// Sets the first ring up.
    fn activate(&mut self) {
        let start = self.memory.userspace_addr;
        let frontend = &mut self.frontend;
        frontend.set_mem_table(&[self.memory]).unwrap();
        frontend.set_vring_num(0, RING).unwrap();
        let asked = VhostUserInflight::new(0, 0, 1, RING);
        let (info, marks) = frontend.get_inflight_fd(&asked).unwrap();
        frontend.set_inflight_fd(&info, marks.as_raw_fd()).unwrap();
        let ring = VringConfigData {
            queue_max_size: RING,
            queue_size: RING,
            flags: 0,
            desc_table_addr: start,
            avail_ring_addr: start + 0x1_0000,
            used_ring_addr: start + 0x2_0000,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &ring).unwrap();
        // The index that is available, which is where a new ring begins.
        frontend.set_vring_base(0, 0).unwrap();
        let event = |file: &File| {
            // SAFETY: a descriptor of an eventfd that nobody else owns.
            unsafe { EventFd::from_raw_fd(file.try_clone().unwrap().into_raw_fd()) }
        };
        frontend.set_vring_call(0, &event(&self.call)).unwrap();
        frontend.set_vring_kick(0, &event(&self.kick)).unwrap();
        frontend.set_vring_enable(0, true).unwrap();
    }
}

fn until<T>(what: &str, mut is_there: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        match is_there() {
            Some(found) => return found,
            None => assert!(begun.elapsed() < Duration::from_secs(20), "{what}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn shape(sectors: u64) -> Shape {
    Shape {
        geometry: Geometry::new("data", Sectors(sectors), Sectors(1)),
        read_only: false,
        name: "data".into(),
        depth: 4,
    }
}

#[test]
fn a_monitor_that_counts_its_configuration_from_0x100_is_served() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = Listener::begin(&path, shape(4096), Arc::new(|_| ())).unwrap();
    let pool = Pool::new(4 << 20);
    for round in 1..3 {
        let mut monitor = Monitor::connect(&path);
        let (_, size) = monitor.negotiate();
        assert_eq!(size, 4096);
        monitor.activate();
        offer_read(&mut monitor.guest, 0, 3);
        (&monitor.kick).write_all(&1_u64.to_ne_bytes()).unwrap();
        let served = until("a request", || {
            Some(serve_all(&listener.door, &pool)).filter(|served| !served.is_empty())
        });
        assert_eq!(served.len(), 1);
        let rung = until("a notification", || (&monitor.call).read(&mut [0; 8]).ok());
        assert_eq!(rung, 8);
        assert_eq!(monitor.guest.used(), Some((0, 513)));
        assert!(was_read(&monitor.guest, 0));
        assert_eq!(monitor.frontend.get_vring_base(0).unwrap(), 1);
        assert_eq!(listener.counters().connections, round);
    }
}

#[test]
fn a_monitor_hears_once_it_is_served_that_the_size_may_be_another() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (_listener, _port, _kicks) = Listener::begin(&path, shape(8192), Arc::new(|_| ())).unwrap();
    let mut monitor = Monitor::connect(&path);
    let (offered, size) = monitor.negotiate();
    assert!(offered.contains(VhostUserProtocolFeatures::BACKEND_REQ));
    assert_eq!(size, 8192);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    monitor.frontend.set_backend_request_fd(&theirs).unwrap();
    drop(theirs);
    // An answer shows that what came before was taken in.
    monitor.frontend.get_features().unwrap();
    let mut word = [0; 12];
    let early = (&ours).read(&mut word);
    assert_eq!(
        early.unwrap_err().kind(),
        io::ErrorKind::WouldBlock,
        "it is not served"
    );
    monitor.activate();
    let bytes = until("a word", || (&ours).read(&mut word).ok());
    assert_eq!((bytes, word), (12, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]));
    monitor.frontend.get_features().unwrap();
    let again = (&ours).read(&mut word);
    assert_eq!(
        again.unwrap_err().kind(),
        io::ErrorKind::WouldBlock,
        "said twice"
    );
}
