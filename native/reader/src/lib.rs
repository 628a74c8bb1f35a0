//! Reads the messages of a Kafka consumer into large buffers, for `connect_py.task.sink.queue_reader`.
//!
//! Python creates the client. librdkafka loads this library as a plugin (`plugin.library.paths`), which provides the
//! handle of the client. Python passes the addresses of librdkafka's functions, so this library does not link to
//! librdkafka. Messages are read as events from a separate queue, to which the queues of the partitions are forwarded.
//! Therefore, no callbacks of the client run in this library. Rebalances and all other events with Python callbacks
//! remain in the client's main queue, which Python polls.

mod client;
mod messages;

use client::{Client, Functions, Queue};
use messages::{Messages, Run};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

/// Version of the interface to Python; equal to `VERSION` in `queue_reader.py`.
const VERSION: u32 = 2;

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

thread_local! {
    static NEW_CLIENT: Cell<*mut Client> = const { Cell::new(ptr::null_mut()) };
}

/// A queue, and the messages that were read from it but not copied to Python yet.
pub struct Reader {
    queue: Queue,
    messages: Messages,
    run: Run,
}

#[no_mangle]
pub extern "C" fn reader_version() -> u32 {
    VERSION
}

/// Set the addresses of librdkafka's functions, in the order of `Functions`. Later calls have no effect.
///
/// # Safety
/// `addresses` contains the address of each function in `Functions`.
#[no_mangle]
pub unsafe extern "C" fn reader_functions(addresses: *const *const c_void) {
    let functions = ptr::read(addresses as *const Functions);
    let _ = FUNCTIONS.set(functions);
}

/// Initialize the plugin. librdkafka calls this function when `plugin.library.paths` is set.
///
/// # Safety
/// Called only by librdkafka.
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

/// Create a reader for the client that this thread created last. Returns null if there is none. Free the reader with
/// `reader_free`.
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
/// `reader` is a result of `reader_new` and is not used again, and its client has not been closed.
#[no_mangle]
pub unsafe extern "C" fn reader_free(reader: *mut Reader) {
    drop(Box::from_raw(reader));
}

/// Forward the messages of a partition to this reader. Returns 0 if the client does not know the partition.
///
/// # Safety
/// `reader` is a result of `reader_new`, and `topic` is null-terminated.
#[no_mangle]
pub unsafe extern "C" fn reader_follow(reader: *mut Reader, topic: *const c_char, partition: i32) -> i32 {
    i32::from((*reader).queue.follow(topic, partition))
}

/// Wait for a message, then read the available messages: at most `limit` messages and about `size` bytes.
///
/// Returns the number of messages, including errors.
///
/// # Safety
/// `reader` is a result of `reader_new`.
#[no_mangle]
pub unsafe extern "C" fn reader_poll(reader: *mut Reader, limit: usize, size: usize, timeout_ms: i32) -> usize {
    let reader = &mut *reader;
    reader.messages.clear();
    reader.queue.read(&mut reader.messages, limit, size, timeout_ms);
    reader.messages.len()
}

/// Write the code, partition, and offset of the next error to `out`, and the addresses of its topic and message.
///
/// The addresses are valid until the next call. Returns 0 if there are no more errors.
///
/// # Safety
/// `reader` is a result of `reader_new`, and `out` has space for 5 numbers.
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

/// Find the next run of messages with the same topic and timestamp type, and describe it in `out`.
///
/// Writes the number of messages, the address of the topic name, the timestamp type, the number of items in `lasts`,
/// and the sizes of the keys, values, and packed headers in bytes (0 if no message has headers). Returns 0 if there are
/// no more runs.
///
/// # Safety
/// `reader` is a result of `reader_new`, and `out` has space for 7 numbers.
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

/// Addresses to which `reader_take` copies a run. A length is -1 if the message has no key or value.
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
    /// Indexes of messages after which the partition changes, and of the last message of the run.
    lasts: *mut i64,
}

/// Copy the run that `reader_run` found, and free its messages.
///
/// # Safety
/// `reader` is a result of `reader_new`, and `room` has the space that `reader_run` returned.
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

/// Copy bytes to the start of `room`, and advance it to the remaining space.
fn put(room: &mut &mut [u8], bytes: Option<&[u8]>) -> i64 {
    let Some(bytes) = bytes else {
        return -1;
    };
    let (here, rest) = std::mem::take(room).split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    *room = rest;
    bytes.len() as i64
}
