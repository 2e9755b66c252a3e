//! The memory of transfers: pages mapped from the kernel, or the heap. [`super`] explains its safety.

use std::ffi::{c_int, c_uchar};
use std::ptr::{self, NonNull};

use libusb1_sys as ffi;

/// Buffers of at least this size have their own pages; smaller ones share pages.
const PAGES_OF_ITS_OWN_FROM: usize = 4096;
/// Bytes that small buffers share: twice what 31 commands with their status and 255 bytes of data need.
const SHARED_LEN: usize = 128 << 10;
/// Alignment of small buffers. They share no cache line, so that none is written while the host controller fills its
/// neighbour (Linux's `ARCH_DMA_MINALIGN` is 128 on arm64, the largest).
const SHARED_ALIGN: usize = 128;

unsafe extern "system" {
    // libusb 1.0.21 has these; libusb1-sys 0.7 does not declare them.
    fn libusb_dev_mem_alloc(handle: *mut ffi::libusb_device_handle, length: usize) -> *mut c_uchar;
    fn libusb_dev_mem_free(handle: *mut ffi::libusb_device_handle, buffer: *mut c_uchar, length: usize) -> c_int;
}

/// A transfer's memory. If the system lets the host controller reach it directly, the kernel does not allocate, clear
/// and copy a buffer for each transfer.
pub(super) struct TransferMemory {
    pub(super) start: NonNull<u8>,
    pub(super) len: usize,
    origin: Origin,
}

enum Origin {
    /// Its own pages, mapped from the kernel.
    Mapped,
    /// Part of the pages that small buffers share.
    Shared,
    /// The heap: the kernel copies it.
    Heap,
}

/// Pages mapped from the kernel, handed out piece by piece. Pieces are only freed with the whole.
pub(super) struct SharedPages {
    pages: TransferMemory,
    used: usize,
}

impl SharedPages {
    pub(super) fn new(handle: *mut ffi::libusb_device_handle) -> Option<Self> {
        TransferMemory::mapped(handle, SHARED_LEN).map(|pages| Self { pages, used: 0 })
    }

    /// # Safety
    /// As [`TransferMemory::free`], for all pieces.
    pub(super) unsafe fn free(&self, handle: *mut ffi::libusb_device_handle) {
        // SAFETY: the caller's.
        unsafe { self.pages.free(handle) };
    }

    fn take(&mut self, len: usize) -> Option<TransferMemory> {
        let used = self.used.checked_add(len.next_multiple_of(SHARED_ALIGN))?;
        if used > self.pages.len {
            return None;
        }
        // SAFETY: `self.used + len` is within the pages.
        let start = unsafe { self.pages.start.add(self.used) };
        self.used = used;
        Some(TransferMemory { start, len, origin: Origin::Shared })
    }
}

impl TransferMemory {
    /// Allocates a buffer. `shared` are the pages for small buffers, if the system provides any.
    pub(super) fn new(handle: *mut ffi::libusb_device_handle, shared: Option<&mut SharedPages>, len: usize) -> Self {
        let mapped = if len >= PAGES_OF_ITS_OWN_FROM {
            Self::mapped(handle, len)
        } else {
            shared.and_then(|pages| pages.take(len))
        };
        mapped.unwrap_or_else(|| {
            // A raw pointer instead of a Box: while the transfer is out, the kernel writes behind it.
            let start = NonNull::from(Box::leak(vec![0; len].into_boxed_slice())).cast();
            Self { start, len, origin: Origin::Heap }
        })
    }

    fn mapped(handle: *mut ffi::libusb_device_handle, len: usize) -> Option<Self> {
        // SAFETY: `handle` is the open handle that `Transfers` owns.
        let start = unsafe { libusb_dev_mem_alloc(handle, len) };
        NonNull::new(start).map(|start| Self { start, len, origin: Origin::Mapped })
    }

    /// # Safety
    /// No transfer that uses it is out, `handle` is the one that it was made with, and it is not used again.
    pub(super) unsafe fn free(&self, handle: *mut ffi::libusb_device_handle) {
        match self.origin {
            Origin::Mapped => {
                // SAFETY: it came from `libusb_dev_mem_alloc` with this handle and length; the caller frees it once.
                unsafe { libusb_dev_mem_free(handle, self.start.as_ptr(), self.len) };
            }
            Origin::Shared => {}
            Origin::Heap => {
                let bytes = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
                // SAFETY: it came from `Box::leak`; the caller frees it once.
                drop(unsafe { Box::from_raw(bytes) });
            }
        }
    }
}
