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

/// Makes libusb report events. What they say does not matter: the buses are looked at again.
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

    /// Waits for a change, at most for `longest`. May return without one. A change before the call counts unless a
    /// transfer on this context has taken its event, so wait for short times and look again.
    pub fn wait(&self, longest: Duration) {
        // libusb returns after the first event.
        if self.events.is_none() || self.context.handle_events(Some(longest)).is_err() {
            std::thread::sleep(longest.min(POLL));
        }
    }
}
