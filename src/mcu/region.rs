//! The XDATA map: which addresses are memory and which are registers.

use std::fmt;

/// What stands at an XDATA address. Source: cyrozap's notes and tinygrad's tools, for the ASM2464PD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// 0x0000-0x5FFF: RAM.
    Ram,
    /// 0x7000-0x7FFF: the SPI flash controller's buffer.
    FlashBuffer,
    /// 0x8000-0x8FFF: the USB and SCSI data buffer.
    DataBuffer,
    /// 0x9000-0x93FF: the USB controller.
    Usb,
    /// 0x9E00-0x9FFF: the control endpoint's buffer.
    ControlBuffer,
    /// 0xA000-0xB1FF: NVMe queues.
    NvmeQueues,
    /// 0xB200-0xB4FF: the PCIe TLP engine.
    Tlp,
    /// 0xC000-0xCFFF: UART, SPI flash controller, SCSI DMA and other peripherals.
    Peripherals,
    /// 0xF000-0xFFFF: the first 4 KiB of the data buffer as PCIe sees it.
    DataWindow,
    /// Anything else: not in any map that is known.
    Unmapped,
}

impl Region {
    /// What stands at an address of the main page.
    pub const fn of(addr: u16) -> Self {
        match addr {
            0x0000..=0x5FFF => Self::Ram,
            0x7000..=0x7FFF => Self::FlashBuffer,
            0x8000..=0x8FFF => Self::DataBuffer,
            0x9000..=0x93FF => Self::Usb,
            0x9E00..=0x9FFF => Self::ControlBuffer,
            0xA000..=0xB1FF => Self::NvmeQueues,
            0xB200..=0xB4FF => Self::Tlp,
            0xC000..=0xCFFF => Self::Peripherals,
            0xF000..=0xFFFF => Self::DataWindow,
            _ => Self::Unmapped,
        }
    }

    /// Whether reading or writing may do more than move a byte.
    pub const fn is_register(self) -> bool {
        match self {
            Self::Usb | Self::Tlp | Self::Peripherals | Self::Unmapped => true,
            Self::Ram
            | Self::FlashBuffer
            | Self::DataBuffer
            | Self::ControlBuffer
            | Self::NvmeQueues
            | Self::DataWindow => false,
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ram => "RAM",
            Self::FlashBuffer => "SPI flash buffer",
            Self::DataBuffer => "data buffer",
            Self::Usb => "USB controller",
            Self::ControlBuffer => "control buffer",
            Self::NvmeQueues => "NVMe queues",
            Self::Tlp => "PCIe TLP engine",
            Self::Peripherals => "peripherals",
            Self::DataWindow => "data buffer window",
            Self::Unmapped => "unmapped",
        })
    }
}
