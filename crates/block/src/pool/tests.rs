use super::*;
use std::pin::pin;

#[test]
fn a_small_pool_is_one_power_of_two() {
    let pool = Pool::new(5000);
    assert_eq!((pool.total_bytes(), pool.free_bytes()), (8192, 8192));
    assert!(pool.try_get(8192).is_some());
    assert!(pool.try_get(8193).is_none());
}

#[test]
fn whole_arena_can_be_used_and_comes_back_in_one_piece() {
    let pool = Pool::new(8 << 20);
    let small: Vec<_> = std::iter::from_fn(|| pool.try_get(PAGE_BYTES)).collect();
    assert_eq!(small.len(), (8 << 20) / PAGE_BYTES);
    assert_eq!(pool.free_bytes(), 0);
    drop(small);
    assert_eq!(pool.free_bytes(), 8 << 20);
    let large: Vec<_> = std::iter::from_fn(|| pool.try_get(BUF_BYTES_MAX)).collect();
    assert_eq!(large.len(), 2);
}

#[test]
fn waiters_are_served_in_order_of_arrival() {
    let pool = Pool::new(BUF_BYTES_MAX);
    let all = pool.try_get(BUF_BYTES_MAX).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut large = pin!(pool.get(BUF_BYTES_MAX));
    let mut small = pin!(pool.get(1));
    assert!(large.as_mut().poll(&mut cx).is_pending());
    assert!(small.as_mut().poll(&mut cx).is_pending());
    drop(all);
    assert!(
        small.as_mut().poll(&mut cx).is_pending(),
        "a later request must not overtake"
    );
    assert!(pool.try_get(1).is_none(), "nor one that does not wait");
    let Poll::Ready(buf) = large.as_mut().poll(&mut cx) else {
        panic!("room, and first")
    };
    assert!(small.as_mut().poll(&mut cx).is_pending());
    drop(buf);
    assert!(small.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn work_on_a_request_never_waits() {
    let pool = Pool::new(BUF_BYTES_MAX);
    let all = pool.take(BUF_BYTES_MAX);
    let mut waiting = pin!(pool.get(1));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    let mut beside = pool.take(5000);
    beside.fill(7);
    assert_eq!(beside.as_ptr() as usize % PAGE_BYTES, 0);
    assert_eq!((pool.beside_bytes(), pool.over_bytes_max()), (8192, 8192));
    drop(all);
    let (head, tail) = beside.split_at(4096);
    let tail = tail.share();
    let other = tail.clone();
    std::thread::scope(|s| {
        s.spawn(move || drop((head, tail)));
    });
    assert!(other.iter().all(|byte| *byte == 7));
    assert_eq!(pool.beside_bytes(), 8192);
    drop(other);
    assert_eq!((pool.beside_bytes(), pool.over_bytes_max()), (0, 8192));
    assert!(waiting.as_mut().poll(&mut cx).is_ready());
    let bytes = pool.free_bytes();
    let many: Vec<_> = (0..bytes / PAGE_BYTES).map(|_| pool.take(1)).collect();
    let holes: Vec<_> = many.into_iter().step_by(2).collect();
    drop(pool.take(BUF_BYTES_MAX));
    drop(holes);
    assert_eq!(pool.free_bytes(), bytes);
}

#[test]
fn a_waiter_that_gives_up_does_not_block_the_next() {
    let pool = Pool::new(BUF_BYTES_MAX);
    let all = pool.try_get(BUF_BYTES_MAX).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(pool.get(1));
    let mut second = pin!(pool.get(1));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    drop(first);
    drop(all);
    assert!(second.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn buffers_freed_on_other_threads_come_home() {
    let pool = Pool::new(4 << 20);
    for round in 0..100 {
        let bufs: Vec<_> = std::iter::from_fn(|| pool.try_get(PAGE_BYTES << (round % 4))).collect();
        std::thread::scope(|s| {
            let mut halves = bufs.into_iter().collect::<Vec<_>>();
            let other = halves.split_off(halves.len() / 2);
            s.spawn(move || drop(halves));
            s.spawn(move || drop(other));
        });
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }
}
