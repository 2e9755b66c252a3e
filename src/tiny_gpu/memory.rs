//! What stands outside of the machine: program and data memory, as the test benches model them.

/// What asks a memory, or a controller in front of one. It is held until the answer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Of a word at an address.
    Read(u8),
    /// Of a word to an address.
    Write(u8, u16),
}

/// A memory's channels. Each carries one request at a time, and answers so many cycles after it came.
#[derive(Debug)]
pub(super) struct Channels {
    latency: u32,
    /// Cycles that each channel's request has been there.
    waited: Vec<u32>,
}

impl Channels {
    pub(super) fn new(count: usize, latency: u32) -> Self {
        Self { latency, waited: vec![0; count] }
    }

    /// A cycle: what each channel answers, 0 to a write. `access` carries a request out.
    pub(super) fn step(
        &mut self,
        requests: impl Iterator<Item = Option<Request>>,
        mut access: impl FnMut(Request) -> u16,
    ) -> Vec<Option<u16>> {
        let answers = self.waited.iter_mut().zip(requests).map(|(waited, request)| {
            *waited = if request.is_some() { *waited + 1 } else { 0 };
            request.filter(|_| *waited > self.latency).map(&mut access)
        });
        answers.collect()
    }
}
