//! The life of a device against a driver in memory.

use super::*;
use block::Sectors;

/// The identity of an origin.
const DISK: &[u8] = b"disk";

pub(super) fn wanted(known: Option<u32>) -> WantedDevice {
    WantedDevice {
        mark: mark(DISK),
        pid: 77,
        queues: 2,
        depth: 64,
        params: Params {
            sectors: Sectors(1 << 20),
            block: Sectors(1),
            physical: Sectors(8),
            optimal: Sectors(8),
            request_max: REQUEST_MAX,
            discard_max: REQUEST_MAX,
            read_only: false,
            rotational: false,
        },
        known,
    }
}

/// A driver in memory: its answers, and the commands that it was sent.
struct Driver {
    device: Option<DeviceInfo>,
    params: Vec<u8>,
    features: Result<u64, i32>,
    /// Recoveries to refuse with `EBUSY`.
    busy: u32,
    /// Looks that find the process of a live device running.
    runs: u32,
    refuse: Option<(UblkCommand, i32)>,
    asked: Vec<UblkCommand>,
}

impl Driver {
    fn new() -> Driver {
        Driver {
            device: None,
            params: wanted(None).params.encode().to_vec(),
            features: Ok(u64::MAX),
            busy: 0,
            runs: 0,
            refuse: None,
            asked: Vec::new(),
        }
    }

    fn left_of(mut self, origin: &[u8], state: UblkState) -> Driver {
        self.device = Some(DeviceInfo {
            queues: 1,
            depth: 32,
            state,
            bytes_max: 1 << 20,
            id: 5,
            pid: 42,
            features: UblkFeatures::NEEDED,
            mark: mark(origin),
        });
        self
    }

    fn answer(&mut self, control: UblkControl) -> Result<Vec<u8>, i32> {
        self.asked.push(control.command);
        if let Some((command, number)) = self.refuse
            && command == control.command
        {
            return Err(number);
        }
        match control.command {
            UblkCommand::GetFeatures => self.features.map(|has| has.to_ne_bytes().to_vec()),
            UblkCommand::GetInfo => {
                let found = self.device.filter(|found| found.id == control.device);
                found.map(|found| found.encode().to_vec()).ok_or(19)
            }
            UblkCommand::GetParams => Ok(self.params.clone()),
            UblkCommand::StartRecovery if self.busy > 0 => {
                self.busy -= 1;
                Err(EBUSY)
            }
            UblkCommand::Add => {
                let mut info = DeviceInfo::decode(&control.buffer).unwrap();
                assert_eq!((info.id, info.mark), (u32::MAX, mark(DISK)));
                info.id = 9;
                self.device = Some(info);
                Ok(info.encode().to_vec())
            }
            UblkCommand::EndRecovery => {
                assert_eq!(control.data, 77);
                Ok(control.buffer)
            }
            UblkCommand::UpdateSize => {
                assert_eq!(control.data, 1 << 20);
                Ok(control.buffer)
            }
            _ => Ok(control.buffer),
        }
    }

    /// Runs the machine to its end. Returns the device that was served meanwhile, and the last
    /// step.
    fn run(&mut self, known: Option<u32>) -> (Option<DeviceInfo>, AttachStep) {
        self.run_as(wanted(known))
    }

    fn run_as(&mut self, wanted: WantedDevice) -> (Option<DeviceInfo>, AttachStep) {
        let mut machine = Attach::new(wanted);
        let (mut event, mut served) = (AttachEvent::Begin, None);
        loop {
            event = match machine.step(event) {
                AttachStep::Control(control) => AttachEvent::Answer(self.answer(control)),
                AttachStep::Look(pid) => {
                    assert_eq!(pid, 42);
                    let runs = self.runs > 0;
                    self.runs = self.runs.saturating_sub(1);
                    AttachEvent::Runs(runs)
                }
                AttachStep::Begin(info) => {
                    assert!(
                        served.is_none(),
                        "the daemon serves it only once it is started"
                    );
                    AttachEvent::Answer(self.answer(UblkControl::of(UblkCommand::Start, info.id)))
                }
                AttachStep::Pause(_) => AttachEvent::Paused,
                AttachStep::Ready(_) => AttachEvent::Answer(Ok(Vec::new())),
                AttachStep::Serve(info) => {
                    served = Some(info);
                    AttachEvent::Serving
                }
                end => return (served, end),
            }
        }
    }
}

#[test]
fn a_new_device_is_started_by_another_and_taken_over() {
    let mut driver = Driver::new();
    driver.busy = 2;
    let (served, end) = driver.run(None);
    let served = served.unwrap();
    assert_eq!((served.id, served.queues, served.depth), (9, 2, 64));
    assert_eq!(end, AttachStep::Live(9));
    let order = [
        UblkCommand::GetFeatures,
        UblkCommand::Add,
        UblkCommand::SetParams,
        UblkCommand::Start,
        UblkCommand::StartRecovery,
        UblkCommand::StartRecovery,
        UblkCommand::StartRecovery,
        UblkCommand::EndRecovery,
    ];
    assert_eq!(driver.asked, order);
}

#[test]
fn a_device_of_a_dead_server_is_taken_over_when_it_is_released() {
    for state in [UblkState::Quiesced, UblkState::Live] {
        let mut driver = Driver::new().left_of(DISK, state);
        driver.busy = 3;
        let (served, end) = driver.run(Some(5));
        let served = served.unwrap();
        assert_eq!((served.id, served.queues, served.depth), (5, 1, 32));
        assert_eq!(end, AttachStep::Live(5));
        let asked = &driver.asked;
        assert_eq!(asked.last(), Some(&UblkCommand::EndRecovery));
        assert_eq!(
            asked
                .iter()
                .filter(|c| **c == UblkCommand::StartRecovery)
                .count(),
            4
        );
        assert!(!asked.contains(&UblkCommand::Add));
    }
}

#[test]
fn a_device_of_another_is_left_alone() {
    let mut driver = Driver::new().left_of(b"other", UblkState::Quiesced);
    assert_eq!(driver.run(Some(5)).1, AttachStep::Live(9));
    let asked = driver.asked;
    let own = asked
        .iter()
        .position(|asked| *asked == UblkCommand::Add)
        .unwrap();
    assert!(!asked[..own].contains(&UblkCommand::StartRecovery));
    let mut driver = Driver::new().left_of(DISK, UblkState::Live);
    driver.runs = u32::MAX;
    let refusal = AttachRefusal::InUse { id: 5, pid: 42 };
    assert_eq!(driver.run(Some(5)).1, AttachStep::Refused(refusal, None));
    assert!(!driver.asked.contains(&UblkCommand::StartRecovery));
}

/// Numbers of processes are used again, and each container has a process 1.
#[test]
fn the_number_of_a_dead_server_keeps_nobody_out() {
    let mut driver = Driver::new().left_of(DISK, UblkState::Quiesced);
    driver.runs = u32::MAX;
    assert_eq!(
        driver.run(Some(5)).1,
        AttachStep::Live(5),
        "nobody serves it"
    );
    let mut driver = Driver::new().left_of(DISK, UblkState::Live);
    driver.runs = 3;
    assert_eq!(
        driver.run(Some(5)).1,
        AttachStep::Live(5),
        "its death is noticed"
    );
    let mut driver = Driver::new().left_of(DISK, UblkState::Live);
    driver.runs = u32::MAX;
    driver.busy = 3;
    let mut own = wanted(Some(5));
    own.pid = 42;
    let mut machine = Attach::new(own);
    let mut event = AttachEvent::Begin;
    let served = loop {
        event = match machine.step(event) {
            AttachStep::Control(control) => AttachEvent::Answer(driver.answer(control)),
            AttachStep::Pause(_) => AttachEvent::Paused,
            AttachStep::Serve(info) => break info.id,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(served, 5);
}

#[test]
fn a_device_is_chosen_by_its_origin_and_never_by_its_name() {
    let device = |id: u32, mark: u64, state: UblkState, name: &str| -> Found {
        let driver = Driver::new().left_of(DISK, state);
        let info = DeviceInfo {
            id,
            mark,
            ..driver.device.unwrap()
        };
        (info, Some(name.to_owned()))
    };
    let (ours, theirs) = (mark(DISK), mark(b"other"));
    assert!(is_marked(ours) && is_marked(theirs) && ours != theirs);
    let quiesced = |id, mark, name| device(id, mark, UblkState::Quiesced, name);
    // Two volumes have exchanged their names.
    let exchanged = [quiesced(1, theirs, "data"), quiesced(2, ours, "other")];
    assert_eq!(choose(&exchanged, ours, "data"), Ok(Some(2)));
    assert_eq!(choose(&exchanged, theirs, "other"), Ok(Some(1)));
    // Another origin, or another daemon, has the name.
    let foreign = [quiesced(1, theirs, "data")];
    assert_eq!(
        choose(&foreign, ours, "data"),
        Err(AttachRefusal::OtherOrigin(1))
    );
    assert_eq!(choose(&foreign, ours, "else"), Ok(None));
    let former = [quiesced(3, mark_of_name("data"), "data")];
    assert_eq!(
        choose(&former, ours, "data"),
        Err(AttachRefusal::Unmarked(3))
    );
    // A device of another program does not count, nor one that was never started.
    assert_eq!(choose(&[quiesced(4, 0, "data")], ours, "data"), Ok(None));
    let dead = [device(5, theirs, UblkState::Dead, "data")];
    assert_eq!(choose(&dead, ours, "data"), Ok(None));
    let both = [
        device(6, ours, UblkState::Dead, "data"),
        quiesced(7, ours, "data"),
    ];
    assert_eq!(choose(&both, ours, "data"), Ok(Some(7)));
}

#[test]
fn a_device_that_was_never_started_is_made_again() {
    let mut driver = Driver::new().left_of(DISK, UblkState::Dead);
    assert_eq!(driver.run(Some(5)).1, AttachStep::Live(9));
    assert!(driver.asked.contains(&UblkCommand::Delete));
}

#[test]
fn a_device_of_another_shape_is_not_taken_over() {
    let refused = |difference| AttachStep::Refused(AttachRefusal::Reshaped(5, difference), None);
    let changes = [
        (24, 1, ShapeDifference::Shrunk),
        (12, 12, ShapeDifference::Block),
        (8, 0b0000, ShapeDifference::Unflushed),
        (8, 0b0100, ShapeDifference::Unflushed),
    ];
    for (at, changed, difference) in changes {
        let mut driver = Driver::new().left_of(DISK, UblkState::Quiesced);
        driver.params[at] = changed;
        assert_eq!(driver.run(Some(5)), (None, refused(difference)), "{at}");
        assert!(!driver.asked.contains(&UblkCommand::StartRecovery));
    }
    let mut driver = Driver::new().left_of(DISK, UblkState::Quiesced);
    driver.params.truncate(31);
    assert_eq!(
        driver.run(Some(5)),
        (None, refused(ShapeDifference::Unknown))
    );
    // A volume that takes no writes has a device that sends none, and not the reverse.
    let mut read_only = wanted(Some(5));
    read_only.params.read_only = true;
    let mut driver = Driver::new().left_of(DISK, UblkState::Quiesced);
    let end = driver.run_as(read_only).1;
    assert_eq!(end, refused(ShapeDifference::Writable));
    driver.params = read_only.params.encode().to_vec();
    assert_eq!(driver.run_as(read_only).1, AttachStep::Live(5));
    assert_eq!(driver.run(Some(5)).1, AttachStep::Live(5));
}

#[test]
fn a_device_that_is_taken_over_grows_once_it_is_served_where_the_driver_can() {
    let smaller = |features: u64| {
        let mut driver = Driver::new().left_of(DISK, UblkState::Quiesced);
        driver.params[24..32].copy_from_slice(&(1_u64 << 19).to_ne_bytes());
        driver.features = Ok(features);
        let (served, end) = driver.run(Some(5));
        (served.map(|info| info.id), end, driver.asked)
    };
    let (served, end, asked) = smaller(u64::MAX);
    assert_eq!((served, end), (Some(5), AttachStep::Live(5)));
    let last = [UblkCommand::EndRecovery, UblkCommand::UpdateSize];
    assert_eq!(asked[asked.len() - 2..], last);
    let (served, end, _) = smaller(!UblkFeatures::UPDATE_SIZE.0);
    assert_eq!(
        (served, end),
        (
            None,
            AttachStep::Refused(AttachRefusal::Reshaped(5, ShapeDifference::Grown), None)
        )
    );
    let mut same = Driver::new().left_of(DISK, UblkState::Quiesced);
    same.run(Some(5));
    assert!(!same.asked.contains(&UblkCommand::UpdateSize));
}

#[test]
fn a_server_that_never_ends_is_given_up() {
    let mut driver = Driver::new().left_of(DISK, UblkState::Quiesced);
    driver.busy = u32::MAX;
    let refused = AttachStep::Refused(AttachRefusal::NotReleased(5), None);
    assert_eq!(driver.run(Some(5)).1, refused);
}

#[test]
fn what_is_missing_is_named_and_that_nbd_works() {
    let refusal = |features, refuse| {
        let mut driver = Driver::new();
        (driver.features, driver.refuse) = (features, refuse);
        match driver.run(None).1 {
            AttachStep::Refused(refusal, made) => (refusal.to_string(), made),
            other => panic!("{other:?}"),
        }
    };
    let (old, none) = refusal(Err(95), None);
    assert!(old.contains("Linux 6.5") && old.contains("NBD"), "{old}");
    assert_eq!(none, None);
    let lacks_one = UblkFeatures::NEEDED.0 & !UblkFeatures::USER_RECOVERY.0;
    assert!(refusal(Ok(lacks_one), None).0.contains("too old"));
    let (denied, _) = refusal(Ok(u64::MAX), Some((UblkCommand::Add, EPERM)));
    assert!(
        denied.contains("CAP_SYS_ADMIN") && denied.contains("NBD"),
        "{denied}"
    );
    let (failed, made) = refusal(Ok(u64::MAX), Some((UblkCommand::Start, 12)));
    assert!(
        failed.contains("start the device (Cannot allocate memory)"),
        "{failed}"
    );
    assert_eq!(made, Some(9));
}

/// Whatever command the driver refuses, and with whatever number, the machine comes to an end, and
/// never has a device removed that was not made here.
#[test]
fn every_refusal_of_every_command_ends_it() {
    let commands = [
        UblkCommand::GetFeatures,
        UblkCommand::GetInfo,
        UblkCommand::GetParams,
        UblkCommand::StartRecovery,
        UblkCommand::EndRecovery,
        UblkCommand::Delete,
        UblkCommand::Add,
        UblkCommand::SetParams,
        UblkCommand::Start,
    ];
    let states = [
        UblkState::Dead,
        UblkState::Live,
        UblkState::Quiesced,
        UblkState::Other(3),
    ];
    for command in commands {
        for number in [EPERM, 2, 12, EACCES, EBUSY, 19, 22, 95] {
            for state in states {
                for known in [None, Some(5)] {
                    let mut driver = Driver::new().left_of(DISK, state);
                    driver.refuse = Some((command, number));
                    let (served, end) = driver.run(known);
                    match end {
                        AttachStep::Live(id) => assert_eq!(served.map(|info| info.id), Some(id)),
                        AttachStep::Refused(_, Some(id)) => {
                            assert_eq!(id, 9, "{command:?} {state:?}")
                        }
                        AttachStep::Refused(_, None) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }
}

/// Too few bytes, or the bytes of no device, are no device of hotset's.
#[test]
fn answers_of_any_length_are_read_or_refused() {
    let whole = Driver::new().left_of(DISK, UblkState::Quiesced).device;
    let whole = whole.unwrap().encode();
    for len in 0..whole.len() {
        for command in [
            UblkCommand::GetFeatures,
            UblkCommand::GetInfo,
            UblkCommand::Add,
        ] {
            let mut machine = Attach::new(wanted(Some(5)));
            let mut event = AttachEvent::Begin;
            for _ in 0..16 {
                event = match machine.step(event) {
                    AttachStep::Control(ask) if ask.command == command => {
                        AttachEvent::Answer(Ok(whole[..len].to_vec()))
                    }
                    AttachStep::Control(ask) if ask.command == UblkCommand::GetFeatures => {
                        AttachEvent::Answer(Ok(vec![0xff; 8]))
                    }
                    AttachStep::Control(ask) => AttachEvent::Answer(Ok(ask.buffer)),
                    AttachStep::Serve(_) => AttachEvent::Serving,
                    AttachStep::Begin(_) | AttachStep::Ready(_) => {
                        AttachEvent::Answer(Ok(Vec::new()))
                    }
                    AttachStep::Look(_) => AttachEvent::Runs(false),
                    AttachStep::Pause(_) => AttachEvent::Paused,
                    AttachStep::Live(_) | AttachStep::Refused(..) => break,
                };
            }
        }
    }
}
