//! Files beside the devices, which have to stay unchanged.

use crate::bytes::{ClientPart, SECTOR};
use crate::plan::{BYSTANDER_MIB, BYSTANDERS};
use std::fs;
use std::io;
use std::path::Path;

/// Volume number in the stamps of the first bystander.
const FIRST: u8 = 200;

/// A file with stamps of its own.
pub struct Bystander {
    name: &'static str,
    part: ClientPart,
}

impl Bystander {
    /// Makes all bystanders.
    pub fn all(back: &Path) -> io::Result<Vec<Bystander>> {
        let numbered = (FIRST..).zip(BYSTANDERS);
        let made = numbered.map(|(number, name)| {
            let sectors = 0..(BYSTANDER_MIB << 20) / SECTOR as u64;
            let mut part = ClientPart::new(number, sectors);
            fs::write(back.join(name), part.fill())?;
            Ok(Bystander { name, part })
        });
        made.collect()
    }

    /// Fails if the file has changed.
    pub fn check(&self, back: &Path) -> Result<(), String> {
        let bytes = fs::read(back.join(self.name)).map_err(|error| error.to_string())?;
        let checked = self.part.check(0, &bytes);
        checked.map_err(|what| format!("{}, which is another's, was written: {what}", self.name))
    }
}
