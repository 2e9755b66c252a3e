//! A bounded queue of records with a thread that writes them. Adding a record never waits for the disk or the terminal:
//! if the queue is full, the record is lost, and counted.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{mem, thread};

/// The longest that [`Queue::settle`] and [`Queue::finish`] wait for the sink to take the queued records.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// Where the records go. A write begins at the start of a record, unless the sink took only part of the write before.
pub trait Sink: Write + Send + 'static {
    /// Cuts off a record that was written in part: keeps the first `len` bytes of all that were written.
    fn cut(&mut self, len: u64) {
        let _ = len;
    }
}

/// A file that has only this queue's records.
impl Sink for File {
    fn cut(&mut self, len: u64) {
        // If the file can't be cut, its reader finds the torn record after the whole ones.
        let _ = self.set_len(len);
    }
}

/// The records that wait for the writing thread.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    state: Mutex<State>,
    /// Signals a record to write, or the end.
    filled: Condvar,
    /// Signals that records were written or lost, or that the thread has ended.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The waiting records, one after the other, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<RecordEnd>,
    /// Records that were to be written, and how many of them are lost.
    received: u64,
    lost: u64,
    /// How many of the received records were written or lost.
    done: u64,
    failure: Option<String>,
    /// Whether [`Queue::finish`] was called.
    is_over: bool,
    /// Whether the thread has ended.
    has_ended: bool,
    /// Whether a wait for the sink has timed out. Later waits return at once.
    is_stuck: bool,
}

/// Where a waiting record ends, and whether it is counted as one: the head and the last bytes are not.
#[derive(Debug, Clone, Copy)]
struct RecordEnd {
    at: usize,
    is_counted: bool,
}

/// How a queue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEnd {
    /// How many records were to be written.
    pub received: u64,
    /// How many of them are lost.
    pub lost: u64,
    /// The sink's error, if it failed.
    pub failure: Option<String>,
    /// Whether the sink has taken, or refused, everything.
    pub has_ended: bool,
}

impl Queue {
    /// Starts a thread of this name. It writes `head`, which is not counted as a record, and then the records. Up to
    /// `limit` bytes may wait.
    ///
    /// # Errors
    /// The system's error, if it can't start the thread.
    pub fn start(name: &str, limit: usize, head: Vec<u8>, sink: impl Sink) -> io::Result<Arc<Self>> {
        let ends = vec![RecordEnd { at: head.len(), is_counted: false }];
        let queue = Arc::new(Self {
            limit,
            state: Mutex::new(State { bytes: head, ends, ..State::default() }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        });
        let writer = Arc::clone(&queue);
        thread::Builder::new().name(name.to_owned()).spawn(move || writer.write(sink))?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record of about `len` bytes, which `append` appends. `append` runs under the queue's lock, so that times
    /// which it reads from a clock are in the order of the records. If there is no room, the record is lost.
    pub fn push(&self, len: usize, append: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        state.received += 1;
        if state.is_over || state.failure.is_some() || state.bytes.len() + len > self.limit {
            state.lost += 1;
            state.done += 1;
            return;
        }
        state.add(true, append);
        drop(state);
        self.filled.notify_one();
    }

    /// Waits until the records queued so far are written or lost, for five seconds at most.
    pub fn settle(&self) {
        let state = self.lock();
        let received = state.received;
        drop(self.wait_while(state, |state| state.done < received));
    }

    /// Ends the queue: writes the waiting records and what `last` appends, which is not counted. `last` gets the
    /// numbers of received and of lost records. Waits for five seconds at most. Later records are lost.
    pub fn finish(&self, last: impl FnOnce(u64, u64, &mut Vec<u8>)) -> QueueEnd {
        let mut state = self.lock();
        if !state.is_over {
            state.is_over = true;
            let (received, lost) = (state.received, state.lost);
            state.add(false, |bytes| last(received, lost, bytes));
            self.filled.notify_all();
        }
        let state = self.wait_while(state, |state| !state.has_ended);
        let unwritten = state.received - state.done;
        QueueEnd {
            received: state.received,
            lost: state.lost + unwritten,
            failure: state.failure.clone(),
            has_ended: state.has_ended,
        }
    }

    fn wait_while<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        is_waited_for: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let (mut state, timeout) = self
            .emptied
            .wait_timeout_while(state, WAIT_LIMIT, |state| !state.is_stuck && is_waited_for(state))
            .unwrap_or_else(PoisonError::into_inner);
        state.is_stuck |= timeout.timed_out();
        state
    }

    /// Writes records until the end, or until the sink fails.
    fn write(&self, mut sink: impl Sink) {
        let (mut bytes, mut ends, mut whole) = (Vec::new(), Vec::new(), 0);
        let mut is_last = false;
        while !is_last {
            let waited = self.filled.wait_while(self.lock(), |state| state.ends.is_empty() && !state.is_over);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            bytes.clear();
            ends.clear();
            mem::swap(&mut bytes, &mut state.bytes);
            mem::swap(&mut ends, &mut state.ends);
            is_last = state.is_over;
            drop(state);
            let mut written = 0;
            let outcome = write_all(&mut sink, &bytes, &mut written);
            let (kept, torn) = ends.split_at(ends.partition_point(|end| end.at <= written));
            if outcome.is_err() {
                sink.cut(whole + kept.last().map_or(0, |end| end.at) as u64);
            }
            whole += written as u64;
            let mut state = self.lock();
            state.done += counted(kept);
            if let Err(error) = outcome {
                let waiting = mem::take(&mut state.ends);
                let lost = counted(torn) + counted(&waiting);
                state.lost += lost;
                state.done += lost;
                state.bytes = Vec::new();
                state.failure = Some(error.to_string());
                is_last = true;
            }
            drop(state);
            self.emptied.notify_all();
        }
        drop(sink);
        self.lock().has_ended = true;
        self.emptied.notify_all();
    }
}

impl State {
    fn add(&mut self, is_counted: bool, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
        self.ends.push(RecordEnd { at: self.bytes.len(), is_counted });
    }
}

fn counted(ends: &[RecordEnd]) -> u64 {
    ends.iter().filter(|end| end.is_counted).count() as u64
}

/// Works like [`Write::write_all`], and also tells how much was written before it failed.
fn write_all(sink: &mut impl Sink, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match sink.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes up to `room` bytes, each write after a signal. Sends what it has kept when it is dropped.
    struct Limited {
        room: usize,
        go: mpsc::Receiver<()>,
        written: Vec<u8>,
        kept: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without a sender it continues by itself.
            let _ = self.go.recv();
            let count = bytes.len().min(self.room - self.written.len());
            self.written.extend(&bytes[..count]);
            if count > 0 { Ok(count) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Limited {
        fn cut(&mut self, len: u64) {
            self.written.truncate(len as usize);
        }
    }

    impl Drop for Limited {
        fn drop(&mut self) {
            let _ = self.kept.send(mem::take(&mut self.written));
        }
    }

    struct Started {
        queue: Arc<Queue>,
        go: mpsc::Sender<()>,
        kept: mpsc::Receiver<Vec<u8>>,
    }

    fn start(limit: usize, room: usize, head: &[u8]) -> Started {
        let (go, taken) = mpsc::channel();
        let (kept, seen) = mpsc::channel();
        let sink = Limited { room, go: taken, written: Vec::new(), kept };
        Started { queue: Queue::start("test", limit, head.to_vec(), sink).unwrap(), go, kept: seen }
    }

    fn push(queue: &Queue, record: &str) {
        queue.push(record.len(), |bytes| bytes.extend(record.as_bytes()));
    }

    #[test]
    fn records_are_written_in_order_between_head_and_last_which_are_not_counted() {
        let Started { queue, go, kept } = start(100, 100, b"head ");
        drop(go);
        push(&queue, "one ");
        queue.settle();
        push(&queue, "two ");
        let outcome = queue.finish(|received, _, bytes| bytes.extend(format!("of {received}").as_bytes()));
        assert_eq!(outcome, QueueEnd { received: 2, lost: 0, failure: None, has_ended: true });
        assert_eq!(kept.recv().unwrap(), b"head one two of 2");
        push(&queue, "three");
        let later = queue.finish(|_, _, _| unreachable!());
        assert_eq!((later.received, later.lost), (3, 1));
    }

    #[test]
    fn a_full_sink_keeps_whole_records_and_the_rest_are_lost() {
        let kept_and_lost =
            [(2, "", 2), (7, "head ", 2), (9, "head one ", 1), (11, "head one ", 1), (13, "head one two ", 0)];
        for (room, whole, lost) in kept_and_lost {
            let Started { queue, go, kept } = start(100, room, b"head ");
            push(&queue, "one ");
            push(&queue, "two ");
            drop(go);
            let outcome = queue.finish(|_, _, bytes| bytes.extend(b"last"));
            assert_eq!(kept.recv().unwrap(), whole.as_bytes(), "{room}");
            assert_eq!((outcome.received, outcome.lost), (2, lost), "{room}");
            assert!(outcome.failure.is_some() && outcome.has_ended);
        }
    }

    #[test]
    fn a_sink_that_hangs_loses_records_in_bounded_memory_and_delays_nobody() {
        let Started { queue, go, kept } = start(40, 10_000, b"");
        for _ in 0..100 {
            push(&queue, "0123456789");
        }
        assert!(queue.lock().bytes.len() <= 40);
        drop(go);
        let QueueEnd { received, lost, failure, .. } = queue.finish(|_, _, _| {});
        assert_eq!((received, failure), (100, None));
        // Four may wait while four are being written.
        assert!((4..=8).contains(&(100 - lost)), "{lost}");
        assert_eq!(kept.recv().unwrap().len() as u64, 10 * (100 - lost));
    }
}
