//! `hotset pool`.

use super::status::pools;
use super::text::{Argument, argument};
use crate::Failure;
use crate::cli::Pool;
use control::client::Client;
use control::protocol::{NamedOrNew, Request};
use control::section::Section;

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
        Pool::Add {
            change,
            pool,
            devices,
            policy,
            line_size,
        } => {
            let (mut names, mut new) = (Vec::new(), Vec::new());
            for device in &devices {
                match argument(device, None) {
                    Argument::Named(name) => names.push(name),
                    Argument::New(name, section) => {
                        new.push(section.text("name", &name).finish());
                        names.push(name);
                    }
                }
            }
            let section = Section::default()
                .text("name", &pool)
                .list("devices", &names)
                .optional("policy", policy.as_deref())
                .optional("line_size", line_size.as_deref());
            let (pool, devices) = (section.finish(), new);
            (change, Request::AddPool { pool, devices })
        }
        Pool::Remove { change, pool } => (change, Request::RemovePool { pool }),
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
