//! `verify --device`: compares a unit's flash with an image.

use serde::Serialize;

use crate::cli::Context;
use crate::cli::flash::Screen;
use crate::cli::known::DeviceIds;
use crate::escape::Escape as _;
use crate::failure::AnyFailure;
use crate::firmware::{FileOffset, Part};
use crate::flash::backup::Backup;
use crate::flash::progress::FlashStep;
use crate::interrupt;
use crate::unit::{self, Selector};

/// The contents of a unit's flash.
pub struct UnitFlash(Backup);

/// The difference between the flash and an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashDifference {
    count: usize,
    first: FileOffset,
}

/// The `unit` key of `--json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "UnitFlash"))]
pub struct FlashComparison {
    /// The unit's port, as `--device` takes it.
    device: String,
    /// Whether its flash holds the image.
    holds: bool,
    /// How many bytes differ.
    differing_bytes: usize,
    /// The first differing byte: its place in the file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_file_offset: Option<u32>,
    /// The first differing byte: its place in flash, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_flash_address: Option<u32>,
}

impl UnitFlash {
    /// Reads the whole flash, through vendor commands or registers. Writes nothing.
    ///
    /// # Errors
    /// Fails if no unit is found, or if it does not allow reading its flash.
    pub fn read(selector: &Selector, ids: &DeviceIds, context: &Context) -> Result<Self, AnyFailure> {
        let interrupt = interrupt::install();
        let mut port = unit::port(&ids.load()?, Some(selector), None)?;
        Ok(Self(Screen::backup(context, &mut *port, FlashStep::Compare, interrupt)?))
    }

    /// Compares the flash with an image file; `None` if it holds the image.
    pub fn difference(&self, file: &[u8]) -> Option<FlashDifference> {
        let parts = Part::ALL.into_iter().zip(&self.0.parts);
        let found = parts.flat_map(|(part, found)| part.of(file).iter().zip(found));
        let mut differing = found.enumerate().filter(|(_, (wanted, found))| wanted != found);
        let (first, _) = differing.next()?;
        Some(FlashDifference { count: 1 + differing.count(), first: FileOffset(first as u32) })
    }

    /// Prints whether the flash holds an image.
    pub fn print(&self, difference: Option<FlashDifference>) {
        let device = self.0.unit.device.shown();
        match difference {
            None => outln!("  {device}: its flash holds this image"),
            Some(FlashDifference { count, first }) => outln!(
                "  {device}: its flash holds another: {count} bytes differ, the first at {first}, {}",
                first.flash_address()
            ),
        }
    }

    /// Returns the same result for `--json`.
    pub fn json(&self, difference: Option<FlashDifference>) -> FlashComparison {
        FlashComparison {
            device: self.0.unit.device.clone(),
            holds: difference.is_none(),
            differing_bytes: difference.map_or(0, |difference| difference.count),
            first_file_offset: difference.map(|difference| difference.first.0),
            first_flash_address: difference.map(|difference| difference.first.flash_address().0),
        }
    }
}
