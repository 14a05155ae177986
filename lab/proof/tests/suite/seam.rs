//! The exit test of the seam: one program on both drivers with the same
//! answers, and ten thousand simulated seeds judged by the oracle.

use block::{Address, Geometry, Sectors};
use proof::campaign::{Campaign, sound};
use proof::seam::Sabotage;
use proof::seam::campaign::{SeamCampaign, run_seed};
use proof::seam::program::{
    self, ProgramRecord, ProgramTargets, SECTORS, SeamScenario, SharedRecord, lock,
};
use sim::{DiskSpec, LinkSpec, SimHost, SimWorld};
use uring::{DiskOptions, Options, Uring};

fn scenario(seed: u64) -> SeamScenario {
    SeamScenario {
        seed,
        boot: 0,
        steps: 120,
        window: 1,
        contended: false,
        lose: true,
        sabotage: Sabotage::None,
    }
}

fn in_the_simulator(scenario: &SeamScenario) -> ProgramRecord {
    let mut world = SimWorld::new(scenario.seed);
    let legs = ["a", "b"].map(|name| {
        let geometry = Geometry::new(name, Sectors(SECTORS + 8), Sectors(1));
        world.add_disk(DiskSpec::new(geometry)).unwrap()
    });
    let address = Address::Unix("server".into());
    let listener = world.listen(address.clone(), LinkSpec::local()).unwrap();
    let targets = ProgramTargets {
        legs,
        listener,
        address,
    };
    let record = SharedRecord::default();
    program::run(&mut SimHost::new(world), scenario, &targets, &record);
    std::mem::take(&mut *lock(&record))
}

fn on_real_files(scenario: &SeamScenario) -> ProgramRecord {
    let name = format!("seam-{}", scenario.seed);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // The files of a run that was stopped.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut host = Uring::new(Options::default()).unwrap();
    let legs = ["a", "b"].map(|name| {
        let path = dir.join(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len((SECTORS + 8) * 512).unwrap();
        let options = DiskOptions::default();
        host.open_disk(&path, &options).unwrap().0
    });
    let socket = dir.join("socket").to_str().unwrap().into();
    let (listener, address) = host.listen(&Address::Unix(socket)).unwrap();
    let targets = ProgramTargets {
        legs,
        listener,
        address,
    };
    let record = SharedRecord::default();
    program::run(&mut host, scenario, &targets, &record);
    std::fs::remove_dir_all(&dir).unwrap();
    std::mem::take(&mut *lock(&record))
}

#[test]
fn both_drivers_give_the_same_answers() {
    for seed in 0..4 {
        let scenario = scenario(seed);
        let simulated = in_the_simulator(&scenario);
        let real = on_real_files(&scenario);
        for record in [&simulated, &real] {
            assert!(record.finished, "seed {seed}");
            assert_eq!(record.violations, [""; 0], "seed {seed}");
            assert_eq!(record.answers[0].len(), scenario.steps, "seed {seed}");
        }
        assert_eq!(simulated.answers, real.answers, "seed {seed}");
    }
}

#[test]
fn seeds_hold() {
    let campaign = SeamCampaign(Sabotage::None);
    let totals = sound(&campaign, 0..2000);
    println!("{totals:?}");
    assert_eq!(totals.missed(&campaign), [], "these faults never struck");
}

#[test]
fn each_sabotage_is_noticed() {
    use Sabotage::{IgnoreError, SkipFlush, SkipLock};
    for sabotage in [SkipFlush, SkipLock, IgnoreError] {
        let campaign = SeamCampaign(sabotage);
        let noticed = (0..1000).any(|seed| campaign.run(seed).violation.is_some());
        assert!(noticed, "{sabotage:?} went unnoticed");
    }
}

#[test]
fn a_seed_repeats_exactly() {
    for seed in 0..50 {
        let [a, b] = [0, 1].map(|_| run_seed(seed, Sabotage::None));
        assert_eq!(a.trace_hash, b.trace_hash, "seed {seed}");
        assert_eq!(a.record.answers, b.record.answers, "seed {seed}");
    }
}
