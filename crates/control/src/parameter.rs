//! The types that a parameter of the configuration can have.

use crate::address::{NbdUri, TcpAddress};
use crate::section::quoted;
use cache::{CacheMode, NAME_BYTES_MAX};
use policy::registry::POLICIES;
use raid::Level;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;
use writelog::Cleaning;

/// A type that can be read from a value of the configuration.
pub trait Parameter: Sized {
    /// The permitted forms, for the documentation and for errors.
    fn form() -> String;

    /// Reads `value`. The error names the fault of a value of the right type; `None` means a wrong
    /// type.
    fn read(value: &DeValue<'_>) -> Result<Self, Option<String>>;

    /// The value as TOML, from which it is read again.
    fn written(&self) -> String;
}

fn text<'a>(value: &'a DeValue<'_>) -> Result<&'a str, Option<String>> {
    value.as_str().ok_or(None)
}

/// The name of a device, pool or volume: letters, digits and `._-`, as many as a
/// pool's metadata has room for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Name(String);

impl Name {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Name, String> {
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        let known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        // No address of the API could name these two.
        let is_path = text == "." || text == "..";
        if !fits || is_path || !text.chars().all(known) {
            return Err(format!(
                "{text:?} is no name: use 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens and underscores, and not dots alone"
            ));
        }
        Ok(Name(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Parameter for Name {
    fn form() -> String {
        "a name".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Name, Option<String>> {
        Name::new(text(value)?).map_err(Some)
    }
    fn written(&self) -> String {
        quoted(&self.0)
    }
}

impl Parameter for String {
    fn form() -> String {
        "text".into()
    }
    fn read(value: &DeValue<'_>) -> Result<String, Option<String>> {
        Ok(text(value)?.to_owned())
    }
    fn written(&self) -> String {
        quoted(self)
    }
}

impl Parameter for PathBuf {
    fn form() -> String {
        "an absolute path".into()
    }
    fn read(value: &DeValue<'_>) -> Result<PathBuf, Option<String>> {
        let path = PathBuf::from(text(value)?);
        if !path.is_absolute() {
            let what = format!("{} is not an absolute path", path.display());
            return Err(Some(what));
        }
        Ok(path)
    }
    fn written(&self) -> String {
        quoted(&self.display().to_string())
    }
}

impl Parameter for bool {
    fn form() -> String {
        "true or false".into()
    }
    fn read(value: &DeValue<'_>) -> Result<bool, Option<String>> {
        value.as_bool().ok_or(None)
    }
    fn written(&self) -> String {
        self.to_string()
    }
}

impl Parameter for u32 {
    fn form() -> String {
        "a number".into()
    }
    fn read(value: &DeValue<'_>) -> Result<u32, Option<String>> {
        let number = value.as_integer().ok_or(None)?;
        u32::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| Some(format!("{number} is not from 0 to {}", u32::MAX)))
    }
    fn written(&self) -> String {
        self.to_string()
    }
}

/// Number of shards of a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShardCount {
    /// One for each processor that the process may use, [`SHARDS_MAX`] at most.
    Auto,
    /// So many.
    Given(u32),
    /// One on each of these processors.
    On(Vec<u32>),
}

/// The most shards of a daemon.
pub const SHARDS_MAX: u32 = 64;

impl ShardCount {
    /// The number on this machine.
    pub fn count(&self) -> u32 {
        match self {
            ShardCount::Given(count) => *count,
            ShardCount::On(processors) => processors.len() as u32,
            ShardCount::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
                u32::try_from(processors).map_or(SHARDS_MAX, |n| n.min(SHARDS_MAX))
            }
        }
    }

    /// The processors of the shards, in their order; empty if each shard may use all.
    pub fn processors(&self) -> &[u32] {
        match self {
            ShardCount::On(processors) => processors,
            ShardCount::Auto | ShardCount::Given(_) => &[],
        }
    }
}

impl Parameter for ShardCount {
    fn form() -> String {
        format!("`auto`, a number from 1 to {SHARDS_MAX}, or a list of as many processors")
    }
    fn read(value: &DeValue<'_>) -> Result<ShardCount, Option<String>> {
        if let Some(text) = value.as_str() {
            let wrong = || Some(format!("{text:?} is no number of shards"));
            return (text == "auto")
                .then_some(ShardCount::Auto)
                .ok_or_else(wrong);
        }
        if value.as_array().is_some() {
            let processors = Vec::<u32>::read(value)?;
            let mut sorted = processors.clone();
            sorted.sort_unstable();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Some(format!("processor {} is there twice", twice[0])));
            }
            return match processors.len() as u32 {
                1..=SHARDS_MAX => Ok(ShardCount::On(processors)),
                count => Err(Some(format!(
                    "{count} processors are not from 1 to {SHARDS_MAX}"
                ))),
            };
        }
        match u32::read(value)? {
            count @ 1..=SHARDS_MAX => Ok(ShardCount::Given(count)),
            count => Err(Some(format!("{count} is not from 1 to {SHARDS_MAX}"))),
        }
    }
    fn written(&self) -> String {
        match self {
            ShardCount::Auto => quoted("auto"),
            ShardCount::Given(count) => count.to_string(),
            ShardCount::On(processors) => processors.written(),
        }
    }
}

/// A number of bytes: an integer, or text with a binary unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct ByteCount(pub u64);

const UNITS: [(&str, u32); 5] = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

impl ByteCount {
    /// Reads text such as "64KiB".
    pub fn parse(text: &str) -> Result<ByteCount, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let shift = UNITS.iter().find(|(name, _)| *name == unit);
        let (Ok(number), Some((_, shift))) = (number.parse::<u64>(), shift) else {
            return Err(format!(
                "{text:?} is no size: write a whole number and B, KiB, MiB, GiB or TiB"
            ));
        };
        let bytes = number.checked_mul(1 << shift);
        bytes
            .map(ByteCount)
            .ok_or_else(|| format!("{text:?} is more than 16 EiB"))
    }
}

impl fmt::Display for ByteCount {
    /// The exact number, in the largest unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, shift): &&(&str, u32)| self.0 != 0 && self.0.is_multiple_of(1 << shift);
        let (unit, shift) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        write!(f, "{} {unit}", self.0 >> shift)
    }
}

impl Parameter for ByteCount {
    fn form() -> String {
        "bytes, such as \"64KiB\"".into()
    }
    fn read(value: &DeValue<'_>) -> Result<ByteCount, Option<String>> {
        if let Some(number) = value.as_integer() {
            return u64::from_str_radix(number.as_str(), number.radix())
                .map(ByteCount)
                .map_err(|_| Some(format!("{number} is no number of bytes")));
        }
        ByteCount::parse(text(value)?).map_err(Some)
    }
    fn written(&self) -> String {
        quoted(&self.to_string())
    }
}

/// The longest time; 58 times this time still fits nanoseconds in 64 bits.
const TIME_MAX: Duration = Duration::from_secs(3650 * 86400);

impl Parameter for Duration {
    fn form() -> String {
        "a time, such as \"100ms\"".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Duration, Option<String>> {
        let text = text(value)?;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let micros = match unit.trim_start() {
            "us" => Some(1),
            "ms" => Some(1_000),
            "s" => Some(1_000_000),
            "min" => Some(60_000_000),
            "h" => Some(3_600_000_000),
            "d" => Some(86_400_000_000),
            _ => None,
        };
        let (Ok(number), Some(micros)) = (number.parse::<u64>(), micros) else {
            return Err(Some(format!(
                "{text:?} is no time: write a whole number and us, ms, s, min, h or d"
            )));
        };
        let time = number.checked_mul(micros).map(Duration::from_micros);
        let long = || Some(format!("{text:?} is too long: write at most 3650d"));
        time.filter(|time| *time <= TIME_MAX).ok_or_else(long)
    }
    fn written(&self) -> String {
        let unit = [("s", 1_000_000), ("ms", 1_000), ("us", 1)];
        let fits = |(_, us): &(&str, u128)| self.as_micros().is_multiple_of(*us);
        let (unit, us) = unit.into_iter().find(fits).expect("of microseconds");
        quoted(&format!("{}{unit}", self.as_micros() / us))
    }
}

/// The use that a volume makes of its pool, and of a log for its writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeMode {
    /// An acknowledged write is on the origin.
    Cached(CacheMode),
    /// An acknowledged write is in the log first.
    WriteBack,
}

impl VolumeMode {
    const WRITE_BACK: &str = "write-back";
    /// Every mode.
    pub const ALL: [VolumeMode; 4] = {
        let [first, second, third] = CacheMode::ALL;
        [
            VolumeMode::Cached(first),
            VolumeMode::Cached(second),
            VolumeMode::Cached(third),
            VolumeMode::WriteBack,
        ]
    };

    /// The name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            VolumeMode::Cached(mode) => mode.name(),
            VolumeMode::WriteBack => VolumeMode::WRITE_BACK,
        }
    }

    /// The effect of the mode, in one line.
    pub fn help(self) -> &'static str {
        match self {
            VolumeMode::Cached(mode) => mode.help(),
            VolumeMode::WriteBack => "reads are cached, writes are answered by the log",
        }
    }

    /// The mode called `name`.
    pub fn from_name(name: &str) -> Option<VolumeMode> {
        match name {
            VolumeMode::WRITE_BACK => Some(VolumeMode::WriteBack),
            name => CacheMode::from_name(name).map(VolumeMode::Cached),
        }
    }

    /// The mode in force: pass-through for a volume that is `off`.
    pub fn unless(self, off: bool) -> VolumeMode {
        match off {
            true => VolumeMode::Cached(CacheMode::PassThrough),
            false => self,
        }
    }

    /// The mode of the cache behind the log, or without a log.
    pub fn cached(self) -> CacheMode {
        match self {
            VolumeMode::Cached(mode) => mode,
            VolumeMode::WriteBack => CacheMode::WriteThrough,
        }
    }
}

impl Parameter for VolumeMode {
    fn form() -> String {
        one_of(VolumeMode::ALL.into_iter().map(VolumeMode::name))
    }
    fn read(value: &DeValue<'_>) -> Result<VolumeMode, Option<String>> {
        let text = text(value)?;
        let mode = VolumeMode::from_name(text);
        mode.ok_or_else(|| {
            let form = VolumeMode::form();
            Some(format!("{text:?} is no mode: choose {form}"))
        })
    }
    fn written(&self) -> String {
        quoted(self.name())
    }
}

impl Parameter for Cleaning {
    fn form() -> String {
        one_of(Cleaning::ALL.into_iter().map(Cleaning::name))
    }
    fn read(value: &DeValue<'_>) -> Result<Cleaning, Option<String>> {
        let text = text(value)?;
        let order = Cleaning::from_name(text);
        order.ok_or_else(|| {
            let form = Cleaning::form();
            Some(format!("{text:?} is no order of write-back: choose {form}"))
        })
    }
    fn written(&self) -> String {
        quoted(self.name())
    }
}

/// The name of a replacement policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyName(pub &'static str);

impl Parameter for PolicyName {
    fn form() -> String {
        one_of(POLICIES.into_iter())
    }
    fn read(value: &DeValue<'_>) -> Result<PolicyName, Option<String>> {
        let text = text(value)?;
        let known = POLICIES.into_iter().find(|name| *name == text);
        known.map(PolicyName).ok_or_else(|| {
            Some(format!(
                "{text:?} is no policy: choose {}",
                PolicyName::form()
            ))
        })
    }
    fn written(&self) -> String {
        quoted(self.0)
    }
}

impl Parameter for Level {
    fn form() -> String {
        one_of(Level::ALL.iter().map(|level| level.name()))
    }
    fn read(value: &DeValue<'_>) -> Result<Level, Option<String>> {
        let text = text(value)?;
        Level::from_name(text)
            .ok_or_else(|| Some(format!("{text:?} is no level: choose {}", Level::form())))
    }
    fn written(&self) -> String {
        quoted(self.name())
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    names.join(", ")
}

impl Parameter for NbdUri {
    fn form() -> String {
        "an NBD URI".into()
    }
    fn read(value: &DeValue<'_>) -> Result<NbdUri, Option<String>> {
        NbdUri::parse(text(value)?).map_err(Some)
    }
    fn written(&self) -> String {
        quoted(&self.encoded())
    }
}

impl Parameter for TcpAddress {
    fn form() -> String {
        "an IP address and port".into()
    }
    fn read(value: &DeValue<'_>) -> Result<TcpAddress, Option<String>> {
        TcpAddress::parse(text(value)?).map_err(Some)
    }
    fn written(&self) -> String {
        quoted(&self.0.to_string())
    }
}

impl<T: Parameter> Parameter for Vec<T> {
    fn form() -> String {
        format!("a list, each {}", T::form())
    }
    fn read(value: &DeValue<'_>) -> Result<Vec<T>, Option<String>> {
        let array = value.as_array().ok_or(None)?;
        array.iter().map(|item| T::read(item.get_ref())).collect()
    }
    fn written(&self) -> String {
        let all: Vec<String> = self.iter().map(T::written).collect();
        format!("[{}]", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_exactly() {
        for (text, bytes, printed) in [
            ("64KiB", 64 << 10, "64 KiB"),
            ("1536 MiB", 1536 << 20, "1536 MiB"),
            ("2TiB", 2 << 40, "2 TiB"),
            ("4097B", 4097, "4097 B"),
            ("0B", 0, "0 B"),
        ] {
            assert_eq!(ByteCount::parse(text), Ok(ByteCount(bytes)));
            assert_eq!(ByteCount(bytes).to_string(), printed);
        }
        for bad in ["", "KiB", "1.5GiB", "64k", "-1B", "17179869184GiB"] {
            ByteCount::parse(bad).unwrap_err();
        }
    }

    #[test]
    fn times_have_units_from_microseconds_to_days() {
        let read = |text: &str| {
            let text = format!("\"{text}\"");
            let value = DeValue::parse(&text).expect("a string");
            Duration::read(value.get_ref()).ok()
        };
        for (text, seconds) in [
            ("2s", 2),
            ("2min", 120),
            ("3 h", 10_800),
            ("30d", 2_592_000),
        ] {
            assert_eq!(read(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for bad in [
            "",
            "5",
            "1.5h",
            "2 weeks",
            "3651d",
            "9223372036s",
            "18446744073709551615d",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        Name::new("ssd-0.a_B").unwrap();
        for bad in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            Name::new(bad).unwrap_err();
        }
    }
}
