//! A tar archive as one trace: its members that are traces of one text format, one after another,
//! or its first that is of a binary one. Other members, such as a list of devices, are passed over.
//!
//! Members that are compressed are read alone, so not from a pipe.

use crate::Format;
use crate::compressed::{decompressed, is_compressed};
use crate::format::SNIFFED_BYTES;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use tar::{EntryType, Header, PaxExtensions};

const BLOCK_BYTES: u64 = 512;
/// Longest extended header; a longer one is damage.
const EXTENSIONS_BYTES_MAX: u64 = 1 << 20;
/// Decompressed bytes of a member by which its format is recognised, at the most.
const MEMBER_SNIFFED_BYTES: u64 = 1 << 12;
/// Names of members in an error.
const NAMES_MAX: usize = 5;

/// True if an archive begins with `start`.
pub(crate) fn begins(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// The place of a member that is a trace.
pub(crate) struct ArchiveMember {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    /// Bytes before it in the archive, and of it.
    pub(crate) from: u64,
    pub(crate) bytes: u64,
    pub(crate) is_compressed: bool,
}

/// The members of the archive `input` that are traces of one format, which `asked` may name.
pub(crate) fn members(
    input: impl BufRead,
    asked: Option<Format>,
) -> io::Result<Vec<ArchiveMember>> {
    let mut archive = Archive::new(input, asked);
    let mut members = Vec::new();
    while archive.advance()? {
        members.extend(archive.member.take());
    }
    Ok(members)
}

struct CountedInput<R> {
    input: R,
    taken: u64,
}

impl<R: Read> Read for CountedInput<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.taken += n as u64;
        Ok(n)
    }
}

/// The bytes of its traces.
pub(crate) struct Archive<R> {
    input: CountedInput<R>,
    asked: Option<Format>,
    found: Option<Format>,
    /// The present member.
    member: Option<ArchiveMember>,
    passed: Vec<String>,
    /// The beginning of the present member, and the number of its bytes yielded.
    start: Vec<u8>,
    at: usize,
    /// Bytes of the member behind that, then to the next header.
    left: u64,
    padding: u64,
    ended: bool,
}

impl<R: BufRead> Archive<R> {
    /// The traces of an archive, of the format `asked` if one is.
    pub(crate) fn new(input: R, asked: Option<Format>) -> Archive<R> {
        Archive {
            input: CountedInput { input, taken: 0 },
            asked,
            found: None,
            member: None,
            passed: Vec::new(),
            start: Vec::new(),
            at: 0,
            left: 0,
            padding: 0,
            ended: false,
        }
    }

    /// Goes to the next member that is a trace; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let mut bytes_of_next = None;
        loop {
            self.skip_rest()?;
            let mut block = [0; BLOCK_BYTES as usize];
            let whole = read_up_to(&mut self.input, &mut block)?;
            if whole == 0 || block.iter().all(|byte| *byte == 0) {
                return self.found.map(|_| false).ok_or_else(|| self.nothing());
            }
            if whole < block.len() || !begins(&block) {
                return Err(damaged("no header where a member must begin"));
            }
            let header = Header::from_byte_slice(&block);
            let bytes = header.entry_size()?;
            self.expect(bytes);
            match header.entry_type() {
                EntryType::XHeader => bytes_of_next = self.extended_size()?,
                EntryType::Regular | EntryType::Continuous => {
                    self.expect(bytes_of_next.take().unwrap_or(bytes));
                    if self.is_wanted(header)? {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
    }

    /// Sets the bytes ahead, for a member of so many bytes.
    fn expect(&mut self, bytes: u64) {
        self.left = bytes;
        self.padding = bytes.wrapping_neg() % BLOCK_BYTES;
    }

    /// Passes over the rest of the member at hand.
    fn skip_rest(&mut self) -> io::Result<()> {
        for bytes in [&mut self.left, &mut self.padding] {
            let bytes = std::mem::take(bytes);
            if io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())? < bytes {
                return Err(damaged("the archive is cut off"));
            }
        }
        Ok(())
    }

    /// The size that an extended header gives to the member behind the header.
    fn extended_size(&mut self) -> io::Result<Option<u64>> {
        if self.left > EXTENSIONS_BYTES_MAX {
            return Err(damaged("an extended header is too long"));
        }
        let mut bytes = vec![0; self.left as usize];
        self.input.read_exact(&mut bytes)?;
        self.left = 0;
        let mut sizes = PaxExtensions::new(&bytes)
            .filter_map(Result::ok)
            .filter(|extension| extension.key_bytes() == b"size");
        Ok(sizes.find_map(|extension| extension.value().ok()?.parse().ok()))
    }

    /// True if the present member is to be read; its beginning then is in `start`.
    fn is_wanted(&mut self, header: &Header) -> io::Result<bool> {
        self.start
            .resize(self.left.min(SNIFFED_BYTES as u64) as usize, 0);
        let (from, bytes) = (self.input.taken, self.left);
        let whole = read_up_to(&mut self.input, &mut self.start)?;
        if whole < self.start.len() {
            return Err(damaged("the archive is cut off"));
        }
        self.at = 0;
        self.left -= self.start.len() as u64;
        let path = header.path().unwrap_or_else(|_| Path::new("?").into());
        let start = decompressed_start(&self.start);
        let formats = match Format::recognise(&path, &start) {
            _ if start.is_empty() => Vec::new(),
            Ok(format) => vec![format],
            Err(_) => Format::sniff(&start),
        };
        let wanted = match (self.found, self.asked) {
            (None, None) => formats.first(),
            (found, asked) => formats
                .iter()
                .find(|format| Some(**format) == found.or(asked)),
        };
        let wanted = wanted.filter(|format| self.found.is_none() || format.is_text());
        if wanted.is_none() {
            self.passed.push(path.display().to_string());
            self.start.clear();
        }
        self.found = self.found.or(wanted.copied());
        self.member = wanted.map(|format| ArchiveMember {
            path: path.into_owned(),
            format: *format,
            from,
            bytes,
            is_compressed: is_compressed(&self.start),
        });
        Ok(self.member.is_some())
    }

    fn nothing(&self) -> io::Error {
        let named = self.passed.iter().take(NAMES_MAX).map(String::as_str);
        let more = if self.passed.len() > NAMES_MAX {
            ", ..."
        } else {
            ""
        };
        let names = named.collect::<Vec<_>>().join(", ");
        damaged(&format!(
            "no member of the archive is a trace ({names}{more}); extract one and name its --format"
        ))
    }
}

impl<R: BufRead> Read for Archive<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        while !self.ended {
            if self.at < self.start.len() {
                let n = buf.len().min(self.start.len() - self.at);
                buf[..n].copy_from_slice(&self.start[self.at..self.at + n]);
                self.at += n;
                return Ok(n);
            }
            if self.left > 0 {
                let most = buf
                    .len()
                    .min(usize::try_from(self.left).unwrap_or(usize::MAX));
                let n = self.input.read(&mut buf[..most])?;
                if n == 0 {
                    return Err(damaged("the archive is cut off"));
                }
                self.left -= n as u64;
                return Ok(n);
            }
            let another = self.found.is_some();
            self.ended = !self.advance()?;
            if is_compressed(&self.start) && !self.ended {
                return Err(damaged(
                    "its members are compressed: give the archive as a file, not through a pipe",
                ));
            }
            // So that a last line without its end stays one.
            if another && !self.ended && self.found.is_some_and(Format::is_text) {
                buf[0] = b'\n';
                return Ok(1);
            }
        }
        Ok(0)
    }
}

/// The first bytes of a member, of which `start` are the first as they are in the archive.
fn decompressed_start(start: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    if !is_compressed(start) {
        plain.extend_from_slice(start);
    } else if let Ok((_, input)) = decompressed(io::Cursor::new(start.to_vec())) {
        // The stream goes on behind these bytes.
        let _cut_off = input.take(MEMBER_SNIFFED_BYTES).read_to_end(&mut plain);
    }
    plain
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read_up_to(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match input.read(&mut buf[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Strictness, TraceReader, TraceRecord};
    use flate2::write::GzEncoder;
    use std::io::{Cursor, Write};

    const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,8,8,1,1063";
    const LATER: &str = "1538326800,16,8,0,1063\n";
    const DEVICES: &str = "device_id,device_capacity\n";

    /// An archive as made by GNU tar.
    fn archived<B: AsRef<[u8]>>(members: &[(&str, B)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in members {
            let mut header = Header::new_gnu();
            header.set_size(content.as_ref().len() as u64);
            let content = content.as_ref();
            builder.append_data(&mut header, name, content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// The same, compressed.
    fn packed<B: AsRef<[u8]>>(members: &[(&str, B)]) -> Vec<u8> {
        gzip(&archived(members))
    }

    fn read(bytes: Vec<u8>, format: Option<Format>) -> Result<Vec<TraceRecord>, crate::Error> {
        let path = Path::new("t.tgz");
        TraceReader::new(path, Cursor::new(bytes), format, Strictness::Strict)?.collect()
    }

    #[test]
    fn members_that_are_traces_are_read_one_after_another() {
        let long = format!("{}/01.csv", "d".repeat(150));
        let members = [
            ("README", "block traces\n"),
            (&long, TENCENT),
            ("devices.csv", DEVICES),
            ("02.csv", LATER),
            ("other", "0,20941264,8192,W,0.551706\n"),
        ];
        for format in [None, Some(Format::Tencent)] {
            let records = read(packed(&members), format).unwrap();
            let places: Vec<_> = records.iter().map(|r| r.offset_bytes / 512).collect();
            assert_eq!(places, [12_910_952, 8, 16]);
        }
        let spc = read(packed(&members), Some(Format::Spc)).unwrap();
        assert_eq!(spc.len(), 1);
    }

    const USR: &str =
        "128166372000000000,usr,0,Read,0,512,1\n128166372000000030,usr,0,Read,0,512,1";
    const WEB: &str =
        "128166372000000010,web,0,Write,512,512,1\n128166372000000040,web,0,Read,0,512,1\n";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn the_volumes_of_an_archive_are_merged_by_time_though_each_is_compressed() {
        let (usr, web) = (gzip(USR.as_bytes()), gzip(WEB.as_bytes()));
        let plain = packed(&[
            ("usr_0.csv", USR),
            ("README", "hello\n"),
            ("web_0.csv", WEB),
        ]);
        let members: [(&str, &[u8]); 2] = [("msr/usr_0.csv.gz", &usr), ("msr/web_0.csv.gz", &web)];
        let dir = std::env::temp_dir().join(format!("hotset-trace-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for bytes in [plain, packed(&members), archived(&members)] {
            let path = dir.join("msr.tgz");
            std::fs::write(&path, &bytes).unwrap();
            for format in [None, Some(Format::Msr)] {
                let reader = TraceReader::open(&path, format, Strictness::Strict).unwrap();
                assert_eq!(reader.format(), Format::Msr);
                let records: Vec<_> = reader.map(Result::unwrap).collect();
                let times = records
                    .iter()
                    .map(|r| r.time.0 % 10_000)
                    .collect::<Vec<_>>();
                assert_eq!(times, [0, 1000, 3000, 4000]);
                assert_eq!(records[0].volume, records[2].volume);
                assert_ne!(records[0].volume, records[1].volume);
            }
        }
        let piped = read(packed(&members), None).unwrap_err();
        assert!(piped.to_string().contains("as a file"), "{piped}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_archive_without_a_trace_lists_what_it_has() {
        let error = read(packed(&[("README", "hello\n"), ("b", "x\n")]), None).unwrap_err();
        assert!(error.to_string().contains("(README, b)"), "{error}");
    }

    #[test]
    fn an_archive_that_is_cut_off_is_an_error() {
        let mut builder = tar::Builder::new(Vec::new());
        let (mut header, text) = (Header::new_gnu(), LATER.repeat(10_000));
        header.set_size(text.len() as u64);
        let append = builder.append_data(&mut header, "t", text.as_bytes());
        append.unwrap();
        let mut whole = builder.into_inner().unwrap();
        whole.truncate(150_000);
        let error = read(whole, None).unwrap_err();
        assert!(error.to_string().contains("cut off"), "{error}");
    }

    #[test]
    fn a_size_beyond_all_archives_is_damage() {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().size = [0xff; 12];
        let error = read(header.as_bytes().to_vec(), None).unwrap_err();
        assert!(error.to_string().contains("cut off"), "{error}");
    }

    #[test]
    fn sizes_beyond_octal_are_read() {
        let mut builder = tar::Builder::new(Vec::new());
        let size = LATER.len().to_string();
        let extension = [("size", size.as_bytes())];
        builder.append_pax_extensions(extension).unwrap();
        let mut header = Header::new_ustar();
        header.set_size(0);
        header.set_path("t").unwrap();
        header.set_cksum();
        builder.append(&header, std::io::empty()).unwrap();
        let mut bytes = builder.get_ref().clone();
        bytes.extend(LATER.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
        assert_eq!(read(bytes, None).unwrap().len(), 1);
    }
}
