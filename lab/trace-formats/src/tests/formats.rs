//! Every format through the reader: round trips, bad input, random bytes.

use block::Nanos;
use proptest::prelude::*;
use std::io::Cursor;
use std::path::Path;
use trace::{Format, RecordOp, Strictness, TraceReader, TraceRecord};

fn read(bytes: Vec<u8>, format: Option<Format>, strictness: Strictness) -> TraceReader {
    crate::read(Path::new("t"), Cursor::new(bytes), format, strictness).expect("opens")
}

fn all(bytes: Vec<u8>, format: Format) -> Result<Vec<TraceRecord>, trace::Error> {
    let reader = read(bytes, Some(format), Strictness::Strict);
    reader.with_flushes().collect()
}

fn written(records: &[TraceRecord], format: Format) -> Vec<u8> {
    let mut writer = crate::write(Path::new("t"), Vec::new(), format).expect("starts");
    for record in records {
        writer.write(record).expect("writes");
    }
    writer.finish().expect("finishes")
}

fn records() -> impl Strategy<Value = Vec<TraceRecord>> {
    let one = (
        0u64..1 << 30,
        any::<bool>(),
        0u64..1 << 50,
        1u32..,
        any::<u32>(),
        0u8..4,
    );
    prop::collection::vec(one, 0..60).prop_map(|raw| {
        let mut time = 0;
        raw.into_iter()
            .map(|(us, write, offset_bytes, len_bytes, volume, kind)| {
                time += us;
                let time = Nanos::from_micros(time);
                if kind == 0 {
                    return TraceRecord::flush(time, volume);
                }
                TraceRecord {
                    time,
                    op: if write {
                        RecordOp::Write
                    } else {
                        RecordOp::Read
                    },
                    offset_bytes,
                    len_bytes,
                    volume,
                    forced: write && kind == 1,
                }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(records in records()) {
        for format in [Format::Csv, Format::Binary, Format::Parquet] {
            let bytes = written(&records, format);
            prop_assert_eq!(&all(bytes.clone(), format).unwrap(), &records);
            let zipped = zstd::encode_all(&bytes[..], 1).unwrap();
            let reader = read(zipped, None, Strictness::Strict).with_flushes();
            let guessed: Result<Vec<_>, _> = reader.collect();
            prop_assert_eq!(&guessed.unwrap(), &records);
        }
    }

    #[test]
    fn a_cut_off_binary_trace_is_noticed(records in records(), cut in 1usize..40) {
        prop_assume!(!records.is_empty());
        let mut bytes = written(&records, Format::Binary);
        bytes.truncate((bytes.len() - cut.min(bytes.len() - 9)).max(9));
        let lenient = read(bytes.clone(), Some(Format::Binary), Strictness::Lenient);
        let mut lenient = lenient.with_flushes();
        let kept: Vec<_> = lenient.by_ref().map(|r| r.unwrap()).collect();
        prop_assert!(lenient.skipped().truncated);
        prop_assert_eq!(&kept[..], &records[..kept.len()]);
        prop_assert!(all(bytes, Format::Binary).is_err());
    }

    #[test]
    fn no_bytes_make_any_format_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in "([0-9RrWw,. +QDCreadwit/\\-]{0,60}\n){0,6}",
        member in 0u64..1000,
    ) {
        let mut header = [0; 512];
        header[257..262].copy_from_slice(b"ustar");
        header[124..135].copy_from_slice(format!("{member:011o}").as_bytes());
        header[156] = bytes.first().copied().unwrap_or_default();
        let archive = [&header[..], &bytes, text.as_bytes()].concat();
        let event = [&0x6561_7407u32.to_le_bytes()[..], &bytes].concat();
        for format in Format::ALL {
            for input in [bytes.clone(), text.clone().into_bytes(), archive.clone(), event.clone()] {
                let mut strict = input.clone();
                if format == Format::Binary {
                    strict = [&trace::BINARY_MAGIC[..], &zstd::encode_all(&input[..], 1).unwrap()].concat();
                }
                let path = Path::new("t");
                for strictness in [Strictness::Strict, Strictness::Lenient] {
                    if let Ok(reader) = crate::read(path, Cursor::new(strict.clone()), Some(format), strictness) {
                        for record in reader.flatten() {
                            prop_assert!(record.len_bytes > 0);
                            prop_assert!(record.blocks(4096).count() > 0);
                        }
                    }
                }
            }
        }
        let _ = Format::recognise(Path::new("x.oracleGeneral"), &bytes);
        let _ = Format::sniff(&bytes);
    }
}

#[test]
fn every_text_format_is_recognised_by_its_first_line() {
    let samples = [
        (
            Format::Csv,
            "ts_us,op,offset_bytes,len_bytes,volume\n5,R,0,512,0\n",
        ),
        (
            Format::Msr,
            "128166372003061629,usr,0,Read,7014609920,24576,41286\n",
        ),
        (Format::Spc, "0,20941264,8192,W,0.551706\n"),
        (
            Format::Systor17,
            "1455592844.085322022,,W,1,1063763968,4096\n",
        ),
        (Format::Alibaba, "419,W,8792731648,16384,1577808144360767\n"),
        (Format::Tencent, "1538323200,12910952,128,0,1063\n"),
        (
            Format::Blkparse,
            "  8,0 3 1 0.000000000 697 Q W 223490 + 8 [k]\n",
        ),
        (
            Format::Fiu,
            "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n",
        ),
        (
            Format::FioIolog,
            "fio version 3 iolog\n25 /dev/sdb open\n131 /dev/sdb read 61440 4096\n",
        ),
    ];
    for (format, text) in samples {
        let reader = read(text.into(), None, Strictness::Strict);
        assert_eq!(reader.format(), format);
        assert_eq!(reader.count(), 1);
    }
}

#[test]
fn bad_input_is_one_error_with_its_place_or_a_counted_skip() {
    let text = "ts_us,op,offset_bytes,len_bytes,volume\n\
        10,R,0,512,0\n\
        11,R,zero,512,0\n\
        9,R,0,512,0\n\
        12,W,0,0,0\n\
        13,W,18446744073709551615,1,0\n\
        14,W,512,1,0\n";
    let error = all(text.into(), Format::Csv).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t:3: offset_bytes is not a number in range: \"zero\""
    );
    let mut lenient = read(text.into(), None, Strictness::Lenient);
    assert_eq!(lenient.by_ref().filter(|r| r.is_ok()).count(), 2);
    let skipped = lenient.skipped();
    assert_eq!((skipped.malformed, skipped.out_of_order), (3, 1));
    let back = all("2,R,0,1,0\n1,R,0,1,0\n".into(), Format::Csv).unwrap_err();
    assert_eq!(
        back.to_string(),
        "t:2: time runs back from 2000 ns to 1000 ns"
    );
}

#[test]
fn flushes_are_for_those_who_ask_for_them() {
    let records = [
        TraceRecord {
            op: RecordOp::Write,
            len_bytes: 512,
            forced: true,
            ..TraceRecord::default()
        },
        TraceRecord::flush(Nanos(1000), 3),
    ];
    for format in [Format::Csv, Format::Binary, Format::Parquet] {
        let bytes = written(&records, format);
        assert_eq!(all(bytes.clone(), format).unwrap(), records, "{format:?}");
        let usual = read(bytes, None, Strictness::Strict).map(Result::unwrap);
        assert_eq!(usual.collect::<Vec<_>>(), records[..1], "{format:?}");
    }
    let bytes = written(&records, Format::OracleGeneral);
    assert_eq!(all(bytes, Format::OracleGeneral).unwrap().len(), 1);
    let error = all("5,W,0,0,0\n".into(), Format::Csv).unwrap_err();
    assert!(error.to_string().contains("zero bytes"), "{error}");
}

#[test]
fn a_file_without_newlines_does_not_fill_memory() {
    let error = all(vec![b'1'; 1 << 20], Format::Csv).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[test]
fn an_unknown_format_asks_for_its_name() {
    let garbage = Cursor::new(b"what is this\n".to_vec());
    let result = crate::read(Path::new("t"), garbage, None, Strictness::Strict);
    let error = result.err().expect("refused").to_string();
    assert!(error.contains("oracle-general"), "{error}");
}

#[test]
fn oracle_general_round_trips_by_blocks() {
    let record = TraceRecord {
        time: Nanos::from_secs_f64(3.0),
        offset_bytes: 4096,
        len_bytes: 8192,
        ..TraceRecord::default()
    };
    let back = all(
        written(&[record], Format::OracleGeneral),
        Format::OracleGeneral,
    )
    .unwrap();
    let offsets: Vec<u64> = back.iter().map(|r| r.offset_bytes).collect();
    assert_eq!(offsets, [4096, 8192]);
    assert!(crate::write(Path::new("t"), Vec::new(), Format::Msr).is_err());
}
