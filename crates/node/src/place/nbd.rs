//! `nbd`: an export of an NBD server.

use super::raw::{Bare, Raw, Role, claimed};
use crate::Later;
use crate::platform::Platform;
use block::{BoxDevice, IoResult, Nanos};
use control::address::NbdUri;
use control::config;
use nbd::client::{Client, Options};
use nbd::tls::Dialer;
use std::path::Path;

/// How long a pool waits for a lost server: the origin has the data too.
const POOL_TIMEOUT: Nanos = Nanos::from_secs(2);

/// The longest pause before a lost member's server is sought again.
const MEMBER_RETRY_PAUSE_MAX: Nanos = Nanos::from_millis(500);

pub(super) fn open<'a, P: Platform>(
    platform: &'a P,
    device: &'a config::Device,
    role: Role,
) -> Option<Later<'a, IoResult<Raw<P>>>> {
    let uri = &device.nbd.as_ref()?.value;
    Some(Box::pin(async move {
        let name = device.name.value.as_str();
        let timer = platform.local().env().timer;
        let hold = claimed(&timer, async || platform.claim_export(uri)).await;
        let hold = hold.map_err(|error| error.on(format!("{name} ({uri})")))?;
        let authority = device.tls_ca.as_ref().map(|file| file.value.as_path());
        let client = connect(platform, uri, authority, role).await?;
        Ok(Raw {
            device: Bare::Other(BoxDevice::new(client)),
            hold: Some(hold),
            place: uri.to_string(),
            is_file: false,
        })
    }))
}

async fn connect<P: Platform>(
    platform: &P,
    uri: &NbdUri,
    authority: Option<&Path>,
    role: Role,
) -> IoResult<Client> {
    let mut options = Options::new(uri.address.clone(), uri.export.as_str());
    if let Some(authority) = authority {
        let authority = platform.read_certificates(authority)?;
        options.tls = Some(Dialer::new(uri.host(), &authority, None)?);
    }
    match role {
        Role::Origin => (),
        Role::Pool | Role::Log => {
            options.give_up_after = POOL_TIMEOUT;
            options.reply_timeout = POOL_TIMEOUT;
            // Marks that are undone would have stale lines trusted.
            options.repeat_durable_writes = false;
        }
        Role::Member(detection) => {
            options.give_up_after = Nanos(detection.0 / 2);
            options.connect_timeout = Nanos(detection.0 / 2);
            // It may take twice this to see that there is no reply.
            options.reply_timeout = Nanos(detection.0 / 5 * 2);
            options.retry_pause_max = MEMBER_RETRY_PAUSE_MAX;
        }
    }
    let local = platform.local();
    Client::connect(local.env(), local.connector(), options).await
}
