//! `hotset pool`.

use super::status::pools;
use super::text::{Argument, argument};
use crate::Failure;
use crate::cli::Pool;
use control::client::Client;
use control::protocol::{NamedOrNew, Request};

pub fn run(command: Pool) -> Result<(), Failure> {
    let (change, request) = match command {
        Pool::Inspect {
            device,
            lines,
            json,
        } => return super::inspect::run(&device, lines, json),
        Pool::Format {
            device,
            yes,
            rewind,
        } => return super::format::run(&device, yes, rewind),
        Pool::List { control } => {
            let mut client = Client::connect(&control.control).map_err(Failure::runtime)?;
            let status = client.status().map_err(Failure::runtime)?;
            print!("{}", pools(&status));
            return Ok(());
        }
        Pool::AddDevice {
            change,
            pool,
            device,
            name,
            controller,
        } => {
            let device = match argument(&device, name.as_deref()) {
                Argument::Named(name) => NamedOrNew::Named(name),
                Argument::New(name, section) => {
                    let section = section.text("name", &name);
                    let section = section.optional("controller", controller.as_deref());
                    NamedOrNew::New(section.finish())
                }
            };
            (change, Request::AddDevice { pool, device })
        }
        Pool::RemoveDevice {
            change,
            pool,
            device,
        } => (change, Request::RemoveDevice { pool, device }),
    };
    change.carry_out(&request)
}
