//! A pool without room for a request refuses the request, while the daemon serves on.

use crate::common::{Place, refused, run};

/// The most devices of a pool.
const DEVICES_MAX: usize = 16;

#[test]
fn a_pool_device_too_many_is_refused() {
    let place = Place::usual();
    let daemon = place.serve();
    for number in 1..DEVICES_MAX {
        let name = format!("more-{number}");
        place.file(&name, 4);
        run(&mut place.command(&format!("pool add-device fast {}", place.text(&name))));
    }
    place.file("last", 4);
    let last = place.text("last");
    refused(
        &mut place.command(&format!("pool add-device fast {last}")),
        1,
        &[
            "pool fast has 17 devices; give at most 16",
            "Nothing was changed",
        ],
    );
    // The device was released, and can be used once there is room.
    run(&mut place.command("pool remove-device fast more-7"));
    run(&mut place.command(&format!("pool add-device fast {last}")));
    daemon.stop();
}
