//! Columns in the making, in Arrow's layout but for bits, which are bytes until the end.

use crate::plan::{Kind, Node};

pub enum Values {
    None,
    Flags(Vec<u8>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Ends, the first one 0, and the bytes between them.
    Bytes(Vec<i32>, Vec<u8>),
    /// Values of one size.
    Fixed(Vec<u8>, usize),
    /// Ends, the first one 0; the items are the only child's.
    List(Vec<i32>),
}

pub struct Column {
    pub rows: usize,
    pub values: Values,
    pub children: Vec<Column>,
    /// One byte per row, 0 for a null; empty as long as there is none.
    pub valid: Vec<u8>,
    /// One byte per row, 1 where the member is missing; empty as long as it never is.
    pub absent: Vec<u8>,
    /// Of numbers: some were integers, some were not.
    pub integers: bool,
    pub others: bool,
}

/// Why a row has no place in the columns.
#[derive(Debug)]
pub struct Odd;

impl Column {
    /// An empty column with room for so many rows.
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
            Kind::Text | Kind::Bytes => Values::Bytes(ends(), Vec::new()),
            Kind::Fixed => Values::Fixed(Vec::new(), node.fixed_size()),
            Kind::List => Values::List(ends()),
        };
        let rows_inside = if node.kind == Kind::List { 0 } else { rows };
        Column {
            rows: 0,
            values,
            children: node
                .children
                .iter()
                .map(|child| Column::new(child, rows_inside))
                .collect(),
            valid: Vec::new(),
            absent: Vec::new(),
            integers: false,
            others: false,
        }
    }

    /// Count a row whose value was added.
    #[inline]
    pub fn done(&mut self) {
        self.rows += 1;
        if !self.valid.is_empty() {
            self.mark();
        }
    }

    /// A row that is no null, where there are some. Absent rows are nulls, so the check of these is enough.
    #[inline(never)]
    fn mark(&mut self) {
        self.valid.push(1);
        if !self.absent.is_empty() {
            self.absent.push(0);
        }
    }

    /// Whether all texts, here and below, are UTF-8.
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
        if self.valid.is_empty() {
            self.valid.reserve(self.rows + 1);
            self.valid.resize(self.rows, 1);
        }
        self.valid.push(0);
        match &mut self.values {
            Values::None => {}
            Values::Flags(values) => values.push(0),
            Values::Int32(values) => values.push(0),
            Values::Int64(values) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Bytes(ends, _) | Values::List(ends) => ends.push(ends[self.rows]),
            Values::Fixed(values, size) => values.resize(values.len() + *size, 0),
        }
        self.rows += 1;
        if !self.absent.is_empty() {
            self.absent.push(0);
        }
        if !matches!(self.values, Values::List(_)) {
            for child in &mut self.children {
                child.push_null();
            }
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

    /// End the list of a row, whose items were added to the child.
    pub fn end_list(&mut self) -> Result<(), Odd> {
        let end = i32::try_from(self.children[0].rows).map_err(|_| Odd)?;
        let Values::List(ends) = &mut self.values else {
            return Err(Odd);
        };
        ends.push(end);
        self.done();
        Ok(())
    }

    /// Forget all rows but the first ones.
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
            Values::Fixed(values, size) => values.truncate(rows * *size),
            Values::List(ends) => {
                ends.truncate(rows + 1);
                inside = ends[ends.len() - 1] as usize;
            }
        }
        self.rows = self.rows.min(rows);
        self.valid.truncate(rows);
        self.absent.truncate(rows);
        for child in &mut self.children {
            child.cut(inside);
        }
    }
}

/// Eight bytes of 0 or 1 each to one byte, the first one lowest.
pub fn bits(flags: &[u8]) -> Vec<u8> {
    flags
        .chunks(8)
        .map(|eight| eight.iter().rev().fold(0, |byte, flag| byte << 1 | flag))
        .collect()
}
