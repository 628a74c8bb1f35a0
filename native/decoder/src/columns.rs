//! Column builders. Columns have Arrow's layout, except that bits are stored as bytes until the end.

use crate::plan::{Kind, Node};

pub enum Values {
    None,
    Flags(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Offsets, starting with 0, and the concatenated bytes of all rows.
    Bytes(Vec<i32>, Vec<u8>),
    /// Offsets, starting with 0, of the items in the only child of a list or of the entries in both children of a map.
    List(Vec<i32>),
}

pub struct Column {
    pub rows: usize,
    pub values: Values,
    pub children: Vec<Column>,
    /// Number of rows in the children of an object, which may lack the most recent null rows.
    pub settled: usize,
    /// One byte per row up to the last null: 0 for a null, otherwise 1.
    pub valid: Vec<u8>,
    /// One byte per row up to the last row without the member: 1 if the member is absent, otherwise 0.
    pub absent: Vec<u8>,
    /// True if a number is an integer.
    pub integers: bool,
    /// True if a number is not an integer.
    pub others: bool,
}

/// The message does not match the plan.
#[derive(Debug)]
pub struct Odd;

impl Column {
    /// Create an empty column with capacity for `rows`.
    pub fn new(node: &Node, rows: usize) -> Column {
        let ends = || {
            let mut ends = Vec::with_capacity(rows + 1);
            ends.push(0);
            ends
        };
        let values = match node.kind {
            Kind::Null | Kind::Object => Values::None,
            Kind::Boolean => Values::Flags(Vec::with_capacity(rows)),
            Kind::Int32 => Values::Int32(Vec::with_capacity(rows)),
            Kind::Int64 | Kind::Number => Values::Int64(Vec::with_capacity(rows)),
            Kind::Float32 => Values::Float32(Vec::with_capacity(rows)),
            Kind::Float64 => Values::Float64(Vec::with_capacity(rows)),
            // Fixed values also have offsets. Otherwise, a null would need as much memory as a value of any size.
            Kind::Text | Kind::Bytes | Kind::Fixed => Values::Bytes(ends(), Vec::new()),
            Kind::List | Kind::Map => Values::List(ends()),
        };
        let rows_inside = if matches!(node.kind, Kind::List | Kind::Map) {
            0
        } else {
            rows
        };
        Column {
            rows: 0,
            values,
            children: node
                .children
                .iter()
                .map(|child| Column::new(child, rows_inside))
                .collect(),
            settled: 0,
            valid: Vec::new(),
            absent: Vec::new(),
            integers: false,
            others: false,
        }
    }

    /// Count a row after its value was added.
    #[inline]
    pub fn done(&mut self) {
        self.rows += 1;
    }

    /// Return true if all strings of this column and its children are UTF-8.
    pub fn is_utf8(&self, node: &Node) -> bool {
        if let (Kind::Text, Values::Bytes(ends, data)) = (node.kind, &self.values) {
            let Ok(text) = std::str::from_utf8(data) else {
                return false;
            };
            return ends.iter().all(|end| text.is_char_boundary(*end as usize));
        }
        self.children
            .iter()
            .zip(&node.children)
            .all(|(column, child)| column.is_utf8(child))
    }

    pub fn push_null(&mut self) {
        self.push_nulls(1);
    }

    /// Add nulls. They are added to the children of an object later, many at once.
    fn push_nulls(&mut self, count: usize) {
        let rows = self.rows + count;
        self.valid.resize(self.rows, 1);
        self.valid.resize(rows, 0);
        match &mut self.values {
            Values::None => {}
            Values::Flags(values) => values.resize(rows, 0),
            Values::Int32(values) => values.resize(rows, 0),
            Values::Int64(values) => values.resize(rows, 0),
            Values::Float32(values) => values.resize(rows, 0.0),
            Values::Float64(values) => values.resize(rows, 0.0),
            Values::Bytes(ends, _) | Values::List(ends) => ends.resize(rows + 1, ends[self.rows]),
        }
        self.rows = rows;
    }

    /// Add the most recent nulls of an object to its children.
    #[inline]
    pub fn settle(&mut self) {
        if self.settled < self.rows {
            self.tell_children();
        }
    }

    #[inline(never)]
    fn tell_children(&mut self) {
        for child in &mut self.children {
            child.push_nulls(self.rows - self.settled);
        }
        self.settled = self.rows;
    }

    /// Extend all buffers to the same number of rows.
    pub fn finish(&mut self) {
        if !matches!(self.values, Values::List(_)) {
            self.settle();
        }
        if !self.valid.is_empty() {
            self.valid.resize(self.rows, 1);
        }
        if !self.absent.is_empty() {
            self.absent.resize(self.rows, 0);
        }
        for child in &mut self.children {
            child.finish();
        }
    }

    pub fn push_absent(&mut self) {
        let rows = self.rows;
        self.push_null();
        self.absent.resize(rows, 0);
        self.absent.push(1);
    }

    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), Odd> {
        let Values::Bytes(ends, data) = &mut self.values else {
            return Err(Odd);
        };
        data.extend_from_slice(bytes);
        ends.push(i32::try_from(data.len()).map_err(|_| Odd)?);
        self.done();
        Ok(())
    }

    /// End the list or map of a row after its items or entries were added to the children.
    pub fn end_list(&mut self) -> Result<(), Odd> {
        let end = i32::try_from(self.children[0].rows).map_err(|_| Odd)?;
        let Values::List(ends) = &mut self.values else {
            return Err(Odd);
        };
        ends.push(end);
        self.done();
        Ok(())
    }

    /// Remove all rows except the first `rows`.
    pub fn cut(&mut self, rows: usize) {
        let mut inside = rows;
        match &mut self.values {
            Values::None => {}
            Values::Flags(values) => values.truncate(rows),
            Values::Int32(values) => values.truncate(rows),
            Values::Int64(values) => values.truncate(rows),
            Values::Float32(values) => values.truncate(rows),
            Values::Float64(values) => values.truncate(rows),
            Values::Bytes(ends, data) => {
                ends.truncate(rows + 1);
                data.truncate(ends[ends.len() - 1] as usize);
            }
            Values::List(ends) => {
                ends.truncate(rows + 1);
                inside = ends[ends.len() - 1] as usize;
            }
        }
        self.rows = self.rows.min(rows);
        self.settled = self.settled.min(rows);
        self.valid.truncate(rows);
        self.absent.truncate(rows);
        for child in &mut self.children {
            child.cut(inside);
        }
    }
}

/// Multiplier that gathers the lowest bits of eight bytes in one byte.
const GATHER: u64 = 0x0102_0408_1020_4080;

/// Pack bytes with the values 0 and 1 into bits, least significant bit first.
pub fn bits(flags: &[u8]) -> Vec<u8> {
    flags
        .chunks(8)
        .map(|chunk| {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            (u64::from_le_bytes(eight).wrapping_mul(GATHER) >> 56) as u8
        })
        .collect()
}
