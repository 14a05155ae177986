//! The plan of a storm: its devices and its configuration, all drawn from its seed.

use fastrand::Rng;
use std::path::Path;

/// Place of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StormPlace {
    /// A file of the mounted folder.
    File,
    /// An export of a server of the storm.
    Export,
}

/// A device.
pub struct StormDevice {
    /// Name of the device, of its file and of its export.
    pub name: String,
    /// Size in MiB.
    pub mib: u64,
    /// Place of the device.
    pub place: StormPlace,
}

/// An array, which is an origin.
pub struct StormArray {
    /// Name of the array.
    pub name: &'static str,
    /// RAID level.
    pub level: &'static str,
    /// First members.
    pub members: Vec<String>,
    /// First spares.
    pub spares: Vec<String>,
}

impl StormArray {
    /// True if `device` is a member or a spare.
    pub fn has(&self, device: &str) -> bool {
        self.members.iter().chain(&self.spares).any(|d| d == device)
    }
}

/// A volume.
pub struct StormVolume {
    /// Name of the volume.
    pub name: &'static str,
    /// Origin: a device or an array.
    pub origin: &'static str,
    /// Pool of the volume.
    pub pool: &'static str,
    /// First mode.
    pub mode: &'static str,
}

/// The plan of one storm's daemon.
pub struct StormPlan {
    /// Volumes: one that is written through, one that is written back, and the visitor, which comes
    /// and goes and is not in the configuration at first.
    pub volumes: Vec<StormVolume>,
    /// Devices.
    pub devices: Vec<StormDevice>,
    /// Arrays.
    pub arrays: Vec<StormArray>,
    /// Pools, and the first devices of each.
    pub pools: Vec<(&'static str, Vec<&'static str>)>,
    /// Order in which the write-back origin gets writes.
    pub order: &'static str,
    /// True if the volumes are in a file of their own.
    apart: bool,
    line_size: &'static str,
    policy: &'static str,
    max_lag: &'static str,
    dirty_max: &'static str,
    shards: u32,
}

/// First devices of a log, and a replacement.
pub const LOGS: [&str; 3] = ["log0", "log1", "log2"];
/// Folder of the daemon's state.
pub const STATE: &str = "state";
/// Folder of the daemon's configuration.
pub const ETC: &str = "etc";
/// Files of the configuration: the main one, and one that has the volumes in some storms.
pub const FILES: [&str; 2] = ["hotset.toml", "conf.d/volumes.toml"];
/// A pool that comes and goes, and its device.
pub const LENT: (&str, &str) = ("lent", "lent0");
/// Devices without a user, with bytes that stay: a file and an export. The third name is a file
/// beside the devices.
pub const BYSTANDERS: [&str; 3] = ["fence", "foreign", "bystander"];
/// Size of each volume.
pub const VOLUME_MIB: u64 = 24;
/// Size of each bystander.
pub const BYSTANDER_MIB: u64 = 32;
/// Number of the write-back volume.
pub const BACK: usize = 1;
/// Number of the volume that comes and goes.
pub const VISITOR: usize = 2;

/// Draws one of `of`.
pub fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

impl StormPlan {
    /// Draws the plan of a storm.
    pub fn draw(rng: &mut Rng) -> StormPlan {
        let mut plan = StormPlan {
            volumes: Vec::new(),
            devices: Vec::new(),
            arrays: Vec::new(),
            pools: Vec::new(),
            order: one(rng, &["ordered", "coalesced", "journaled"]),
            apart: rng.bool(),
            line_size: one(rng, &["4KiB", "64KiB", "256KiB"]),
            policy: one(rng, &["auto", "lru"]),
            max_lag: one(rng, &["3s", "30s", "300s"]),
            dirty_max: one(rng, &["1MiB", "4MiB", "64MiB"]),
            shards: 1,
        };
        plan.pools.push(match rng.bool() {
            true => ("fast", vec!["ssd0", "ssd1"]),
            false => ("fast", vec!["ssd0"]),
        });
        if rng.u8(..3) == 0 {
            plan.pools.push(("other", vec!["ssd2"]));
        }
        let pools: Vec<&str> = plan.pools.iter().map(|(name, _)| *name).collect();
        let through = ["write-through", "write-through", "write-around"];
        for (name, [disk, array, inner], modes) in [
            ("through", ["disk0", "left", "left_inner"], &through[..]),
            ("back", ["disk1", "right", "right_inner"], &["write-back"]),
            ("visitor", ["disk2"; 3], &through[..2]),
        ] {
            let origin = match name != "visitor" && rng.bool() {
                true => plan.add_array(rng, array, Some(inner)),
                false => plan.add_disk(rng, disk),
            };
            plan.volumes.push(StormVolume {
                name,
                origin,
                pool: one(rng, &pools),
                mode: one(rng, modes),
            });
        }
        let log_mib = one(rng, &[10, 16, 33]);
        LOGS.iter()
            .for_each(|log| plan.add(log, log_mib, StormPlace::File));
        if plan.order == "journaled" {
            plan.add("journal", 20, StormPlace::File);
        }
        for (_, devices) in plan.pools.clone() {
            devices
                .iter()
                .for_each(|name| plan.add(name, 32, StormPlace::File));
        }
        plan.add(LENT.1, 32, StormPlace::File);
        plan.add(BYSTANDERS[0], BYSTANDER_MIB, StormPlace::File);
        plan.add(BYSTANDERS[1], BYSTANDER_MIB, StormPlace::Export);
        plan.shards = one(rng, &[1, 1, 2, 3]);
        plan
    }

    fn add(&mut self, name: &str, mib: u64, place: StormPlace) {
        let name = name.to_owned();
        self.devices.push(StormDevice { name, mib, place });
    }

    fn add_disk(&mut self, rng: &mut Rng, name: &'static str) -> &'static str {
        let place = one(rng, &[StormPlace::File, StormPlace::Export]);
        self.add(name, VOLUME_MIB, place);
        name
    }

    /// Adds an array; in some storms its first member is another array.
    fn add_array(
        &mut self,
        rng: &mut Rng,
        name: &'static str,
        inner: Option<&'static str>,
    ) -> &'static str {
        let shapes = [("raid1", 2), ("raid1", 3), ("raid5", 3), ("raid10", 4)];
        let (level, count) = one(rng, &shapes);
        let spares = rng.usize(..2);
        let mut names: Vec<String> = (0..count + spares).map(|n| format!("{name}{n}")).collect();
        let inner = inner.filter(|_| rng.u8(..3) == 0);
        if let Some(inner) = inner {
            names[0] = self.add_array(rng, inner, None).to_owned();
        }
        for (number, device) in names.clone().iter().enumerate() {
            if Some(device.as_str()) == inner {
                continue;
            }
            let place = match number {
                // A file has the larger blocks, and an array takes no device with larger blocks
                // than its own.
                0 => StormPlace::File,
                _ => one(rng, &[StormPlace::File, StormPlace::Export]),
            };
            self.add(device, 32, place);
        }
        let spares = names.split_off(count);
        self.arrays.push(StormArray {
            name,
            level,
            members: names,
            spares,
        });
        name
    }

    /// Returns the device of this name.
    pub fn device(&self, name: &str) -> Option<&StormDevice> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Returns the array of this name.
    pub fn array(&self, name: &str) -> Option<&StormArray> {
        self.arrays.iter().find(|array| array.name == name)
    }

    /// Returns the devices below an origin: itself, or those of its array.
    pub fn below(&self, origin: &str) -> Vec<String> {
        match self.array(origin) {
            Some(array) => array.members.iter().flat_map(|m| self.below(m)).collect(),
            None => vec![origin.to_owned()],
        }
    }

    /// True if a device is an export.
    pub fn is_exported(&self, name: &str) -> bool {
        let device = self.device(name);
        device.is_some_and(|device| device.place == StormPlace::Export)
    }

    /// Returns the text of each of [`FILES`], which may be empty. Sockets are in `folder`; devices,
    /// the state and the files themselves are in `devices`.
    pub fn configuration(&self, folder: &Path, devices: &Path) -> [String; 2] {
        let (dir, at) = (folder.display(), devices.display());
        let mut text = format!(
            "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{at}/{STATE}\"\nbuffers = \"48MiB\"\n\
             stop = \"20s\"\ngrace = \"2s\"\nshards = {}\n\n[[listen]]\nunix = \"{dir}/nbd\"\n",
            self.shards
        );
        for StormDevice { name, place, .. } in &self.devices {
            let place = match place {
                StormPlace::File => format!("path = \"{at}/{name}\""),
                StormPlace::Export => {
                    format!("nbd = \"nbd+unix:///{name}?socket={dir}/{name}.sock\"")
                }
            };
            text +=
                &format!("\n[[device]]\nname = \"{name}\"\n{place}\ncontroller = \"of-{name}\"\n");
        }
        for array in &self.arrays {
            text += &format!(
                "\n[[array]]\nname = \"{}\"\nlevel = \"{}\"\nmembers = {:?}\nspares = {:?}\n\
                 detection = \"5s\"\nspare_delay = \"1s\"\nrebuild_rate = \"100MiB\"\n",
                array.name, array.level, array.members, array.spares
            );
        }
        for (name, devices) in &self.pools {
            text += &format!(
                "\n[[pool]]\nname = \"{name}\"\ndevices = {devices:?}\nline_size = \"{}\"\n\
                 policy = \"{}\"\nhit_latency_max = \"1s\"\n",
                self.line_size, self.policy
            );
        }
        let volumes = self.volumes[..VISITOR].iter();
        let volumes = volumes.map(|volume| format!("\n[[volume]]\n{}", self.section(volume)));
        match self.apart {
            true => [text, volumes.collect()],
            false => [text + &volumes.collect::<String>(), String::new()],
        }
    }

    /// Returns the section of a volume without its title.
    pub fn section(&self, volume: &StormVolume) -> String {
        let StormVolume {
            name,
            origin,
            pool,
            mode,
        } = volume;
        let mut text = format!(
            "name = \"{name}\"\norigin = \"{origin}\"\npool = \"{pool}\"\nsize = \"{VOLUME_MIB}MiB\"\n\
             mode = \"{mode}\"\n"
        );
        if *mode == "write-back" {
            text += &format!(
                "log = {:?}\nwrite_back = \"{}\"\nmax_lag = \"{}\"\ndirty_max = \"{}\"\n",
                &LOGS[..2],
                self.order,
                self.max_lag,
                self.dirty_max
            );
            if self.order == "journaled" {
                text += "journal = \"journal\"\n";
            }
        }
        text
    }

    /// Returns all devices of pools.
    pub fn pool_devices(&self) -> Vec<&'static str> {
        let pools = self.pools.iter();
        pools.flat_map(|(_, devices)| devices.clone()).collect()
    }

    /// Summarises the storm in a line.
    pub fn about(&self) -> String {
        let origin = |volume: &StormVolume| match self.array(volume.origin) {
            Some(array) if self.array(&array.members[0]).is_some() => {
                format!("{} of {}, nested", array.level, array.members.len())
            }
            Some(array) => format!("{} of {}", array.level, array.members.len()),
            None if self.is_exported(volume.origin) => "an export".into(),
            None => "a file".into(),
        };
        format!(
            "{} on {} and {} on {} (max_lag {}, dirty_max {}), {} pools, lines of {}, {}, {}",
            self.volumes[0].mode,
            origin(&self.volumes[0]),
            self.order,
            origin(&self.volumes[BACK]),
            self.max_lag,
            self.dirty_max,
            self.pools.len(),
            self.line_size,
            self.policy,
            if self.apart { "two files" } else { "one file" }
        )
    }
}
