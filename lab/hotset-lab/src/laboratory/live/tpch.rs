//! Tables and queries of TPC-H ("TPC Benchmark H", revision 2), for PostgreSQL.
//!
//! Rows and the text of queries are of the crate `tpchgen`. Parameters of queries are those of their
//! validation, in clauses 2.4.1.3 to 2.4.22.3. Each key of a table has an index.
//!
//! Not here: refreshes of the tables, and streams of queries side by side.

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries::query;

/// Number of queries.
pub const QUERIES: usize = 22;

/// A table of TPC-H.
pub struct TpchTable {
    /// The name.
    pub name: &'static str,
    columns: &'static str,
    /// The primary key, and columns of indexes.
    keys: &'static [&'static str],
    rows: fn(f64) -> TextRows,
}

/// Rows in the text form of `copy`.
type TextRows = Box<dyn Iterator<Item = String>>;

/// All tables.
pub const TABLES: [TpchTable; 8] = [
    TpchTable {
        name: "region",
        columns: "r_regionkey int, r_name char(25), r_comment varchar(152)",
        keys: &["r_regionkey"],
        rows: |scale| text(RegionGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "nation",
        columns: "n_nationkey int, n_name char(25), n_regionkey int, n_comment varchar(152)",
        keys: &["n_nationkey", "n_regionkey"],
        rows: |scale| text(NationGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "part",
        columns: "p_partkey int, p_name varchar(55), p_mfgr char(25), p_brand char(10), \
                  p_type varchar(25), p_size int, p_container char(10), \
                  p_retailprice numeric(15,2), p_comment varchar(23)",
        keys: &["p_partkey"],
        rows: |scale| text(PartGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "supplier",
        columns: "s_suppkey int, s_name char(25), s_address varchar(40), s_nationkey int, \
                  s_phone char(15), s_acctbal numeric(15,2), s_comment varchar(101)",
        keys: &["s_suppkey", "s_nationkey"],
        rows: |scale| text(SupplierGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "partsupp",
        columns: "ps_partkey int, ps_suppkey int, ps_availqty int, \
                  ps_supplycost numeric(15,2), ps_comment varchar(199)",
        keys: &["ps_partkey, ps_suppkey", "ps_suppkey"],
        rows: |scale| text(PartSuppGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "customer",
        columns: "c_custkey int, c_name varchar(25), c_address varchar(40), c_nationkey int, \
                  c_phone char(15), c_acctbal numeric(15,2), c_mktsegment char(10), \
                  c_comment varchar(117)",
        keys: &["c_custkey", "c_nationkey"],
        rows: |scale| text(CustomerGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "orders",
        columns: "o_orderkey bigint, o_custkey int, o_orderstatus char(1), \
                  o_totalprice numeric(15,2), o_orderdate date, o_orderpriority char(15), \
                  o_clerk char(15), o_shippriority int, o_comment varchar(79)",
        keys: &["o_orderkey", "o_custkey"],
        rows: |scale| text(OrderGenerator::new(scale, 1, 1).iter()),
    },
    TpchTable {
        name: "lineitem",
        columns: "l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int, \
                  l_quantity numeric(15,2), l_extendedprice numeric(15,2), \
                  l_discount numeric(15,2), l_tax numeric(15,2), l_returnflag char(1), \
                  l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date, \
                  l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44)",
        keys: &[
            "l_orderkey, l_linenumber",
            "l_partkey, l_suppkey",
            "l_suppkey",
        ],
        rows: |scale| text(LineItemGenerator::new(scale, 1, 1).iter()),
    },
];

/// Parameters of each query; the second of query 11 depends on the scale.
const PARAMETERS: [&[&str]; QUERIES] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", ""],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &[
        "Brand#45",
        "MEDIUM POLISHED",
        "49",
        "14",
        "23",
        "45",
        "19",
        "3",
        "36",
        "9",
    ],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// Rows of an answer that are asked for, where not all are.
const LIMITS: [(usize, u32); 5] = [(2, 100), (3, 10), (10, 20), (18, 100), (21, 100)];

/// Rows without the separator at the end, which `copy` would take for one more column.
fn text<R: ToString>(rows: impl Iterator<Item = R> + 'static) -> TextRows {
    Box::new(rows.map(|row| {
        let mut text = row.to_string();
        text.pop();
        text
    }))
}

impl TpchTable {
    /// The statement that makes the table.
    pub fn create(&self) -> String {
        format!("create table {} ({});", self.name, self.columns)
    }

    /// The rows of a scale factor.
    pub fn rows(&self, scale: f64) -> impl Iterator<Item = String> {
        (self.rows)(scale)
    }

    /// The statements that make the indexes.
    pub fn index(&self) -> String {
        let indexes = self
            .keys
            .iter()
            .enumerate()
            .map(|(number, key)| match number {
                0 => format!("alter table {} add primary key ({key});", self.name),
                _ => format!("create index on {} ({key});", self.name),
            });
        indexes.collect()
    }
}

/// The text of a query, from 1 on.
pub fn statements(number: usize, scale: f64) -> String {
    let text = query(number as i32).expect("the crate has all queries");
    // PostgreSQL has no precision of days.
    let mut text = text
        .replace("day (3)", "day")
        .replace("revenue:s", "revenue");
    let fraction = format!("{:.10}", 0.0001 / scale);
    for (place, value) in PARAMETERS[number - 1].iter().enumerate().rev() {
        let value = if value.is_empty() { &fraction } else { *value };
        text = text.replace(&format!(":{}", place + 1), value);
    }
    match LIMITS.iter().find(|(query, _)| *query == number) {
        Some((_, rows)) => format!("{} limit {rows};", text.trim_end_matches(';')),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_all_its_parameters() {
        for number in 1..=QUERIES {
            let text = statements(number, 0.01);
            assert!(!text.contains(':'), "{text}");
        }
        assert!(statements(11, 0.01).contains("* 0.0100000000"));
        assert!(statements(16, 1.0).contains("(49, 14, 23, 45, 19, 3, 36, 9)"));
        assert!(statements(3, 1.0).ends_with("limit 10;"));
    }

    #[test]
    fn a_row_has_as_many_columns_as_its_table() {
        for table in TABLES {
            let row = table.rows(0.001).next().unwrap();
            // A comma within parentheses is no column's.
            let columns = table.columns.matches(", ").count();
            assert_eq!(row.matches('|').count(), columns, "{row}");
        }
    }
}
