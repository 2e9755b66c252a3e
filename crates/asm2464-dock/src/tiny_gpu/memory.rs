//! The memories outside the machine: program and data memory, as the test benches model them.

/// A request to a memory, or to a controller in front of one. It is held until the answer arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryRequest {
    /// Reads a word at an address.
    Read(u8),
    /// Writes a word to an address.
    Write(u8, u16),
}

/// A memory's channels. Each carries one request at a time and answers a fixed number of cycles later.
#[derive(Debug)]
pub(super) struct Channels {
    latency: u32,
    /// How many cycles each channel's request has waited.
    waited: Vec<u32>,
}

impl Channels {
    pub(super) fn new(count: usize, latency: u32) -> Self {
        Self { latency, waited: vec![0; count] }
    }

    /// Advances by one cycle. Returns each channel's answer, which is 0 for a write. `access` executes a request.
    pub(super) fn step(
        &mut self,
        requests: impl Iterator<Item = Option<MemoryRequest>>,
        mut access: impl FnMut(MemoryRequest) -> u16,
    ) -> Vec<Option<u16>> {
        let answers = self.waited.iter_mut().zip(requests).map(|(waited, request)| {
            *waited = if request.is_some() { *waited + 1 } else { 0 };
            request.filter(|_| *waited > self.latency).map(&mut access)
        });
        answers.collect()
    }
}
