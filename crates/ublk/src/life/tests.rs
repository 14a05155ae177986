//! The life of a device against a driver in memory.

use super::*;
use block::Sectors;

fn wanted(known: Option<u32>) -> Wanted {
    Wanted {
        mark: mark("data"),
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
            volatile: true,
            read_only: false,
            rotational: false,
        },
        known,
    }
}

/// A driver's answers, and how the machine ended with them.
struct Driver {
    device: Option<DeviceInfo>,
    params: Vec<u8>,
    features: Result<u64, i32>,
    /// How often a recovery is refused with `EBUSY`.
    busy: u32,
    runs: bool,
    refuse: Option<(Command, i32)>,
    asked: Vec<Command>,
}

impl Driver {
    fn new() -> Driver {
        Driver {
            device: None,
            params: wanted(None).params.encode().to_vec(),
            features: Ok(u64::MAX),
            busy: 0,
            runs: false,
            refuse: None,
            asked: Vec::new(),
        }
    }

    fn left_by(mut self, name: &str, state: State) -> Driver {
        self.device = Some(DeviceInfo {
            queues: 1,
            depth: 32,
            state,
            bytes_max: 1 << 20,
            id: 5,
            pid: 42,
            features: Features::NEEDED,
            mark: mark(name),
        });
        self
    }

    fn answer(&mut self, control: Control) -> Result<Vec<u8>, i32> {
        self.asked.push(control.command);
        if let Some((command, number)) = self.refuse
            && command == control.command
        {
            return Err(number);
        }
        match control.command {
            Command::GetFeatures => self.features.map(|has| has.to_ne_bytes().to_vec()),
            Command::GetInfo => {
                let found = self.device.filter(|found| found.id == control.device);
                found.map(|found| found.encode().to_vec()).ok_or(19)
            }
            Command::GetParams => Ok(self.params.clone()),
            Command::StartRecovery if self.busy > 0 => {
                self.busy -= 1;
                Err(EBUSY)
            }
            Command::Add => {
                let mut info = DeviceInfo::decode(&control.buffer).unwrap();
                assert_eq!((info.id, info.mark), (u32::MAX, mark("data")));
                info.id = 9;
                Ok(info.encode().to_vec())
            }
            Command::Start | Command::EndRecovery => {
                assert_eq!(control.data, 77);
                Ok(control.buffer)
            }
            Command::UpdateSize => {
                assert_eq!(control.data, 1 << 20);
                Ok(control.buffer)
            }
            _ => Ok(control.buffer),
        }
    }

    /// What is served meanwhile, and how it ends.
    fn run(&mut self, known: Option<u32>) -> (Option<DeviceInfo>, Step) {
        let mut machine = Attach::new(wanted(known));
        let (mut event, mut served) = (Event::Begin, None);
        loop {
            event = match machine.step(event) {
                Step::Control(control) => Event::Answer(self.answer(control)),
                Step::Look(pid) => {
                    assert_eq!(pid, 42);
                    Event::Runs(self.runs)
                }
                Step::Pause(_) => Event::Paused,
                Step::Serve(info) => {
                    served = Some(info);
                    Event::Serving
                }
                end => return (served, end),
            }
        }
    }
}

#[test]
fn a_new_device_is_started_once_it_is_served() {
    let mut driver = Driver::new();
    let (served, end) = driver.run(None);
    let served = served.unwrap();
    assert_eq!((served.id, served.queues, served.depth), (9, 2, 64));
    assert_eq!(end, Step::Live(9));
    let order = [
        Command::GetFeatures,
        Command::Add,
        Command::SetParams,
        Command::Start,
    ];
    assert_eq!(driver.asked, order);
}

#[test]
fn a_device_of_a_dead_server_is_taken_over_when_it_is_released() {
    for state in [State::Quiesced, State::Live] {
        let mut driver = Driver::new().left_by("data", state);
        driver.busy = 3;
        let (served, end) = driver.run(Some(5));
        let served = served.unwrap();
        assert_eq!((served.id, served.queues, served.depth), (5, 1, 32));
        assert_eq!(end, Step::Live(5));
        let asked = &driver.asked;
        assert_eq!(asked.last(), Some(&Command::EndRecovery));
        assert_eq!(
            asked
                .iter()
                .filter(|c| **c == Command::StartRecovery)
                .count(),
            4
        );
        assert!(!asked.contains(&Command::Add));
    }
}

#[test]
fn a_device_of_another_is_left_alone() {
    let mut driver = Driver::new().left_by("other", State::Quiesced);
    assert_eq!(driver.run(Some(5)).1, Step::Live(9));
    assert!(!driver.asked.contains(&Command::StartRecovery));
    let mut driver = Driver::new().left_by("data", State::Live);
    driver.runs = true;
    let refusal = Refusal::InUse { id: 5, pid: 42 };
    assert_eq!(driver.run(Some(5)).1, Step::Refused(refusal, None));
    assert!(!driver.asked.contains(&Command::StartRecovery));
}

#[test]
fn a_device_that_was_never_started_is_made_again() {
    let mut driver = Driver::new().left_by("data", State::Dead);
    assert_eq!(driver.run(Some(5)).1, Step::Live(9));
    assert!(driver.asked.contains(&Command::Delete));
}

#[test]
fn a_device_that_would_shrink_or_have_another_block_is_not_taken_over() {
    let refused = Step::Refused(Refusal::Reshaped(5), None);
    for (at, changed) in [(24, 1), (12, 12)] {
        let mut driver = Driver::new().left_by("data", State::Quiesced);
        driver.params[at] = changed;
        assert_eq!(driver.run(Some(5)), (None, refused.clone()));
    }
    let mut driver = Driver::new().left_by("data", State::Quiesced);
    driver.params.truncate(31);
    assert_eq!(driver.run(Some(5)), (None, refused));
}

#[test]
fn a_device_that_is_taken_over_grows_once_it_is_served_where_the_driver_can() {
    let smaller = |features: u64| {
        let mut driver = Driver::new().left_by("data", State::Quiesced);
        driver.params[24..32].copy_from_slice(&(1_u64 << 19).to_ne_bytes());
        driver.features = Ok(features);
        let (served, end) = driver.run(Some(5));
        (served.map(|info| info.id), end, driver.asked)
    };
    let (served, end, asked) = smaller(u64::MAX);
    assert_eq!((served, end), (Some(5), Step::Live(5)));
    let last = [Command::EndRecovery, Command::UpdateSize];
    assert_eq!(asked[asked.len() - 2..], last);
    let (served, end, _) = smaller(!Features::UPDATE_SIZE.0);
    assert_eq!(
        (served, end),
        (None, Step::Refused(Refusal::Reshaped(5), None))
    );
    let mut same = Driver::new().left_by("data", State::Quiesced);
    same.run(Some(5));
    assert!(!same.asked.contains(&Command::UpdateSize));
}

#[test]
fn a_server_that_never_ends_is_given_up() {
    let mut driver = Driver::new().left_by("data", State::Quiesced);
    driver.busy = u32::MAX;
    let refused = Step::Refused(Refusal::NotReleased(5), None);
    assert_eq!(driver.run(Some(5)).1, refused);
}

#[test]
fn what_is_missing_is_named_and_that_nbd_works() {
    let refusal = |features, refuse| {
        let mut driver = Driver::new();
        (driver.features, driver.refuse) = (features, refuse);
        match driver.run(None).1 {
            Step::Refused(refusal, made) => (refusal.to_string(), made),
            other => panic!("{other:?}"),
        }
    };
    let (old, none) = refusal(Err(95), None);
    assert!(old.contains("Linux 6.5") && old.contains("NBD"), "{old}");
    assert_eq!(none, None);
    let lacks_one = Features::NEEDED.0 & !Features::USER_RECOVERY.0;
    assert!(refusal(Ok(lacks_one), None).0.contains("too old"));
    let (denied, _) = refusal(Ok(u64::MAX), Some((Command::Add, EPERM)));
    assert!(
        denied.contains("CAP_SYS_ADMIN") && denied.contains("NBD"),
        "{denied}"
    );
    let (failed, made) = refusal(Ok(u64::MAX), Some((Command::Start, 12)));
    assert!(failed.contains("Start with error 12"), "{failed}");
    assert_eq!(made, Some(9));
}

/// Whatever the driver refuses, and with what number, the machine comes to an end, and never
/// asks for the removal of a device that it did not make.
#[test]
fn every_refusal_of_every_command_ends_it() {
    let commands = [
        Command::GetFeatures,
        Command::GetInfo,
        Command::GetParams,
        Command::StartRecovery,
        Command::EndRecovery,
        Command::Delete,
        Command::Add,
        Command::SetParams,
        Command::Start,
    ];
    let states = [State::Dead, State::Live, State::Quiesced, State::Other(3)];
    for command in commands {
        for number in [EPERM, 2, 12, EACCES, EBUSY, 19, 22, 95] {
            for state in states {
                for known in [None, Some(5)] {
                    let mut driver = Driver::new().left_by("data", state);
                    driver.refuse = Some((command, number));
                    let (served, end) = driver.run(known);
                    match end {
                        Step::Live(id) => assert_eq!(served.map(|info| info.id), Some(id)),
                        Step::Refused(_, Some(id)) => assert_eq!(id, 9, "{command:?} {state:?}"),
                        Step::Refused(_, None) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }
}

/// Bytes that are too few, or none of a device, are none of ours.
#[test]
fn answers_of_any_length_are_read_or_refused() {
    let whole = Driver::new().left_by("data", State::Quiesced).device;
    let whole = whole.unwrap().encode();
    for len in 0..whole.len() {
        for command in [Command::GetFeatures, Command::GetInfo, Command::Add] {
            let mut machine = Attach::new(wanted(Some(5)));
            let mut event = Event::Begin;
            for _ in 0..16 {
                event = match machine.step(event) {
                    Step::Control(ask) if ask.command == command => {
                        Event::Answer(Ok(whole[..len].to_vec()))
                    }
                    Step::Control(ask) if ask.command == Command::GetFeatures => {
                        Event::Answer(Ok(vec![0xff; 8]))
                    }
                    Step::Control(ask) => Event::Answer(Ok(ask.buffer)),
                    Step::Serve(_) => Event::Serving,
                    Step::Look(_) => Event::Runs(false),
                    Step::Pause(_) => Event::Paused,
                    Step::Live(_) | Step::Refused(..) => break,
                };
            }
        }
    }
}
