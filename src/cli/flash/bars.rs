//! Progress and the steps' results on the terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Context;
use crate::flash::progress::{Event, Observer};

/// The bars of all units that are written at once.
pub struct Bars {
    all: MultiProgress,
    says_steps: bool,
    names_units: bool,
}

impl Bars {
    /// Bars for this many units. `says_steps` is whether results go to stdout, step by step.
    pub fn new(context: &Context, units: usize, says_steps: bool) -> Self {
        let target = if context.shows_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let says_steps = says_steps && !context.is_quiet();
        Self { all: MultiProgress::with_draw_target(target), says_steps, names_units: units > 1 }
    }

    /// The bar of one unit.
    pub fn bar(&self, device: String) -> Bar<'_> {
        let bar = self.all.add(ProgressBar::new(0));
        if let Ok(style) =
            ProgressStyle::with_template("{prefix} [{bar:30}] {bytes:>11}/{total_bytes} {elapsed:>4} {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(device.clone());
        Bar { bars: self, bar, device }
    }
}

/// One unit's progress.
pub struct Bar<'a> {
    bars: &'a Bars,
    bar: ProgressBar,
    device: String,
}

impl Bar<'_> {
    fn say(&self, text: &str) {
        if self.bars.says_steps {
            let text = if self.bars.names_units { format!("{}: {text}", self.device) } else { text.to_owned() };
            self.bars.all.suspend(|| anstream::println!("{text}"));
        }
    }
}

impl Observer for Bar<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Total(bytes) => self.bar.set_length(bytes),
            Event::Begin(step) => {
                self.bar.set_message(step.to_string());
                self.bar.enable_steady_tick(std::time::Duration::from_millis(200));
            }
            Event::Moved(bytes) => self.bar.inc(bytes),
            Event::End(step, result) => self.say(&format!("{step}: {result}")),
            Event::Trouble(step, what) => self.say(&format!("{step}: {what}")),
            Event::Replug => {
                self.bar.set_message("unplug it, wait five seconds, plug it in again");
                let device = &self.device;
                self.bars.all.suspend(|| {
                    anstream::eprintln!(
                        "{device}: the unit has not come back by itself: unplug it, wait five seconds, plug it in again"
                    );
                });
            }
        }
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
