//! Decoding of JSON messages. msgspec decodes every accepted message to the same values. All other messages are odd.

use crate::columns::{Column, Odd, Values};
use crate::plan::{Kind, Node};
use std::collections::HashSet;

/// Powers of ten that doubles represent exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Powers of ten by number of digits.
const TENS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// `min` of an object that may have members that are not in the plan.
const IGNORES_OTHERS: i64 = 1;
/// `min` of a map that is a list of pairs.
const PAIRS: i64 = 1;
/// Larger maps use a hash set to find repeated keys.
const FEW_KEYS: usize = 16;
const MAX_DEPTH: usize = 100;
/// Maximum length of a name in bytes, as in row-by-row conversion.
const MAX_NAME: usize = 50_000;
/// All integers up to this number are exact as doubles.
const EXACT: u64 = 1 << 53;
/// Bits of a double's fraction that a 32-bit float does not have.
const FLOAT_REST: u64 = (1 << 29) - 1;

pub struct Message<'a> {
    data: &'a [u8],
    at: usize,
}

/// Decode a message into the column. On `Odd`, the column contains an incomplete row.
pub fn read(node: &Node, column: &mut Column, data: &[u8]) -> Result<(), Odd> {
    if !data.is_ascii() {
        std::str::from_utf8(data).map_err(|_| Odd)?; // the ASCII check is much faster and usually sufficient
    }
    let mut message = Message { data, at: 0 };
    message.blanks();
    message.value(node, column)?;
    message.blanks();
    if message.at == data.len() {
        Ok(())
    } else {
        Err(Odd)
    }
}

enum Number {
    Integer(i64),
    Other(f64),
}

impl<'a> Message<'a> {
    #[inline]
    fn peek(&self) -> u8 {
        self.data.get(self.at).copied().unwrap_or(0) // JSON has no zero bytes outside of strings
    }

    #[inline]
    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, text: &[u8]) -> Result<(), Odd> {
        if self.data[self.at..].starts_with(text) {
            self.at += text.len();
            return Ok(());
        }
        Err(Odd)
    }

    /// Inlined because most members are strings and integers, and decoding one is as cheap as a function call.
    #[inline(always)]
    fn value(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        if self.peek() == b'n' {
            return self.null(node, column);
        }
        match (node.kind, &mut column.values) {
            (Kind::Text, _) => return self.text(column),
            (Kind::Int64, Values::Int64(values)) => values.push(self.integer(node)?),
            _ => return self.rarer_value(node, column),
        }
        column.done();
        Ok(())
    }

    #[inline(never)]
    fn rarer_value(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        match (node.kind, &mut column.values) {
            (Kind::Object, _) => return self.object(node, column),
            (Kind::List, _) => return self.list(node, column),
            (Kind::Map, _) if node.min == PAIRS => return self.pairs(node, column),
            (Kind::Map, _) => return self.map(node, column),
            (Kind::Bytes, _) => return self.base64(node, column),
            (Kind::Boolean, Values::Flags(values)) => values.push(self.boolean()?),
            (Kind::Number, Values::Int64(values)) => match self.number()? {
                Number::Integer(number) => {
                    column.integers = true;
                    values.push(number);
                }
                Number::Other(number) => {
                    column.others = true;
                    values.push(number.to_bits() as i64);
                }
            },
            (Kind::Int32, Values::Int32(values)) => values.push(self.integer(node)? as i32),
            (Kind::Float32, Values::Float32(values)) => values.push(self.single()?),
            (Kind::Float64, Values::Float64(values)) => values.push(self.double()?),
            _ => return Err(Odd),
        }
        column.done();
        Ok(())
    }

    fn null(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        self.expect(b"null")?;
        if !node.nullable {
            return Err(Odd);
        }
        column.push_null();
        Ok(())
    }

    fn boolean(&mut self) -> Result<u8, Odd> {
        if self.peek() == b't' {
            self.expect(b"true").map(|()| 1)
        } else {
            self.expect(b"false").map(|()| 0)
        }
    }

    #[inline]
    fn integer(&mut self, node: &Node) -> Result<i64, Odd> {
        let number = match short_integer(self.data, self.at) {
            Some((number, end)) => {
                self.at = end;
                number
            }
            None => match self.number()? {
                Number::Integer(number) => number,
                Number::Other(_) => return Err(Odd),
            },
        };
        if node.min <= number && number <= node.max {
            Ok(number)
        } else {
            Err(Odd)
        }
    }

    #[inline]
    fn double(&mut self) -> Result<f64, Odd> {
        match self.number()? {
            Number::Integer(number) if number.unsigned_abs() <= EXACT => Ok(number as f64),
            Number::Integer(_) => Err(Odd),
            Number::Other(number) => Ok(number),
        }
    }

    /// Round to 64 bits and then to 32 bits. Odd if the result may differ from rounding once, which is possible halfway
    /// between two 32-bit floats and for subnormal numbers.
    fn single(&mut self) -> Result<f32, Odd> {
        let double = self.double()?;
        let single = double as f32;
        let is_halfway = double.to_bits() & FLOAT_REST == FLOAT_REST / 2 + 1;
        if (is_halfway || double.abs() < f64::from(f32::MIN_POSITIVE)) && f64::from(single) != double {
            return Err(Odd);
        }
        Ok(single)
    }

    #[inline]
    fn digits(&mut self, number: &mut u64, count: &mut usize) {
        while let Some(eight) = eight_at(self.data, self.at) {
            let (digits, found) = leading_digits(eight);
            *number = number.wrapping_mul(TENS[found]).wrapping_add(digits);
            *count += found;
            self.at += found;
            if found < 8 {
                return;
            }
        }
        while self.peek().is_ascii_digit() {
            *number = number.wrapping_mul(10).wrapping_add(u64::from(self.peek() - b'0'));
            *count += 1;
            self.at += 1;
        }
    }

    #[inline]
    fn number(&mut self) -> Result<Number, Odd> {
        let start = self.at;
        let negative = self.peek() == b'-';
        self.at += usize::from(negative);
        let zero_first = self.peek() == b'0';
        let (mut number, mut count) = (0, 0);
        self.digits(&mut number, &mut count);
        if count == 0 || zero_first && count > 1 {
            return Err(Odd);
        }
        if !matches!(self.peek(), b'.' | b'e' | b'E') {
            if negative && number == 0 {
                return Err(Odd); // only doubles have a negative zero
            }
            if count > 18 {
                return self.long_integer(start);
            }
            return Ok(Number::Integer(if negative { -(number as i64) } else { number as i64 }));
        }
        let mut exponent: i64 = 0;
        if self.peek() == b'.' {
            self.at += 1;
            let whole = count;
            self.digits(&mut number, &mut count);
            if count == whole {
                return Err(Odd);
            }
            exponent = -((count - whole) as i64);
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            let down = self.peek() == b'-';
            self.at += usize::from(matches!(self.peek(), b'-' | b'+'));
            let (mut power, mut places) = (0, 0);
            self.digits(&mut power, &mut places);
            if places == 0 || places > 6 {
                return Err(Odd);
            }
            exponent += if down { -(power as i64) } else { power as i64 };
        }
        let distance = exponent.unsigned_abs() as usize;
        if count <= 19 && number <= EXACT && distance < POWERS.len() {
            let exact = number as f64;
            let size = if exponent < 0 {
                exact / POWERS[distance]
            } else {
                exact * POWERS[distance]
            };
            return Ok(Number::Other(if negative { -size } else { size }));
        }
        let text = std::str::from_utf8(&self.data[start..self.at]).map_err(|_| Odd)?;
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Number::Other(number)),
            _ => Err(Odd),
        }
    }

    /// Parse an integer with many digits.
    fn long_integer(&mut self, start: usize) -> Result<Number, Odd> {
        let text = std::str::from_utf8(&self.data[start..self.at]).map_err(|_| Odd)?;
        text.parse().map(Number::Integer).map_err(|_| Odd)
    }

    /// Return the contents of a quoted string, and whether it contains escapes.
    #[inline]
    fn raw_text(&mut self) -> Result<(&'a [u8], bool), Odd> {
        if self.peek() != b'"' {
            return Err(Odd);
        }
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_bytes(&self.data[self.at..]);
            match self.peek() {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                    if self.at > self.data.len() {
                        return Err(Odd);
                    }
                }
                _ => return Err(Odd),
            }
        }
        let inside = &self.data[start..self.at];
        self.at += 1;
        Ok((inside, escaped))
    }

    #[inline]
    fn text(&mut self, column: &mut Column) -> Result<(), Odd> {
        if let Values::Bytes(ends, bytes) = &mut column.values {
            if let Some(end) = copied_text(self.data, self.at, bytes) {
                self.at = end;
                ends.push(i32::try_from(bytes.len()).map_err(|_| Odd)?);
                column.done();
                return Ok(());
            }
        }
        let (inside, escaped) = self.raw_text()?;
        if escaped {
            return column.push_bytes(&unescaped(inside)?);
        }
        column.push_bytes(inside)
    }

    /// Decode a base64 string. `min` is its minimum length.
    fn base64(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        let (inside, escaped) = self.raw_text()?;
        if escaped || (inside.len() as i64) < node.min {
            return Err(Odd);
        }
        column.push_bytes(&from_base64(inside)?)
    }

    fn list(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        self.expect(b"[")?;
        self.blanks();
        let item = &node.children[0];
        if self.peek() == b']' {
            self.at += 1;
        } else {
            loop {
                self.value(item, &mut column.children[0])?;
                self.blanks();
                match self.peek() {
                    b',' => self.at += 1,
                    b']' => break,
                    _ => return Err(Odd),
                }
                self.blanks();
            }
            self.at += 1;
        }
        column.end_list()
    }

    /// Decode an object with arbitrary names as a map. Odd if a name occurs twice.
    fn map(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        self.expect(b"{")?;
        self.blanks();
        let first = column.children[0].rows;
        if self.peek() == b'}' {
            self.at += 1;
            return column.end_list();
        }
        loop {
            let (name, escaped) = self.raw_text()?;
            if name.len() > MAX_NAME {
                return Err(Odd);
            }
            if escaped {
                column.children[0].push_bytes(&unescaped(name)?)?;
            } else {
                column.children[0].push_bytes(name)?;
            }
            self.blanks();
            self.expect(b":")?;
            self.blanks();
            self.value(&node.children[1], &mut column.children[1])?;
            self.blanks();
            let next = self.peek();
            self.at += 1;
            match next {
                b',' => self.blanks(),
                b'}' => break,
                _ => return Err(Odd),
            }
        }
        if repeats(&column.children[0], first) {
            return Err(Odd);
        }
        column.end_list()
    }

    /// Decode a list of key-value pairs as a map. Python checks for duplicate keys.
    fn pairs(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        self.expect(b"[")?;
        self.blanks();
        if self.peek() == b']' {
            self.at += 1;
            return column.end_list();
        }
        loop {
            self.expect(b"[")?;
            self.blanks();
            self.value(&node.children[0], &mut column.children[0])?;
            self.blanks();
            self.expect(b",")?;
            self.blanks();
            self.value(&node.children[1], &mut column.children[1])?;
            self.blanks();
            self.expect(b"]")?;
            self.blanks();
            let next = self.peek();
            self.at += 1;
            match next {
                b',' => self.blanks(),
                b']' => break,
                _ => return Err(Odd),
            }
        }
        column.end_list()
    }

    fn object(&mut self, node: &Node, column: &mut Column) -> Result<(), Odd> {
        self.expect(b"{")?;
        self.blanks();
        column.settle();
        let row = column.rows;
        let mut next = 0;
        let mut found = 0;
        if self.peek() == b'}' {
            self.at += 1;
        } else {
            loop {
                let known = self.member_name(node, next)?;
                self.blanks();
                match known {
                    Some(place) => {
                        let member = &mut column.children[place];
                        if member.rows != row {
                            return Err(Odd); // a repeated member
                        }
                        self.value(&node.children[place], member)?;
                        found += 1;
                        next = place + 1;
                    }
                    None if node.min == IGNORES_OTHERS => self.skip(0)?,
                    None => return Err(Odd),
                }
                self.blanks();
                match self.peek() {
                    b',' => self.at += 1,
                    b'}' => break,
                    _ => return Err(Odd),
                }
                self.blanks();
            }
            self.at += 1;
        }
        if found < node.children.len() {
            for (child, member) in node.children.iter().zip(&mut column.children) {
                if member.rows == row {
                    if !child.nullable {
                        return Err(Odd);
                    }
                    member.push_absent();
                }
            }
        }
        column.settled = row + 1;
        column.done();
        Ok(())
    }

    #[inline]
    fn member_name(&mut self, node: &Node, next: usize) -> Result<Option<usize>, Odd> {
        if let Some(child) = node.children.get(next) {
            if !child.quoted.is_empty() && begins(&self.data[self.at..], &child.quoted) {
                self.at += child.quoted.len();
                return Ok(Some(next));
            }
        }
        let (name, escaped) = self.raw_text()?;
        if name.len() > MAX_NAME {
            return Err(Odd);
        }
        self.blanks();
        self.expect(b":")?;
        Ok(if escaped {
            node.place(&unescaped(name)?, next)
        } else {
            node.place(name, next)
        })
    }

    /// Skip a value that is not in the plan.
    fn skip(&mut self, depth: usize) -> Result<(), Odd> {
        if depth > MAX_DEPTH {
            return Err(Odd);
        }
        let (open, close) = (self.peek(), if self.peek() == b'{' { b'}' } else { b']' });
        match open {
            b'"' => {
                return self
                    .raw_text()
                    .and_then(|(inside, escaped)| if escaped { unescaped(inside).map(drop) } else { Ok(()) })
            }
            b't' | b'f' => return self.boolean().map(drop),
            b'n' => return self.expect(b"null"),
            b'{' | b'[' => self.at += 1,
            _ => return self.number().map(drop),
        }
        self.blanks();
        if self.peek() == close {
            self.at += 1;
            return Ok(());
        }
        loop {
            if open == b'{' {
                self.skip_name()?;
            }
            self.skip(depth + 1)?;
            self.blanks();
            let next = self.peek();
            self.at += 1;
            if next == close {
                return Ok(());
            }
            if next != b',' {
                return Err(Odd);
            }
            self.blanks();
        }
    }

    fn skip_name(&mut self) -> Result<(), Odd> {
        let (name, escaped) = self.raw_text()?;
        if name.len() > MAX_NAME {
            return Err(Odd);
        }
        if escaped {
            unescaped(name)?;
        }
        self.blanks();
        self.expect(b":")?;
        self.blanks();
        Ok(())
    }
}

/// Return true if a string occurs twice in the rows starting at `first`.
fn repeats(column: &Column, first: usize) -> bool {
    let Values::Bytes(ends, data) = &column.values else {
        return false;
    };
    let string = |row: usize| &data[ends[row] as usize..ends[row + 1] as usize];
    if column.rows - first <= FEW_KEYS {
        return (first..column.rows).any(|row| (first..row).any(|other| string(row) == string(other)));
    }
    let mut strings = HashSet::new();
    (first..column.rows).any(|row| !strings.insert(string(row)))
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

#[inline]
fn zero_bytes(eight: u64) -> u64 {
    eight.wrapping_sub(ONES) & !eight & HIGHS
}

#[inline]
fn eight_at(data: &[u8], at: usize) -> Option<u64> {
    let chunk = data.get(at..at + 8)?;
    Some(u64::from_le_bytes(chunk.try_into().expect("eight bytes")))
}

/// Mark quotes, backslashes, and control characters in eight bytes. Only the lowest mark is exact.
#[inline]
fn special(eight: u64) -> u64 {
    let quote = zero_bytes(eight ^ (ONES * u64::from(b'"')));
    let backslash = zero_bytes(eight ^ (ONES * u64::from(b'\\')));
    let control = eight.wrapping_sub(ONES * 0x20) & !eight & HIGHS;
    quote | backslash | control
}

/// Return the number at the start of eight bytes and its number of digits.
#[inline]
fn leading_digits(eight: u64) -> (u64, usize) {
    let values = eight ^ (ONES * u64::from(b'0'));
    let others = (values.wrapping_add(ONES * 0x76) | values) & HIGHS; // exact up to the lowest mark
    let found = others.trailing_zeros() as usize / 8; // 8 if all bytes are digits
    if found == 0 {
        return (0, 0);
    }
    (number_of_eight(values << (8 * (8 - found))), found)
}

/// Return an unsigned integer of at most 16 digits and its end position. Returns None for other numbers.
#[inline]
fn short_integer(data: &[u8], at: usize) -> Option<(i64, usize)> {
    let first = eight_at(data, at)?;
    let (mut number, mut count) = leading_digits(first);
    if count == 8 {
        let (rest, more) = leading_digits(eight_at(data, at + 8)?);
        number = number * TENS[more] + rest;
        count += more;
    }
    let zero_first = first as u8 == b'0' && count > 1;
    match data.get(at + count)? {
        b'.' | b'e' | b'E' | b'0'..=b'9' => None,
        _ if count == 0 || zero_first => None,
        _ => Some((number as i64, at + count)),
    }
}

/// Return the number that consists of eight digit values, lowest byte first. Combines adjacent values in three steps.
#[inline]
fn number_of_eight(values: u64) -> u64 {
    let twos = values.wrapping_mul(10).wrapping_add(values >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = twos.wrapping_mul(100).wrapping_add(twos >> 16) & 0x0000_FFFF_0000_FFFF;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF
}

/// Return true if data starts with a short string. Inlined to avoid the cost of a call.
#[inline]
fn begins(data: &[u8], text: &[u8]) -> bool {
    let Some(head) = data.get(..text.len()) else {
        return false;
    };
    let Some(last) = text.len().checked_sub(8) else {
        return head.iter().zip(text).all(|(one, other)| one == other);
    };
    let mut at = 0;
    while at < last {
        if eight_at(head, at) != eight_at(text, at) {
            return false;
        }
        at += 8;
    }
    eight_at(head, last) == eight_at(text, last)
}

/// Copy the string whose opening quote is at `at` to `bytes`, eight bytes at a time, and return its end position.
///
/// Copies nothing and returns None if the string contains escapes or ends too close to the end of the data.
#[inline]
fn copied_text(data: &[u8], at: usize, bytes: &mut Vec<u8>) -> Option<usize> {
    if data.get(at) != Some(&b'"') {
        return None;
    }
    let (start, before) = (at + 1, bytes.len());
    let mut at = start;
    while let Some(eight) = eight_at(data, at) {
        bytes.extend_from_slice(&eight.to_le_bytes());
        let found = special(eight);
        if found != 0 {
            at += found.trailing_zeros() as usize / 8;
            if data[at] != b'"' {
                break;
            }
            bytes.truncate(before + at - start);
            return Some(at + 1);
        }
        at += 8;
    }
    bytes.truncate(before);
    None
}

/// Return the number of bytes before the first quote, backslash, or control character.
#[inline]
fn plain_bytes(data: &[u8]) -> usize {
    let mut at = 0;
    while let Some(eight) = eight_at(data, at) {
        let found = special(eight);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < data.len() && data[at] >= 0x20 && data[at] != b'"' && data[at] != b'\\' {
        at += 1;
    }
    at
}

fn unescaped(inside: &[u8]) -> Result<Vec<u8>, Odd> {
    let mut text = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(place) = rest.iter().position(|byte| *byte == b'\\') {
        text.extend_from_slice(&rest[..place]);
        rest = &rest[place + 1..];
        let (code, tail) = rest.split_first().ok_or(Odd)?;
        rest = tail;
        let plain = match code {
            b'"' | b'\\' | b'/' => *code,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = hex(rest)?;
                rest = &rest[4..];
                if (0xD800..0xDC00).contains(&unit) {
                    let low = hex(rest.strip_prefix(b"\\u").ok_or(Odd)?)?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return Err(Odd);
                    }
                    rest = &rest[6..];
                    unit = 0x10000 + ((unit - 0xD800) << 10 | (low - 0xDC00));
                }
                let character = char::from_u32(unit).ok_or(Odd)?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(Odd),
        };
        text.push(plain);
    }
    text.extend_from_slice(rest);
    Ok(text)
}

fn hex(text: &[u8]) -> Result<u32, Odd> {
    let digits = text.get(..4).ok_or(Odd)?;
    let mut unit = 0;
    for digit in digits {
        unit = unit << 4 | (*digit as char).to_digit(16).ok_or(Odd)?;
    }
    Ok(unit)
}

fn from_base64(text: &[u8]) -> Result<Vec<u8>, Odd> {
    if text.len() % 4 != 0 {
        return Err(Odd);
    }
    let padding = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut pending, mut bits) = (0u32, 0);
    for byte in &text[..text.len() - padding] {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(Odd),
        };
        pending = pending << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((pending >> bits) as u8);
            pending &= (1 << bits) - 1;
        }
    }
    if pending != 0 {
        return Err(Odd);
    }
    Ok(bytes)
}
