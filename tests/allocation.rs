//! How much memory hostile payloads can make the decoders take: no more than a small multiple of what was sent.
#![expect(unsafe_code, reason = "an allocator that counts cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use mqkv::protocol::frame::Frame;
use mqkv::protocol::request::{CommandCase, Request};
use mqkv::protocol::{Notification, Reply};

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which adds up what each thread asks for.
struct Counting;

// SAFETY: every call is handed on unchanged; counting touches no memory of the allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get().saturating_add(layout.size()));
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that all four decoders together ask for, freed or not.
fn taken(payload: &Bytes) -> usize {
    TAKEN.set(0);
    let _ = Frame::decode(payload);
    let _ = Request::decode(payload, CommandCase::Lenient);
    let _ = Reply::decode(payload);
    let _ = Notification::decode(payload);
    TAKEN.get()
}

#[test]
fn the_count_sees_what_a_decoder_takes() {
    let frames = Bytes::from(format!("*1000\r\n{}", "+\r\n".repeat(1000)));
    let taken = taken(&frames);
    assert!(taken > 1000 * size_of::<Frame>(), "{taken} bytes");
}

#[test]
fn a_short_payload_takes_little_whatever_it_announces() {
    for payload in [
        "*1048576\r\n",
        "*18446744073709551615\r\n",
        "*9223372036854775807\r\n$1\r\nk\r\n",
        "$18446744073709551615\r\n1",
        "$9223372036854775807\r\n",
        "*1\r\n$268435456\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1048576\r\n",
    ] {
        let taken = taken(&Bytes::from(payload));
        assert!(taken <= 8 * 1024, "{payload:?} takes {taken} bytes");
    }
}

#[test]
fn nested_heads_that_announce_all_that_follows_take_less_than_was_sent() {
    let rest = "x".repeat(3 * 1024 * 1024);
    let payload = Bytes::from(format!("*1048000\r\n*1047990\r\n*1047980\r\n*1047970\r\n{rest}"));
    let taken = taken(&payload);
    assert!(taken <= 16 * 1024, "{taken} bytes");
}
