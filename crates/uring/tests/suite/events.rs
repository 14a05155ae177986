//! Events that others raise.

use crate::common::{filled, host, perform};
use block::{Driver, DriverOp, IoErrorKind, Nanos, Payload, Token};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use uring::UringDriver;

fn event(flags: i32) -> File {
    // SAFETY: no pointers are involved, and the new descriptor has no other owner.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | flags);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    }
}

fn raise(mut event: &File, by: u64) {
    event.write_all(&by.to_ne_bytes()).unwrap();
}

#[test]
fn a_receive_waits_for_an_event_and_takes_its_count() {
    // The event may block its own readers or not.
    for flags in [0, libc::EFD_NONBLOCK] {
        let (host, theirs) = (host(), event(flags));
        let mut driver = host.driver().unwrap();
        let ours = OwnedFd::from(theirs.try_clone().unwrap());
        let target = host.open_event(ours).unwrap();
        let count = |driver: &mut UringDriver, expected: u64| {
            let buf = filled(driver, 8, 0);
            let (result, payload) = perform(driver, target, DriverOp::Recv(buf));
            assert_eq!(result.unwrap(), 8);
            match payload {
                Payload::Buf(buf) => assert_eq!(*buf, expected.to_ne_bytes()),
                other => panic!("{other:?}"),
            }
        };
        raise(&theirs, 3);
        raise(&theirs, 4);
        count(&mut driver, 7);
        // The receive waits: the counts taken before do not end it.
        let buf = filled(&driver, 8, 0);
        driver.submit(Token(1), target, DriverOp::Recv(buf));
        let mut done = Vec::new();
        driver.park(driver.now() + Nanos::from_millis(30), &mut done);
        assert!(done.is_empty());
        raise(&theirs, 1);
        while done.is_empty() {
            driver.park(Nanos::MAX, &mut done);
        }
        assert_eq!(done.pop().unwrap().result.unwrap(), 8);
        // A receive that waits when the event is closed ends.
        let buf = filled(&driver, 8, 0);
        driver.submit(Token(2), target, DriverOp::Recv(buf));
        driver.park(Nanos::ZERO, &mut done);
        driver.close(target);
        while done.is_empty() {
            driver.park(Nanos::MAX, &mut done);
        }
        assert_eq!(done.pop().unwrap().result.unwrap(), 0, "its end");
    }
}

#[test]
fn what_another_has_taken_is_waited_for_again() {
    let (host, mut theirs) = (host(), event(libc::EFD_NONBLOCK));
    let mut driver = host.driver().unwrap();
    let ours = OwnedFd::from(theirs.try_clone().unwrap());
    let target = host.open_event(ours).unwrap();
    for round in 0..200 {
        let buf = filled(&driver, 8, 0);
        driver.submit(Token(round), target, DriverOp::Recv(buf));
        let mut done = Vec::new();
        driver.park(Nanos::ZERO, &mut done);
        raise(&theirs, 1);
        let _ = theirs.read(&mut [0; 8]);
        driver.park(Nanos::ZERO, &mut done);
        raise(&theirs, 1);
        while done.is_empty() {
            driver.park(Nanos::MAX, &mut done);
        }
        assert_eq!(done[0].result.as_ref().unwrap(), &8);
    }
}

#[test]
fn an_event_is_neither_sent_to_nor_received_into_less_than_a_count() {
    let (host, theirs) = (host(), event(0));
    let mut driver = host.driver().unwrap();
    let target = host.open_event(theirs.into()).unwrap();
    let small = DriverOp::Recv(filled(&driver, 4, 0));
    for op in [small, DriverOp::Send(Vec::new()), DriverOp::Accept] {
        let (result, _) = perform(&mut driver, target, op);
        assert_eq!(result.unwrap_err().kind(), IoErrorKind::Invalid);
    }
}
