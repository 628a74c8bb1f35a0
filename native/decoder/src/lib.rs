//! JSON and Avro messages to Arrow buffers: what `connect_py.converters.native` calls.
//!
//! Messages come joined, with their lengths. Rows that are not as the plan says are null in the columns and named, for
//! Python to look at: nothing is ever guessed. All that is unsafe is in this file: memory that crosses to Python.

mod avro;
mod columns;
mod json;
mod plan;

use columns::{bits, Column, Odd, Values};
use plan::Node;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::slice;

const NO_MESSAGE: i64 = -1;
/// Of plans, numbers and buffers as they cross to Python; `VERSION` in `library.py` is the same.
const VERSION: u32 = 1;

/// Which form of calls this library speaks.
#[no_mangle]
pub extern "C" fn decoder_version() -> u32 {
    VERSION
}

/// Make a plan of its description; null: it is none. `decoder_plan_free` frees it.
///
/// # Safety
/// `description` points to `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn decoder_plan(description: *const u8, size: usize) -> *mut Node {
    let description = slice::from_raw_parts(description, size);
    match catch_unwind(|| plan::plan(description)) {
        Ok(Some(node)) => Box::into_raw(Box::new(node)),
        _ => ptr::null_mut(),
    }
}

/// # Safety
/// `plan` comes from `decoder_plan` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn decoder_plan_free(plan: *mut Node) {
    drop(Box::from_raw(plan));
}

/// Read messages: JSON texts (`is_avro` 0), or Avro bodies behind `prefix`.
///
/// Fills `odd` with a 1 for each row that is not as the plan says, and `out` with 20 numbers per node, in preorder: rows,
/// nulls, absent rows, kinds of numbers, then address, size in bytes, capacity and bytes per item of four buffers:
/// validity bits, absence bits, values or ends, data.
/// Returns how many rows are odd; negative: nothing was made. Each buffer is freed by `decoder_buffer_free`.
///
/// # Safety
/// `plan` comes from `decoder_plan`; `lengths` and `odd` have `rows` items, `data` as many bytes as the lengths say that
/// are not -1 (no message), `prefix` has `prefix_size` bytes, `out` has room.
#[no_mangle]
pub unsafe extern "C" fn decoder_read(
    plan: *const Node,
    is_avro: u8,
    prefix: *const u8,
    prefix_size: usize,
    data: *const u8,
    data_size: usize,
    lengths: *const i64,
    rows: usize,
    odd: *mut u8,
    out: *mut u64,
) -> i64 {
    let node = &*plan;
    let prefix = slice::from_raw_parts(prefix, prefix_size);
    let data = slice::from_raw_parts(data, data_size);
    let lengths = slice::from_raw_parts(lengths, rows);
    let odd = slice::from_raw_parts_mut(odd, rows);
    let form = if is_avro == 0 {
        Form::Json
    } else {
        Form::Avro {
            prefix,
            checks_texts: false,
        }
    };
    let work = || read(node, form, data, lengths, odd);
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Some((mut column, count))) => {
            column.finish();
            let mut out = Out(out);
            hand_over(column, &mut out);
            count
        }
        _ => -1,
    }
}

/// # Safety
/// The numbers are those of a buffer of `decoder_read`, which is not used again.
#[no_mangle]
pub unsafe extern "C" fn decoder_buffer_free(address: u64, capacity: u64, item: u64) {
    let capacity = capacity as usize;
    match item {
        1 => drop(Vec::from_raw_parts(address as *mut u8, 0, capacity)),
        4 => drop(Vec::from_raw_parts(address as *mut u32, 0, capacity)),
        _ => drop(Vec::from_raw_parts(address as *mut u64, 0, capacity)),
    }
}

#[derive(Clone, Copy)]
enum Form<'a> {
    Json,
    Avro { prefix: &'a [u8], checks_texts: bool },
}

impl Form<'_> {
    fn read(self, node: &Node, column: &mut Column, message: &[u8]) -> Result<(), Odd> {
        match self {
            Form::Json => json::read(node, column, message),
            Form::Avro { prefix, checks_texts } => {
                avro::read(node, column, message.strip_prefix(prefix).ok_or(Odd)?, checks_texts)
            }
        }
    }
}

fn read(node: &Node, form: Form, data: &[u8], lengths: &[i64], odd: &mut [u8]) -> Option<(Column, i64)> {
    let mut column = Column::new(node, lengths.len());
    let mut at = 0;
    let mut count = 0;
    for (row, length) in lengths.iter().enumerate() {
        if *length == NO_MESSAGE {
            column.push_null();
            continue;
        }
        let end = at + usize::try_from(*length).ok()?;
        let message = data.get(at..end)?;
        at = end;
        if form.read(node, &mut column, message).is_err() {
            column.cut(row);
            column.push_null();
            odd[row] = 1;
            count += 1;
        }
    }
    match form {
        Form::Avro {
            prefix,
            checks_texts: false,
        } if !column.is_utf8(node) => {
            odd.fill(0);
            read(
                node,
                Form::Avro {
                    prefix,
                    checks_texts: true,
                },
                data,
                lengths,
                odd,
            )
        }
        _ => Some((column, count)),
    }
}

/// Where `decoder_read` writes.
struct Out(*mut u64);

impl Out {
    fn number(&mut self, number: u64) {
        // SAFETY: the caller made room for 20 numbers per node, and `hand_over` writes as many.
        unsafe {
            self.0.write(number);
            self.0 = self.0.add(1);
        }
    }

    fn buffer<T>(&mut self, items: Vec<T>) {
        let mut items = ManuallyDrop::new(items);
        let size = std::mem::size_of::<T>();
        self.number(if items.capacity() == 0 {
            0
        } else {
            items.as_mut_ptr() as u64
        });
        self.number((items.len() * size) as u64);
        self.number(items.capacity() as u64);
        self.number(size as u64);
    }
}

fn hand_over(column: Column, out: &mut Out) {
    let count = |flags: &[u8], wanted| flags.iter().filter(|flag| **flag == wanted).count() as u64;
    out.number(column.rows as u64);
    out.number(count(&column.valid, 0));
    out.number(count(&column.absent, 1));
    out.number(u64::from(column.integers) | u64::from(column.others) << 1);
    out.buffer(bits(&column.valid));
    out.buffer(bits(&column.absent));
    let mut bytes = Vec::new();
    match column.values {
        Values::None => out.buffer(Vec::<u8>::new()),
        Values::Flags(values) => out.buffer(bits(&values)),
        Values::Int32(values) | Values::List(values) => out.buffer(values),
        Values::Int64(values) => out.buffer(values),
        Values::Float32(values) => out.buffer(values),
        Values::Float64(values) => out.buffer(values),
        Values::Fixed(values, _) => out.buffer(values),
        Values::Bytes(ends, data) => {
            bytes = data;
            out.buffer(ends);
        }
    }
    bytes.shrink_to_fit();
    out.buffer(bytes);
    for child in column.children {
        hand_over(child, out);
    }
}
