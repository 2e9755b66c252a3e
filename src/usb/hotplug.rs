//! Waiting for changes on the buses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusb::{Context, Hotplug, HotplugBuilder, Registration, UsbContext};

use super::discovery::new_context;
use super::error::UsbError;

/// Reports when a device has arrived or left. On a system without such events it is a clock.
#[derive(Debug)]
pub struct HotplugWatch {
    context: Context,
    changed: Arc<AtomicBool>,
    events: Option<Registration<Context>>,
}

/// Interval between looks at the buses on a system without events.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Bell(Arc<AtomicBool>);

impl Hotplug<Context> for Bell {
    fn device_arrived(&mut self, _device: rusb::Device<Context>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn device_left(&mut self, _device: rusb::Device<Context>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl HotplugWatch {
    /// Starts to watch.
    ///
    /// # Errors
    /// [`UsbError::Unavailable`].
    pub fn new() -> Result<Self, UsbError> {
        let context = new_context()?;
        let changed = Arc::new(AtomicBool::new(false));
        let bell = Box::new(Bell(changed.clone()));
        let events = if rusb::has_hotplug() { HotplugBuilder::new().register(&context, bell).ok() } else { None };
        Ok(Self { context, changed, events })
    }

    /// The context of the watch. Its device list is current.
    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for the first change, at most for `longest`. A change before the call counts.
    pub fn wait(&self, longest: Duration) {
        if self.events.is_none() {
            std::thread::sleep(longest.min(POLL));
            return;
        }
        let until = Instant::now() + longest;
        while !self.changed.swap(false, Ordering::Relaxed) {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            if self.context.handle_events(Some(rest)).is_err() {
                std::thread::sleep(rest.min(POLL));
                return;
            }
        }
    }
}
