//! A host that lives a life with its unit, then does everything that a host can to recover it.

use asm2464::Bdf;
use asm2464::firmware::{CodeAddress, Image};
use asm2464_chip::chip::{
    COMMAND_OUT, Chip, DATA_IN, DATA_OUT, Driver, MemoryFunction, PacketOut, RunEnd, STATUS_IN, Speed, Unanswered,
    image_in,
};
use asm2464_chip::mcu::{CodeSpace, Observer, Step as Instruction};

use super::judge::Verdict;
use super::steps::{Data, Kind, Life, Step};
use crate::chip_images;

/// Number of instructions that a patient host waits.
const PATIENT: u64 = 2_000_000;
/// Number of packets and halts that a host handles in a command's answer.
const ROUNDS: usize = 64;
/// Number of instructions to observe in a unit that hangs.
const LOOK: u64 = 20_000;

pub struct Host<'a> {
    image: &'a Image,
    kind: Kind,
    gpu: bool,
    takes_uas: bool,
    /// `None` during a restart.
    driver: Option<Driver>,
    is_uas: bool,
    tag: u32,
    /// Instructions executed before the last restart or power cycle.
    before: u64,
    /// The flash no longer holds an image that the ROM would load.
    is_blank: bool,
}

impl<'a> Host<'a> {
    pub fn new(image: &'a Image, life: &Life) -> Self {
        let chip = chip_images::powered_on(image, life.speed).chip;
        let mut host = Self {
            image,
            kind: life.kind,
            gpu: life.gpu,
            takes_uas: life.uas,
            driver: None,
            is_uas: false,
            tag: 0,
            before: 0,
            is_blank: false,
        };
        host.plug(chip);
        host.enumerate();
        host
    }

    fn plug(&mut self, mut chip: Chip) {
        if self.gpu {
            let gpu = MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 1 << 20);
            chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu);
        }
        self.driver = Some(Driver::new(chip));
        self.is_uas = false;
    }

    fn driver(&mut self) -> &mut Driver {
        self.driver.as_mut().unwrap()
    }

    fn chip(&mut self) -> &mut Chip {
        &mut self.driver().chip
    }

    pub fn instructions(&mut self) -> u64 {
        self.before + self.chip().instructions()
    }

    /// Does all steps of a life.
    pub fn live(&mut self, life: &Life) {
        for step in &life.steps {
            self.step(step);
            self.restart_where_asked();
            if self.is_blank {
                return;
            }
        }
    }

    /// Restarts a chip that its firmware has reset.
    fn restart_where_asked(&mut self) {
        if self.chip().run(0) != RunEnd::Reset {
            return;
        }
        let chip = self.driver.take().unwrap().chip;
        self.replug(chip, |chip, code| chip.restart(code));
        self.enumerate();
    }

    fn replug(&mut self, mut chip: Chip, restart: impl FnOnce(Chip, CodeSpace) -> Chip) {
        self.before += chip.instructions();
        let image = image_in(chip.flash());
        self.is_blank = image.is_none();
        let code = CodeSpace::new(image.as_ref().unwrap_or(self.image));
        let chip = restart(chip, code);
        self.plug(chip);
    }

    fn enumerate(&mut self) -> bool {
        self.driver().set_budget(PATIENT);
        self.is_uas = false;
        let mut done = self.driver().enumerate().is_ok();
        if self.kind == Kind::Vendor && done {
            let takes_uas = self.takes_uas;
            done = self.driver().set_alternate(u8::from(takes_uas)).is_ok();
            self.is_uas = done && takes_uas;
        }
        done
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Control { setup, data, patience } => {
                self.driver().set_budget(u64::from(*patience));
                let done = self.driver().control(*setup, data).is_ok();
                if done && setup[..2] == [0x01, 11] && self.kind == Kind::Vendor {
                    self.is_uas = setup[2] == 1;
                }
                if done && setup[..2] == [0x00, 9] {
                    self.is_uas = false;
                }
            }
            Step::Command { cdb, data, packets, patience } => {
                self.driver().set_budget(u64::from(*patience));
                // The verdict decides whether the unit still works.
                let _ = match packets {
                    None if self.is_uas => self.uas(cdb, *data).map(drop),
                    None => self.bulk_only(cdb, *data).map(drop),
                    Some(packets) => self.part_of_a_command(cdb, *data, *packets),
                };
            }
            Step::Burst { cdb, tags } => {
                self.driver().set_budget(50_000);
                for tag in tags {
                    if self.driver().send_command(*tag, cdb).is_err() {
                        break;
                    }
                }
            }
            Step::Task { function, tag, of } => {
                self.driver().set_budget(100_000);
                let mut iu = vec![0x05, 0];
                iu.extend(tag.to_be_bytes());
                iu.extend([*function, 0]);
                iu.extend(of.to_be_bytes());
                iu.resize(16, 0);
                let _ = self.driver().send(COMMAND_OUT, 0, &iu);
                let _ = self.driver().receive(STATUS_IN, *tag);
            }
            Step::Packet { endpoint, stream, len, fill } => {
                self.driver().set_budget(20_000);
                let packet = vec![*fill; usize::from(*len)];
                let _ = self
                    .driver()
                    .until(|chip| (chip.bulk_out(*endpoint, *stream, &packet) != PacketOut::Nak).then_some(()));
            }
            Step::Read { endpoint, stream, packets } => {
                self.driver().set_budget(20_000);
                for _ in 0..*packets {
                    if self.driver().receive(*endpoint, *stream).is_err() {
                        break;
                    }
                }
            }
            Step::Wait(instructions) => {
                let ends = self.chip().instructions() + u64::from(*instructions);
                while let left @ 1.. = ends.saturating_sub(self.chip().instructions()) {
                    if self.chip().run(left) != RunEnd::Attention {
                        break;
                    }
                }
            }
            Step::PortReset { speed, enumerates } => {
                self.chip().bus_reset(*speed);
                if *enumerates {
                    self.enumerate();
                }
            }
            Step::Suspend => self.chip().suspend(),
            Step::Resume => self.chip().resume(),
            Step::Unplug => {
                let chip = self.driver.take().unwrap().chip;
                self.replug(chip, |mut chip, code| {
                    let speed = chip.speed();
                    Chip::power_on(code, chip.power_off(), speed)
                });
                self.enumerate();
            }
        }
    }

    /// Sends a whole command over Bulk-Only and returns its status.
    fn bulk_only(&mut self, cdb: &[u8], data: Data) -> Result<u8, Unanswered> {
        let tag = self.send_cbw(cdb, data)?;
        if let Data::Out(len) = data
            && let Err(Unanswered::Halted(endpoint)) = self.driver().send(DATA_OUT, 0, &vec![0x5A; len as usize])
        {
            self.driver().clear_halt(endpoint)?;
        }
        for _ in 0..ROUNDS {
            match self.driver().receive(DATA_IN, 0) {
                Ok(packet) if packet.len() == 13 && packet.starts_with(b"USBS") && packet[4..8] == tag => {
                    return Ok(packet[12]);
                }
                Ok(_) => {}
                Err(Unanswered::Halted(endpoint)) => self.driver().clear_halt(endpoint)?,
                Err(why) => return Err(why),
            }
        }
        Err(Unanswered::Silent(RunEnd::Parked))
    }

    fn send_cbw(&mut self, cdb: &[u8], data: Data) -> Result<[u8; 4], Unanswered> {
        self.tag = self.tag % 30 + 1;
        let (len, flags) = match data {
            Data::None => (0, 0),
            Data::In(len) => (len, 0x80),
            Data::Out(len) => (len, 0),
        };
        let tag = self.tag.to_le_bytes();
        let mut cbw = b"USBC".to_vec();
        cbw.extend(tag);
        cbw.extend(len.to_le_bytes());
        cbw.extend([flags, 0, cdb.len() as u8]);
        cbw.extend(cdb);
        cbw.resize(31, 0);
        self.driver().send(DATA_OUT, 0, &cbw)?;
        Ok(tag)
    }

    fn uas(&mut self, cdb: &[u8], data: Data) -> Result<u8, Unanswered> {
        self.tag = self.tag % 30 + 1;
        let tag = self.tag as u16;
        let out = if let Data::Out(len) = data { vec![0x5A; len as usize] } else { Vec::new() };
        self.driver().uas(tag, cdb, &out).map(|reply| reply.status.get(6).copied().unwrap_or(0xFF))
    }

    /// Sends a command and moves some of its data.
    fn part_of_a_command(&mut self, cdb: &[u8], data: Data, packets: u8) -> Result<(), Unanswered> {
        let most = self.chip().speed().bulk_packet();
        if self.is_uas {
            self.tag = self.tag % 30 + 1;
            let tag = self.tag as u16;
            self.driver().send_command(tag, cdb)?;
        } else {
            self.send_cbw(cdb, data)?;
        }
        let tag = self.tag;
        let stream = if self.is_uas && most == 1024 { tag as u16 } else { 0 };
        for _ in 0..packets {
            match data {
                Data::Out(_) => self.driver().send(DATA_OUT, stream, &vec![0x5A; most])?,
                _ => drop(self.driver().receive(DATA_IN, stream)?),
            }
        }
        Ok(())
    }

    /// Recovers the unit with increasingly strong means.
    pub fn recover(&mut self) -> Verdict {
        if self.is_blank {
            return Verdict::Blank;
        }
        self.chip().resume();
        self.driver().set_budget(PATIENT);
        if self.answers() {
            return Verdict::Answers;
        }
        self.restart_where_asked();
        self.clean_up();
        if self.answers() {
            return Verdict::AfterControlRequests;
        }
        let speed = self.chip().speed();
        self.takes_uas = false;
        for speed in [speed, Speed::Super, Speed::High, Speed::Super] {
            self.restart_where_asked();
            self.chip().bus_reset(speed);
            if self.enumerate() && self.answers() {
                return Verdict::AfterPortReset;
            }
        }
        self.describe()
    }

    /// Does what drivers do after a command has timed out, except a port reset.
    fn clean_up(&mut self) {
        let requests: &[[u8; 8]] = match self.kind {
            Kind::Vendor => &[
                [0x21, 0xFF, 0, 0, 0, 0, 0, 0],
                [0x02, 1, 0, 0, 0x81, 0, 0, 0],
                [0x02, 1, 0, 0, 0x02, 0, 0, 0],
                [0x00, 9, 1, 0, 0, 0, 0, 0],
                [0x01, 11, 0, 0, 0, 0, 0, 0],
            ],
            Kind::Open => &[
                [0x02, 1, 0, 0, 0x81, 0, 0, 0],
                [0x02, 1, 0, 0, 0x02, 0, 0, 0],
                [0x00, 9, 1, 0, 0, 0, 0, 0],
                [0x01, 11, 0, 0, 0, 0, 0, 0],
            ],
        };
        for setup in requests {
            let _ = self.driver().control(*setup, &[]);
        }
        self.is_uas = false;
    }

    /// Whether the unit works: its descriptors, and its kind of firmware's basic commands.
    fn answers(&mut self) -> bool {
        if !self.driver().descriptor(1, 0, 18).is_ok_and(|bytes| bytes.len() == 18) {
            return false;
        }
        match self.kind {
            Kind::Vendor => {
                let inquiry = [0x12, 0, 0, 0, 36, 0];
                // The first command may get a unit attention or an earlier command's leftovers.
                (0..2).any(|_| {
                    let status = if self.is_uas {
                        self.uas(&inquiry, Data::In(36))
                    } else {
                        self.bulk_only(&inquiry, Data::In(36))
                    };
                    status == Ok(0)
                })
            }
            Kind::Open => {
                let wrote = self.driver().control([0x40, 0xE5, 0xF0, 0x5F, 0xA7, 0, 0, 0], &[]).is_ok();
                wrote
                    && self.driver().control([0xC0, 0xE4, 0xF0, 0x5F, 0, 0, 1, 0], &[]) == Ok(vec![0xA7])
                    && self.moves_sram()
            }
        }
    }

    /// Open firmware: sends 512 bytes to the SRAM, as `doctor --write` does. The practice image's variant has no F2.
    fn moves_sram(&mut self) -> bool {
        match self.driver().control([0x40, 0xF2, 1, 0, 0, 1, 0, 0], &[]) {
            Ok(_) => {}
            Err(Unanswered::Stall) => return true,
            Err(_) => return false,
        }
        let sent = self.driver().send(DATA_OUT, 0, &[0x3C; 512]).is_ok();
        let _ = self.driver().settle();
        sent && self.driver().control([0xC0, 0xE4, 0x50, 0xC4, 0, 0, 1, 0], &[]) == Ok(vec![0])
    }

    /// Describes where the CPU is in a unit that can't be recovered.
    fn describe(&mut self) -> Verdict {
        let outcome = match self.chip().run(LOOK) {
            RunEnd::Attention => self.chip().run(LOOK),
            outcome => outcome,
        };
        let control = self.driver().descriptor(1, 0, 18).is_ok();
        let is_on_bus = self.chip().is_on_bus();
        let mut places = Places::default();
        self.chip().run_observed(LOOK, &mut places);
        let pc = self.chip().pc();
        let here = CodeAddress::fetched((pc >> 16) as u8, pc as u16);
        let from = places.lowest.or(here);
        Verdict::Dead { outcome, control, is_on_bus, from, to: places.highest.or(here) }
    }
}

/// The range of addresses that the code runs in.
#[derive(Default)]
struct Places {
    lowest: Option<CodeAddress>,
    highest: Option<CodeAddress>,
}

impl Observer for Places {
    fn before(&mut self, step: &Instruction<'_>) {
        self.lowest = Some(self.lowest.map_or(step.at, |lowest| lowest.min(step.at)));
        self.highest = Some(self.highest.map_or(step.at, |highest| highest.max(step.at)));
    }
}
