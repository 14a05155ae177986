//! A client: one request after another on a volume, each checked against the model.

use super::life::{NodeLife, SimVolume};
use crate::stamp::{self, ZERO};
use block::{Boundary, Fua, IoError, Nanos, SECTOR_BYTES};
use sim::SimRng;
use simnode::DirectClient;
use std::ops::Range;
use std::rc::Rc;

/// Interval of looking for a volume that is not served.
const LOOK: Nanos = Nanos::from_millis(5);
/// The longest rest between two requests.
const REST: Nanos = Nanos::from_millis(20);
/// The longest request, in sectors.
const LONGEST: u64 = 96;

/// Client `number` of a volume, until the life is over.
pub(super) async fn work(life: Rc<NodeLife>, volume: usize, number: u64) {
    let volume = &life.volumes[volume];
    let stream = 1000 * (life.number + 1) + 10 * volume.number + number;
    let mut rng = SimRng::fork(life.scenario.seed, stream);
    while !life.is_over() {
        let Some(client) = life.frontend.client(&volume.spec.name) else {
            life.env.timer.sleep(LOOK).await;
            continue;
        };
        life.report.borrow_mut().operations += 1;
        let len = rng.between(1, LONGEST);
        // Clients meet in the first quarter.
        let reach = volume.sectors / if rng.chance(0.6) { 4 } else { 1 };
        let start = rng.below(reach).min(volume.sectors - len);
        let sectors = start..start + len;
        match rng.below(100) {
            0..45 => read(&life, volume, &client, sectors).await,
            45..80 => write(&life, volume, &client, sectors, Fua::No).await,
            80..86 => write(&life, volume, &client, sectors, Fua::Yes).await,
            86..90 => zero(&life, volume, &client, sectors).await,
            _ => flush(&life, volume, &client).await,
        }
        drop(client);
        if rng.chance(0.7) {
            life.env.timer.sleep(Nanos(rng.below(REST.0))).await;
        }
    }
}

fn bytes(sectors: &Range<u64>) -> u64 {
    (sectors.end - sectors.start) * SECTOR_BYTES
}

pub(super) async fn read(
    life: &NodeLife,
    volume: &SimVolume,
    client: &DirectClient,
    sectors: Range<u64>,
) {
    let id = volume.model.borrow_mut().read(sectors.clone());
    let at = sectors.start * SECTOR_BYTES;
    let answer = client.gate().read(at, bytes(&sectors) as usize).await;
    let data = answer.as_ref().ok().map(|data| &data[..]);
    let right = volume.model.borrow_mut().was_read(id, data);
    if let Err(what) = right {
        life.violate(format!("read of {} {sectors:?}: {what}", volume.spec.name));
    }
    volume.was_read();
    judge(life, volume, client, "read", answer.err());
}

async fn write(
    life: &NodeLife,
    volume: &SimVolume,
    client: &DirectClient,
    sectors: Range<u64>,
    fua: Fua,
) {
    let mut buf = life.env.pool.get(bytes(&sectors) as usize).await;
    let version = volume.begin(&sectors, None);
    stamp::stamp(&mut buf, sectors.start, version);
    let at = sectors.start * SECTOR_BYTES;
    let result = client.gate().write(at, buf.share(), fua).await;
    volume.end(&sectors, version, result.is_ok(), fua == Fua::Yes);
    judge(life, volume, client, "write", result.err());
}

async fn zero(life: &NodeLife, volume: &SimVolume, client: &DirectClient, sectors: Range<u64>) {
    volume.begin(&sectors, Some(ZERO));
    let at = sectors.start * SECTOR_BYTES;
    let result = client.gate().zero(at, bytes(&sectors)).await;
    volume.end(&sectors, ZERO, result.is_ok(), false);
    judge(life, volume, client, "zero", result.err());
}

async fn flush(life: &NodeLife, volume: &SimVolume, client: &DirectClient) {
    let mark = volume.model.borrow_mut().flush();
    let lost = volume.losses.get();
    let result = client.gate().flush().await;
    // Writes lost with a disk meanwhile may be gone in spite of the flush.
    if result.is_ok() && volume.losses.get() == lost {
        volume.model.borrow_mut().flushed(mark);
    }
    judge(life, volume, client, "flush", result.err());
}

/// An error without an explanation is a violation.
fn judge(
    life: &NodeLife,
    volume: &SimVolume,
    client: &DirectClient,
    verb: &str,
    error: Option<IoError>,
) {
    let Some(error) = error else { return };
    if !volume.is_excused() && !client.is_withdrawn() && !life.is_over() {
        life.violate(format!(
            "{verb} on volume {} fails: {error}",
            volume.spec.name
        ));
    }
}
