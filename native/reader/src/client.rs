//! Bindings to librdkafka's public functions, and a queue of its messages.

use crate::messages::Messages;
use std::ffi::{c_char, c_void};
use std::ptr;

/// `RD_KAFKA_RESP_ERR__FAIL`.
pub const FAILED: i32 = -196;

/// Opaque types of librdkafka.
#[repr(C)]
pub struct Client {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct RawQueue {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct Topic {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct RawHeaders {
    _opaque: [u8; 0],
}

/// `rd_kafka_message_t`, whose layout is part of librdkafka's public interface.
#[repr(C)]
pub struct RawMessage {
    pub error: i32,
    pub topic: *mut Topic,
    pub partition: i32,
    pub payload: *const u8,
    pub size: usize,
    pub key: *const u8,
    pub key_size: usize,
    pub offset: i64,
    _private: *mut c_void,
}

/// A message, or an error for a partition.
#[repr(C)]
pub struct Event {
    _opaque: [u8; 0],
}

/// The first fields of `rd_kafka_topic_partition_t`, whose layout is also public.
#[repr(C)]
pub struct Place {
    pub topic: *const c_char,
    pub partition: i32,
    pub offset: i64,
}

type OnNew = unsafe extern "C" fn(*mut Client, *const c_void, *mut c_void, *mut c_char, usize) -> i32;

/// Addresses of librdkafka's functions, in the order of `_CLIENT_FUNCTIONS` in `queue_reader.py`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Functions {
    pub add_on_new: unsafe extern "C" fn(*mut c_void, *const c_char, OnNew, *mut c_void) -> i32,
    queue_new: unsafe extern "C" fn(*mut Client) -> *mut RawQueue,
    queue_destroy: unsafe extern "C" fn(*mut RawQueue),
    queue_get_partition: unsafe extern "C" fn(*mut Client, *const c_char, i32) -> *mut RawQueue,
    queue_forward: unsafe extern "C" fn(*mut RawQueue, *mut RawQueue),
    queue_poll: unsafe extern "C" fn(*mut RawQueue, i32) -> *mut Event,
    pub event_destroy: unsafe extern "C" fn(*mut Event),
    pub event_message_next: unsafe extern "C" fn(*mut Event) -> *mut RawMessage,
    pub event_error: unsafe extern "C" fn(*mut Event) -> i32,
    pub message_timestamp: unsafe extern "C" fn(*const RawMessage, *mut i32) -> i64,
    pub message_headers: unsafe extern "C" fn(*const RawMessage, *mut *mut RawHeaders) -> i32,
    pub event_error_string: unsafe extern "C" fn(*mut Event) -> *const c_char,
    pub event_topic_partition: unsafe extern "C" fn(*mut Event) -> *mut Place,
    pub topic_partition_destroy: unsafe extern "C" fn(*mut Place),
    pub header_get_all:
        unsafe extern "C" fn(*const RawHeaders, usize, *mut *const c_char, *mut *const u8, *mut usize) -> i32,
    pub topic_name: unsafe extern "C" fn(*const Topic) -> *const c_char,
}

/// A separate queue, to which the queues of all followed partitions are forwarded.
pub struct Queue {
    functions: &'static Functions,
    client: *mut Client,
    queue: *mut RawQueue,
}

impl Queue {
    pub fn new(functions: &'static Functions, client: *mut Client) -> Queue {
        // SAFETY: the calling thread has just created the client.
        let queue = unsafe { (functions.queue_new)(client) };
        Queue {
            functions,
            client,
            queue,
        }
    }

    /// Forward a partition's messages to this queue, including messages of later assignments.
    ///
    /// # Safety
    /// `topic` is null-terminated.
    pub unsafe fn follow(&self, topic: *const c_char, partition: i32) -> bool {
        let source = (self.functions.queue_get_partition)(self.client, topic, partition);
        if source.is_null() {
            return false;
        }
        (self.functions.queue_forward)(source, self.queue);
        (self.functions.queue_destroy)(source);
        true
    }

    pub fn read(&self, messages: &mut Messages, limit: usize, size: usize, timeout_ms: i32) {
        let mut timeout_ms = timeout_ms;
        while messages.len() < limit && messages.bytes < size {
            // SAFETY: this object owns the queue. `messages` frees the event.
            let event = unsafe { (self.functions.queue_poll)(self.queue, timeout_ms) };
            if event.is_null() {
                return;
            }
            messages.add(event);
            timeout_ms = 0;
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the contract of `reader_free` guarantees that the client still exists.
        unsafe { (self.functions.queue_destroy)(self.queue) };
        self.queue = ptr::null_mut();
    }
}
