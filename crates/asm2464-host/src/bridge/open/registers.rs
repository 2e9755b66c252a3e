//! The flash controller's registers, which open firmware lets a host reach.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::flash::RegisterAccess;
use asm2464::scsi::XdataAddress;

use super::super::unit_info::BusSpeed;
use super::{ControlError, OpenBridge};

/// Where this process's deadlines count from.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// E4, E5 and the bulk pipe.
impl RegisterAccess for OpenBridge {
    type Error = ControlError;

    fn exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        into: &mut [u8],
    ) -> Result<(), ControlError> {
        self.xdata_exchange(writes, from, into)
    }

    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), ControlError> {
        self.xdata_write_all(writes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.bulk_out(bytes)
    }

    fn is_gone(error: &ControlError) -> bool {
        matches!(error, ControlError::Disconnected { .. })
    }

    fn is_super_speed(&self) -> bool {
        self.speed() >= BusSpeed::Super
    }

    fn now(&mut self) -> Duration {
        BEGUN.elapsed()
    }

    fn pause(&mut self, time: Duration) {
        thread::sleep(time);
    }
}
