//! Devices of this machine that could be an origin or a pool's device: those of the configuration,
//! its arrays, and the block devices that `lsblk` lists.
//!
//! Not here: the permission to overwrite a device; the daemon decides on that.

use crate::app::App;
use crate::gate::ReaderCaller;
use crate::problem::ProblemAnswer;
use axum::Json;
use axum::extract::State;
use control::status::DeviceActivity;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A place that data may be on.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlaceAnswer {
    /// The name in the configuration, if any.
    pub name: Option<String>,
    /// The file, block device or NBD URI.
    pub place: String,
    /// The size, if known.
    pub size_bytes: Option<u64>,
    /// The model of the drive, or of the drive to imitate.
    pub model: Option<String>,
    /// True for a rotating disk; absent if unknown.
    pub rotational: Option<bool>,
    /// The contents: a file system or partitions; absent if none was recognised.
    pub holds: Option<String>,
    /// The present user of the device.
    pub used_by: Option<String>,
}

/// Devices that could be cached or cache
#[utoipa::path(get, path = "/api/v1/places", tag = "daemon", responses((status = 200, body = Vec<PlaceAnswer>)))]
pub async fn places(
    _: ReaderCaller,
    State(app): State<App>,
) -> Result<Json<Vec<PlaceAnswer>>, ProblemAnswer> {
    let report = app.daemon.report().await?;
    let status = &report.status;
    let listed = tokio::task::spawn_blocking(block_devices).await;
    let mut machine = listed.unwrap_or_default();
    for place in &mut machine {
        let open = status
            .devices
            .iter()
            .find(|device| device.place == place.place);
        if let Some(open) = open {
            place.used_by = Some(format!("hotset, as {} {}", open.role, open.name));
        }
    }
    let mut places = Vec::new();
    for unused in &status.unused {
        let at = machine.iter().position(|place| place.place == unused.place);
        let found = at.map(|at| machine.remove(at));
        let size = std::fs::metadata(&unused.place)
            .ok()
            .filter(|meta| meta.is_file());
        places.push(PlaceAnswer {
            name: Some(unused.name.clone()),
            place: unused.place.clone(),
            size_bytes: found
                .as_ref()
                .and_then(|f| f.size_bytes)
                .or(size.map(|meta| meta.len())),
            model: unused
                .model
                .clone()
                .or(found.as_ref().and_then(|f| f.model.clone())),
            rotational: found.as_ref().and_then(|f| f.rotational),
            holds: found.as_ref().and_then(|f| f.holds.clone()),
            used_by: found.and_then(|f| f.used_by),
        });
    }
    let is_listed = |open: &&DeviceActivity| machine.iter().all(|place| place.place != open.place);
    let elsewhere = status.devices.iter().filter(is_listed);
    places.extend(elsewhere.map(|open| PlaceAnswer {
        name: Some(open.name.clone()),
        place: open.place.clone(),
        size_bytes: Some(open.size_bytes),
        model: None,
        rotational: None,
        holds: None,
        used_by: Some(format!("hotset, as {}", open.role)),
    }));
    places.extend(machine);
    Ok(Json(places))
}

/// The output of `lsblk --json`.
#[derive(Deserialize)]
struct Listing {
    blockdevices: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    path: String,
    size: Option<u64>,
    model: Option<String>,
    rota: Option<bool>,
    fstype: Option<String>,
    #[serde(default)]
    mountpoints: Vec<Option<String>>,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    children: Vec<Block>,
}

/// The block devices of this machine; none where `lsblk` cannot name them.
pub fn block_devices() -> Vec<PlaceAnswer> {
    let columns = "PATH,SIZE,MODEL,ROTA,FSTYPE,MOUNTPOINTS,TYPE";
    let output = std::process::Command::new("lsblk")
        .args(["--json", "--bytes", "--output", columns])
        .output();
    output.map_or_else(|_| Vec::new(), |output| listed(&output.stdout))
}

/// The places of a listing; none if `json` is no listing.
pub fn listed(json: &[u8]) -> Vec<PlaceAnswer> {
    let Ok(listing) = serde_json::from_slice::<Listing>(json) else {
        return Vec::new();
    };
    let mut places = Vec::new();
    listing
        .blockdevices
        .iter()
        .for_each(|block| place(block, &mut places));
    places
}

fn place(block: &Block, to: &mut Vec<PlaceAnswer>) {
    if block.size.unwrap_or(0) > 0 {
        // Of several, such as bind mounts, the shortest says most.
        let mounted = block.mountpoints.iter().flatten().min_by_key(|at| at.len());
        let parts = block.children.len();
        let holds = match (&block.fstype, parts) {
            (Some(kind), _) => Some(kind.clone()),
            (None, 0) => None,
            (None, 1) => Some("1 partition".to_owned()),
            (None, n) => Some(format!("{n} partitions")),
        };
        to.push(PlaceAnswer {
            name: None,
            place: block.path.clone(),
            size_bytes: block.size,
            model: block.model.as_ref().map(|model| model.trim().to_owned()),
            rotational: block.rota,
            holds: holds.or_else(|| mounted.map(|_| "a file system".to_owned())),
            used_by: mounted.map(|at| format!("mounted at {at}")).or_else(|| {
                let other = block.kind == "rom";
                other.then(|| "an optical drive".to_owned())
            }),
        });
    }
    block.children.iter().for_each(|child| place(child, to));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_a_device_and_uses_it_is_shown() {
        let places = listed(
            br#"{"blockdevices": [
                {"path": "/dev/sda", "size": 1000, "model": " ST3500320AS ", "rota": true,
                 "fstype": null, "mountpoints": [null], "type": "disk", "children": [
                    {"path": "/dev/sda1", "size": 900, "model": null, "rota": true,
                     "fstype": "ext4", "mountpoints": ["/srv", "/"], "type": "part"}]},
                {"path": "/dev/nvme0n1", "size": 500, "model": "SSD", "rota": false,
                 "fstype": null, "mountpoints": [null], "type": "disk"},
                {"path": "/dev/loop0", "size": 0, "model": null, "rota": false,
                 "fstype": null, "mountpoints": [null], "type": "loop"}]}"#,
        );
        let shown: Vec<_> = places
            .iter()
            .map(|p| (&*p.place, p.holds.as_deref(), p.used_by.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("/dev/sda", Some("1 partition"), None),
                ("/dev/sda1", Some("ext4"), Some("mounted at /")),
                ("/dev/nvme0n1", None, None),
            ]
        );
        assert_eq!(places[0].model.as_deref(), Some("ST3500320AS"));
        assert!(listed(b"no JSON").is_empty());
    }
}
