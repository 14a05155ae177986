//! The group that may steer the daemon through its control socket, beside its own user.

use control::config::Config;
use control::problem::ConfigurationProblem;
use nix::unistd::{Gid, Group};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};

/// A group that this machine does not have.
pub fn problems(config: &Config) -> Vec<ConfigurationProblem> {
    group(config).err().into_iter().collect()
}

/// Gives the control socket to the group, if there is one.
pub fn share(config: &Config) -> Result<(), ConfigurationProblem> {
    let Some(group) = group(config)? else {
        return Ok(());
    };
    let (path, line) = (
        &config.daemon.control.value,
        config.daemon.control_group.line,
    );
    let given = chown(path, None, Some(group.as_raw()))
        .and_then(|()| set_permissions(path, Permissions::from_mode(0o660)));
    given.map_err(|cause| {
        let what = format!("{} cannot be given to its group ({cause})", path.display());
        ConfigurationProblem::new(line, what, "choose a group of the daemon's user, or none")
    })
}

fn group(config: &Config) -> Result<Option<Gid>, ConfigurationProblem> {
    let named = &config.daemon.control_group;
    let name = &named.value;
    if name.is_empty() {
        return Ok(None);
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(Some(group.gid)),
        found => {
            let cause = found.err().map(|cause| format!(" ({})", cause.desc()));
            let what = format!("there is no group {name:?}{}", cause.unwrap_or_default());
            let remedy = format!("make it with `groupadd --system {name}`, or name another");
            Err(ConfigurationProblem::new(named.line, what, remedy))
        }
    }
}
