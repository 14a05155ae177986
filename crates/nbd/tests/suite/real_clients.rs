//! The server against the clients that people use.

use crate::real::{BYTES, Certificates, Served, Setup, run, tool};
use nbd::protocol::server_handshake::TlsPolicy;
use std::sync::atomic::Ordering;

#[test]
fn nbdinfo_sees_what_is_offered() {
    let served = Served::start(Setup::default());
    let info = run(tool("nbdinfo", "libnbd-bin").arg(served.uri("vol")));
    for expected in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export=\"vol\"",
        "description: the vol export",
        "export-size: 67108864",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "base:allocation",
        "block_size_minimum: 1",
        "block_size_maximum: 33554432",
    ] {
        assert!(info.contains(expected), "no {expected:?} in:\n{info}");
    }
    let info = run(tool("nbdinfo", "libnbd-bin").arg(served.uri("ro")));
    assert!(info.contains("is_read_only: true"), "{info}");
    let list = run(tool("nbdinfo", "libnbd-bin").args(["--list", &served.uri("")]));
    assert!(
        list.contains("\"vol\"") && list.contains("\"ro\""),
        "{list}"
    );
    let map = run(tool("nbdinfo", "libnbd-bin").args(["--map", &served.uri("vol")]));
    assert!(map.contains("67108864"), "{map}");
}

/// Bytes that differ from block to block, with holes.
fn pattern() -> Vec<u8> {
    (0..BYTES)
        .map(|i| {
            let block = i >> 12;
            if block % 1000 < 100 {
                0
            } else {
                (block.wrapping_mul(0x9e37_79b9) >> (8 * (i % 4))) as u8
            }
        })
        .collect()
}

#[test]
fn nbdcopy_moves_every_byte_both_ways() {
    let served = Served::start(Setup::default());
    let bytes = pattern();
    let (from, to) = (served.dir.path().join("from"), served.dir.path().join("to"));
    std::fs::write(&from, &bytes).unwrap();
    let uri = served.uri("vol");
    run(tool("nbdcopy", "libnbd-bin")
        .arg("--flush")
        .arg(&from)
        .arg(&uri));
    assert!(
        std::fs::read(served.disk()).unwrap() == bytes,
        "the disk differs"
    );
    run(tool("nbdcopy", "libnbd-bin").arg(&uri).arg(&to));
    assert!(std::fs::read(&to).unwrap() == bytes, "the copy differs");
    let stats = served.stats();
    assert_eq!(stats.errors, 0);
    assert_eq!(stats.failed, 0);
    assert!(stats.accepted >= 3, "{stats:?}");
}

#[test]
fn qemu_img_converts_and_compares() {
    let served = Served::start(Setup::default());
    let from = served.dir.path().join("from");
    std::fs::write(&from, pattern()).unwrap();
    let uri = served.uri("vol");
    let mut convert = tool("qemu-img", "qemu-utils");
    run(convert
        .args(["convert", "-n", "-f", "raw", "-O", "raw"])
        .arg(&from)
        .arg(&uri));
    let mut compare = tool("qemu-img", "qemu-utils");
    let said = run(compare
        .args(["compare", "-f", "raw", "-F", "raw"])
        .arg(&from)
        .arg(&uri));
    assert!(said.contains("identical"), "{said}");
    let mut map = tool("qemu-img", "qemu-utils");
    run(map.args(["map", "--output=json", "-f", "raw"]).arg(&uri));
}

#[test]
fn qemu_io_uses_every_command() {
    let served = Served::start(Setup::default());
    let mut io = tool("qemu-io", "qemu-utils");
    io.args(["-f", "raw"]);
    for command in [
        "write -P 0x11 0 1M",
        "write -f -P 0x22 1M 4k",
        "read -P 0x11 0 1M",
        "read -P 0x22 1M 4k",
        // Off the blocks on both sides.
        "write -P 0x33 1000 3000",
        "read -P 0x11 0 1000",
        "read -P 0x33 1000 3000",
        "read -P 0x11 4000 4096",
        "write -z 64k 128k",
        "read -P 0 64k 128k",
        "write -z -u 256k 64k",
        "read -P 0 256k 64k",
        "discard 512k 64k",
        // Longer than any piece.
        "write -P 0x44 8M 20M",
        "read -P 0x44 8M 20M",
        "flush",
    ] {
        io.args(["-c", command]);
    }
    let said = run(io.arg(served.uri("vol")));
    assert!(
        !said.contains("failed") && !said.contains("error"),
        "{said}"
    );
    let mut refused = tool("qemu-io", "qemu-utils");
    refused
        .args(["-f", "raw", "-c", "write 0 4k"])
        .arg(served.uri("ro"));
    let output = refused.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
}

/// Random writes over four connections, each byte verified.
#[test]
fn fio_verifies_what_it_wrote() {
    let served = Served::start(Setup::default());
    let mut fio = tool("fio", "fio");
    fio.current_dir(served.dir.path()).args([
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bsrange=512-256k",
        "--blockalign=512",
        "--iodepth=16",
        "--numjobs=4",
        "--size=16m",
        "--offset_increment=16m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--randrepeat=0",
        "--fsync=64",
        "--group_reporting",
    ]);
    let said = run(fio.arg(format!("--uri={}", served.uri("vol"))));
    assert!(said.contains("err= 0"), "{said}");
    let stats = served.stats();
    assert!(stats.accepted >= 4 && stats.errors == 0, "{stats:?}");
}

#[test]
fn tls_is_spoken_and_insisted_on() {
    let certificates = Certificates::new();
    let served = Served::start(Setup {
        tls: Some((certificates.acceptor(true), TlsPolicy::Required)),
        tcp: true,
        ..Setup::default()
    });
    let dir = served.dir.path();
    certificates.write(dir);
    let plain = tool("nbdinfo", "libnbd-bin")
        .arg(served.uri("vol"))
        .output()
        .unwrap();
    assert!(!plain.status.success());

    let port = served.socket().rsplit(':').next().unwrap();
    let uri = format!(
        "nbds://localhost:{port}/vol?tls-certificates={}",
        dir.display()
    );
    let info = run(tool("nbdinfo", "libnbd-bin").arg(&uri));
    assert!(info.contains("with TLS"), "{info}");
    // No signature is made on the shard.
    assert!(served.steps.load(Ordering::Relaxed) >= 2);
    let bytes = pattern();
    let (from, to) = (dir.join("from"), dir.join("to"));
    std::fs::write(&from, &bytes).unwrap();
    run(tool("nbdcopy", "libnbd-bin")
        .arg("--flush")
        .arg(&from)
        .arg(&uri));
    run(tool("nbdcopy", "libnbd-bin").arg(&uri).arg(&to));
    assert!(std::fs::read(&to).unwrap() == bytes, "the copy differs");
}
