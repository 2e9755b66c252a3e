//! Progress and step results, printed by a separate thread.
//!
//! The threads that write units only send what is to be shown, and never wait: a terminal that is stopped, hung or gone
//! delays the text, not the write.

use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::flash::access::Access;
use crate::flash::backup::{self, Backup};
use crate::flash::progress::{FlashEvent, FlashStep};
use asm2464::AnyFailure;
use asm2464::escape::Escape as _;
use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464_host::bridge::Port;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::held;
use crate::advice::Hands;
use crate::cli::given::context::Context;
use crate::cli::words::terminal;

/// What the printing thread does next about a unit, given its port and its bar.
type Show = Box<dyn FnOnce(&str, &ProgressBar) + Send>;

/// The handle of the printing thread.
pub struct Screen {
    sender: Sender<(usize, Show)>,
    thread: Option<JoinHandle<()>>,
    says_steps: bool,
    names_units: bool,
    replug: String,
}

impl Screen {
    /// Starts the thread, with a bar for each unit. `says_steps` prints each step's result to stdout. With several
    /// units only trouble is printed, in lines that begin with the unit: their steps would mix.
    pub fn start(context: &Context, says_steps: bool, devices: Vec<String>) -> Self {
        let (all, names_units) = (terminal::bars(context.shows_progress()), devices.len() > 1);
        let (sender, messages) = mpsc::channel::<(usize, Show)>();
        let print = move || {
            let devices = devices.iter().map(|device| device.shown().to_string());
            let units: Vec<_> = devices.map(|device| (bar(all, device.clone()), device)).collect();
            for (unit, show) in messages {
                let (bar, device) = &units[unit];
                show(device, bar);
            }
        };
        // If the thread can't be started, nothing is shown, and the work goes on.
        let thread = thread::Builder::new().name("screen".into()).spawn(print).ok();
        let replug = context.invocation.by_hand(Hands::ReplugIt).into_owned();
        Self { sender, thread, says_steps: says_steps && !context.is_quiet, names_units, replug }
    }

    /// Returns the reporter of one unit. `unit` is its number in this run.
    pub fn unit(&self, unit: usize) -> UnitProgress {
        let Self { says_steps, names_units, .. } = *self;
        let replug = self.replug.clone();
        UnitProgress { unit, sender: self.sender.clone(), says_steps, names_units, is_held: false, replug }
    }

    /// Reads a backup of a unit, as `step`, with a bar.
    ///
    /// # Errors
    /// Fails if there is no unit, or if its flash can't be read.
    pub fn backup(
        context: &Context,
        port: &mut dyn Port,
        access: &mut Access,
        step: FlashStep,
        interrupt: Interrupt<'_>,
    ) -> Result<Backup, AnyFailure> {
        let attached = port.attached()?;
        Self::of_one(context, attached.location.to_string(), |bar| {
            bar.event(FlashEvent::Total(backup::BACKUP_BYTES));
            bar.event(FlashEvent::Begin(step));
            Ok(backup::read(access, &attached, bar, interrupt)?)
        })
    }

    /// Does work on one unit, with a bar for it.
    pub fn of_one<T>(context: &Context, device: String, work: impl FnOnce(&mut UnitProgress) -> T) -> T {
        let screen = Self::start(context, false, vec![device]);
        let mut bar = screen.unit(0);
        let outcome = work(&mut bar);
        drop(bar);
        screen.finish();
        outcome
    }

    /// Waits until all messages are printed.
    pub fn finish(self) {
        let Self { sender, thread, .. } = self;
        drop(sender);
        if let Some(thread) = thread {
            // A panic in the thread has printed itself, and costs only output.
            let _ = thread.join();
        }
    }
}

fn bar(all: &MultiProgress, device: String) -> ProgressBar {
    let bar = all.add(ProgressBar::new(0));
    if let Ok(style) = ProgressStyle::with_template("{prefix:.20!} [{bar:10}] {percent:>3} % {eta:>3} {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(device);
    terminal::keep_drawn(&bar, Duration::from_millis(200));
    bar
}

/// One unit's reporter. It sends messages and never waits.
pub struct UnitProgress {
    unit: usize,
    sender: Sender<(usize, Show)>,
    says_steps: bool,
    names_units: bool,
    is_held: bool,
    /// What the user does with the unit so that it starts the new firmware.
    replug: String,
}

impl UnitProgress {
    /// Also passes the events on to the [held](held) unit of this number.
    pub fn of_held(mut self) -> Self {
        self.is_held = true;
        self
    }

    fn send(&self, show: impl FnOnce(&str, &ProgressBar) + Send + 'static) {
        // If the thread is gone, nobody listens any more.
        let _ = self.sender.send((self.unit, Box::new(show)));
    }
}

impl Progress<FlashEvent<'_>> for UnitProgress {
    fn event(&mut self, event: FlashEvent<'_>) {
        if self.is_held {
            held::note(self.unit, event);
        }
        match event {
            FlashEvent::Total(bytes) => self.send(move |_, bar| bar.set_length(bytes)),
            FlashEvent::Begin(step) => self.send(move |_, bar| bar.set_message(step.to_string())),
            FlashEvent::Moved(bytes) => self.send(move |_, bar| bar.inc(bytes)),
            FlashEvent::End(step, text) if self.says_steps && !self.names_units => {
                let text = format!("{step}: {text}");
                self.send(move |_, _| outln!("{text}"));
            }
            FlashEvent::Trouble(step, text) if self.says_steps => {
                let (text, names_unit) = (format!("{step}: {text}"), self.names_units);
                self.send(move |device, _| if names_unit { outln!("{device}: {text}") } else { outln!("{text}") });
            }
            FlashEvent::End(..) | FlashEvent::Trouble(..) | FlashEvent::Stands { .. } | FlashEvent::BackupProved(_) => {
            }
            FlashEvent::Replug => {
                let text = self.replug.clone();
                self.send(move |device, bar| {
                    errln!("{device}: the new firmware starts after a power cycle: {text}");
                    bar.set_message(text);
                });
            }
        }
    }
}

impl Drop for UnitProgress {
    fn drop(&mut self) {
        self.send(|_, bar| bar.finish_and_clear());
    }
}
