//! Faults that a storm has to find, which are no faults of the daemon.

/// A fault that a storm has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// The origin of a volume loses writes that it acknowledges.
    LostWrite,
    /// The daemon answers nobody, and nobody has paused it.
    LateReport,
    /// What lies beside the devices is written.
    Bystander,
    /// A section is written into the configuration that is none.
    Configuration,
    /// The daemon dies.
    Death,
    /// An origin does not answer, and nobody knows.
    Silence,
    /// An origin holds what nobody has written.
    Rot,
    /// A device fails, and what the daemon says of it is not kept.
    Unsaid,
}

impl Canary {
    /// All of them, by name.
    pub const ALL: [(&'static str, Canary); 8] = [
        ("lost-write", Canary::LostWrite),
        ("late-report", Canary::LateReport),
        ("bystander", Canary::Bystander),
        ("configuration", Canary::Configuration),
        ("death", Canary::Death),
        ("silence", Canary::Silence),
        ("rot", Canary::Rot),
        ("unsaid", Canary::Unsaid),
    ];
}
