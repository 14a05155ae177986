//! Faults that a storm has to find, and that are not the daemon's.

/// A fault that a storm has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
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

impl Canary {
    /// All canaries, by name.
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
