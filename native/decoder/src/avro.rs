//! Decoding of Avro bodies. Every length is checked against the remaining bytes, and strings must be UTF-8.

use crate::columns::{Column, Odd, Values};
use crate::plan::{Kind, Node};

struct Body<'a> {
    rest: &'a [u8],
    checks_texts: bool,
}

/// Decode a body into the column. On `Odd`, the column contains an incomplete row. Bytes after the body are ignored, as
/// in Java.
///
/// If `checks_texts` is false, the caller must validate the UTF-8 strings of all rows at once, which is faster.
pub fn read(node: &Node, column: &mut Column, data: &[u8], checks_texts: bool) -> Result<(), Odd> {
    Body {
        rest: data,
        checks_texts,
    }
    .value(node, column)
}

impl<'a> Body<'a> {
    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Odd> {
        if count > self.rest.len() {
            return Err(Odd);
        }
        let (head, tail) = self.rest.split_at(count);
        self.rest = tail;
        Ok(head)
    }

    #[inline]
    fn long(&mut self) -> Result<i64, Odd> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1))
            }
            _ => self.large(),
        }
    }

    fn large(&mut self) -> Result<i64, Odd> {
        let mut number = 0u64;
        let mut shift = 0;
        for (place, byte) in self.rest.iter().enumerate() {
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                self.rest = &self.rest[place + 1..];
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
            shift += 7;
            if shift > 63 {
                return Err(Odd);
            }
        }
        Err(Odd)
    }

    #[inline]
    fn sized(&mut self) -> Result<&'a [u8], Odd> {
        let size = self.long()?;
        self.take(usize::try_from(size).map_err(|_| Odd)?)
    }

    #[inline]
    fn value(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        if node.nullable {
            let branch = self.long()?; // `min` is the index of null
            if branch == node.min {
                column.push_null();
                return Ok(());
            }
            if branch != 1 - node.min {
                return Err(Odd);
            }
        }
        match node.kind {
            Kind::Object => {
                column.settle();
                for (child, member) in node.children.iter().zip(&mut column.children) {
                    self.value(child, member)?;
                }
                column.settled += 1;
                column.done();
                return Ok(());
            }
            Kind::List => return self.list(node, column),
            Kind::Text => {
                let text = self.sized()?;
                if self.checks_texts {
                    std::str::from_utf8(text).map_err(|_| Odd)?;
                }
                return column.push_bytes(text);
            }
            Kind::Bytes => {
                let bytes = self.sized()?;
                return column.push_bytes(bytes);
            }
            Kind::Fixed => {
                let bytes = self.take(node.fixed_size())?;
                return column.push_bytes(bytes);
            }
            Kind::Null | Kind::Number | Kind::Map => return Err(Odd),
            _ => {}
        }
        match &mut column.values {
            Values::Flags(values) => values.push(u8::from(self.take(1)?[0] == 1)),
            Values::Int64(values) => values.push(self.long()?),
            Values::Int32(values) => values.push(i32::try_from(self.long()?).map_err(|_| Odd)?),
            Values::Float32(values) => values.push(f32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Odd)?)),
            Values::Float64(values) => values.push(f64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Odd)?)),
            _ => return Err(Odd),
        }
        column.done();
        Ok(())
    }

    /// Decode blocks of items up to an empty block. A negative count is followed by the size of the block in bytes.
    fn list(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        let item = &node.children[0];
        loop {
            let mut count = self.long()?;
            if count < 0 {
                count = count.checked_neg().ok_or(Odd)?;
                self.long()?;
            }
            if count == 0 {
                break;
            }
            let count = usize::try_from(count).map_err(|_| Odd)?;
            if item.width == 0 || count > self.rest.len() / item.width {
                return Err(Odd);
            }
            for _ in 0..count {
                self.value(item, &mut column.children[0])?;
            }
        }
        column.end_list()
    }
}
