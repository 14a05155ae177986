//! The daemon and the clients that people use.

use crate::common::{
    Place, USUAL, copy_in, copy_out, faultless, fio, hotset, noise, refused, run, tool,
};
use std::fs;

#[test]
fn nbdinfo_lists_the_volumes() {
    let place = Place::usual();
    let daemon = place.serve();
    let info = run(tool("nbdinfo", "libnbd-bin").arg(daemon.uri("vol")));
    for expected in [
        "export-size: 134217728",
        "can_multi_conn: true",
        "can_fua: true",
        "pool fast",
    ] {
        assert!(info.contains(expected), "no {expected:?} in {info}");
    }
    let list = run(tool("nbdinfo", "libnbd-bin").args(["--list", &daemon.uri("")]));
    assert!(list.contains("\"vol\""), "{list}");
    daemon.stop();
}

#[test]
fn nbdcopy_writes_and_reads_what_is_on_the_origin() {
    for mode in ["write-through", "write-around", "pass-through"] {
        let place = Place::usual();
        place.config(&USUAL.replace(
            "pool = \"fast\"",
            &format!("pool = \"fast\"\nmode = \"{mode}\""),
        ));
        let daemon = place.serve();
        let bytes = noise(3, 128 << 20);
        fs::write(place.path("in"), &bytes).unwrap();
        copy_in(&place.path("in"), &daemon.uri("vol"));
        // Twice, so that the second copy finds the lines of the first in the pool.
        for round in 0..2 {
            let out = copy_out(&daemon.uri("vol"), &place.path("out"));
            assert!(out == bytes, "{mode}, round {round}");
        }
        daemon.stop();
        assert!(
            fs::read(place.path("origin")).unwrap() == bytes,
            "{mode}: the origin"
        );
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    let place = Place::usual();
    let daemon = place.serve();
    fs::write(place.path("in"), noise(4, 128 << 20)).unwrap();
    let raw = ["-f", "raw"];
    let mut convert = tool("qemu-img", "qemu-utils");
    convert
        .arg("convert")
        .args(["-n"])
        .args(raw)
        .args(["-O", "raw"]);
    run(convert.arg(place.path("in")).arg(daemon.uri("vol")));
    let mut compare = tool("qemu-img", "qemu-utils");
    compare.arg("compare").args(raw).args(["-F", "raw"]);
    let output = run(compare.arg(place.path("in")).arg(daemon.uri("vol")));
    assert!(output.contains("identical"), "{output}");
    daemon.stop();
}

/// Each of four connections writes a part of the volume and reads that back. Every block identifies
/// itself.
#[test]
fn fio_verifies_over_four_connections() {
    let place = Place::usual();
    let daemon = place.serve();
    let options = [
        "--rw=randrw",
        "--bsrange=512-64k",
        "--blockalign=512",
        "--iodepth=16",
        "--numjobs=4",
        "--size=16m",
        "--offset_increment=32m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--group_reporting",
    ];
    faultless(&fio(&place, "verify", &daemon.uri("vol"), &options));
    assert!(daemon.count("writes") > 0 && daemon.count("blocks_hit") > 0);
    assert_eq!(daemon.count("blocks_corrupt"), 0);
    daemon.stop();
}

/// An origin that is an export of another NBD server.
#[test]
fn an_nbd_server_is_an_origin() {
    let place = Place::usual();
    let bytes = noise(5, 128 << 20);
    fs::write(place.path("origin"), &bytes).unwrap();
    let mut server = tool("nbdkit", "nbdkit");
    server
        .args(["--foreground", "--unix"])
        .arg(place.path("san"));
    server.arg("file").arg(place.path("origin"));
    let server = crate::common::Process(server.spawn().unwrap());
    crate::common::until("nbdkit", || place.path("san").exists());
    place.config(&USUAL.replace("path = \"$/origin\"", "nbd = \"nbd+unix:///?socket=$/san\""));
    let daemon = place.serve();
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out == bytes, "what nbdkit serves is not what is read");
    let new = noise(6, 128 << 20);
    fs::write(place.path("in"), &new).unwrap();
    copy_in(&place.path("in"), &daemon.uri("vol"));
    daemon.stop();
    server.signal(libc::SIGTERM);
    drop(server);
    assert!(
        fs::read(place.path("origin")).unwrap() == new,
        "what was written is not there"
    );
}

/// An origin that must prove its identity, and does or does not.
#[test]
fn an_origin_is_spoken_to_over_tls() {
    let place = Place::usual();
    certificates(&place);
    let bytes = noise(8, 128 << 20);
    fs::write(place.path("origin"), &bytes).unwrap();
    let mut server = tool("nbdkit", "nbdkit");
    server.args([
        "--foreground",
        "--exit-with-parent",
        "--tls=require",
        "--unix",
    ]);
    server.arg(place.path("san"));
    server.arg(format!("--tls-certificates={}", place.dir.path().display()));
    server.arg("file").arg(place.path("origin"));
    let server = crate::common::Process(server.spawn().unwrap());
    crate::common::until("nbdkit", || place.path("san").exists());
    let origin = |authority: &str| {
        let nbd = format!("nbd = \"nbd+unix:///?socket=$/san\"\ntls_ca = \"$/{authority}\"");
        place.config(&USUAL.replace("path = \"$/origin\"", &nbd))
    };
    origin("server-cert.pem");
    let waits = place.serve();
    let why = waits.status()["waiting"][0]["why"].to_string();
    assert!(
        why.contains("nbd+unix:") && why.contains("certificate"),
        "{why}"
    );
    waits.stop();
    origin("ca-cert.pem");
    let daemon = place.serve();
    let out = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(out == bytes, "what nbdkit serves is not what is read");
    daemon.stop();
    drop(server);
}

/// A model of a hard disk makes the origin slow; the pool hides that.
#[test]
fn a_model_disk_is_slow_and_the_pool_is_not() {
    let place = Place::usual();
    place.config(&USUAL.replace(
        "path = \"$/origin\"",
        "path = \"$/origin\"\nmodel = \"SAS15K\"\nmodel_disks = 2",
    ));
    let daemon = place.serve();
    let random = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=1",
        "--number_ios=50",
        "--size=1m",
    ];
    faultless(&fio(&place, "miss", &daemon.uri("vol"), &random));
    let origin = |status: &serde_json::Value| {
        let devices = status["devices"].as_array().unwrap().clone();
        let found = devices.into_iter().find(|d| d["name"] == "origin");
        found.unwrap()["read"]["latency_us_mean"].as_f64().unwrap()
    };
    // Half a turn of 15,000 rpm is 2 ms, and no read-ahead hides all of that.
    let mean = origin(&daemon.status());
    assert!(mean > 300.0, "a mean of {mean} us is faster than the drive");
    daemon.stop();
}

/// An authority and a server's certificate by that authority, in files for gnutls.
fn certificates(place: &Place) {
    let openssl = |words: &str| {
        let mut command = tool("openssl", "openssl");
        run(command.current_dir(place.dir.path()).args(words.split(' ')));
    };
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj";
    openssl(&format!(
        "{new} /CN=authority -x509 -keyout ca-key.pem -out ca-cert.pem"
    ));
    openssl(&format!(
        "{new} /CN=localhost -keyout server-key.pem -out request.pem"
    ));
    fs::write(place.path("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        "x509 -req -in request.pem -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
         -extfile names -out server-cert.pem",
    );
}

#[test]
fn a_certificate_of_the_first_version_is_named_with_the_way_to_a_newer_one() {
    let place = Place::usual();
    certificates(&place);
    // Without extensions its version is 1.
    let sign = "x509 -req -in request.pem -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial";
    let mut openssl = tool("openssl", "openssl");
    openssl.current_dir(place.dir.path()).args(sign.split(' '));
    run(openssl.args(["-out", "server-cert.pem"]));
    let listen = "[[listen]]\ntcp = \"127.0.0.1:0\"\ntls_certificate = \"$/server-cert.pem\"\n\
         tls_key = \"$/server-key.pem\"\n[[listen]]";
    let file = place.config(&USUAL.replace("[[listen]]", listen));
    let certificate = place.text("server-cert.pem");
    let says = format!("the certificate of {certificate} has version 1, and TLS needs version 3");
    let says = [says.as_str(), "openssl x509 -req", "-extfile"];
    refused(hotset().arg("check").arg(&file), 2, &says);
    let mut web = hotset();
    web.args(["web", "--listen", "127.0.0.1:0", "--state"]);
    web.arg(place.path("web")).arg("--tls-certificate");
    web.arg(&certificate).arg("--tls-key");
    refused(web.arg(place.path("server-key.pem")), 1, &says);
}

/// A listener with a certificate takes no client without TLS, and one without a certificate stays
/// plain.
#[test]
fn tls_is_per_listener() {
    let place = Place::usual();
    certificates(&place);
    let listen = "[[listen]]\ntcp = \"127.0.0.1:0\"\ntls_certificate = \"$/server-cert.pem\"\n\
         tls_key = \"$/server-key.pem\"\n[[listen]]";
    place.config(&USUAL.replace("[[listen]]", listen));
    let daemon = place.serve();
    let status = daemon.status();
    let uri = status["nbd"]["listeners"][0].as_str().unwrap();
    let port = uri.trim_end_matches('/').rsplit(':').next().unwrap();
    let secure = format!(
        "nbds://localhost:{port}/vol?tls-certificates={}",
        place.dir.path().display()
    );
    let info = run(tool("nbdinfo", "libnbd-bin").arg(secure));
    assert!(info.contains("newstyle-fixed with TLS"), "{info}");
    let mut plain = tool("nbdinfo", "libnbd-bin");
    let without = uri.strip_prefix("nbds://").unwrap();
    let refused = plain.arg(format!("nbd://{without}vol")).output().unwrap();
    assert!(
        !refused.status.success(),
        "{}",
        crate::common::all(&refused)
    );
    let info = run(tool("nbdinfo", "libnbd-bin").arg(daemon.uri("vol")));
    assert!(info.contains("without TLS"), "{info}");
    daemon.stop();
}
