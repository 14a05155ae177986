//! Faults that a storm has to find, and that are not the daemon's.

/// A fault that a storm has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StormCanary {
    /// The origin of a volume loses writes that it acknowledges.
    LostWrite,
    /// The daemon answers no request, although no pause is known.
    LateReport,
    /// A file beside the devices is written.
    Bystander,
    /// An unknown section is written into the configuration.
    Configuration,
    /// The daemon dies.
    Death,
    /// An origin does not answer, although no fault is known.
    Silence,
    /// An origin has bytes that no client has written.
    Rot,
    /// A device fails, and the daemon's messages are discarded.
    Unsaid,
}

impl StormCanary {
    /// All canaries, by name.
    pub const ALL: [(&'static str, StormCanary); 8] = [
        ("lost-write", StormCanary::LostWrite),
        ("late-report", StormCanary::LateReport),
        ("bystander", StormCanary::Bystander),
        ("configuration", StormCanary::Configuration),
        ("death", StormCanary::Death),
        ("silence", StormCanary::Silence),
        ("rot", StormCanary::Rot),
        ("unsaid", StormCanary::Unsaid),
    ];
}
