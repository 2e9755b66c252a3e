//! The open firmware's control requests, their wire formats, and what C0's answer says.
//!
//! Source: tinygrad's open firmware and runtime client, openpilot's flasher.

use std::ops::{Range, RangeInclusive};

use asm2464::scsi::{XdataAddress, opcode};
use asm2464::sram::{SRAM_SECTOR_LEN, SRAM_SLOT_LEN};
use asm2464::tlp::{COMPLETION_LEN, Tlp};

use crate::bridge::pipes::{Endpoint, SETUP_LEN};

/// bmRequestType: vendor request to the device, with data to the host or from it.
const VENDOR_IN: u8 = 0xC0;
const VENDOR_OUT: u8 = 0x40;
/// F0, wIndex bits 1:0.
const ONE_TLP: u16 = 0;
const STREAM_OF_WRITES: u16 = 1;
const STREAM_OF_READS: u16 = 2;
/// F2, wValue bit 15: from the SRAM to the host.
const TO_HOST: u16 = 0x8000;

/// Bytes of F0's data from the host: address and value.
pub const TLP_LEN: usize = 12;
/// Most bytes of C0's answer.
pub const SUPPLY_LEN: usize = 5;
/// Fewest bytes of C0's answer: voltage and current.
const SUPPLY_LEN_MIN: usize = 4;

/// A typed control request of the open firmware. Its `Display` is its name in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum OpenCommand {
    /// E4: reads XDATA.
    #[display("E4 (read {from})")]
    XdataRead {
        /// First address.
        from: XdataAddress,
        /// Length in bytes: at most 255 at SuperSpeed and 64 at high speed. Longer answers are cut, and some builds
        /// give less.
        len: u16,
    },
    /// E5: writes one byte of XDATA.
    #[display("E5 (write {at})")]
    XdataWrite {
        /// Address.
        at: XdataAddress,
        /// Value.
        value: u8,
    },
    /// F0: sends one TLP.
    #[display("F0 ({_0})")]
    Tlp(Tlp),
    /// F0: fetches the completion of the last TLP.
    #[display("F0 (completion)")]
    Completion,
    /// F0, mode 1: writes memory from this address on. The data follows on 0x02.
    #[display("F0 (stream of memory writes at {address:#x})")]
    StreamWrite {
        /// Address on the PCIe side, a multiple of 4.
        address: u64,
        /// Number of dwords.
        dwords: u32,
    },
    /// F0, mode 2: reads memory from this address on. The data follows on 0x81.
    #[display("F0 (stream of memory reads at {address:#x})")]
    StreamRead {
        /// Address on the PCIe side, a multiple of 4.
        address: u64,
        /// Number of dwords.
        dwords: u32,
    },
    /// F2: arms the SRAM DMA.
    #[display("F2 (arm the SRAM DMA)")]
    ArmSram(SramTransfer),
    /// F3: switches PCIe power on or off.
    #[display("F3 (PCIe power {})", if *_0 { "on" } else { "off" })]
    PciePower(bool),
    /// F4: lets the link train at SuperSpeed, and resets the CPU.
    #[display("F4 (restart at SuperSpeed)")]
    RestartAtSuperSpeed,
    /// C0: reads voltage and current of the supply.
    #[display("C0 (supply voltage)")]
    Supply,
}

/// A transfer between a bulk pipe and the SRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SramTransfer {
    /// Direction: `true` from the SRAM to the host, on 0x81; `false` from the host, on 0x02.
    pub to_host: bool,
    /// The first slot, of 32.
    pub first_slot: u8,
    /// Number of sectors of [`SRAM_SECTOR_LEN`] bytes, at most 1,024: all of the SRAM.
    pub sectors: u16,
}

impl SramTransfer {
    /// Number of slots of [`SRAM_SLOT_LEN`] bytes that the transfer touches.
    pub const fn slots(self) -> u8 {
        (self.sectors as usize * SRAM_SECTOR_LEN).div_ceil(SRAM_SLOT_LEN) as u8
    }
}

impl OpenCommand {
    /// Encodes the setup packet.
    pub const fn setup(&self) -> [u8; SETUP_LEN] {
        match *self {
            Self::XdataRead { from, len } => setup(VENDOR_IN, opcode::XDATA_READ, from.addr, page(from) << 8, len),
            Self::XdataWrite { at, value } => {
                setup(VENDOR_OUT, opcode::XDATA_WRITE, at.addr, page(at) << 8 | value as u16, 0)
            }
            Self::Tlp(tlp) => {
                let value = u16::from_le_bytes([tlp.kind as u8, tlp.enables]);
                setup(VENDOR_OUT, 0xF0, value, ONE_TLP, TLP_LEN as u16)
            }
            Self::Completion => setup(VENDOR_IN, 0xF0, 0, 0, COMPLETION_LEN as u16),
            Self::StreamWrite { .. } => setup(VENDOR_OUT, 0xF0, 0x0F60, STREAM_OF_WRITES, TLP_LEN as u16),
            Self::StreamRead { .. } => setup(VENDOR_OUT, 0xF0, 0x0F20, STREAM_OF_READS, TLP_LEN as u16),
            Self::ArmSram(transfer) => {
                let direction = if transfer.to_host { TO_HOST } else { 0 };
                let index = u16::from_le_bytes([transfer.first_slot, transfer.slots()]);
                setup(VENDOR_OUT, 0xF2, direction | (transfer.sectors & !TO_HOST), index, 0)
            }
            Self::PciePower(on) => setup(VENDOR_OUT, 0xF3, on as u16, 0, 0),
            Self::RestartAtSuperSpeed => setup(VENDOR_OUT, 0xF4, 1, 0, 0),
            Self::Supply => setup(VENDOR_IN, 0xC0, 0, 0, SUPPLY_LEN as u16),
        }
    }

    /// Encodes the data from the host; `None` if the request has none.
    pub fn data(&self) -> Option<[u8; TLP_LEN]> {
        let (address, value) = match *self {
            Self::Tlp(tlp) => (tlp.address, tlp.value),
            Self::StreamWrite { address, dwords } | Self::StreamRead { address, dwords } => (address, dwords),
            _ => return None,
        };
        let mut data = [0; TLP_LEN];
        data[..8].copy_from_slice(&address.to_le_bytes());
        data[8..].copy_from_slice(&value.to_le_bytes());
        Some(data)
    }

    /// Bytes of data that the request asks for or sends: wLength.
    pub(crate) const fn len(&self) -> usize {
        let setup = self.setup();
        u16::from_le_bytes([setup[6], setup[7]]) as usize
    }

    /// Lengths of the data that builds move for the request, in bytes.
    ///
    /// | request | builds | what they do |
    /// | --- | --- | --- |
    /// | E4 | since April 2026 | give what is asked for, up to 512 bytes at SuperSpeed and 64 at high speed |
    /// | | the boot stub (ADD1:B007), and builds that copy one packet | give at most 64 bytes at either speed |
    /// | E5, F0, F2 | all | move exactly what the request says |
    /// | F3 | since c5e2090 (29 April) at the latest | switch PCIe, and answer afterwards |
    /// | F4 | `ed4e39b7-quiet1` | restart: see [`restarts_by_f4`](asm2464::firmware::restarts_by_f4) |
    /// | C0 | up to c5e2090 | don't know it |
    /// | | 8372613 (8 June) to 4cd3687 (30 July) | 4 bytes: voltage and current |
    /// | | since a2d2144 | 5 bytes: also the fault line |
    ///
    /// A build doesn't answer a read that it doesn't know, acknowledges a request without data, or stalls either.
    ///
    /// Source: `handmade/src/main.c` in the public history of tinygrad/asm2464pd-firmware, as read. Only c5e2090,
    /// 8372613, af372f8, 821f218 and ed4e39b were executed on the chip model (`tests/program/builds.rs`); where a row
    /// names a build between them, or the boot stub, it has not been.
    pub(super) const fn moves(&self) -> RangeInclusive<usize> {
        let least = match self {
            Self::XdataRead { len: 0, .. } => 0,
            Self::XdataRead { .. } => 1,
            // Fewer bytes than voltage and current are those of a build that doesn't know the request.
            Self::Supply => 0,
            _ => self.len(),
        };
        least..=self.len()
    }

    /// Whether the request's data goes to the host.
    pub const fn is_read(&self) -> bool {
        self.setup()[0] == VENDOR_IN
    }
}

/// What C0 says about the board's supply. Source: open firmware ed4e39b.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Supply {
    /// Voltage and current; `None` on boards without a sensor, where the firmware answers zeros.
    pub measured: Option<SupplyMeasurement>,
    /// Whether the board's fault line is active: GPIO 1 is low; `None` from builds that don't report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_fault: Option<bool>,
}

impl Supply {
    /// Reads an answer of any length that builds give; `None` for a shorter one.
    pub(super) fn parse(answer: &[u8]) -> Option<Self> {
        let (measurement, rest) = answer.split_first_chunk::<SUPPLY_LEN_MIN>()?;
        let measured = match *measurement {
            [0, 0, 0, 0] => None,
            [v0, v1, i0, i1] => Some(SupplyMeasurement {
                voltage_mv: u16::from_le_bytes([v0, v1]),
                current_ma: i16::from_le_bytes([i0, i1]),
            }),
        };
        Some(Self { measured, has_fault: rest.first().map(|fault| *fault != 0) })
    }
}

/// The board's measurement of its supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "SupplyJson"))]
pub struct SupplyMeasurement {
    /// Millivolts.
    pub voltage_mv: u16,
    /// Milliamperes.
    pub current_ma: i16,
}

/// The page as a value of SFR 0x93: the lowest bit of the page byte in E4's and E5's CDBs.
const fn page(at: XdataAddress) -> u16 {
    at.page as u16 & 1
}

const fn setup(request_type: u8, request: u8, value: u16, index: u16, length: u16) -> [u8; SETUP_LEN] {
    let ([value_low, value_high], [index_low, index_high]) = (value.to_le_bytes(), index.to_le_bytes());
    let [length_low, length_high] = length.to_le_bytes();
    [request_type, request, value_low, value_high, index_low, index_high, length_low, length_high]
}

/// One transfer of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenJob {
    /// A control request.
    Control(OpenCommand),
    /// Bulk data of this many bytes: to the unit on [`Endpoint::DataOut`], from it on [`Endpoint::DataIn`].
    Bulk(Endpoint, usize),
}

impl OpenJob {
    /// The bulk endpoint; `None` for the control endpoint.
    pub(super) const fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::Control(_) => None,
            Self::Bulk(endpoint, _) => Some(endpoint),
        }
    }

    /// Whether both use the same endpoint, which keeps their order.
    pub(super) fn goes_with(self, other: Self) -> bool {
        self.endpoint() == other.endpoint()
    }

    /// Number of bytes that the transfer asks for or sends.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Control(command) => command.len(),
            Self::Bulk(_, len) => len,
        }
    }

    /// Numbers of bytes with which the transfer is complete.
    pub(super) const fn moves(self) -> RangeInclusive<usize> {
        match self {
            Self::Control(command) => command.moves(),
            Self::Bulk(_, len) => len..=len,
        }
    }

    /// Range of the received data in the buffer, if the transfer moved `moved` bytes.
    pub(super) fn brought(self, moved: usize) -> Range<usize> {
        match self {
            Self::Control(command) if command.is_read() => SETUP_LEN..SETUP_LEN + moved,
            Self::Bulk(Endpoint::DataIn, _) => 0..moved,
            _ => 0..0,
        }
    }
}

/// A request, as errors and the log name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum OpenRequest {
    /// A control request, or the bulk data that it announced.
    Command(OpenCommand),
    /// Bulk data that no control request announced.
    #[display("bulk data {} the unit", if *_0 == Endpoint::DataIn { "from" } else { "to" })]
    Bulk(Endpoint),
    /// A reset of the port.
    #[display("a reset of the port")]
    PortReset,
}

impl OpenRequest {
    /// The request of a job, given the last control request.
    pub(super) fn of(job: OpenJob, armed_by: Option<OpenCommand>) -> Self {
        match (job, armed_by) {
            (OpenJob::Control(command), _) | (_, Some(command)) => Self::Command(command),
            (OpenJob::Bulk(endpoint, _), None) => Self::Bulk(endpoint),
        }
    }
}
