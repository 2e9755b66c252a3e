//! The host's side of the chip: control transfers, bulk packets, what happens on the bus.
//!
//! All of it is packets at the endpoints. Descriptors, CBW, CSW, units, sense and stalls are the firmware's own. No
//! method here runs the CPU but [`Chip::control`]: after one, call [`Chip::run`], and try again what was answered with
//! NAK whenever that comes back with [`Outcome::Attention`].

use super::core::{Chip, Outcome};
use super::ep0::ControlReply;
use super::fabric::HostMemory as _;
use super::halts::is_halted;
use super::host_memory::Targets;
use super::peripherals::Peripherals;
use super::usb::{COMMAND_OUT, DATA_IN, DATA_OUT, InReply, OutReply, STATUS_IN, Speed, UsbEvent};
use crate::mcu::SpiFlash;

/// Bytes of a CBW.
const CBW_LEN: usize = 31;
const CBW_SIGNATURE: &[u8] = b"USBC";

impl<F: SpiFlash> Chip<F> {
    /// Begins a control transfer: a SETUP packet, and all of a write's data. One that is under way ends without a
    /// reply. `data` past wLength is left out. Nothing gets through a suspended link: there is no reply, either.
    pub fn begin_control(&mut self, setup: [u8; 8], data: &[u8]) {
        let (peripherals, memory) = self.bus.xdata.parts();
        if peripherals.link.is_suspended() {
            return;
        }
        peripherals.show(UsbEvent::Setup { setup, data });
        peripherals.ep0.begin(setup, data, memory);
        self.changed();
    }

    /// How the control transfer ended; `None` until it has. Each end is told once.
    pub fn take_control_reply(&mut self) -> Option<ControlReply> {
        let peripherals = self.bus.xdata.peripherals_mut();
        let reply = peripherals.ep0.take_reply()?;
        match &reply {
            ControlReply::Done(data) => peripherals.show(UsbEvent::ControlDone(data)),
            ControlReply::Stall => peripherals.show(UsbEvent::ControlStall),
        }
        Some(reply)
    }

    /// A whole control transfer: runs the firmware until it has answered. `None` where it does not within `budget`
    /// instructions, or where it waits for something else.
    pub fn control(&mut self, setup: [u8; 8], data: &[u8], budget: u64) -> Option<ControlReply> {
        self.begin_control(setup, data);
        let ends = self.instructions().saturating_add(budget);
        loop {
            let left = ends.saturating_sub(self.instructions());
            let outcome = self.run(left);
            if let Some(reply) = self.take_control_reply() {
                return Some(reply);
            }
            if outcome != Outcome::Attention {
                return None;
            }
        }
    }

    /// A packet from the host to 0x02 or 0x04. `stream` is 0 where there are no streams. A packet is at most
    /// [`Speed::bulk_packet`] bytes long: what is longer is refused for good, as no host can send it.
    pub fn bulk_out(&mut self, endpoint: u8, stream: u16, packet: &[u8]) -> OutReply {
        let now = self.bus.xdata.peripherals_mut().now;
        let is_on_bus = self.is_on_bus();
        let (peripherals, memory) = self.bus.xdata.parts();
        if packet.len() > peripherals.link.speed().bulk_packet() {
            return OutReply::Stall;
        }
        if !is_on_bus || peripherals.link.is_suspended() {
            return OutReply::Nak;
        }
        if is_halted(endpoint, memory) {
            return OutReply::Stall;
        }
        let wanted = (peripherals.msc.is_uas() && stream != 0).then_some(stream);
        match endpoint {
            COMMAND_OUT if peripherals.msc.is_uas() => {
                // One command at a time waits for the firmware, and one unit without a slot.
                if peripherals.uas.waits() || peripherals.msc.came() != 0 {
                    return OutReply::Nak;
                }
                if !peripherals.uas.take(packet, memory) {
                    peripherals.msc.take(packet, memory);
                }
            }
            DATA_OUT if !peripherals.msc.is_uas() && peripherals.msc.wants_cbw() && is_cbw(packet) => {
                peripherals.msc.take(packet, memory);
            }
            DATA_OUT if peripherals.dma.wants_out(wanted) => {
                peripherals.dma.out_came(wanted, packet, &mut peripherals.sram, now);
                peripherals.show_dma();
            }
            DATA_OUT if peripherals.bulk.wants_out(wanted, memory) => {
                peripherals.flash.deposit(0, packet, memory);
                peripherals.bulk.out_came(packet.len(), memory);
            }
            // What is no CBW is the firmware's to refuse.
            DATA_OUT if !peripherals.msc.is_uas() && peripherals.msc.wants_cbw() => {
                peripherals.msc.take(packet, memory);
            }
            _ => return OutReply::Nak,
        }
        peripherals.show(UsbEvent::Bulk { endpoint, stream, packet });
        self.changed();
        OutReply::Accepted
    }

    /// The host asks 0x81 or 0x83 for a packet. `stream` is 0 where there are no streams.
    pub fn bulk_in(&mut self, endpoint: u8, stream: u16) -> InReply {
        let is_on_bus = self.is_on_bus();
        let (peripherals, memory) = self.bus.xdata.parts();
        if !is_on_bus || peripherals.link.is_suspended() {
            return InReply::Nak;
        }
        if is_halted(endpoint, memory) {
            return InReply::Stall;
        }
        let now = peripherals.now;
        let is_uas = peripherals.msc.is_uas();
        let wanted = (is_uas && stream != 0).then_some(stream);
        let most = peripherals.link.speed().bulk_packet();
        let packet = match endpoint {
            DATA_IN => {
                let data = peripherals.bulk.take_in(wanted, now);
                let data = data.or_else(|| peripherals.dma.take_in(wanted, most, &peripherals.sram, now));
                // Bulk-Only sends its CSW where its data goes.
                data.or_else(|| if is_uas { None } else { peripherals.take_status(None) })
            }
            STATUS_IN if is_uas => peripherals.take_status(wanted),
            _ => None,
        };
        let Some(packet) = packet else { return InReply::Nak };
        peripherals.show_dma();
        peripherals.show(UsbEvent::Bulk { endpoint, stream, packet: &packet });
        self.changed();
        InReply::Packet(packet)
    }

    /// What the PCIe side writes into the bridge: SRAM from 0x00200000 on, or the NVMe completion queue. `false` where it
    /// has no place.
    pub fn pcie_write(&mut self, addr: u64, data: &[u8]) -> bool {
        let Peripherals { sram, nvme, dma, .. } = self.bus.xdata.peripherals_mut();
        let is_taken = Targets { sram, nvme, dma, is_written: false }.write(addr, data);
        self.changed();
        is_taken
    }

    /// The host resets the port: a hot reset at SuperSpeed. The link comes up at `speed` again. A control transfer that
    /// is under way ends without a reply; what else is forgotten, the firmware decides.
    pub fn bus_reset(&mut self, speed: Speed) {
        let peripherals = self.bus.xdata.peripherals_mut();
        peripherals.link.reset_port(speed);
        peripherals.ep0.abandon();
        self.changed();
    }

    /// The host suspends the link: to U3 at SuperSpeed. Nothing moves until it resumes it, or resets the port: packets are
    /// answered with NAK. What was under way goes on then.
    pub fn suspend(&mut self) {
        let peripherals = self.bus.xdata.peripherals_mut();
        if peripherals.link.suspend() {
            peripherals.show(UsbEvent::Suspend);
            self.changed();
        }
    }

    /// The host resumes the link.
    pub fn resume(&mut self) {
        let peripherals = self.bus.xdata.peripherals_mut();
        if peripherals.link.resume() {
            peripherals.show(UsbEvent::Resume);
            self.changed();
        }
    }

    /// The speed of the link.
    pub fn speed(&mut self) -> Speed {
        self.bus.xdata.peripherals_mut().link.speed()
    }

    /// Something came from outside: the firmware is to see it.
    pub(super) fn changed(&mut self) {
        let peripherals = self.bus.xdata.peripherals_mut();
        peripherals.changed();
        peripherals.refresh();
        self.wake();
    }
}

impl<F: SpiFlash> Peripherals<F> {
    fn take_status(&mut self, stream: Option<u16>) -> Option<Vec<u8>> {
        let (slot, bytes) = self.msc.take_status(stream)?;
        if let Some(slot) = slot.filter(|_| self.msc.is_uas()) {
            self.uas.free(slot);
        }
        Some(bytes)
    }
}

fn is_cbw(packet: &[u8]) -> bool {
    packet.len() == CBW_LEN && packet.starts_with(CBW_SIGNATURE)
}
