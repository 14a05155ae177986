//! The parts of a case: a configuration, and the end of each life of its node.

use crate::raidsim::ArrayModel;
use block::Nanos;
use control::check::check_alone;
use control::config::Config;
use sim::SimRng;

/// The directory that every disk of a case is in.
const DIRECTORY: &str = "/simulated";
/// A disk without a user, and a disk too small for any use.
pub(super) const UNUSED: &str = "x0";
pub(super) const TINY: &str = "x1";
/// The size of each volume, small so that clients meet.
pub(super) const VOLUME_KIB: u64 = 256;

/// The end of a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeLifeEnd {
    /// In order.
    Stop,
    /// The process is gone; the content of disks stays.
    Kill,
    /// The power goes.
    Cut,
}

/// A volume and its disks.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub name: String,
    /// The disks that its data is on.
    pub disks: Vec<String>,
    /// Number of these disks that the volume can do without.
    pub tolerance: usize,
    /// The volume's section of a configuration, without the title.
    pub section: String,
}

impl Spec {
    fn new(name: &str, origin: &str, disks: Vec<String>, tolerance: usize) -> Spec {
        Spec {
            name: name.to_owned(),
            disks,
            tolerance,
            section: format!(
                "name = {name:?}\norigin = {origin:?}\npool = \"fast\"\nsize = \"{VOLUME_KIB}KiB\"\n"
            ),
        }
    }
}

/// A case.
#[derive(Clone, Debug)]
pub(super) struct NodeScenario {
    pub seed: u64,
    pub text: String,
    pub volumes: Vec<Spec>,
    /// Arrays, those within others first.
    pub arrays: Vec<String>,
    pub pool_devices: Vec<String>,
    /// The pool device that is not in the pool at the start.
    pub spare_pool_device: String,
    /// More disks may fail at a time than an array can do without.
    pub several: bool,
    /// Disks that answer slowly now and then.
    pub slow: bool,
    pub lives: Vec<(NodeLifeEnd, Nanos)>,
    pub clients: u64,
    pub array_in_pool: bool,
    pub nested: bool,
    /// Operators make requests that have to be refused.
    pub mistakes: bool,
    /// Operators change the file of the configuration too, and have the node load the file.
    pub reloads: bool,
}

/// The path of a disk.
pub(super) fn path(disk: &str) -> String {
    format!("{DIRECTORY}/{disk}")
}

/// The sections of arrays, and their names.
#[derive(Default)]
struct ArraySections {
    text: String,
    names: Vec<String>,
}

impl ArraySections {
    fn add(&mut self, name: &str, level: &str, members: &[String]) {
        self.text += &format!(
            "[[array]]\nname = {name:?}\nlevel = {level:?}\nmembers = {members:?}\ndetection = \"1s\"\n\
             chunk = \"16KiB\"\n"
        );
        self.names.push(name.to_owned());
    }
}

fn draw_lives(rng: &mut SimRng) -> Vec<(NodeLifeEnd, Nanos)> {
    let ends = [NodeLifeEnd::Stop, NodeLifeEnd::Kill, NodeLifeEnd::Cut];
    let life = |rng: &mut SimRng| {
        let end = ends[rng.below(3) as usize];
        (end, Nanos(rng.between(500_000_000, 6_000_000_000)))
    };
    (0..rng.between(1, 3)).map(|_| life(rng)).collect()
}

impl NodeScenario {
    /// The case of `seed`.
    pub fn new(seed: u64) -> NodeScenario {
        let mut rng = SimRng::fork(seed, 1);
        let mut text = format!("[[listen]]\nunix = \"{DIRECTORY}/nbd\"\n");
        text += "[daemon]\ngrace = \"2s\"\nstop = \"20s\"\n";
        let mut disks: Vec<String> = ["o0", "p0", "p1", "p2"].map(String::from).to_vec();
        let (level, count) =
            [("raid1", 2), ("raid5", 3), ("raid10", 4), ("raid0", 2)][rng.below(4) as usize];
        let members: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
        disks.extend(members.iter().cloned());
        // A later addition has a random source of its own, so that each seed stays the same case.
        let mistakes = SimRng::fork(seed, 2).chance(0.3);
        if mistakes {
            disks.extend([UNUSED, TINY].map(String::from));
        }
        let mut arrays = ArraySections::default();
        arrays.add("r", level, &members);
        let mut tolerance = usize::from(level != "raid0");
        let (mut origin, mut of_array) = ("r", members);
        let nested = rng.chance(0.3);
        if nested {
            let inner: Vec<String> = (0..2).map(|n| format!("n{n}")).collect();
            arrays.add("s", "raid0", &inner);
            arrays.add("t", "raid1", &["r", "s"].map(String::from));
            disks.extend(inner.iter().cloned());
            of_array.extend(inner);
            (origin, tolerance) = ("t", 1);
        }
        let array_in_pool = rng.chance(0.2);
        let mut pool_devices = vec!["p0".to_owned(), "p1".to_owned()];
        if array_in_pool {
            arrays.add("q", "raid1", &pool_devices);
            pool_devices = vec!["q".to_owned()];
        }
        for disk in &disks {
            text += &format!("[[device]]\nname = {disk:?}\npath = {:?}\n", path(disk));
        }
        text += &arrays.text;
        let names = policy::registry::POLICIES;
        let policy = names[rng.below(names.len() as u64) as usize];
        text += &format!(
            "[[pool]]\nname = \"fast\"\ndevices = {pool_devices:?}\npolicy = {policy:?}\n\
             line_size = \"16KiB\"\ncommit = \"100ms\"\n"
        );
        let plain = Spec::new("plain", "o0", vec!["o0".to_owned()], 0);
        let volumes = vec![plain, Spec::new("array", origin, of_array, tolerance)];
        for volume in &volumes {
            text += &format!("[[volume]]\n{}", volume.section);
        }
        NodeScenario {
            seed,
            lives: draw_lives(&mut rng),
            text,
            volumes,
            arrays: arrays.names,
            pool_devices,
            spare_pool_device: "p2".to_owned(),
            several: rng.chance(0.4),
            slow: rng.chance(0.3),
            clients: rng.between(1, 3),
            array_in_pool,
            nested,
            mistakes,
            reloads: SimRng::fork(seed, 3).chance(0.3),
        }
    }

    /// The configuration that its nodes are started from.
    pub fn config(&self) -> Config {
        check_alone(&self.text, &[]).unwrap_or_else(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            panic!("seed {}: {}\n{}", self.seed, problems.join("\n"), self.text)
        })
    }

    /// A model for each volume.
    pub fn models(&self) -> Vec<ArrayModel> {
        let sectors = (VOLUME_KIB << 10) / block::SECTOR_BYTES;
        self.volumes
            .iter()
            .map(|_| ArrayModel::new(sectors))
            .collect()
    }
}
