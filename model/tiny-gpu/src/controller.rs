//! Memory controllers: they share a memory's few channels among many consumers, with or without a cache. Also the
//! channels of program and data memory, as the test benches model them.
//!
//! Source: adam-maj/tiny-gpu, `src/controller.sv`; dsandall/tiny-gpu, `src/pmem_controller.sv`, `src/pmem_cache.sv` and
//! `src/dmem_cache.sv`.

/// Lines of a cache.
const LINES: usize = 16;
/// The most words in a line.
const LINE_MAX: usize = 2;

/// A direct-mapped, write-through cache: 16 lines of one or two words.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLines {
    words_a_line: usize,
    lines: [CacheLine; LINES],
}

#[derive(Debug, Clone, Copy, Default)]
struct CacheLine {
    tag: usize,
    /// The words that it holds; `None` for a word that it lacks.
    words: [Option<u16>; LINE_MAX],
}

/// The place of an address in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    tag: usize,
    line: usize,
    word: usize,
}

impl CacheLines {
    /// Creates an empty cache.
    pub(super) fn new(words_a_line: usize) -> Self {
        Self { words_a_line: words_a_line.clamp(1, LINE_MAX), lines: [CacheLine::default(); LINES] }
    }

    fn spot(&self, address: u8) -> Spot {
        let (line, word) = (usize::from(address) / self.words_a_line, usize::from(address) % self.words_a_line);
        Spot { tag: line / LINES, line: line % LINES, word }
    }

    fn get(&self, address: u8) -> Option<u16> {
        let spot = self.spot(address);
        let line = &self.lines[spot.line];
        if line.tag == spot.tag { line.words[spot.word] } else { None }
    }

    /// Returns the line for a tag, cleared if it held another tag.
    fn line(&mut self, spot: Spot) -> &mut CacheLine {
        let line = &mut self.lines[spot.line];
        if line.tag != spot.tag {
            *line = CacheLine { tag: spot.tag, ..CacheLine::default() };
        }
        line
    }

    fn put(&mut self, address: u8, value: u16) {
        let spot = self.spot(address);
        self.line(spot).words[spot.word] = Some(value);
    }

    /// Fills a line from memory. Keeps words that were written since, which are newer.
    fn fill(&mut self, address: u8, words: [u16; LINE_MAX]) {
        let (spot, count) = (self.spot(address), self.words_a_line);
        for (held, word) in self.line(spot).words.iter_mut().zip(words).take(count) {
            *held = held.or(Some(word));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelState {
    Idle,
    /// The cache has the word.
    Hit(u16),
    /// Waits for the memory's answer.
    Waiting,
    /// Requests the line's next word.
    NextWord,
    /// The consumer has this answer, but still holds its request.
    Relaying(u16),
}

#[derive(Debug, Clone, Copy)]
struct Channel {
    state: ChannelState,
    consumer: usize,
    /// The request that it serves.
    request: MemoryRequest,
    /// Words of the line that have arrived, and how many.
    words: [u16; LINE_MAX],
    received: usize,
    /// Whether the arriving words may fill the cache: no consumer has written to the line meanwhile.
    fills: bool,
    to_memory: Option<MemoryRequest>,
}

/// A controller with its channels.
#[derive(Debug)]
pub(super) struct MemoryController {
    channels: Vec<Channel>,
    consumers: usize,
    cache: Option<CacheLines>,
}

impl MemoryController {
    pub(super) fn new(consumers: usize, channels: usize, cache: Option<CacheLines>) -> Self {
        let idle = Channel {
            state: ChannelState::Idle,
            consumer: 0,
            request: MemoryRequest::Read(0),
            words: [0; LINE_MAX],
            received: 0,
            fills: true,
            to_memory: None,
        };
        Self { channels: vec![idle; channels], consumers, cache }
    }

    /// Returns the answer to each consumer.
    pub(super) fn answers(&self) -> Vec<Option<u16>> {
        let mut answers = vec![None; self.consumers];
        for channel in &self.channels {
            if let ChannelState::Relaying(word) = channel.state {
                answers[channel.consumer] = Some(word);
            }
        }
        answers
    }

    /// Returns each channel's request to the memory.
    pub(super) fn to_memory(&self) -> impl Iterator<Item = Option<MemoryRequest>> {
        self.channels.iter().map(|channel| channel.to_memory)
    }

    /// Advances by one clock edge, given the consumers' requests and the memory's answers.
    pub(super) fn step(&mut self, requests: &[Option<MemoryRequest>], memory: &[Option<u16>]) {
        // All channels see the cache as it was before the edge.
        let cache = self.cache;
        for (index, answer) in memory.iter().enumerate() {
            match self.channels[index].state {
                ChannelState::Idle => self.take(index, requests, cache.as_ref()),
                ChannelState::Hit(word) => self.channels[index].state = ChannelState::Relaying(word),
                ChannelState::Waiting => {
                    if let Some(word) = *answer {
                        self.receive(index, word);
                    }
                }
                ChannelState::NextWord => {
                    let channel = &mut self.channels[index];
                    if let MemoryRequest::Read(address) = channel.request {
                        let first = address - address % LINE_MAX as u8;
                        channel.to_memory = Some(MemoryRequest::Read(first + channel.received as u8));
                    }
                    channel.state = ChannelState::Waiting;
                }
                ChannelState::Relaying(_) => {
                    let channel = &mut self.channels[index];
                    if requests[channel.consumer].is_none() {
                        channel.state = ChannelState::Idle;
                    }
                }
            }
        }
    }

    /// Gives an idle channel the first request that no channel serves.
    fn take(&mut self, index: usize, requests: &[Option<MemoryRequest>], cache: Option<&CacheLines>) {
        let serves = |channel: &Channel, at| channel.state != ChannelState::Idle && channel.consumer == at;
        let is_served = |at| self.channels.iter().any(|channel| serves(channel, at));
        let waiting = requests.iter().enumerate().find(|(at, request)| request.is_some() && !is_served(*at));
        let Some((consumer, Some(request))) = waiting else { return };
        let (state, to_memory) = match (*request, cache) {
            (MemoryRequest::Read(address), Some(cache)) => match cache.get(address) {
                Some(word) => (ChannelState::Hit(word), None),
                // A line is fetched from its first word on.
                None => {
                    let first = address - cache.spot(address).word as u8;
                    (ChannelState::Waiting, Some(MemoryRequest::Read(first)))
                }
            },
            _ => (ChannelState::Waiting, Some(*request)),
        };
        if let MemoryRequest::Write(address, value) = *request {
            self.write_through(address, value);
        }
        let channel = &mut self.channels[index];
        *channel = Channel { state, consumer, request: *request, received: 0, fills: true, to_memory, ..*channel };
    }

    /// Updates the cache for a write on its way to memory. Words of the same line that are being fetched are older.
    fn write_through(&mut self, address: u8, value: u16) {
        let Some(cache) = &mut self.cache else { return };
        cache.put(address, value);
        let line = |address: u8| Spot { word: 0, ..cache.spot(address) };
        for other in self.channels.iter_mut().filter(|other| other.state != ChannelState::Idle) {
            if let MemoryRequest::Read(theirs) = other.request {
                other.fills &= line(theirs) != line(address);
            }
        }
    }

    /// Handles a word that the memory has returned.
    fn receive(&mut self, index: usize, word: u16) {
        let channel = &mut self.channels[index];
        channel.to_memory = None;
        let (MemoryRequest::Read(address), Some(cache)) = (channel.request, &mut self.cache) else {
            channel.state = ChannelState::Relaying(word);
            return;
        };
        channel.words[channel.received] = word;
        channel.received += 1;
        if channel.received < cache.words_a_line {
            channel.state = ChannelState::NextWord;
            return;
        }
        if channel.fills {
            cache.fill(address, channel.words);
        }
        channel.state = ChannelState::Relaying(channel.words[cache.spot(address).word]);
    }
}

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
        let mut answers = Vec::new();
        for (waited, request) in self.waited.iter_mut().zip(requests) {
            *waited = if request.is_some() { *waited + 1 } else { 0 };
            answers.push(match request {
                Some(request) if *waited > self.latency => Some(access(request)),
                _ => None,
            });
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_written_while_it_is_fetched_does_not_fill_the_cache() {
        let mut controller = MemoryController::new(3, 3, Some(CacheLines::new(2)));
        let read = Some(MemoryRequest::Read(0));
        controller.step(&[read, None, None], &[None; 3]);
        controller.step(&[read, None, None], &[Some(10), None, None]);
        controller.step(&[read, None, None], &[None; 3]);
        // Word 1 changes, and another address takes the line, before the old word 1 arrives.
        let writes = [read, Some(MemoryRequest::Write(1, 99)), Some(MemoryRequest::Write(33, 5))];
        controller.step(&writes, &[None; 3]);
        controller.step(&writes, &[Some(11), Some(0), Some(0)]);
        assert_eq!(controller.answers(), [Some(10), Some(0), Some(0)]);
        controller.step(&[None; 3], &[None; 3]);
        controller.step(&[Some(MemoryRequest::Read(1)), None, None], &[None; 3]);
        assert_eq!(controller.to_memory().next(), Some(Some(MemoryRequest::Read(0))), "word 1 is requested again");
    }
}
