//! Configuration requests to a function, by its address.

use crate::bridge::open::Tlp;
use crate::chip::Bdf;

impl Bdf {
    pub(super) const fn read(self, offset: u16) -> Tlp {
        Tlp::config_read(self.bus, self.device, self.function, offset)
    }

    pub(super) const fn write(self, offset: u16, value: u32) -> Tlp {
        Tlp::config_write(self.bus, self.device, self.function, offset, value)
    }
}
