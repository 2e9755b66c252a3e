//! Writes by vendor commands: E1 and E3.
//!
//! The flash is erased in one place only: E1 of block 0 erases both 64 KiB blocks of the slot, and with them both
//! configuration blocks and both parts of the firmware. E1 of block 1 and E3 program what is erased. Source: 240417,
//! where the erase routine at b0:0xC73C has a single caller, b0:0xD377, in E1. No part can be erased alone. So every
//! write covers the whole slot from block 0 on, in the order of tinygrad's tools, and starts again from there if the
//! readback differs.

use asm2464::firmware::{BlockIndex, kept_bytes};
use asm2464_host::bridge::Bridge;

use super::{ATTEMPTS, UnitRun, is_final};
use crate::flash::access::{Access, FlashReader};
use crate::flash::backup;
use crate::flash::error::FlashError;
use crate::flash::progress::{FlashEvent, FlashStep, StoppedState};

impl UnitRun<'_> {
    /// Writes the slot until it reads back correctly, a few times at most.
    pub(super) fn write_by_commands(&mut self, mut bridge: Bridge) -> Result<Access, FlashError> {
        for attempt in 1.. {
            let mut outcome = self.write_once(&mut bridge);
            if outcome.is_ok() && self.plan.reads_back() {
                outcome = self.compare(&mut bridge, attempt);
            }
            match outcome {
                Ok(()) => break,
                Err(error) if attempt == ATTEMPTS || is_final(&error) => return Err(error),
                Err(FlashError::Differs(_)) if self.has_backups_contents(&mut bridge).unwrap_or(false) => {
                    self.stands(StoppedState::Untouched);
                    return Err(FlashError::Protected);
                }
                Err(error) => {
                    self.trouble(&format!("{error}: writing everything again from the erase on"));
                }
            }
        }
        Ok(Access::Commands(bridge))
    }

    /// Whether the slot reads as in the backup that was made before the write.
    fn has_backups_contents(&self, reader: &mut dyn FlashReader) -> Result<bool, FlashError> {
        let Some(backup) = &self.backup else { return Ok(false) };
        for (index, bytes) in BlockIndex::ALL.into_iter().zip(&backup.blocks) {
            if kept_bytes(&reader.block(index)?) != kept_bytes(bytes) {
                return Ok(false);
            }
        }
        Ok(backup::differing_part(reader, &backup.parts)?.is_none())
    }

    fn write_once(&mut self, bridge: &mut Bridge) -> Result<(), FlashError> {
        let plan = self.plan;
        for block in &plan.blocks {
            let step = FlashStep::WriteBlock(block.index);
            self.begin(step);
            self.stands(StoppedState::Incomplete);
            bridge.write_config(block.index, &block.new)?;
            self.observer.event(FlashEvent::Moved(block.new.len() as u64));
            self.end(step, "written");
        }
        for (part, bytes) in plan.parts() {
            let step = FlashStep::WritePart(part);
            self.begin(step);
            bridge.write_flash(part, bytes)?;
            self.observer.event(FlashEvent::Moved(bytes.len() as u64));
            self.end(step, &format!("{} bytes", bytes.len()));
        }
        self.stands(StoppedState::Complete);
        Ok(())
    }
}
