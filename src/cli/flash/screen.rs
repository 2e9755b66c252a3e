//! Progress and step results, printed by a separate thread.
//!
//! The threads that write units only send events and never wait: a terminal that is stopped, hung or gone delays the
//! text, not the write.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::bridge::Port;
use crate::cli::{Context, terminal};
use crate::escape::Escape as _;
use crate::failure::AnyFailure;
use crate::flash::access::Access;
use crate::flash::backup::{self, Backup};
use crate::flash::progress::{FlashEvent, FlashStep};
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// What the other threads tell the printing thread about a unit.
enum ScreenMessage {
    /// Work on the unit begins. Later messages identify the unit by its number.
    Begin(String),
    /// How many bytes the work on the unit moves.
    Total(u64),
    /// The text that its bar shows.
    Note(String),
    /// Bytes were moved.
    Moved(u64),
    /// A step's result.
    Result(String),
    /// Something that the user has to do.
    Ask(String),
    /// The work on the unit is over.
    End,
}

/// The handle of the printing thread.
pub struct Screen {
    sender: Sender<(usize, ScreenMessage)>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Starts the thread. `says_steps` sends each step's result to stdout; `names_units` begins each line with its
    /// unit.
    pub fn start(context: &Context, says_steps: bool, names_units: bool) -> Self {
        let printer = Printer {
            all: terminal::bars(context),
            says_steps: says_steps && !context.is_quiet(),
            names_units,
            bars: Vec::new(),
        };
        let (sender, messages) = mpsc::channel();
        // If the thread can't be started, nothing is shown, and the work goes on.
        let thread = thread::Builder::new().name("screen".into()).spawn(move || printer.run(&messages)).ok();
        Self { sender, thread }
    }

    /// Returns the reporter of one unit. `unit` is its number in this run.
    pub fn unit(&self, unit: usize, device: String) -> UnitProgress {
        let progress = UnitProgress { unit, sender: self.sender.clone() };
        progress.send(ScreenMessage::Begin(device.shown().to_string()));
        progress
    }

    /// Reads all of a unit's flash, as `step`, with a bar.
    ///
    /// # Errors
    /// Fails if there is no unit, or if its flash can't be read.
    pub fn backup(
        context: &Context,
        port: &mut dyn Port,
        step: FlashStep,
        interrupt: Interrupt<'_>,
    ) -> Result<Backup, AnyFailure> {
        let (device, attached) = (port.device(), port.attached()?);
        let mut access = Access::open(port)?;
        let screen = Self::start(context, false, false);
        let mut bar = screen.unit(0, device.clone());
        bar.event(FlashEvent::Total(backup::BACKUP_BYTES));
        bar.event(FlashEvent::Begin(step));
        let found = backup::read(&mut access, device, &attached, &mut bar, interrupt);
        drop(bar);
        screen.finish();
        Ok(found?)
    }

    /// Waits until all messages are printed.
    pub fn finish(self) {
        let Self { sender, thread } = self;
        drop(sender);
        if let Some(thread) = thread {
            // A panic in the thread has printed itself, and costs only output.
            let _ = thread.join();
        }
    }
}

/// One unit's reporter. It sends messages and never waits.
pub struct UnitProgress {
    unit: usize,
    sender: Sender<(usize, ScreenMessage)>,
}

impl UnitProgress {
    fn send(&self, message: ScreenMessage) {
        // If the thread is gone, nobody listens any more.
        let _ = self.sender.send((self.unit, message));
    }
}

impl Progress<FlashEvent<'_>> for UnitProgress {
    fn event(&mut self, event: FlashEvent<'_>) {
        self.send(match event {
            FlashEvent::Total(bytes) => ScreenMessage::Total(bytes),
            FlashEvent::Begin(step) => ScreenMessage::Note(step.to_string()),
            FlashEvent::Moved(bytes) => ScreenMessage::Moved(bytes),
            FlashEvent::End(step, text) | FlashEvent::Trouble(step, text) => {
                ScreenMessage::Result(format!("{step}: {text}"))
            }
            FlashEvent::Replug => ScreenMessage::Ask("unplug it, wait five seconds, plug it in again".to_owned()),
        });
    }
}

impl Drop for UnitProgress {
    fn drop(&mut self) {
        self.send(ScreenMessage::End);
    }
}

/// The state of the printing thread.
struct Printer {
    all: &'static MultiProgress,
    says_steps: bool,
    names_units: bool,
    bars: Vec<(usize, String, ProgressBar)>,
}

impl Printer {
    fn run(mut self, messages: &Receiver<(usize, ScreenMessage)>) {
        while let Ok((unit, message)) = messages.recv() {
            self.show(unit, message);
        }
    }

    fn show(&mut self, unit: usize, message: ScreenMessage) {
        match message {
            ScreenMessage::Begin(device) => self.begin(unit, device),
            ScreenMessage::Total(bytes) => self.on(unit, |_, bar| bar.set_length(bytes)),
            ScreenMessage::Note(text) => self.on(unit, |_, bar| {
                bar.set_message(text);
                bar.enable_steady_tick(Duration::from_millis(200));
            }),
            ScreenMessage::Moved(bytes) => self.on(unit, |_, bar| bar.inc(bytes)),
            ScreenMessage::Result(text) if self.says_steps => self.on(unit, |device, _| {
                let text = if self.names_units { format!("{device}: {text}") } else { text };
                outln!("{text}");
            }),
            ScreenMessage::Result(_) => {}
            ScreenMessage::Ask(text) => self.on(unit, |device, bar| {
                errln!("{device}: what was written starts with the unit's power: {text}");
                bar.set_message(text);
            }),
            ScreenMessage::End => self.on(unit, |_, bar| bar.finish_and_clear()),
        }
    }

    fn begin(&mut self, unit: usize, device: String) {
        let bar = self.all.add(ProgressBar::new(0));
        if let Ok(style) =
            ProgressStyle::with_template("{prefix} [{bar:20}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left, {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(device.clone());
        self.bars.push((unit, device, bar));
    }

    fn on(&self, unit: usize, show: impl FnOnce(&str, &ProgressBar)) {
        if let Some((_, device, bar)) = self.bars.iter().find(|(known, ..)| *known == unit) {
            show(device, bar);
        }
    }
}
