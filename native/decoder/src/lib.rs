//! Decodes JSON and Avro messages to Arrow buffers, for `connect_py.converters.native`.
//!
//! The input consists of concatenated messages and a list of their lengths. Messages that do not match the plan are
//! null in the columns and are reported to Python, which decides how to handle them. Only this file contains unsafe
//! code, for the memory that is shared with Python.

mod avro;
mod columns;
mod json;
mod plan;

use columns::{bits, Column, Odd, Values};
use plan::Node;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::slice;

const NO_MESSAGE: i64 = -1;
/// Version of plans, counts, and arrays; equal to `VERSION` in `decoder.py`.
const VERSION: u32 = 3;

/// Return the version of the interface.
#[no_mangle]
pub extern "C" fn decoder_version() -> u32 {
    VERSION
}

/// Create a plan from its description. Returns null if the description is invalid. Free the plan with
/// `decoder_plan_free`.
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
/// `plan` is a result of `decoder_plan` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn decoder_plan_free(plan: *mut Node) {
    drop(Box::from_raw(plan));
}

/// Decode JSON messages (if `is_avro` is 0) or Avro messages, each of which starts with `prefix`.
///
/// Writes 1 to `odd` for each row that does not match the plan, and one `Exported` per node to `out`, in preorder.
/// Returns the number of odd rows, or a negative number on failure. Free arrays that are not imported with
/// `decoder_release`.
///
/// # Safety
/// `plan` is a result of `decoder_plan`. `lengths` and `odd` have `rows` items. A length of -1 represents a missing
/// message, and the sum of all other lengths is at most `data_size`. `prefix` has `prefix_size` bytes, and `out` has
/// space for all nodes.
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
    out: *mut Exported,
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
            export(column, node, &mut Out(out));
            count
        }
        _ => -1,
    }
}

/// Free the arrays that were not imported.
///
/// # Safety
/// `decoder_read` has filled `out` for a plan with this number of nodes.
#[no_mangle]
pub unsafe extern "C" fn decoder_release(out: *mut Exported, nodes: usize) {
    for node in slice::from_raw_parts_mut(out, nodes) {
        for array in [&mut node.values, &mut node.valid, &mut node.absent] {
            if let Some(release) = array.release {
                release(array);
            }
        }
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

/// Array in the layout of the Arrow C data interface, which Python imports with a single call.
#[repr(C)]
pub struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    buffer_count: i64,
    child_count: i64,
    buffers: *const *const c_void,
    children: *const c_void,
    dictionary: *const c_void,
    /// None if the array does not exist, or if it was imported, which moves it.
    release: Option<unsafe extern "C" fn(*mut Array)>,
    owner: *mut c_void,
}

/// Owns the buffers of an array.
struct Owner {
    addresses: [*const c_void; 3],
    _valid: Vec<u8>,
    _values: Values,
}

unsafe extern "C" fn release(array: *mut Array) {
    drop(Box::from_raw((*array).owner as *mut Owner));
    (*array).release = None;
}

impl Array {
    const NONE: Array = Array {
        length: 0,
        null_count: 0,
        offset: 0,
        buffer_count: 0,
        child_count: 0,
        buffers: ptr::null(),
        children: ptr::null(),
        dictionary: ptr::null(),
        release: None,
        owner: ptr::null_mut(),
    };

    fn new(length: usize, null_count: usize, valid: Vec<u8>, values: Values) -> Array {
        let (first, second) = match &values {
            Values::None => (ptr::null(), None),
            Values::Flags(items) => (items.as_ptr() as *const c_void, None),
            Values::Int32(items) | Values::List(items) => (items.as_ptr() as *const c_void, None),
            Values::Int64(items) => (items.as_ptr() as *const c_void, None),
            Values::Float32(items) => (items.as_ptr() as *const c_void, None),
            Values::Float64(items) => (items.as_ptr() as *const c_void, None),
            Values::Bytes(ends, data) => (ends.as_ptr() as *const c_void, Some(data.as_ptr() as *const c_void)),
        };
        let nulls = if null_count == 0 {
            ptr::null()
        } else {
            valid.as_ptr() as *const c_void
        };
        let owner = Box::new(Owner {
            addresses: [nulls, first, second.unwrap_or(ptr::null())],
            _valid: valid,
            _values: values,
        });
        Array {
            length: length as i64,
            null_count: null_count as i64,
            buffer_count: if second.is_some() { 3 } else { 2 },
            buffers: owner.addresses.as_ptr(),
            release: Some(release),
            owner: Box::into_raw(owner) as *mut c_void,
            ..Array::NONE
        }
    }

    /// Create an array of bits, or `Array::NONE` if there are no flags.
    fn of_bits(flags: &[u8]) -> Array {
        if flags.is_empty() {
            return Array::NONE;
        }
        Array::new(flags.len(), 0, Vec::new(), Values::Flags(bits(flags)))
    }
}

/// Counts and arrays of a node, in the layout that `decoder.py` expects.
#[repr(C)]
pub struct Exported {
    rows: u64,
    nulls: u64,
    absent_rows: u64,
    /// 1 for integers, 2 for other numbers, 3 for both.
    number_kinds: u64,
    /// Values of the rows. Lists and maps have the end offsets of their rows, and objects have no array.
    values: Array,
    /// Validity bits of objects, lists, and maps if they contain nulls.
    valid: Array,
    /// Bits of the rows in which the member is absent, if any.
    absent: Array,
}

/// Write position in the output of `decoder_read`.
struct Out(*mut Exported);

impl Out {
    fn node(&mut self, node: Exported) {
        // SAFETY: the caller allocated space for all nodes, and `export` writes one per node.
        unsafe {
            self.0.write(node);
            self.0 = self.0.add(1);
        }
    }
}

fn export(column: Column, node: &Node, out: &mut Out) {
    let count = |flags: &[u8], wanted| flags.iter().filter(|flag| **flag == wanted).count();
    let rows = column.rows;
    let nulls = count(&column.valid, 0);
    let (values, valid) = match column.values {
        Values::None => (Array::NONE, Array::of_bits(&column.valid)),
        Values::List(ends) => (
            Array::new(rows + 1, 0, Vec::new(), Values::List(ends)),
            Array::of_bits(&column.valid),
        ),
        Values::Flags(flags) => (
            Array::new(rows, nulls, bits(&column.valid), Values::Flags(bits(&flags))),
            Array::NONE,
        ),
        Values::Bytes(ends, mut data) => {
            data.shrink_to_fit();
            (
                Array::new(rows, nulls, bits(&column.valid), Values::Bytes(ends, data)),
                Array::NONE,
            )
        }
        values => (Array::new(rows, nulls, bits(&column.valid), values), Array::NONE),
    };
    out.node(Exported {
        rows: rows as u64,
        nulls: nulls as u64,
        absent_rows: count(&column.absent, 1) as u64,
        number_kinds: u64::from(column.integers) | u64::from(column.others) << 1,
        values,
        valid,
        absent: Array::of_bits(&column.absent),
    });
    for (child, node) in column.children.into_iter().zip(&node.children) {
        export(child, node, out);
    }
}
