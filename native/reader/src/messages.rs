//! Messages that were read from a queue, and the runs in which they are copied to Python.

use crate::client::{Event, Functions, Place, RawHeaders, RawMessage, Topic};
use std::ffi::{c_char, CStr};
use std::ops::Range;
use std::ptr;
use std::slice;

/// A message of librdkafka, which is valid as long as its event.
pub struct Message {
    raw: *mut RawMessage,
    event: *mut Event,
    pub timestamp: i64,
    timestamp_kind: i32,
}

impl Message {
    fn raw(&self) -> &RawMessage {
        // SAFETY: the message is valid until `Messages::release` destroys its event, which also resets `raw`.
        unsafe { &*self.raw }
    }

    pub fn key(&self) -> Option<&[u8]> {
        bytes(self.raw().key, self.raw().key_size)
    }

    pub fn value(&self) -> Option<&[u8]> {
        bytes(self.raw().payload, self.raw().size)
    }

    pub fn partition(&self) -> i32 {
        self.raw().partition
    }

    pub fn offset(&self) -> i64 {
        self.raw().offset
    }
}

fn bytes<'a>(address: *const u8, size: usize) -> Option<&'a [u8]> {
    // SAFETY: librdkafka provides the address and size in a message that is still valid.
    (!address.is_null()).then(|| unsafe { slice::from_raw_parts(address, size) })
}

/// Consecutive messages with the same topic and timestamp type.
#[derive(Default)]
pub struct Run {
    messages: Range<usize>,
    pub topic: usize,
    pub timestamp_kind: i32,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Packed headers; empty if no message has headers. They consist of the number of headers of each message, followed
    /// by its headers. A header consists of the length of its name, the name, the length of its value (-1 if it is
    /// null), and the value. All numbers have 4 bytes.
    pub headers: Vec<u8>,
    pub lasts: Vec<i64>,
}

impl Run {
    pub fn rows(&self) -> usize {
        self.messages.len()
    }
}

/// An error that librdkafka reports for a partition.
pub struct Failure {
    pub code: i64,
    pub partition: i64,
    pub offset: i64,
    pub topic: i64,
    pub text: i64,
}

/// Messages of one poll. Errors are returned first, then runs. `clear` frees all remaining messages.
pub struct Messages {
    functions: &'static Functions,
    place: *mut Place, // location of the error that was returned last
    records: Vec<Message>,
    errors: Vec<*mut Event>,
    errors_returned: usize,
    runs_to: usize,
    pub bytes: usize,
}

impl Messages {
    pub fn new(functions: &'static Functions) -> Messages {
        Messages {
            functions,
            place: ptr::null_mut(),
            records: Vec::new(),
            errors: Vec::new(),
            errors_returned: 0,
            runs_to: 0,
            bytes: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.records.len() + self.errors.len()
    }

    /// Add an event of the queue.
    pub fn add(&mut self, event: *mut Event) {
        // SAFETY: this object owns the event and its message until the event is destroyed. Errors have no message.
        let raw = unsafe { (self.functions.event_message_next)(event) };
        if raw.is_null() {
            self.errors.push(event);
            return;
        }
        let mut kind = 0;
        // SAFETY: as above.
        let (message, timestamp) = unsafe { (&*raw, (self.functions.message_timestamp)(raw, &mut kind)) };
        self.bytes += message.size + message.key_size;
        self.records.push(Message {
            raw,
            event,
            timestamp,
            timestamp_kind: kind,
        });
    }

    fn forget_place(&mut self) {
        if !self.place.is_null() {
            // SAFETY: this object owns the location.
            unsafe { (self.functions.topic_partition_destroy)(self.place) };
            self.place = ptr::null_mut();
        }
    }

    pub fn next_error(&mut self) -> Option<Failure> {
        self.forget_place();
        let event = *self.errors.get(self.errors_returned)?;
        self.errors_returned += 1;
        let f = self.functions;
        // SAFETY: this object owns the event until `clear`.
        let (code, text) = unsafe { ((f.event_error)(event), (f.event_error_string)(event)) };
        // SAFETY: as above. This object owns the location until `forget_place`.
        self.place = unsafe { (f.event_topic_partition)(event) };
        let place = unsafe { self.place.as_ref() };
        Some(Failure {
            code: i64::from(code),
            partition: place.map_or(-1, |p| i64::from(p.partition)),
            offset: place.map_or(-1, |p| p.offset),
            topic: place.map_or(0, |p| p.topic as i64),
            text: text as i64,
        })
    }

    fn name(&self, topic: *const Topic) -> *const c_char {
        if topic.is_null() {
            return ptr::null();
        }
        // SAFETY: a topic is valid as long as one of its messages.
        unsafe { (self.functions.topic_name)(topic) }
    }

    pub fn next_run(&mut self) -> Option<Run> {
        let start = self.runs_to;
        let first = self.records.get(start)?;
        let (topic, timestamp_kind) = (first.raw().topic, first.timestamp_kind);
        let mut run = Run {
            topic: self.name(topic) as usize,
            timestamp_kind,
            ..Run::default()
        };
        let mut end = start;
        let mut has_headers = false;
        for message in &self.records[start..] {
            let raw = message.raw();
            if raw.topic != topic || message.timestamp_kind != timestamp_kind {
                break;
            }
            if end > start && raw.partition != self.records[end - 1].raw().partition {
                run.lasts.push((end - 1 - start) as i64);
            }
            run.key_bytes += message.key().map_or(0, <[u8]>::len);
            run.value_bytes += message.value().map_or(0, <[u8]>::len);
            has_headers |= self.headers(message).is_some();
            end += 1;
        }
        run.lasts.push((end - 1 - start) as i64);
        run.messages = start..end;
        self.runs_to = end;
        if has_headers {
            for message in &self.records[start..end] {
                self.pack_headers(message, &mut run.headers);
            }
        }
        Some(run)
    }

    fn headers(&self, message: &Message) -> Option<*const RawHeaders> {
        let mut headers = ptr::null_mut();
        // SAFETY: this object owns the message, which owns its headers.
        let error = unsafe { (self.functions.message_headers)(message.raw, &mut headers) };
        (error == 0 && !headers.is_null()).then_some(headers as *const RawHeaders)
    }

    fn pack_headers(&self, message: &Message, packed: &mut Vec<u8>) {
        let count_at = packed.len();
        packed.extend([0; 4]);
        let Some(headers) = self.headers(message) else {
            return;
        };
        let mut count = 0u32;
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: headers are valid as long as their message. librdkafka sets all three variables if it returns 0.
        while unsafe { (self.functions.header_get_all)(headers, count as usize, &mut name, &mut value, &mut size) } == 0
        {
            let name = unsafe { CStr::from_ptr(name) }.to_bytes();
            packed.extend((name.len() as u32).to_le_bytes());
            packed.extend(name);
            match bytes(value, size) {
                Some(value) => {
                    packed.extend((value.len() as i32).to_le_bytes());
                    packed.extend(value);
                }
                None => packed.extend((-1i32).to_le_bytes()),
            }
            count += 1;
        }
        packed[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    }

    pub fn of(&self, run: &Run) -> &[Message] {
        &self.records[run.messages.clone()]
    }

    /// Free the messages of a run.
    pub fn release(&mut self, run: &Run) {
        for message in &mut self.records[run.messages.clone()] {
            message.raw = ptr::null_mut();
            let event = std::mem::replace(&mut message.event, ptr::null_mut());
            // SAFETY: this object owned the event, and nothing references it.
            unsafe { (self.functions.event_destroy)(event) };
        }
    }

    /// Free all messages and errors that have not been freed yet.
    pub fn clear(&mut self) {
        self.forget_place();
        let left = self.records.iter().map(|m| m.event).filter(|e| !e.is_null());
        for event in left.chain(self.errors.iter().copied()) {
            // SAFETY: as in `release`.
            unsafe { (self.functions.event_destroy)(event) };
        }
        self.records.clear();
        self.errors.clear();
        self.errors_returned = 0;
        self.runs_to = 0;
        self.bytes = 0;
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.clear();
    }
}
