//! Waiting for changes on the buses.

use std::time::Duration;

use rusb::{Context, Hotplug, HotplugBuilder, Registration, UsbContext};

use super::discovery::new_context;
use super::error::UsbError;

/// Reports when a device has arrived or left. On a system without such events it is a clock.
#[derive(Debug)]
pub struct HotplugWatch {
    context: Context,
    events: Option<Registration<Context>>,
}

/// Interval between looks at the buses on a system without events.
const POLL: Duration = Duration::from_millis(100);

/// Nothing but a reason for libusb to report an event.
struct Bell;

impl Hotplug<Context> for Bell {
    fn device_arrived(&mut self, _device: rusb::Device<Context>) {}

    fn device_left(&mut self, _device: rusb::Device<Context>) {}
}

impl HotplugWatch {
    /// Starts to watch.
    ///
    /// # Errors
    /// [`UsbError::Unavailable`].
    pub fn new() -> Result<Self, UsbError> {
        let context = new_context()?;
        let events =
            if rusb::has_hotplug() { HotplugBuilder::new().register(&context, Box::new(Bell)).ok() } else { None };
        Ok(Self { context, events })
    }

    /// The context of the watch. Its device list is current.
    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    /// Waits for a change, at most for `longest`. A change before the call counts. May return without a change.
    pub fn wait(&self, longest: Duration) {
        // libusb returns after the first event.
        if self.events.is_none() || self.context.handle_events(Some(longest)).is_err() {
            std::thread::sleep(longest.min(POLL));
        }
    }
}
