//! The length of a trace costs no memory: three million requests that are made while they are read.
//! The test measures the peak of a process of its own.

use std::io::{self, Read};
use std::path::Path;
use testbed::alone::runs_alone;
use trace::{Info, Strictness};

const REQUESTS: u64 = 3_000_000;
/// More than readers, writers and a footprint of 1000 blocks take; much less
/// than the 100 MB of text.
const GROWTH_KIB_MAX: u64 = 48 << 10;

/// hotset's text form, made as the reader asks for bytes.
struct Text {
    next: u64,
    line: Vec<u8>,
    at: usize,
}

impl Read for Text {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() && self.next < REQUESTS {
            let i = self.next;
            self.line = format!("{i},R,{},4096,0\n", i * 7919 % 1000 * 4096).into_bytes();
            (self.at, self.next) = (0, i + 1);
        }
        let n = buf.len().min(self.line.len() - self.at);
        buf[..n].copy_from_slice(&self.line[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The most memory this process ever had resident.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let line = line.expect("Linux reports it");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn long_traces_are_read_and_written_in_little_memory() {
    let name = "tests::bounded::long_traces_are_read_and_written_in_little_memory";
    if !runs_alone(name, |_| ()).unwrap() {
        return;
    }
    let before = peak_kib();
    let path = Path::new("made");
    for format in [trace::Format::Binary, trace::Format::Parquet] {
        let text = Text {
            next: 0,
            line: b"ts_us,op,offset_bytes,len_bytes,volume\n".to_vec(),
            at: 0,
        };
        let reader = crate::read(path, text, None, Strictness::Strict).unwrap();
        let mut writer = crate::write(path, io::sink(), format).unwrap();
        let mut info = Info::default();
        for record in reader {
            let record = record.unwrap();
            info.add(&record);
            writer.write(&record).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!((info.requests, info.unique_blocks()), (REQUESTS, 1000));
    }
    let grown = peak_kib() - before;
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
}
