//! The description of the API: a validator reads it, and a client generated from it
//! (`tools/walk-api`) walks every operation against a real daemon.

use crate::common::site::Site;
use crate::common::{Place, all, copy_out, hotset, run, script};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

const CONFIG: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
[[device]]
name = "origin"
path = "$/origin"
[[device]]
name = "pool"
path = "$/pool"
[[device]]
name = "left"
path = "$/left"
[[device]]
name = "right"
path = "$/right"
[[array]]
name = "mirror"
level = "raid1"
members = ["left", "right"]
[[pool]]
name = "fast"
devices = ["pool"]
[[volume]]
name = "kept"
origin = "mirror"
pool = "fast"
[[volume]]
name = "a"
origin = "origin"
pool = "fast"
[[listen]]
unix = "$/nbd"
"#;

/// Walks the operations of `specification` at `site`.
fn walk(place: &Place, site: &Site, specification: &Path, work: &str) -> Output {
    let member = format!("{work}-member");
    place.file(&member, 32);
    let (origin, ssd, second) = (place.text("new"), place.text("ssd"), place.text("second"));
    let member = place.text(&member);
    let files =
        json!({"prefix": work, "origin": origin, "ssd": ssd, "second": second, "member": member});
    let work = place.path(work);
    fs::create_dir(&work).unwrap();
    let mut node = script("walk-api", "main.mjs");
    node.arg(specification);
    node.args([&site.origin, &site.operator, &files.to_string()]);
    node.arg(work)
        .output()
        .expect("`node` is missing: install Node 20")
}

#[test]
fn a_client_made_from_the_description_walks_every_operation() {
    let place = Place::new();
    for (name, mib) in [("origin", 64), ("pool", 64), ("left", 32), ("right", 32)] {
        place.file(name, mib);
    }
    for (name, mib) in [("new", 32), ("ssd", 32), ("second", 32)] {
        place.file(name, mib);
    }
    let config = place.config(CONFIG);
    let mut create = hotset();
    create.args(["array", "create", "--config"]).arg(config);
    run(create.args(["mirror", "--yes"]));
    let daemon = place.serve();
    copy_out(&daemon.uri("a"), &place.path("out"));
    let site = Site::start(&place);
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let walked = walk(&place, &site, &kept, "walk");
    assert!(walked.status.success(), "{}", all(&walked));

    // Canaries: an operation that nothing walks, and a description that is none.
    let mut more: Value = serde_json::from_str(&fs::read_to_string(&kept).unwrap()).unwrap();
    more["paths"]["/api/v1/more"] =
        json!({"get": {"responses": {"204": {"description": "It is so"}}}});
    fs::write(place.path("more.json"), more.to_string()).unwrap();
    let walked = walk(&place, &site, &place.path("more.json"), "again");
    let said = all(&walked);
    assert!(
        !walked.status.success() && said.contains("not walked: GET /api/v1/more"),
        "{said}"
    );
    more["paths"]["/api/v1/more"] = json!({"get": {"responses": {"204": {}}}});
    fs::write(place.path("none.json"), more.to_string()).unwrap();
    let walked = walk(&place, &site, &place.path("none.json"), "none");
    let said = all(&walked);
    assert!(
        !walked.status.success() && said.contains("is no OpenAPI"),
        "{said}"
    );
    daemon.stop();
}
