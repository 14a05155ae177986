//! The catalogue: its devices can be built, and its numbers agree with the project's reference
//! parameters where `HOTSET_SHARED` names their folder.

use crate::catalogue::{Drive, controller, hdd, link, ssd};
use crate::{Basis, Controller, Figure, Hdd, ModelledLink, SsdWear};
use serde_json::Value;
use std::collections::HashSet;

fn every_table() -> Vec<(&'static str, Vec<(&'static str, Figure)>)> {
    let drives = Drive::all().map(|drive| (drive.name(), drive.figures()));
    let controllers = controller::ALL.into_iter();
    let controllers = controllers.map(|device| (device.name, device.figures().to_vec()));
    let links = link::ALL.into_iter();
    let links = links.map(|device| (device.name, device.figures().to_vec()));
    drives.chain(controllers).chain(links).collect()
}

#[test]
fn every_device_is_possible_and_has_a_name_of_its_own() {
    let mut names = HashSet::new();
    for (name, figures) in every_table() {
        assert!(names.insert(name), "{name} twice");
        assert!(figures.iter().all(|(_, figure)| !figure.source.is_empty()));
    }
    for drive in Drive::all() {
        drive.model(0.5, SsdWear::Steady).unwrap();
        assert_eq!(Drive::named(drive.name()).unwrap().name(), drive.name());
    }
    for parameters in controller::ALL {
        Controller::new(&parameters, Vec::<Hdd>::new()).unwrap();
    }
    for parameters in link::ALL {
        ModelledLink::new(&parameters, Hdd::new(&hdd::SAS15K, 0.0).unwrap()).unwrap();
    }
}

#[test]
fn an_unknown_drive_is_refused_with_the_names_there_are() {
    let error = Drive::named("floppy").unwrap_err().to_string();
    assert!(
        error.contains("\"floppy\"") && error.contains(" SAS15K,"),
        "{error}"
    );
}

/// Compares figures with the members of `reference`, by the keys of the latter.
fn compare(reference: &Value, figures: &[(&str, Figure)]) -> Result<(), String> {
    for (key, figure) in figures {
        // Members the reference lacks are estimates of the catalogue's own.
        let expected = match reference[*key].as_f64() {
            Some(expected) => expected,
            None if figure.basis == Basis::Estimate => continue,
            None => return Err(format!("{key} claims a datasheet the reference lacks")),
        };
        if (figure.value / expected - 1.0).abs() > 1e-9 {
            return Err(format!("{key} is {}, not {expected}", figure.value));
        }
    }
    Ok(())
}

fn reference() -> Option<Value> {
    let Some(folder) = std::env::var_os("HOTSET_SHARED") else {
        println!("skipped: HOTSET_SHARED does not name the folder of reference data");
        return None;
    };
    let path = std::path::Path::new(&folder).join("reference/device_parameters.json");
    let text = std::fs::read_to_string(path).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
fn the_catalogue_agrees_with_the_reference_parameters() {
    let Some(reference) = reference() else {
        return;
    };
    for drive in hdd::ALL {
        let figures = [
            ("rpm", drive.rpm),
            ("t2t", drive.seek_track_ms),
            ("avg", drive.seek_average_ms),
            ("full", drive.seek_full_ms),
            ("Ro", drive.rate_outer_mb_s),
            ("Ri", drive.rate_inner_mb_s),
        ];
        compare(&reference["hdd"][drive.name], &figures).unwrap();
    }
    for drive in ssd::ALL {
        let figures = [
            ("ch", drive.channels),
            ("front_us", drive.front_us),
            ("die_us", drive.die_us),
            ("bus", drive.bus_mb_s),
            ("seq_w", drive.write_mb_s),
            ("write_iops_steady", drive.write_iops_steady),
        ];
        compare(&reference["ssd"][drive.name], &figures).unwrap();
    }
    let net = &reference["net"];
    compare(net, &[("gbe_eff_MBs", link::GIGABIT.rate_mb_s)]).unwrap();
    compare(net, &[("ten_gbe_MBs", link::TEN_GIGABIT.rate_mb_s)]).unwrap();
    let round_trip_ms = Figure {
        value: link::GIGABIT.round_trip_us.value / 1e3,
        ..link::GIGABIT.round_trip_us
    };
    compare(net, &[("iscsi_rtt_ms", round_trip_ms)]).unwrap();
    let adapter = controller::H710P;
    let ack_ms = Figure {
        value: adapter.cache_ack_us.value / 1e3,
        ..adapter.cache_ack_us
    };
    let figures = [
        ("cmd_us", adapter.command_us),
        ("wb_ack_ms", ack_ms),
        ("h710p_cache_MB", adapter.cache_mb),
    ];
    compare(&reference["controller"], &figures).unwrap();
}

#[test]
fn canary_a_wrong_figure_is_found() {
    let reference = serde_json::json!({ "rpm": 7200 });
    let rpm = |value| [("rpm", Figure::estimate(value, "test"))];
    compare(&reference, &rpm(7_200.0)).unwrap();
    compare(&reference, &rpm(5_400.0)).unwrap_err();
    let unknown = [("tpi", Figure::datasheet(1.0, "test"))];
    compare(&reference, &unknown).unwrap_err();
}
