//! The memory that decoders allocate for a hostile payload is bounded by a small multiple of its length.
#![expect(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use mqkv::protocol::frame::Frame;
use mqkv::protocol::request::{CommandCase, Request};
use mqkv::protocol::{Notification, Reply};

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with a sum of the allocated bytes per thread.
struct Counting;

// SAFETY: every call is forwarded unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get().saturating_add(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which `System` shares.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which `System` shares.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that all four decoders together allocate, freed or not.
fn allocated(payload: &Bytes) -> usize {
    ALLOCATED.set(0);
    let _ = Frame::decode(payload);
    let _ = Request::decode(payload, CommandCase::Lenient);
    let _ = Reply::decode(payload);
    let _ = Notification::decode(payload);
    ALLOCATED.get()
}

#[test]
fn the_allocations_of_a_decoder_are_counted() {
    let frames = Bytes::from(format!("*1000\r\n{}", "+\r\n".repeat(1000)));
    let allocated = allocated(&frames);
    assert!(allocated > 1000 * size_of::<Frame>(), "{allocated} bytes");
}

#[test]
fn a_short_payload_allocates_little_whatever_length_it_declares() {
    for payload in [
        "*1048576\r\n",
        "*18446744073709551615\r\n",
        "*9223372036854775807\r\n$1\r\nk\r\n",
        "$18446744073709551615\r\n1",
        "$9223372036854775807\r\n",
        "*1\r\n$268435456\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1048576\r\n",
    ] {
        let allocated = allocated(&Bytes::from(payload));
        assert!(allocated <= 8 * 1024, "{payload:?} allocates {allocated} bytes");
    }
}

#[test]
fn nested_headers_that_declare_great_lengths_allocate_less_than_the_payload() {
    let rest = "x".repeat(3 * 1024 * 1024);
    let payload = Bytes::from(format!("*1048000\r\n*1047990\r\n*1047980\r\n*1047970\r\n{rest}"));
    let allocated = allocated(&payload);
    assert!(allocated <= 16 * 1024, "{allocated} bytes");
}
