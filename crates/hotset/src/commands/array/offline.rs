//! Work on arrays while no daemon runs them.

use crate::CommandFailure;
use crate::platform::UringPlatform;
use control::config::{Config, Name};
use control::meant;
use control::status::ArrayReport as Status;
use node::{Before, DeviceSource, OpenDevices, Platform, RawRole};
use raid::ArrayStart;
use shard::run_alone;
use std::path::Path;
use std::rc::Rc;
use uring::{Options, Uring};

/// Makes an array.
pub fn create(file: &Path, array: &str, yes: bool) -> Result<(), CommandFailure> {
    let config = crate::configuration::read_alone(file)?;
    for warning in crate::configuration::warnings(&config) {
        eprintln!("hotset: {warning}");
    }
    let wanted = named(&config, array)?;
    let made = assembled(&config, async move |devices| {
        let Some(DeviceSource::Array(array)) = devices.find(&wanted) else {
            return Err(format!("no array is named {wanted}; correct the name"));
        };
        let before = if yes { Before::Used } else { Before::Blank };
        let made = devices.create(&array, before).await;
        made.map_err(|error| error.to_string())?.keep();
        Ok(())
    })?;
    super::show::print(&made, false)
}

/// Assembles one array, or all, and shows the result.
pub fn assemble(
    file: &Path,
    array: Option<&str>,
    degraded: bool,
    json: bool,
) -> Result<(), CommandFailure> {
    let config = crate::configuration::read_alone(file)?;
    let wanted = match array {
        Some(array) => vec![named(&config, array)?],
        None => config.arrays.iter().map(|a| a.name.value.clone()).collect(),
    };
    let found = assembled(&config, async move |devices| {
        for name in wanted {
            // An array within another is assembled with the outer one.
            if devices.is_open(&name) {
                continue;
            }
            let Some(DeviceSource::Array(array)) = devices.find(&name) else {
                return Err(format!("no array is named {name}; correct the name"));
            };
            let made = devices.assemble(&array, RawRole::Origin, ArrayStart::by_hand(degraded));
            made.await.map_err(|error| error.to_string())?.keep();
        }
        Ok(())
    })?;
    super::show::print(&found, json)
}

fn named(config: &Config, array: &str) -> Result<Name, CommandFailure> {
    let mut arrays = config.arrays.iter();
    let found = arrays.find(|a| a.name.as_str() == array);
    found.map(|a| a.name.value.clone()).ok_or_else(|| {
        let meant = meant(array, config.arrays.iter().map(|a| a.name.as_str()));
        CommandFailure::Usage(format!(
            "hotset: the configuration has no [[array]] {array}{meant}; add it, or correct the name"
        ))
    })
}

/// Runs `work` on the devices of `config`. Returns the states of the arrays that are open then.
fn assembled(
    config: &Config,
    work: impl AsyncFnOnce(&Rc<OpenDevices<UringPlatform>>) -> Result<(), String> + Send + 'static,
) -> Result<Vec<Status>, CommandFailure> {
    alone(config, async move |devices, platform| {
        work(devices).await?;
        Ok(devices.reports(platform.local().env().timer.now()))
    })
}

/// Runs `work` on the devices of `config`, and then releases them.
pub fn alone<T: Send + 'static>(
    config: &Config,
    work: impl AsyncFnOnce(&Rc<OpenDevices<UringPlatform>>, &UringPlatform) -> Result<T, String>
    + Send
    + 'static,
) -> Result<T, CommandFailure> {
    let mut host = Uring::new(Options {
        pool_bytes: usize::try_from(config.daemon.buffers.value.0).unwrap_or(usize::MAX),
        ..Options::default()
    })
    .map_err(CommandFailure::runtime)?;
    let (opened, config) = (host.clone(), config.clone());
    let ended = run_alone(&mut host, move |local| async move {
        let platform = UringPlatform::new(opened, local, &config.daemon.state.value);
        let devices = OpenDevices::new(&config, platform.clone());
        let done = work(&devices, &platform).await;
        let rested = devices.stop().await.map_err(|error| error.to_string());
        done.and_then(|done| rested.map(|()| done))
    });
    let ended = ended.map_err(CommandFailure::runtime)?;
    ended.map_err(CommandFailure::Runtime)
}
