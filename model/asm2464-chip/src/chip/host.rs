//! The host's side of the chip: control transfers, bulk packets and bus events.
//!
//! The host exchanges packets with the endpoints, and nothing else. Descriptors, CSWs, sense and stalls come from the
//! firmware. Only [`Chip::control`] runs the CPU. After any other method, call [`Chip::run`]. Whenever it returns
//! [`RunEnd::Attention`], retry the packets that were answered with NAK.

use asm2464::scsi::bot::{CBW_LEN, CBW_SIGNATURE};

use super::core::{Chip, RunEnd};
use super::ep0::ControlReply;
use super::fabric::HostMemory as _;
use super::peripherals::{Peripherals, Targets};
use super::usb::{COMMAND_OUT, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN, Speed, UsbEvent, is_halted};

impl Chip {
    /// Begins a control transfer with a SETUP packet and all of a write's data. A transfer in progress ends without a
    /// reply. Ignores `data` past wLength bytes. On a suspended link the request is lost, so there is no reply either.
    pub fn begin_control(&mut self, setup: [u8; 8], data: &[u8]) {
        let (peripherals, memory) = self.bus.xdata.parts();
        if peripherals.link.is_suspended() {
            return;
        }
        peripherals.link.come_up();
        peripherals.show(UsbEvent::Setup { setup, data });
        peripherals.ep0.begin(setup, data, memory);
        self.changed();
    }

    /// Takes the result of the control transfer; `None` until it has ended. Each result is returned once.
    pub fn take_control_reply(&mut self) -> Option<ControlReply> {
        let peripherals = self.bus.xdata.peripherals_mut();
        let reply = peripherals.ep0.take_reply()?;
        match &reply {
            ControlReply::Done(data) => peripherals.show(UsbEvent::ControlDone(data)),
            ControlReply::Stall => peripherals.show(UsbEvent::ControlStall),
        }
        Some(reply)
    }

    /// Makes a whole control transfer: runs the firmware until it has answered. Returns `None` if it does not answer
    /// within `budget` instructions, or if it waits for something else.
    pub fn control(&mut self, setup: [u8; 8], data: &[u8], budget: u64) -> Option<ControlReply> {
        self.begin_control(setup, data);
        let ends = self.instructions().saturating_add(budget);
        loop {
            let left = ends.saturating_sub(self.instructions());
            let outcome = self.run(left);
            if let Some(reply) = self.take_control_reply() {
                return Some(reply);
            }
            if outcome != RunEnd::Attention {
                return None;
            }
        }
    }

    /// Sends a packet from the host to 0x02 or 0x04. `stream` is 0 without streams. A packet longer than
    /// [`Speed::bulk_packet`] always gets a STALL, because no host can send it.
    pub fn bulk_out(&mut self, endpoint: u8, stream: u16, packet: &[u8]) -> PacketOut {
        let now = self.bus.xdata.peripherals_mut().now;
        let is_on_bus = self.is_on_bus();
        let (peripherals, memory) = self.bus.xdata.parts();
        if packet.len() > peripherals.link.speed().bulk_packet() {
            return PacketOut::Stall;
        }
        if !is_on_bus || peripherals.link.is_suspended() {
            return PacketOut::Nak;
        }
        if is_halted(endpoint, memory) {
            return PacketOut::Stall;
        }
        let wanted = if peripherals.msc.is_uas() && stream != 0 { Some(stream) } else { None };
        match endpoint {
            COMMAND_OUT if peripherals.msc.is_uas() => {
                // Only one command at a time waits for the firmware, and one IU without a slot.
                if peripherals.msc.came() != 0 || !peripherals.uas.receive(packet, now) {
                    return PacketOut::Nak;
                }
            }
            DATA_OUT if !peripherals.msc.is_uas() && peripherals.msc.wants_cbw() && is_cbw(packet) => {
                peripherals.msc.take(packet, memory);
            }
            DATA_OUT if peripherals.dma.wants_out(wanted) => {
                peripherals.dma.out_came(wanted, packet, &mut peripherals.sram, now);
                peripherals.command_is_due();
            }
            DATA_OUT if peripherals.bulk.wants_out(wanted, memory) => {
                peripherals.flash.receive(packet, peripherals.link.speed(), memory);
                peripherals.bulk.out_came(packet.len(), memory);
            }
            // The firmware itself rejects a packet that is not a CBW.
            DATA_OUT if !peripherals.msc.is_uas() && peripherals.msc.wants_cbw() => {
                peripherals.msc.take(packet, memory);
            }
            _ => return PacketOut::Nak,
        }
        peripherals.show(UsbEvent::Bulk { endpoint, stream, packet });
        self.changed();
        PacketOut::Accepted
    }

    /// Asks 0x81 or 0x83 for a packet. `stream` is 0 without streams.
    pub fn bulk_in(&mut self, endpoint: u8, stream: u16) -> PacketIn {
        let is_on_bus = self.is_on_bus();
        let (peripherals, memory) = self.bus.xdata.parts();
        if !is_on_bus || peripherals.link.is_suspended() {
            return PacketIn::Nak;
        }
        if is_halted(endpoint, memory) {
            return PacketIn::Stall;
        }
        let now = peripherals.now;
        let is_uas = peripherals.msc.is_uas();
        let wanted = if is_uas && stream != 0 { Some(stream) } else { None };
        let most = peripherals.link.speed().bulk_packet();
        let packet = match endpoint {
            DATA_IN => {
                let data = peripherals.bulk.take_in(wanted, now);
                let data = data.or_else(|| peripherals.dma.take_in(wanted, most, &peripherals.sram, now));
                // Bulk-Only sends its CSW on the data endpoint.
                data.or_else(|| if is_uas { None } else { peripherals.take_status(None) })
            }
            STATUS_IN if is_uas => peripherals.take_status(wanted),
            _ => None,
        };
        let Some(packet) = packet else { return PacketIn::Nak };
        peripherals.show(UsbEvent::Bulk { endpoint, stream, packet: &packet });
        self.changed();
        PacketIn::Packet(packet)
    }

    /// Writes into the bridge from the PCIe side: SRAM from 0x00200000 on, or the NVMe completion queue. Returns
    /// `false` for any other address.
    pub fn pcie_write(&mut self, addr: u64, data: &[u8]) -> bool {
        let Peripherals { sram, nvme, dma, .. } = self.bus.xdata.peripherals_mut();
        let is_taken = Targets { sram, nvme, dma, is_written: false }.write(addr, data);
        self.changed();
        is_taken
    }

    /// Resets the port: a hot reset at SuperSpeed. The link comes up again at `speed`. A control transfer in progress
    /// ends without a reply; the firmware decides what else it forgets.
    pub fn bus_reset(&mut self, speed: Speed) {
        let peripherals = self.bus.xdata.peripherals_mut();
        peripherals.link.reset_port(speed);
        peripherals.ep0.abandon();
        self.changed();
    }

    /// Raises bits of the link's event registers, 0x9300 to 0x9302 and 0x91D1, or sets what 0x92F8 shows once the link
    /// is up: for a replay of a real link. From the first call on the link comes up by these events alone, also after a
    /// reset of the chip. [`Chip::bus_reset`], [`Chip::suspend`] and [`Chip::resume`] still raise their own events.
    pub fn drive_link(&mut self, register: u16, bits: u8) {
        self.bus.xdata.peripherals_mut().link.raise_from_outside(register, bits);
        self.changed();
    }

    /// Suspends the link: to U3 at SuperSpeed. Until the host resumes the link or resets the port, packets get NAK.
    /// Transfers in progress continue after that.
    pub fn suspend(&mut self) {
        let peripherals = self.bus.xdata.peripherals_mut();
        if peripherals.link.suspend() {
            peripherals.show(UsbEvent::Suspend);
            self.changed();
        }
    }

    /// Resumes the link.
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

    /// Wakes the firmware after a change from outside.
    pub(super) fn changed(&mut self) {
        let peripherals = self.bus.xdata.peripherals_mut();
        peripherals.changed();
        peripherals.refresh();
        self.wake();
    }
}

impl Peripherals {
    fn take_status(&mut self, stream: Option<u16>) -> Option<Vec<u8>> {
        let (slot, bytes) = self.msc.take_status(stream)?;
        if self.msc.is_uas()
            && let Some(slot) = slot
        {
            self.uas.answered(slot);
        }
        Some(bytes)
    }
}

fn is_cbw(packet: &[u8]) -> bool {
    packet.len() == CBW_LEN && packet.starts_with(&CBW_SIGNATURE)
}
