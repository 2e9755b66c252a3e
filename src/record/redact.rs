//! Takes out of a record what is private, before it goes into a report.
//!
//! Only what is known to identify nobody stays: short answers to known requests. Data from the flash becomes a
//! reference to it. The report holds the flash without serial number and USB4 identity, and the image by its digest.
//! Everything else is withheld: memory, a drive's identity, data of unknown requests.

use asm2464::digest::{Sha256Digest, to_hex};
use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, Image, Part};
use asm2464::scsi::bot::{CSW_LEN, CommandBlockWrapper};
use asm2464::scsi::{Cdb, opcode};
use asm2464_dock::record::{Data, DataPart, Event, Opening};
use asm2464_host::bridge::Endpoint;

use super::{IMAGE_AT, MAX_IMAGE, ReportedFlash, ReportedImage, ReportedOpening, ReportedRecord};
use crate::flash::backup::container_len;
use crate::flash::identity::is_nobodys;
use crate::patch::{Expectations, Library, verify};

/// Maximum number of bytes of memory that are shown: registers and variables. Longer reads may hold anything.
const MEMORY_MAX: usize = 16;
/// Maximum number of bytes of other answers that are shown.
const ANSWER_MAX: usize = 64;
/// Maximum number of bytes of a flash reading that are shown because they differ from the last reading.
const UNSTABLE_MAX: usize = 16;
/// Minimum length in bytes of a text that is replaced wherever it occurs.
const TEXT_MIN: usize = 4;
/// Number of digits that replace a serial number in a block.
const SERIAL_DIGITS: usize = 12;
/// Place of the model number in Identify Controller. Source: NVMe base specification 1.4, figure 247.
const MODEL: std::ops::Range<usize> = 24..64;
/// The flash controller's registers and its buffer: see `asm2464::flash`.
const FLASH_ADDRESS: [u16; 3] = [0xC8A1, 0xC8A2, 0xC8AB];
const FLASH_COMMAND: u16 = 0xC8AA;
const FLASH_START: u16 = 0xC8A9;
const FLASH_BUFFER: std::ops::Range<usize> = 0x7000..0x8000;
const FLASH_READ: u8 = 0x03;
/// bRequests of the open firmware, besides E4 and E5, whose short answers are shown: TLPs and their completions, the
/// SRAM's DMA, power, supply.
const SHOWN_REQUESTS: [u8; 4] = [0xF0, 0xF2, 0xF3, 0xC0];

/// What is known of data from the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They identify nobody if they have at most this many bytes.
    Short(usize),
    /// The contents of the flash from this address on.
    Flash(usize),
    /// A drive's Identify Controller.
    Identify,
    /// Nothing.
    Unknown,
}

/// Follows the requests of one opening.
#[derive(Default)]
struct Tracker {
    cdb: Option<Cdb>,
    /// The flash controller's address and command registers.
    address: [u8; 3],
    command: u8,
    /// What the flash controller's buffer holds, if a read filled it.
    loaded: Option<usize>,
    /// What each submission returns.
    kinds: Vec<Kind>,
}

impl Tracker {
    /// Follows a submission. Returns whether the data to the unit may be shown.
    fn submitted(&mut self, event: &Event) -> bool {
        match event {
            Event::Bulk { endpoint: Endpoint::DataOut, data, .. } => {
                let wrapper = CommandBlockWrapper::parse(&bytes(data));
                self.kinds.push(Kind::Unknown);
                let is_run = matches!(data.parts(), [] | [DataPart::Run(..)]);
                let is_wrapper = wrapper.is_some();
                self.cdb = wrapper.map(|wrapper| wrapper.cdb).or(self.cdb);
                is_wrapper || is_run
            }
            Event::Bulk { endpoint: Endpoint::DataIn, .. } => {
                self.kinds.push(self.cdb.as_ref().map_or(Kind::Unknown, answer));
                true
            }
            Event::Bulk { .. } => {
                self.kinds.push(Kind::Unknown);
                true
            }
            Event::Control { setup: [kind, request, low, high, value, ..], data } => {
                let at = u16::from_le_bytes([*low, *high]);
                if (*kind, *request) == (0x40, opcode::XDATA_WRITE) {
                    self.wrote(at, *value);
                }
                self.kinds.push(match *request {
                    opcode::XDATA_READ => match (usize::from(at), self.loaded) {
                        (at, Some(loaded)) if FLASH_BUFFER.contains(&at) => {
                            Kind::Flash(loaded + at - FLASH_BUFFER.start)
                        }
                        _ => Kind::Short(MEMORY_MAX),
                    },
                    request if SHOWN_REQUESTS.contains(&request) => Kind::Short(ANSWER_MAX),
                    _ => Kind::Unknown,
                });
                data.len() <= MEMORY_MAX
            }
            _ => true,
        }
    }

    fn wrote(&mut self, at: u16, value: u8) {
        if let Some(index) = FLASH_ADDRESS.iter().position(|register| *register == at) {
            self.address[index] = value;
        }
        match at {
            FLASH_COMMAND => self.command = value,
            FLASH_START if value & 1 != 0 => {
                let [low, middle, high] = self.address.map(usize::from);
                self.loaded = (self.command == FLASH_READ).then_some(high << 16 | middle << 8 | low);
            }
            _ => {}
        }
    }
}

/// What a command of the vendor's firmware returns.
fn answer(cdb: &Cdb) -> Kind {
    let byte = cdb.padded();
    match cdb.opcode() {
        opcode::INQUIRY if byte[1] == 0 => Kind::Short(ANSWER_MAX),
        opcode::TEST_UNIT_READY | opcode::REQUEST_SENSE | opcode::READ_CAPACITY_10 => Kind::Short(ANSWER_MAX),
        opcode::XDATA_READ => Kind::Short(MEMORY_MAX),
        opcode::CONFIG_READ if byte[1] == 0x50 && byte[2] < 2 => Kind::Flash(usize::from(byte[2]) * CONFIG_BLOCK_LEN),
        opcode::FLASH_READ => match Part::ALL.into_iter().find(|part| part.mode() == byte[1]) {
            Some(part) => Kind::Flash(part.flash_address().0 as usize),
            None => Kind::Unknown,
        },
        opcode::NVME_ADMIN => Kind::Identify,
        _ => Kind::Unknown,
    }
}

/// Recorded data as bytes: zeros where the record only has their number.
fn bytes(data: &Data) -> Vec<u8> {
    let of = |part: &DataPart| match part {
        DataPart::Bytes(bytes) => bytes.clone(),
        DataPart::Run(byte, len) => vec![*byte; *len],
        DataPart::Flash(_, len) | DataPart::Withheld(len) => vec![0; *len],
    };
    data.parts().iter().flat_map(of).collect()
}

/// Splits data from the unit into the data proper and the CSW at their end, if there is one.
fn split(data: &Data) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = bytes(data);
    let status_at = bytes.len().checked_sub(CSW_LEN).filter(|at| bytes[*at..].starts_with(b"USBS"));
    let status = status_at.map(|at| bytes.split_off(at)).unwrap_or_default();
    (bytes, status)
}

/// Whether private data is already removed, as in the recording of a replayed report.
fn is_redacted(data: &Data) -> bool {
    data.parts().iter().any(|part| matches!(part, DataPart::Flash(..) | DataPart::Withheld(..)))
}

/// What was read of the flash, byte by byte.
struct SeenFlash(Vec<Option<u8>>);

impl SeenFlash {
    /// Keeps the last reading: a flash that reads differently is read until two readings are equal.
    fn see(&mut self, at: usize, bytes: &[u8]) {
        self.0.iter_mut().skip(at).zip(bytes).for_each(|(known, byte)| *known = Some(*byte));
    }

    fn range(&self, range: std::ops::Range<usize>) -> Option<Vec<u8>> {
        self.0.get(range)?.iter().copied().collect()
    }

    fn block(&self, index: BlockIndex) -> Option<ConfigBlock> {
        let at = usize::from(index.number()) * CONFIG_BLOCK_LEN;
        ConfigBlock::parse(index, &self.range(at..at + CONFIG_BLOCK_LEN)?).ok()
    }

    fn image(&self) -> Option<Image> {
        let len = container_len(*self.range(IMAGE_AT..IMAGE_AT + 4)?.first_chunk()?).filter(|len| *len <= MAX_IMAGE)?;
        Image::parse(&self.range(IMAGE_AT..IMAGE_AT + len)?).ok()
    }

    /// A reading of the flash, as references to it. Bytes that differ from the last reading are shown if they are few.
    fn reference(&self, at: usize, bytes: &[u8]) -> Data {
        let differs = |offset: usize| self.0.get(at + offset).is_some_and(|known| *known != Some(bytes[offset]));
        let different: Vec<usize> = (0..bytes.len()).filter(|offset| differs(*offset)).collect();
        if different.len() > UNSTABLE_MAX {
            return Data::of([DataPart::Withheld(bytes.len())]);
        }
        let mut parts = Vec::new();
        let mut from = 0;
        for offset in different {
            parts.extend([DataPart::Flash(at + from, offset - from), DataPart::Bytes(vec![bytes[offset]])]);
            from = offset + 1;
        }
        parts.push(DataPart::Flash(at + from, bytes.len() - from));
        Data::of(parts)
    }
}

/// Digits that replace a text: the first `count` of its SHA-256, which repeats if it is too short.
fn digits(text: &str, count: usize) -> String {
    to_hex(&Sha256Digest::of(text.as_bytes()).0, "").chars().cycle().take(count).collect()
}

/// Replaces each text, in ASCII or UTF-16, by digits of the same length.
pub(super) fn without_texts(bytes: &mut [u8], texts: &[String]) {
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    for text in texts {
        let stand_in = digits(text, text.len());
        for (text, stand_in) in
            [(text.as_bytes().to_vec(), stand_in.as_bytes().to_vec()), (wide(text), wide(&stand_in))]
        {
            let len = text.len().min(stand_in.len());
            for at in 0..=bytes.len().saturating_sub(len) {
                if bytes[at..].starts_with(&text) {
                    bytes[at..at + len].copy_from_slice(&stand_in[..len]);
                }
            }
        }
    }
}

/// Data from the unit as a report shows them.
fn shown(kind: Kind, data: &Data, flash: &SeenFlash, texts: &[String]) -> Data {
    if is_redacted(data) {
        return data.clone();
    }
    let (mut bytes, status) = split(data);
    let head = match kind {
        Kind::Flash(at) => flash.reference(at, &bytes),
        Kind::Identify if bytes.len() >= MODEL.end && bytes[MODEL].iter().any(u8::is_ascii_graphic) => {
            let mut model = vec![b' '; MODEL.len()];
            model[..5].copy_from_slice(b"model");
            let parts = [DataPart::Run(0, MODEL.start), DataPart::Bytes(model)];
            Data::of(parts.into_iter().chain([DataPart::Run(0, bytes.len() - MODEL.end)]))
        }
        Kind::Short(most) if bytes.len() <= most => {
            without_texts(&mut bytes, texts);
            Data::bytes(&bytes)
        }
        Kind::Identify | Kind::Short(_) | Kind::Unknown => Data::of([DataPart::Withheld(bytes.len())]),
    };
    Data::of(head.parts().iter().cloned().chain([DataPart::Bytes(status)]))
}

/// Makes a report's record of what was recorded.
pub(super) fn redacted(openings: &[Opening], serial: Option<&str>, write: bool, library: &Library) -> ReportedRecord {
    let mut flash = SeenFlash(vec![None; IMAGE_AT + MAX_IMAGE]);
    for (opening, kinds) in openings.iter().zip(openings.iter().map(kinds)) {
        for event in &opening.events {
            if let Event::Returned { transfer, data, .. } = event
                && let Some(Kind::Flash(at)) = kinds.get(*transfer)
                && !is_redacted(data)
            {
                flash.see(*at, &split(data).0);
            }
        }
    }
    let blocks = BlockIndex::ALL.map(|index| flash.block(index));
    let own = blocks[0].as_ref().map(|block| block.text(ConfigField::Serial));
    let texts: Vec<String> = serial
        .map(str::to_owned)
        .into_iter()
        .chain(own)
        .filter(|text| text.len() >= TEXT_MIN && !is_nobodys(text))
        .collect();
    let image = flash.image();
    let described = image.as_ref().map(|image| {
        let verification = verify(library, &image.to_file(), &Expectations::default());
        ReportedImage::of(image, verification.original.as_ref())
    });
    ReportedRecord {
        write,
        flash: ReportedFlash {
            blocks: blocks.map(|block| Some(to_hex(&public(block?, &texts), ""))),
            image: described,
        },
        openings: openings
            .iter()
            .map(|opening| ReportedOpening {
                alternate: opening.alternate,
                streams: opening.streams,
                events: lines(opening, &flash, &texts),
            })
            .collect(),
    }
}

fn kinds(opening: &Opening) -> Vec<Kind> {
    let mut tracker = Tracker::default();
    for event in &opening.events {
        tracker.submitted(event);
    }
    tracker.kinds
}

fn lines(opening: &Opening, flash: &SeenFlash, texts: &[String]) -> Vec<String> {
    let mut tracker = Tracker::default();
    let public = |event: &Event| {
        let may_show = tracker.submitted(event);
        let sent = |data: &Data| match may_show || is_redacted(data) {
            true => data.clone(),
            false => Data::of([DataPart::Withheld(data.len())]),
        };
        match event {
            Event::Bulk { endpoint, len, data } => Event::Bulk { endpoint: *endpoint, len: *len, data: sent(data) },
            Event::Control { setup, data } => Event::Control { setup: *setup, data: sent(data) },
            Event::Returned { transfer, end, moved, data } => {
                let kind = tracker.kinds.get(*transfer).copied().unwrap_or(Kind::Unknown);
                let data = shown(kind, data, flash, texts);
                Event::Returned { transfer: *transfer, end: *end, moved: *moved, data }
            }
            Event::Refused { .. } | Event::Done { .. } => event.clone(),
        }
        .to_string()
    };
    opening.events.iter().map(public).collect()
}

/// A block without what identifies its unit.
fn public(mut block: ConfigBlock, texts: &[String]) -> [u8; CONFIG_BLOCK_LEN] {
    let serial = block.text(ConfigField::Serial);
    let stand_in = if is_nobodys(&serial) { serial } else { digits(&serial, SERIAL_DIGITS) };
    let mut bytes = *block.anonymised(&stand_in).bytes();
    // The owner may have written the same text into several fields.
    without_texts(&mut bytes, texts);
    block = block.with_bytes(bytes);
    *block.bytes()
}
