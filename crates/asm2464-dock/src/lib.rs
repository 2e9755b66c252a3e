//! An ASM2464PD unit in software, for those who test without a dock: it powers on like the chip, runs the firmware in its
//! flash on the model of `asm2464-chip`, and is driven by the code of `asm2464-host` or by a kernel over usbredir.
//!
//! [`virtual_unit`] is the unit, [`tiny_gpu`] a GPU that it can have behind it, with a driver, [`pcap`] records what
//! goes over its wire, and [`record`] makes a unit of such a recording.
//!
//! Read XDATA: the version of the running firmware.
//!
//! ```
//! use asm2464_host::bridge::Port;
//! use asm2464::scsi::XdataAddress;
//! use asm2464_dock::virtual_unit::{Scenario, VirtualUnit, VirtualPort};
//!
//! let unit = VirtualUnit::in_memory(Scenario::default(), b"seed of its serial number", None)?;
//! let mut bridge = VirtualPort::new("unit", unit).open()?;
//! let mut version = [0; 6];
//! bridge.xdata_read(XdataAddress::VERSION, &mut version)?;
//! assert_eq!(version, [0x26, 0x11, 0x21, 0x00, 0x00, 0x01]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Read a device's BAR through either firmware.
//!
//! ```
//! use asm2464_host::bridge::Port;
//! use asm2464_host::pcie::{NoTime, Pcie, PcieError, Scope, TlpEngine, VendorTlp};
//! use asm2464_dock::virtual_unit::{Scenario, VirtualUnit, VirtualPort};
//!
//! /// The first four bytes of the GPU's first BAR.
//! fn first_bytes(engine: &mut dyn TlpEngine) -> Result<[u8; 4], PcieError> {
//!     let mut patience = NoTime;
//!     let mut pcie = Pcie::new(engine, &mut patience);
//!     let mut survey = pcie.survey(Scope::USUAL)?;
//!     pcie.assign(&mut survey)?;
//!     let gpu = survey.functions.iter().find(|function| function.class >> 16 == 0x03).expect("the unit has a GPU");
//!     let mut bytes = [0; 4];
//!     pcie.memory_write(gpu.bars[0].address, b"GPU!")?;
//!     pcie.memory_read(gpu.bars[0].address, &mut bytes)?;
//!     Ok(bytes)
//! }
//!
//! let port = |scenario: &str| {
//!     let scenario = Scenario::parse(scenario).expect("keys that exist");
//!     let unit = VirtualUnit::in_memory(scenario, b"seed of its serial number", None)?;
//!     Ok::<_, Box<dyn std::error::Error>>(VirtualPort::new("unit", unit))
//! };
//! let mut vendor = port("behind = \"gpu\"")?.open()?;
//! assert_eq!(first_bytes(&mut VendorTlp::new(&mut vendor))?, *b"GPU!");
//! let mut open = port("behind = \"gpu\"\nfactory = \"open\"")?.open_control()?;
//! assert_eq!(first_bytes(&mut open)?, *b"GPU!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod files;
pub mod pcap;
pub mod record;
pub mod tiny_gpu;
pub mod virtual_unit;
