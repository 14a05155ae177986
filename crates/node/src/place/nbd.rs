//! `nbd`: an export of an NBD server.
//!
//! Invariant: after each loss of the connection, the export is compared with its former content
//! before any other request. A different export counts as none, until the right one is back or the
//! different one is opened as itself.

use super::raw::{Bare, RawPlace, RawRole, claimed};
use crate::platform::Platform;
use block::{BoxDevice, Deadline, Device as _, Extent, IoErrorKind, IoResult, Lba, Nanos, Sectors};
use control::address::NbdUri;
use control::config;
use layout::BLOCK_SECTORS;
use layout::array::{BITMAP, SUPERBLOCKS};
use nbd::client::{Client, Options, Recognise};
use nbd::tls::Dialer;
use origin::{DeviceIdentity, Guarded, Recogniser, take_with};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Time that a pool waits for a lost server: the origin has the data too.
const POOL_TIMEOUT: Nanos = Nanos::from_secs(2);

/// Time limit of reading an origin's record when it is opened.
const ORIGIN_LOOK_MAX: Nanos = Nanos::from_secs(30);

/// Longest pause before the next attempt to reach a lost member's server.
const MEMBER_RETRY_PAUSE_MAX: Nanos = Nanos::from_millis(500);

/// Opens the export at `uri` for `device`.
pub(super) async fn open<P: Platform>(
    platform: &P,
    device: &config::Device,
    uri: &NbdUri,
    role: RawRole,
) -> IoResult<RawPlace<P>> {
    let name = device.name.value.as_str();
    let timer = platform.local().env().timer;
    let hold = claimed(&timer, async || platform.claim_export(uri)).await;
    let hold = hold.map_err(|error| error.on(format!("{name} ({uri})")))?;
    let authority = device.tls_ca.as_ref().map(|file| file.value.as_path());
    let known = Known::default();
    let client = connect(platform, uri, authority, role, &known).await?;
    let standing = client.standing();
    let device = watched(platform, client, role, &known).await?;
    Ok(RawPlace {
        device: Bare::Other(device),
        hold: Some(hold),
        place: uri.to_string(),
        is_file: false,
        standing: Some(standing),
    })
}

/// The recogniser of an export, once its record is made.
type Known = Rc<RefCell<Option<Recogniser<Client>>>>;

/// Compares the export of a server that was lost and is back with its former content.
fn recognise(known: &Known) -> Recognise {
    let known = known.clone();
    Rc::new(move |now: BoxDevice| {
        let known = known.borrow().clone();
        Box::pin(async move {
            let doubt = match known {
                Some(known) => known.doubt(&now).await?,
                // The connection was lost while the export was opened.
                None => None,
            };
            Ok(doubt.map(|reason| reason.to_string()))
        })
    })
}

/// The export of `client`, which is `known` from now on by the metadata of arrays, the superblocks
/// of file systems, and samples.
async fn watched<P: Platform>(
    platform: &P,
    client: Client,
    role: RawRole,
    known: &Known,
) -> IoResult<BoxDevice> {
    let env = platform.local().env();
    let limit = match role {
        RawRole::Origin => ORIGIN_LOOK_MAX,
        RawRole::Pool | RawRole::Log => POOL_TIMEOUT,
        RawRole::Member(detection) => detection,
    };
    let (seed, also) = (platform.uuid() as u64, metadata());
    let looked = take_with(&client, &env.pool, DeviceIdentity::default(), seed, &also);
    let Some(record) = Deadline::new(&env.timer, limit).bound(looked).await else {
        let what = "does not answer in time; see to its server";
        return Err(client.geometry().error(IoErrorKind::Timeout, what));
    };
    let device = Guarded::watching(client, env, record?);
    *known.borrow_mut() = Some(device.recogniser());
    Ok(BoxDevice::new(device))
}

/// The metadata of an array on its members: the superblocks, and each sector of the map.
fn metadata() -> Vec<Extent> {
    let superblocks = SUPERBLOCKS.map(|at| Extent::new(Lba(at.0), Sectors(BLOCK_SECTORS)));
    let map = (0..BLOCK_SECTORS).map(|n| Extent::new(Lba(BITMAP.0 + n), Sectors(1)));
    superblocks.into_iter().chain(map).collect()
}

async fn connect<P: Platform>(
    platform: &P,
    uri: &NbdUri,
    authority: Option<&Path>,
    role: RawRole,
    known: &Known,
) -> IoResult<Client> {
    let mut options = Options::new(uri.address.clone(), uri.export.as_str());
    if let Some(authority) = authority {
        let authority = platform.read_certificates(authority)?;
        options.tls = Some(Dialer::new(uri.host(), &authority, None)?);
    }
    options.recognise = Some(recognise(known));
    match role {
        RawRole::Origin => (),
        RawRole::Pool | RawRole::Log => {
            options.give_up_after = POOL_TIMEOUT;
            options.reply_timeout = POOL_TIMEOUT;
            // Repeated writes could undo later marks, and stale lines would then be trusted.
            options.repeat_durable_writes = false;
        }
        RawRole::Member(detection) => {
            options.give_up_after = Nanos(detection.0 / 2);
            options.connect_timeout = Nanos(detection.0 / 2);
            // The client may take twice this time to notice a missing reply.
            options.reply_timeout = Nanos(detection.0 / 5 * 2);
            options.retry_pause_max = MEMBER_RETRY_PAUSE_MAX;
        }
    }
    let local = platform.local();
    Client::connect(local.env(), local.connector(), options).await
}
