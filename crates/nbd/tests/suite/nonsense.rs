//! Random bytes, and valid conversations with random damage, break nothing.
//!
//! The same checks run for as long as one likes under `fuzz/nbd`.

/// xorshift64*, so that every run sees the same bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}

/// Bytes of an honest client: flags, options, then requests.
fn client_bytes() -> Vec<u8> {
    let mut wire = vec![0, 0, 0, 3];
    let mut option = |option: u32, data: &[u8]| {
        wire.extend(b"IHAVEOPT");
        wire.extend(option.to_be_bytes());
        wire.extend((data.len() as u32).to_be_bytes());
        wire.extend(data);
    };
    option(3, b"");
    option(8, b"");
    let meta = b"\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation";
    option(9, meta);
    option(10, meta);
    option(6, b"\0\0\0\x03vol\0\x02\0\x01\0\x03");
    option(7, b"\0\0\0\x03vol\0\x01\0\x03");
    for (cmd, offset, len) in [
        (0, 0, 512),
        (1, 512, 512),
        (3, 0, 0),
        (7, 0, 4096),
        (6, 0, 512),
    ] {
        wire.extend(0x2560_9513_u32.to_be_bytes());
        wire.extend((cmd as u32).to_be_bytes());
        wire.extend(9u64.to_be_bytes());
        wire.extend((offset as u64).to_be_bytes());
        wire.extend((len as u32).to_be_bytes());
        wire.extend(vec![0; if cmd == 1 { len } else { 0 }]);
    }
    wire
}

/// Bytes of an honest server: greeting, option replies, then replies.
fn server_bytes() -> Vec<u8> {
    let mut wire = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let mut reply = |option: u32, kind: u32, data: &[u8]| {
        wire.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        wire.extend(option.to_be_bytes());
        wire.extend(kind.to_be_bytes());
        wire.extend((data.len() as u32).to_be_bytes());
        wire.extend(data);
    };
    reply(8, 1, b"");
    reply(10, 4, b"\0\0\0\x01base:allocation");
    reply(10, 1, b"");
    reply(7, 3, b"\0\0\0\0\0\0\0\x10\0\0\x0d\xff");
    reply(7, 3, b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0");
    reply(7, 1, b"");
    let mut chunk = |flags: u16, kind: u16, cookie: u64, payload: &[u8]| {
        wire.extend(0x668e_33ef_u32.to_be_bytes());
        wire.extend(flags.to_be_bytes());
        wire.extend(kind.to_be_bytes());
        wire.extend(cookie.to_be_bytes());
        wire.extend((payload.len() as u32).to_be_bytes());
        wire.extend(payload);
    };
    chunk(0, 1, 0, &[&[0; 8][..], &[7; 100]].concat());
    chunk(0, 2, 0, b"\0\0\0\0\0\0\x02\0\0\0\0\x10");
    chunk(1, 0x8001, 3, b"\0\0\0\x05\0\x03bad");
    chunk(1, 5, 1, b"\0\0\0\x01\0\0\x02\0\0\0\0\0");
    chunk(1, 0, 0, b"");
    wire.extend(b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x02");
    wire
}

fn damage(random: &mut Random, wire: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.below(wire.len());
        match random.below(4) {
            0 => wire[at] ^= 1 << random.below(8),
            1 => wire[at] = random.next() as u8,
            2 => wire.truncate(at.max(1)),
            _ => wire.insert(at, random.next() as u8),
        }
    }
}

/// The damaged conversations begin from ones that reach their end.
#[test]
fn honest_peers_are_understood() {
    let understood = |wire: Vec<u8>, cut: u8, by: fn(&[u8]) -> usize| {
        let mut all = vec![cut << 5];
        all.extend(wire);
        by(&all)
    };
    for cut in 0..8 {
        assert_eq!(understood(client_bytes(), cut, crate::drive::server), 5);
        let events = understood(server_bytes(), cut, crate::drive::client);
        assert!(events >= 8, "{events} events");
    }
}

#[test]
fn nothing_a_client_sends_breaks_the_server() {
    let honest = client_bytes();
    let mut random = Random(1);
    for _ in 0..40_000 {
        let mut wire = honest.clone();
        wire.insert(0, random.next() as u8);
        damage(&mut random, &mut wire);
        crate::drive::server(&wire);
    }
}

#[test]
fn nothing_a_server_sends_breaks_the_client() {
    let honest = server_bytes();
    let mut random = Random(2);
    for _ in 0..40_000 {
        let mut wire = honest.clone();
        wire.insert(0, random.next() as u8 & !1);
        damage(&mut random, &mut wire);
        crate::drive::client(&wire);
    }
}

#[test]
fn bare_noise_breaks_neither() {
    let mut random = Random(3);
    for _ in 0..2_000 {
        let wire: Vec<u8> = (0..random.below(500))
            .map(|_| random.next() as u8)
            .collect();
        crate::drive::server(&wire);
        crate::drive::client(&wire);
    }
}
