//! Apache Parquet, for data tools: a row a request, zstd-compressed columns.
//!
//! ```text
//! time_ns       INT64, unsigned       since the epoch of the trace
//! is_write      BOOLEAN
//! offset_bytes  INT64, unsigned
//! len_bytes     INT32, unsigned
//! volume        INT32, unsigned
//! is_forced     BOOLEAN               a write that is forced; of no bytes a flush
//! ```
//!
//! All columns are required and flat, but `is_forced` may be left out if no write is forced. Other
//! columns are an error, or ignored if reading is lenient. Memory holds one batch of rows when
//! reading and one row group when writing.

use block::Nanos;
use parquet::basic::{Compression, Encoding, Repetition, Type, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{BoolType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::Write;
use std::sync::Arc;
use trace::{DecodedRecords, RecordOp, RecordRows, TraceRecord, ZSTD_LEVEL};

/// Rows of a group when writing: 6 MB in memory.
const GROUP_ROWS: usize = 1 << 18;
/// Rows read at a time.
const BATCH_ROWS: usize = 1 << 13;

const SCHEMA: &str = "message trace {
    required int64 time_ns (integer(64,false));
    required boolean is_write;
    required int64 offset_bytes (integer(64,false));
    required int32 len_bytes (integer(32,false));
    required int32 volume (integer(32,false));
    required boolean is_forced;
}";

/// The columns in the order of this module's arrays.
const COLUMNS: [(&str, Type); 6] = [
    ("time_ns", Type::INT64),
    ("is_write", Type::BOOLEAN),
    ("offset_bytes", Type::INT64),
    ("len_bytes", Type::INT32),
    ("volume", Type::INT32),
    (FORCED, Type::BOOLEAN),
];
/// The column that may be left out.
const FORCED: &str = "is_forced";

/// A batch of rows, column by column.
#[derive(Default)]
struct RowBatch {
    time_ns: Vec<i64>,
    is_write: Vec<bool>,
    offset_bytes: Vec<i64>,
    len_bytes: Vec<i32>,
    volume: Vec<i32>,
    is_forced: Vec<bool>,
}

impl RowBatch {
    fn push(&mut self, record: &TraceRecord) {
        self.time_ns.push(record.time.0 as i64);
        self.is_write.push(record.op == RecordOp::Write);
        self.offset_bytes.push(record.offset_bytes as i64);
        self.len_bytes.push(record.len_bytes as i32);
        self.volume.push(record.volume as i32);
        self.is_forced.push(record.forced);
    }

    fn row(&self, at: usize) -> TraceRecord {
        TraceRecord {
            time: Nanos(self.time_ns[at] as u64),
            op: if self.is_write[at] {
                RecordOp::Write
            } else {
                RecordOp::Read
            },
            offset_bytes: self.offset_bytes[at] as u64,
            len_bytes: self.len_bytes[at] as u32,
            volume: self.volume[at] as u32,
            forced: self.is_forced[at],
        }
    }

    fn clear(&mut self) {
        self.time_ns.clear();
        self.is_write.clear();
        self.offset_bytes.clear();
        self.len_bytes.clear();
        self.volume.clear();
        self.is_forced.clear();
    }
}

/// The open row group's columns.
struct Group {
    time_ns: ColumnReaderImpl<Int64Type>,
    is_write: ColumnReaderImpl<BoolType>,
    offset_bytes: ColumnReaderImpl<Int64Type>,
    len_bytes: ColumnReaderImpl<Int32Type>,
    volume: ColumnReaderImpl<Int32Type>,
    is_forced: Option<ColumnReaderImpl<BoolType>>,
}

impl Group {
    /// Fills `batch`; false at the group's end.
    fn read(&mut self, batch: &mut RowBatch) -> Result<bool, String> {
        batch.clear();
        read_column(&mut self.time_ns, &mut batch.time_ns)?;
        read_column(&mut self.is_write, &mut batch.is_write)?;
        read_column(&mut self.offset_bytes, &mut batch.offset_bytes)?;
        read_column(&mut self.len_bytes, &mut batch.len_bytes)?;
        read_column(&mut self.volume, &mut batch.volume)?;
        let rows = batch.time_ns.len();
        match &mut self.is_forced {
            Some(column) => read_column(column, &mut batch.is_forced)?,
            None => batch.is_forced.resize(rows, false),
        }
        let others = [
            batch.is_write.len(),
            batch.offset_bytes.len(),
            batch.len_bytes.len(),
            batch.volume.len(),
            batch.is_forced.len(),
        ];
        if others.iter().any(|len| *len != rows) {
            return Err("the columns differ in length: the file is damaged".into());
        }
        Ok(rows > 0)
    }
}

fn read_column<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    values: &mut Vec<T::T>,
) -> Result<(), String> {
    let read = column.read_records(BATCH_ROWS, None, None, values);
    read.map(drop).map_err(to_message)
}

/// Reads row after row.
pub(crate) struct RowInput {
    file: Box<dyn FileReader + Send>,
    /// Place of each of [`COLUMNS`] in the file.
    places: [Option<usize>; 6],
    next_group: usize,
    group: Option<Group>,
    batch: RowBatch,
    at: usize,
}

impl RowInput {
    /// Opens a file; `Err` is a clause. Unknown columns are refused unless
    /// `lenient`.
    pub(crate) fn open(
        from: impl ChunkReader + 'static,
        lenient: bool,
    ) -> Result<RowInput, String> {
        let file = SerializedFileReader::new(from).map_err(to_message)?;
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let mut places = [None; 6];
        for (at, column) in schema.columns().iter().enumerate() {
            let name = column.path().string();
            let known = COLUMNS.iter().position(|(known, _)| *known == name);
            let Some(known) = known else {
                if lenient {
                    continue;
                }
                return Err(format!(
                    "unknown column {name}; remove it, or read leniently"
                ));
            };
            let required = column.self_type().get_basic_info().repetition() == Repetition::REQUIRED;
            if column.physical_type() != COLUMNS[known].1 || !required {
                let wanted = COLUMNS[known].1;
                return Err(format!("column {name} is no required {wanted}"));
            }
            places[known] = Some(at);
        }
        let named = COLUMNS.iter().map(|(name, _)| *name).zip(&places);
        let mut missing = named.filter(|(name, place)| place.is_none() && *name != FORCED);
        if let Some((name, _)) = missing.next() {
            return Err(format!("no column {name}"));
        }
        Ok(RowInput {
            file: Box::new(file),
            places,
            next_group: 0,
            group: None,
            batch: RowBatch::default(),
            at: 0,
        })
    }
}

impl DecodedRecords for RowInput {
    fn next(&mut self) -> Result<Option<TraceRecord>, String> {
        while self.at == self.batch.time_ns.len() {
            self.at = 0;
            let Some(group) = &mut self.group else {
                if self.next_group == self.file.num_row_groups() {
                    self.batch.clear();
                    return Ok(None);
                }
                self.group = Some(self.open_group(self.next_group)?);
                self.next_group += 1;
                continue;
            };
            if !group.read(&mut self.batch)? {
                self.group = None;
            }
        }
        self.at += 1;
        Ok(Some(self.batch.row(self.at - 1)))
    }
}

impl RowInput {
    fn open_group(&self, number: usize) -> Result<Group, String> {
        let group = self.file.get_row_group(number).map_err(to_message)?;
        let reader = |place: usize| -> Result<ColumnReader, String> {
            group.get_column_reader(place).map_err(to_message)
        };
        let column = |at: usize| reader(self.places[at].expect("only the last may be missing"));
        let forced = self.places[5].map(reader).transpose()?;
        Ok(Group {
            time_ns: get_typed_column_reader(column(0)?),
            is_write: get_typed_column_reader(column(1)?),
            offset_bytes: get_typed_column_reader(column(2)?),
            len_bytes: get_typed_column_reader(column(3)?),
            volume: get_typed_column_reader(column(4)?),
            is_forced: forced.map(get_typed_column_reader),
        })
    }
}

/// Writes row after row.
pub(crate) struct RowOutput<W: Write + Send> {
    file: SerializedFileWriter<W>,
    batch: RowBatch,
}

impl<W: Write + Send> RowOutput<W> {
    pub(crate) fn new(to: W) -> Result<RowOutput<W>, String> {
        let schema = parse_message_type(SCHEMA).expect("a sound schema");
        let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("a level of zstd's");
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_dictionary_enabled(false);
        // Times grow; requests near in time are near in place.
        for column in ["time_ns", "offset_bytes", "len_bytes", "volume"] {
            let path = ColumnPath::from(column);
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let properties = Arc::new(properties.build());
        let file =
            SerializedFileWriter::new(to, Arc::new(schema), properties).map_err(to_message)?;
        Ok(RowOutput {
            file,
            batch: RowBatch::default(),
        })
    }

    fn write_group(&mut self) -> Result<(), String> {
        let mut group = self.file.next_row_group().map_err(to_message)?;
        write_column::<Int64Type, W>(&mut group, &self.batch.time_ns)?;
        write_column::<BoolType, W>(&mut group, &self.batch.is_write)?;
        write_column::<Int64Type, W>(&mut group, &self.batch.offset_bytes)?;
        write_column::<Int32Type, W>(&mut group, &self.batch.len_bytes)?;
        write_column::<Int32Type, W>(&mut group, &self.batch.volume)?;
        write_column::<BoolType, W>(&mut group, &self.batch.is_forced)?;
        group.close().map_err(to_message)?;
        self.batch.clear();
        Ok(())
    }
}

impl<W: Write + Send> RecordRows<W> for RowOutput<W> {
    fn write(&mut self, record: &TraceRecord) -> Result<(), String> {
        self.batch.push(record);
        if self.batch.time_ns.len() == GROUP_ROWS {
            self.write_group()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<W, String> {
        if !self.batch.time_ns.is_empty() {
            self.write_group()?;
        }
        self.file.into_inner().map_err(to_message)
    }
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut parquet::file::writer::SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
) -> Result<(), String> {
    let column = group.next_column().map_err(to_message)?;
    let mut column = column.expect("as many columns as the schema has");
    let written = column.typed::<T>().write_batch(values, None, None);
    written.map_err(to_message)?;
    column.close().map_err(to_message)
}

fn to_message(error: ParquetError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of one row, with the columns of before there were forced writes.
    fn of_before() -> Vec<u8> {
        let schema = SCHEMA.replace("required boolean is_forced;", "");
        assert!(schema.len() < SCHEMA.len());
        let schema = parse_message_type(&schema).expect("a sound schema");
        let properties = Arc::new(WriterProperties::builder().build());
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties);
        let mut file = file.expect("it is sound");
        let mut group = file.next_row_group().expect("room");
        write_column::<Int64Type, _>(&mut group, &[5]).expect("room");
        write_column::<BoolType, _>(&mut group, &[true]).expect("room");
        write_column::<Int64Type, _>(&mut group, &[4096]).expect("room");
        write_column::<Int32Type, _>(&mut group, &[512]).expect("room");
        write_column::<Int32Type, _>(&mut group, &[7]).expect("room");
        group.close().expect("room");
        file.into_inner().expect("room")
    }

    #[test]
    fn a_file_without_forced_writes_needs_no_column_of_them() {
        let mut input = RowInput::open(bytes::Bytes::from(of_before()), false).unwrap();
        let record = TraceRecord {
            time: Nanos(5),
            op: RecordOp::Write,
            offset_bytes: 4096,
            len_bytes: 512,
            volume: 7,
            forced: false,
        };
        assert_eq!(input.next(), Ok(Some(record)));
        assert_eq!(input.next(), Ok(None));
    }
}
