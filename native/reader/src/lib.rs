//! What waits in a consumer's queue, as few large pieces of memory: what `connect_py.task.sink.queue_reader` calls.
//!
//! The client is the one that Python has made. Its library loads this one as a plugin (`plugin.library.paths`), which is
//! how the handle of a client gets here; its functions come from Python as addresses, so nothing is linked. Messages are
//! read from a queue of our own, which the queues of partitions are forwarded to, as events: so no callback of the client
//! runs in here. Rebalances and all that Python has callbacks for stay in the client's main queue, which Python polls.

mod client;
mod messages;

use client::{Client, Functions, Queue};
use messages::{Messages, Run};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

/// Of what crosses to Python; `VERSION` in `queue_reader.py` is the same.
const VERSION: u32 = 2;

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

thread_local! {
    static NEW_CLIENT: Cell<*mut Client> = const { Cell::new(ptr::null_mut()) };
}

/// A queue, and what was read from it and not yet handed over.
pub struct Reader {
    queue: Queue,
    messages: Messages,
    run: Run,
}

#[no_mangle]
pub extern "C" fn reader_version() -> u32 {
    VERSION
}

/// Take the addresses of the client library's functions, in the order of `Functions`. Those of the first call hold.
///
/// # Safety
/// `addresses` has as many items as `Functions` has members, and they are what they are said to be.
#[no_mangle]
pub unsafe extern "C" fn reader_functions(addresses: *const *const c_void) {
    let functions = ptr::read(addresses as *const Functions);
    let _ = FUNCTIONS.set(functions);
}

/// The client library calls this as it takes the setting `plugin.library.paths`.
///
/// # Safety
/// Called by the client library.
#[no_mangle]
pub unsafe extern "C" fn conf_init(
    configuration: *mut c_void,
    _opaque: *mut *mut c_void,
    _error: *mut c_char,
    _error_size: usize,
) -> i32 {
    match FUNCTIONS.get() {
        Some(f) => (f.add_on_new)(configuration, c"connect-py".as_ptr(), on_new, ptr::null_mut()),
        None => client::FAILED,
    }
}

unsafe extern "C" fn on_new(
    client: *mut Client,
    _configuration: *const c_void,
    _opaque: *mut c_void,
    _error: *mut c_char,
    _error_size: usize,
) -> i32 {
    NEW_CLIENT.set(client);
    0
}

/// A reader of the client that this thread has made last, null if there is none. `reader_free` frees it.
#[no_mangle]
pub extern "C" fn reader_new() -> *mut Reader {
    let client = NEW_CLIENT.replace(ptr::null_mut());
    match FUNCTIONS.get() {
        Some(functions) if !client.is_null() => Box::into_raw(Box::new(Reader {
            queue: Queue::new(functions, client),
            messages: Messages::new(functions),
            run: Run::default(),
        })),
        _ => ptr::null_mut(),
    }
}

/// # Safety
/// `reader` comes from `reader_new`, is not used again, and its client has not been closed.
#[no_mangle]
pub unsafe extern "C" fn reader_free(reader: *mut Reader) {
    drop(Box::from_raw(reader));
}

/// Read this partition's messages from now on; 0: the client does not know it.
///
/// # Safety
/// `reader` comes from `reader_new`, `topic` ends with a zero.
#[no_mangle]
pub unsafe extern "C" fn reader_follow(reader: *mut Reader, topic: *const c_char, partition: i32) -> i32 {
    i32::from((*reader).queue.follow(topic, partition))
}

/// Wait for a message, then read what is there: at most `limit` messages, and not much more than `size` bytes of them.
///
/// Returns how many were read, those that carry errors included.
///
/// # Safety
/// `reader` comes from `reader_new`.
#[no_mangle]
pub unsafe extern "C" fn reader_poll(reader: *mut Reader, limit: usize, size: usize, timeout_ms: i32) -> usize {
    let reader = &mut *reader;
    reader.messages.clear();
    reader.queue.read(&mut reader.messages, limit, size, timeout_ms);
    reader.messages.len()
}

/// Look for the next message with an error. Fills in its code, partition, offset, and the addresses of its topic and text,
/// which stay until the next call. 0: there is none.
///
/// # Safety
/// `reader` comes from `reader_new`, `out` has room for 5 numbers.
#[no_mangle]
pub unsafe extern "C" fn reader_error(reader: *mut Reader, out: *mut i64) -> i32 {
    match (*reader).messages.next_error() {
        Some(error) => {
            let numbers = [error.code, error.partition, error.offset, error.topic, error.text];
            ptr::copy_nonoverlapping(numbers.as_ptr(), out, numbers.len());
            1
        }
        None => 0,
    }
}

/// Look for the next run of messages of one topic and kind of timestamp. Fills in how many they are, the address of the
/// topic's name, the kind of timestamps, how often the partition changes, and bytes of keys, values and packed headers (0:
/// no message has any). 0: there is none.
///
/// # Safety
/// `reader` comes from `reader_new`, `out` has room for 7 numbers.
#[no_mangle]
pub unsafe extern "C" fn reader_run(reader: *mut Reader, out: *mut i64) -> i32 {
    let reader = &mut *reader;
    match reader.messages.next_run() {
        Some(run) => {
            let numbers = [
                run.rows() as i64,
                run.topic as i64,
                i64::from(run.timestamp_kind),
                run.lasts.len() as i64,
                run.key_bytes as i64,
                run.value_bytes as i64,
                run.headers.len() as i64,
            ];
            ptr::copy_nonoverlapping(numbers.as_ptr(), out, numbers.len());
            reader.run = run;
            1
        }
        None => 0,
    }
}

/// Where `reader_take` puts a run: `rows` items each, lengths -1 where there is no key or value.
#[repr(C)]
pub struct Room {
    keys: *mut u8,
    key_lengths: *mut i64,
    values: *mut u8,
    value_lengths: *mut i64,
    headers: *mut u8,
    partitions: *mut i32,
    offsets: *mut i64,
    timestamps: *mut i64,
    /// The last message of the run, and those before which the partition is another than behind.
    lasts: *mut i64,
}

/// Copy the run that `reader_run` found, and let go of its messages.
///
/// # Safety
/// `reader` comes from `reader_new`, and `room` has as much room as `reader_run` said.
#[no_mangle]
pub unsafe extern "C" fn reader_take(reader: *mut Reader, room: *const Room) {
    let reader = &mut *reader;
    let room = &*room;
    let run = std::mem::take(&mut reader.run);
    let rows = run.rows();
    let mut keys = slice::from_raw_parts_mut(room.keys, run.key_bytes);
    let mut values = slice::from_raw_parts_mut(room.values, run.value_bytes);
    let key_lengths = slice::from_raw_parts_mut(room.key_lengths, rows);
    let value_lengths = slice::from_raw_parts_mut(room.value_lengths, rows);
    let partitions = slice::from_raw_parts_mut(room.partitions, rows);
    let offsets = slice::from_raw_parts_mut(room.offsets, rows);
    let timestamps = slice::from_raw_parts_mut(room.timestamps, rows);
    for (row, message) in reader.messages.of(&run).iter().enumerate() {
        key_lengths[row] = put(&mut keys, message.key());
        value_lengths[row] = put(&mut values, message.value());
        partitions[row] = message.partition();
        offsets[row] = message.offset();
        timestamps[row] = message.timestamp;
    }
    slice::from_raw_parts_mut(room.headers, run.headers.len()).copy_from_slice(&run.headers);
    slice::from_raw_parts_mut(room.lasts, run.lasts.len()).copy_from_slice(&run.lasts);
    reader.messages.release(&run);
}

/// Copy bytes to the beginning of the room and leave the rest of it.
fn put(room: &mut &mut [u8], bytes: Option<&[u8]>) -> i64 {
    let Some(bytes) = bytes else {
        return -1;
    };
    let (here, rest) = std::mem::take(room).split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    *room = rest;
    bytes.len() as i64
}
