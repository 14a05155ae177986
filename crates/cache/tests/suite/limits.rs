//! Volumes that a pool's metadata has no room for are refused, and the pool goes on.

use crate::place::{LINE, Place};
use block::{BoxDevice, IoErrorKind};
use cache::{DEVICES_MAX, NAME_BYTES_MAX, NewPoolDevice, VolumeConfig};

#[test]
fn a_device_more_than_superblocks_have_room_for_is_refused() {
    let mut place = Place::new(1, DEVICES_MAX + 1);
    let last = place.pool[DEVICES_MAX];
    let all: Vec<usize> = (0..DEVICES_MAX).collect();
    place.done(&all, move |rig| async move {
        let device = || NewPoolDevice::whole(rig.local.disk(last).unwrap(), "controller");
        let error = rig.cache.join(device(), 99).await.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Invalid);
        assert!(error.to_string().contains("at most 16 devices"), "{error}");
        // The volume has been left alone, and there is room for it once another is gone.
        rig.fill().await;
        let gone = rig.opened.devices[3].id;
        rig.cache.remove_device(gone).await.unwrap();
        rig.cache.join(device(), 99).await.unwrap();
        rig.write(0, 8, 7).await;
        rig.expect(0, 8, 7).await;
        rig.end().await;
    });
}

#[test]
fn a_volume_that_cannot_be_remembered_is_refused() {
    let mut place = Place::new(1, 1);
    place.done(&[0], |rig| async move {
        let add = |name: String| {
            let config = VolumeConfig::whole(name);
            let below = BoxDevice::new(rig.local.disk(rig.origin).unwrap());
            rig.cache.add_volume(config, below)
        };
        let error = add("x".repeat(NAME_BYTES_MAX + 1)).err().unwrap();
        assert_eq!(error.kind(), IoErrorKind::Invalid);
        assert!(error.to_string().contains("at most 63 bytes"), "{error}");
        add("x".repeat(NAME_BYTES_MAX)).unwrap();
        // One was there before.
        for number in 2..59 {
            add(format!("volume {number}")).unwrap();
        }
        let error = add("one too many".into()).err().unwrap();
        assert_eq!(error.kind(), IoErrorKind::Invalid);
        rig.write(0, LINE, 7).await;
        rig.expect(0, LINE, 7).await;
        rig.end().await;
    });
}

/// The longest name is found again unchanged.
#[test]
fn a_volume_with_the_longest_name_comes_back_warm() {
    let mut place = Place::new(1, 1);
    let config = || VolumeConfig::whole("x".repeat(NAME_BYTES_MAX));
    for warm in [false, true] {
        place.done(&[0], move |mut rig| async move {
            let below = BoxDevice::new(rig.local.disk(rig.origin).unwrap());
            rig.volume = rig.cache.add_volume(config(), below).unwrap();
            rig.cache.warmed().await;
            rig.fill().await;
            let restored = rig.count(cache::Counter::LinesRestored);
            assert_eq!(restored > 0, warm, "{restored}");
            rig.end().await;
        });
    }
}
