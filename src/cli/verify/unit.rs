//! `verify --device`: compares a unit's flash with an image.

use crate::flash::access::Access;
use crate::flash::backup::Backup;
use crate::flash::progress::FlashStep;
use crate::unit::{self, Selector};
use asm2464::AnyFailure;
use asm2464::escape::Escape as _;
use asm2464::firmware::{FileOffset, Part};
use serde::Serialize;

use crate::cli::arguments::{UnitArgs, opened};
use crate::cli::context::Context;
use crate::cli::flash::Screen;
use crate::cli::interrupt;

/// The `unit` key of `--json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "UnitFlash"))]
pub struct Comparison {
    /// The unit's port, as `--device` takes it.
    device: String,
    /// Whether its flash has the image.
    pub ok: bool,
    /// How many bytes differ.
    differing_bytes: usize,
    /// The first differing byte: its place in the file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_file_offset: Option<u32>,
    /// The first differing byte: its place in flash, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_flash_address: Option<u32>,
}

/// Reads a unit's whole flash, through vendor commands or registers. Writes nothing.
///
/// # Errors
/// Fails if no unit is found, or if it does not allow reading its flash.
pub fn read(selector: &Selector, ids: &UnitArgs, context: &Context) -> Result<Backup, AnyFailure> {
    let interrupt = interrupt::install();
    let devices = ids.load()?;
    let mut port = opened(Some(selector), |device| unit::port(&devices, device, None))?;
    let mut access = Access::open(&mut *port)?;
    Screen::backup(context, &mut *port, &mut access, FlashStep::Compare, interrupt)
}

impl Comparison {
    /// Compares a unit's flash with an image file.
    pub fn of(unit: &Backup, file: &[u8]) -> Self {
        let parts = Part::ALL.into_iter().zip(&unit.parts);
        let found = parts.flat_map(|(part, found)| part.of(file).iter().zip(found));
        let mut differing = found.enumerate().filter(|(_, (wanted, found))| wanted != found);
        let first = differing.next().map(|(at, _)| FileOffset(at as u32));
        Self {
            device: unit.unit.device.clone(),
            ok: first.is_none(),
            differing_bytes: usize::from(first.is_some()) + differing.count(),
            first_file_offset: first.map(|first| first.0),
            first_flash_address: first.map(|first| first.flash_address().0),
        }
    }

    /// Prints whether the flash has the image.
    pub fn print(&self) {
        let device = self.device.shown();
        let Some(first) = self.first_file_offset.map(FileOffset) else {
            return outln!("  {device}: its flash has this image");
        };
        let (count, address) = (self.differing_bytes, first.flash_address());
        outln!("  {device}: its flash has another image: {count} bytes differ, the first at {first}, {address}");
    }
}
