//! A monitor like cloud-hypervisor, message by message, beside the tests with QEMU and a guest.

use super::*;
use crate::fault::tests::file;
use crate::guest::{BASE, BYTES, GuestMemory};
use crate::hostile::{offer_read, poll, serve, serve_all, was_read};
use crate::kicks::Kick;
use block::{Geometry, Pool, Sectors, Tag};
use futures_util::FutureExt;
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
/// Bytes of `virtio_blk_config` up to the limits of zeroing.
const CONFIG_BYTES: u32 = 60;

/// A monitor, its guest and the events between it and a disk.
struct Monitor {
    frontend: Frontend,
    guest: GuestMemory,
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
            frontend: Frontend::connect(path, 4).unwrap(),
            guest: GuestMemory::with(RING, map),
            memory,
            kick: event().unwrap(),
            call: event().unwrap(),
            _file: file,
        }
    }

    /// Negotiates features. Returns those of the protocol, and the size in sectors.
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
        self.activate_ring(0);
    }

    /// Sets one ring up.
    fn activate_ring(&mut self, number: usize) {
        let start = self.memory.userspace_addr;
        let frontend = &mut self.frontend;
        frontend.set_mem_table(&[self.memory]).unwrap();
        frontend.set_vring_num(number, RING).unwrap();
        let asked = VhostUserInflight::new(0, 0, number as u16 + 1, RING);
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
        frontend.set_vring_addr(number, &ring).unwrap();
        // The available index, at which a new ring begins.
        frontend.set_vring_base(number, 0).unwrap();
        let event = |file: &File| {
            // SAFETY: a descriptor of an eventfd without another owner.
            unsafe { EventFd::from_raw_fd(file.try_clone().unwrap().into_raw_fd()) }
        };
        frontend.set_vring_call(number, &event(&self.call)).unwrap();
        frontend.set_vring_kick(number, &event(&self.kick)).unwrap();
        frontend.set_vring_enable(number, true).unwrap();
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

fn shape(sectors: u64) -> GuestDiskShape {
    GuestDiskShape {
        geometry: Geometry::new("data", Sectors(sectors), Sectors(1)),
        read_only: false,
        name: "data".into(),
        depth: 4,
    }
}

fn begin(path: &Path, sectors: u64) -> (GuestListener, VirtioPort, Kicks) {
    let (listener, mut parts) = begin_parts(path, sectors, 1);
    let GuestPart { port, kicks } = parts.remove(0);
    (listener, port, kicks)
}

fn begin_parts(path: &Path, sectors: u64, parts: usize) -> (GuestListener, Vec<GuestPart>) {
    let log: Log = Arc::new(|_| ());
    GuestListener::begin(path, &shape(sectors), parts, bells(), &log).unwrap()
}

fn bells() -> Bells {
    Arc::new(|event| {
        let mut bell = uring::Bell::new(event)?;
        Ok(Box::new(move || bell.raise()))
    })
}

#[test]
fn a_monitor_that_counts_its_configuration_from_0x100_is_served() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    let pool = Pool::new(4 << 20);
    for round in 1..3 {
        let mut monitor = Monitor::connect(&path);
        let (_, size) = monitor.negotiate();
        assert_eq!(size, 4096);
        monitor.activate();
        offer_read(&mut monitor.guest, 0, 3);
        (&monitor.kick).write_all(&1_u64.to_ne_bytes()).unwrap();
        let served = until("a request", || {
            Some(serve_all(listener.disk.first(), &pool)).filter(|served| !served.is_empty())
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
fn each_ring_is_of_one_part() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, mut parts) = begin_parts(&path, 4096, 2);
    let pool = Pool::new(4 << 20);
    for number in 0..4 {
        let mut monitor = Monitor::connect(&path);
        monitor.negotiate();
        monitor.activate_ring(number);
        offer_read(&mut monitor.guest, 0, 3);
        let served = until("a request", || {
            let served = listener.disk.all().map(|part| serve_all(part, &pool).len());
            let served: Vec<_> = served.collect();
            (served.iter().sum::<usize>() > 0).then_some(served)
        });
        assert_eq!(served[number % 2], 1, "ring {number}: {served:?}");
        assert!(was_read(&monitor.guest, 0));
        let rung = until("a notification", || (&monitor.call).read(&mut [0; 8]).ok());
        assert_eq!(rung, 8);
        let ring = until("an event", || {
            match parts[number % 2].kicks.next().now_or_never()?? {
                Kick::Of(ring, _) => Some(ring),
                Kick::Gone => None,
            }
        });
        assert_eq!(usize::from(ring), number);
        let other = &mut parts[(number + 1) % 2].kicks;
        while let Some(kick) = other.next().now_or_never() {
            assert!(
                matches!(kick, Some(Kick::Gone)),
                "an event of ring {number}"
            );
        }
        assert_eq!(monitor.frontend.get_vring_base(number).unwrap(), 1);
    }
    assert_eq!(listener.counters().connections, 4);
}

#[test]
fn the_next_monitor_waits_for_the_requests_of_every_part() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _parts) = begin_parts(&path, 4096, 2);
    let mut monitor = Monitor::connect(&path);
    monitor.negotiate();
    monitor.activate_ring(1);
    offer_read(&mut monitor.guest, 0, 3);
    let part = listener.disk.of(1);
    let request = until("a request", || poll(part, Tag(0))).unwrap();
    drop(monitor);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| Monitor::connect(&path).negotiate());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(listener.counters().connections, 1);
        serve(part, &Pool::new(4 << 20), Tag(0), request);
        next.join().unwrap();
    });
    assert_eq!(listener.counters().connections, 2);
}

#[test]
fn a_monitor_hears_once_it_is_served_that_the_size_may_be_another() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (_listener, _port, _kicks) = begin(&path, 8192);
    let mut monitor = Monitor::connect(&path);
    let (offered, size) = monitor.negotiate();
    assert!(offered.contains(VhostUserProtocolFeatures::BACKEND_REQ));
    assert_eq!(size, 8192);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    monitor.frontend.set_backend_request_fd(&theirs).unwrap();
    drop(theirs);
    // An answer shows that earlier messages were handled.
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

/// Returns true if the monitor was cut off after its messages were handled.
fn is_cut_off(monitor: &mut Monitor) -> bool {
    monitor.frontend.get_features().is_err()
}

/// Returns true if a well-behaved monitor is served now.
fn serves(path: &Path, listener: &GuestListener) -> bool {
    let mut monitor = Monitor::connect(path);
    monitor.negotiate();
    monitor.activate();
    offer_read(&mut monitor.guest, 0, 3);
    let pool = Pool::new(4 << 20);
    until("a request", || {
        Some(serve_all(listener.disk.first(), &pool)).filter(|served| !served.is_empty())
    });
    was_read(&monitor.guest, 0)
}

type Deed = fn(&mut Monitor);

/// Forbidden changes of a ring that is served: each is refused, and the daemon lives.
#[test]
fn a_ring_that_is_served_is_not_changed() {
    let deeds: [(&str, Deed); 3] = [
        ("longer", |m| m.frontend.set_vring_num(0, 1024).unwrap()),
        ("elsewhere", |m| {
            let start = m.memory.userspace_addr;
            let ring = VringConfigData {
                queue_max_size: RING,
                queue_size: RING,
                flags: 0,
                desc_table_addr: start + 0x4_0000,
                avail_ring_addr: start + 0x1_0000,
                used_ring_addr: start + 0x2_0000,
                log_addr: None,
            };
            m.frontend.set_vring_addr(0, &ring).unwrap();
        }),
        ("at another index", |m| {
            m.frontend.set_vring_base(0, 7).unwrap()
        }),
    ];
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    for (what, deed) in deeds {
        let mut monitor = Monitor::connect(&path);
        monitor.negotiate();
        monitor.activate();
        deed(&mut monitor);
        // A head beyond the marks of requests in flight.
        offer_read(&mut monitor.guest, 500, 3);
        assert!(is_cut_off(&mut monitor), "{what}");
        assert!(
            serve_all(listener.disk.first(), &Pool::new(4 << 20)).is_empty(),
            "{what}"
        );
        assert!(serves(&path, &listener), "after {what}");
    }
    // Before its start and after a stop, a ring is set up as its guest likes.
    let mut monitor = Monitor::connect(&path);
    monitor.negotiate();
    monitor.activate();
    monitor.frontend.get_vring_base(0).unwrap();
    monitor.frontend.set_vring_num(0, 8).unwrap();
    assert!(!is_cut_off(&mut monitor));
}

#[test]
fn a_ring_that_is_served_may_get_another_event() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    let mut monitor = Monitor::connect(&path);
    monitor.negotiate();
    monitor.activate();
    offer_read(&mut monitor.guest, 0, 3);
    let kick = EventFd::new(0).unwrap();
    monitor.frontend.set_vring_kick(0, &kick).unwrap();
    assert!(!is_cut_off(&mut monitor));
    let served = serve_all(listener.disk.first(), &Pool::new(4 << 20));
    assert_eq!((served.len(), listener.counters().repeated), (1, 0));
}

/// Files on a disk represent files of a file system in another process, which may not answer.
#[test]
fn what_another_process_answers_for_is_neither_memory_nor_an_event() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    let mut disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    disk.write_all(&vec![0; BYTES as usize]).unwrap();
    let as_event = || {
        // SAFETY: a descriptor without another owner.
        unsafe { EventFd::from_raw_fd(disk.try_clone().unwrap().into_raw_fd()) }
    };
    let marks = VhostUserInflight::new(4096, 0, 1, RING);
    type Given<'a> = &'a dyn Fn(&mut Monitor);
    let given: [(&str, Given<'_>); 5] = [
        ("memory", &|m| {
            m.memory.mmap_handle = disk.as_raw_fd();
            m.frontend.set_mem_table(&[m.memory]).unwrap();
        }),
        ("marks", &|m| {
            m.frontend
                .set_inflight_fd(&marks, disk.as_raw_fd())
                .unwrap();
        }),
        ("call", &|m| {
            m.frontend.set_vring_call(0, &as_event()).unwrap()
        }),
        ("err", &|m| {
            m.frontend.set_vring_err(0, &as_event()).unwrap()
        }),
        ("kick", &|m| {
            m.frontend.set_mem_table(&[m.memory]).unwrap();
            m.frontend.set_vring_kick(0, &as_event()).unwrap();
        }),
    ];
    for (what, give) in given {
        let mut monitor = Monitor::connect(&path);
        monitor.negotiate();
        give(&mut monitor);
        assert!(is_cut_off(&mut monitor), "{what}");
        drop(monitor);
        assert!(serves(&path, &listener), "after {what}");
    }
}

/// The non-blocking flag belongs to the open file, so that a monitor can remove it.
#[test]
fn a_notification_that_would_wait_is_not_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    let mut monitor = Monitor::connect(&path);
    monitor.negotiate();
    monitor.activate();
    assert!(!is_cut_off(&mut monitor));
    // SAFETY: no pointers are involved.
    unsafe { libc::fcntl(monitor.call.as_raw_fd(), libc::F_SETFL, 0) };
    let full = u64::MAX - 1;
    (&monitor.call).write_all(&full.to_ne_bytes()).unwrap();
    let pool = Pool::new(4 << 20);
    for head in [0, 3, 6] {
        offer_read(&mut monitor.guest, head, 3);
        assert_eq!(serve_all(listener.disk.first(), &pool).len(), 1);
        assert!(was_read(&monitor.guest, head));
    }
}

#[test]
fn half_a_message_keeps_the_next_monitor_waiting_for_a_moment_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    // A part of a header, and of a body.
    let header = [1_u32, 1, 8].map(u32::to_ne_bytes);
    for half in [&header.as_flattened()[..5], header.as_flattened()] {
        let mut first = UnixStream::connect(&path).unwrap();
        first.write_all(half).unwrap();
        let began = Instant::now();
        assert!(serves(&path, &listener));
        assert!(began.elapsed() < Duration::from_secs(15));
        drop(first);
    }
}

#[test]
fn a_monitor_that_takes_no_answers_is_cut_off() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let (listener, _port, _kicks) = begin(&path, 4096);
    let mut deaf = UnixStream::connect(&path).unwrap();
    let features = [1_u32, 1, 0].map(u32::to_ne_bytes);
    // Until the monitor is cut off, or no more of its bytes are read.
    deaf.set_write_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    while deaf.write_all(features.as_flattened()).is_ok() {}
    assert!(serves(&path, &listener));
}

#[test]
fn only_a_socket_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let refused = |path: &Path| {
        let begun =
            GuestListener::begin(path, &shape(4096), 1, bells(), &(Arc::new(|_| ()) as Log));
        begun.err().unwrap().to_string()
    };
    std::fs::write(&path, "precious").unwrap();
    assert!(refused(&path).contains("no socket"), "{}", refused(&path));
    let link = place.path().join("link.sock");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(refused(&link).contains("no socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
    // The socket of a process that has ended.
    drop(UnixListener::bind(&path).unwrap());
    let (listener, _port, _kicks) = begin(&path, 4096);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    drop(listener);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn strangers_do_not_fill_the_log() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data.sock");
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let into = lines.clone();
    let log: Log = Arc::new(move |line| into.lock().unwrap().push(line));
    let begun = GuestListener::begin(&path, &shape(4096), 1, bells(), &log);
    let (_listener, _parts) = begun.unwrap();
    let mut monitor = Monitor::connect(&path);
    monitor.negotiate();
    for _ in 0..500 {
        drop(UnixStream::connect(&path).unwrap());
    }
    until("a line", || {
        (!lines.lock().unwrap().is_empty()).then_some(())
    });
    assert!(!is_cut_off(&mut monitor));
    let lines = lines.lock().unwrap();
    assert!(lines[0].contains("turned away"), "{lines:?}");
    assert!(lines.len() <= 6, "{} lines", lines.len());
}
