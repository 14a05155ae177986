//! `hotset volume`.

use super::status::volumes;
use super::text::{Argument, argument};
use crate::Failure;
use crate::cli::Volume;
use control::client::Client;
use control::protocol::Request;
use control::section::Section;

pub fn run(command: Volume) -> Result<(), Failure> {
    let (change, request) = match command {
        Volume::List { control } => {
            let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
            let status = client.status().map_err(Failure::runtime)?;
            print!("{}", volumes(&status));
            return Ok(());
        }
        Volume::SetMode {
            change,
            volume,
            mode,
        } => (change, Request::SetMode { volume, mode }),
        Volume::Quiesce { control, volume } => (control.once(), Request::Quiesce { volume }),
        Volume::Resume { control, volume } => (control.once(), Request::Resume { volume }),
        Volume::Invalidate { control, volume } => (control.once(), Request::Invalidate { volume }),
        Volume::Add {
            change,
            volume,
            origin,
            pool,
            mode,
            size,
            read_only,
        } => {
            let (origin, device) = match argument(&origin, None) {
                Argument::Named(name) => (name, None),
                Argument::New(name, section) => {
                    let section = section.flag("read_only", read_only).text("name", &name);
                    (name, Some(section.finish()))
                }
            };
            let volume = Section::default()
                .text("name", &volume)
                .text("origin", &origin)
                .text("pool", &pool)
                .optional("mode", mode.as_deref())
                .optional("size", size.as_deref())
                .flag("read_only", read_only)
                .finish();
            (change, Request::AddVolume { volume, device })
        }
        Volume::Remove { change, volume } => (change, Request::RemoveVolume { volume }),
    };
    change.carry_out(&request)
}
