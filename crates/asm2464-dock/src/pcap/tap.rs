//! Records the transfers of an opened unit, real or virtual, after an enumeration like that of a host.
//!
//! A unit is opened after the system has enumerated it, so the enumeration is written from the descriptors that the
//! system keeps. Readers of a capture learn the endpoints' classes from it.

use asm2464_host::bridge::{Monitor, Opened, PipeAction, PipeError, Submitted, Tap, TransferEnd, TransferId};

use super::device::{Bus, Device, End, Urb};
use crate::virtual_unit::setup;

/// bDescriptorType (USB 3.2, table 9-6).
const DEVICE: u8 = 1;
const CONFIGURATION: u8 = 2;
const STRING: u8 = 3;
const INTERFACE: u8 = 4;
const BOS: u8 = 15;
/// Bytes of a device descriptor, and where it has the indices of its strings: manufacturer, product, serial number.
const DEVICE_LEN: usize = 18;
const STRING_INDICES: std::ops::Range<usize> = 14..17;
/// The language of the strings: English (United States).
const LANGUAGE: [u8; 2] = [0x09, 0x04];
/// The most bytes of text in a string descriptor.
const STRING_MAX: usize = 252;

impl Monitor for Bus {
    fn opened(&self, opened: Opened<'_>) -> Box<dyn Tap> {
        let unit = opened.unit;
        let serial = unit.serial.as_deref().unwrap_or_default();
        Box::new(BusTap {
            bus: self.clone(),
            descriptors: opened.descriptors.to_vec(),
            strings: [&unit.manufacturer, &unit.product, serial].map(str::to_owned),
            alternate: opened.alternate,
            device: None,
            urbs: Vec::new(),
        })
    }
}

struct BusTap {
    bus: Bus,
    descriptors: Vec<u8>,
    /// Manufacturer, product, serial number.
    strings: [String; 3],
    alternate: u8,
    /// The recorded unit, from its first transfer or action on.
    device: Option<Device>,
    /// The URB of each transfer in flight.
    urbs: Vec<Option<Urb>>,
}

impl BusTap {
    fn device(&mut self) -> Device {
        if let Some(device) = &self.device {
            return device.clone();
        }
        let device = self.bus.attach();
        self.enumeration(&device);
        self.device = Some(device.clone());
        device
    }

    /// Records what a host reads and selects when it finds the unit: descriptors and strings, configuration, alternate.
    ///
    /// It leaves out later alternates: if one is UAS, Wireshark 4 treats the interface as UAS whichever alternate is
    /// selected.
    fn enumeration(&self, device: &Device) {
        let read = |kind: u8, index: u8, language: [u8; 2], bytes: &[u8]| {
            let [low, high] = (bytes.len() as u16).to_le_bytes();
            device.control([0x80, 6, index, kind, language[0], language[1], low, high], bytes, End::Done);
        };
        let (first, rest) = self.descriptors.split_at(self.descriptors.len().min(DEVICE_LEN));
        let total = rest.get(2..4).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        let (configuration, bos) = rest.split_at(total.min(rest.len()));
        for (kind, bytes) in [(DEVICE, first), (BOS, bos), (CONFIGURATION, up_to(configuration, self.alternate))] {
            if !bytes.is_empty() {
                read(kind, 0, [0, 0], bytes);
            }
        }
        let indices = first.get(STRING_INDICES).unwrap_or_default();
        for (index, text) in indices.iter().zip(&self.strings).filter(|(index, _)| **index != 0) {
            let mut bytes = vec![0, STRING];
            bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes).take(STRING_MAX));
            bytes[0] = bytes.len() as u8;
            read(STRING, *index, LANGUAGE, &bytes);
        }
        device.control(setup::set_configuration(1), &[], End::Done);
        if self.alternate > 0 {
            device.control(setup::set_interface(0, self.alternate), &[], End::Done);
        }
    }
}

impl Tap for BusTap {
    fn submitted(&mut self, transfer: TransferId, submitted: Submitted<'_>) {
        let device = self.device();
        let urb = match submitted {
            Submitted::Bulk { endpoint, len, data } => device.submit_bulk(endpoint.address(), len, data),
            Submitted::Control { setup, data } => device.submit_control(setup, data),
        };
        self.urbs.resize(self.urbs.len().max(transfer.0 + 1), None);
        self.urbs[transfer.0] = Some(urb);
    }

    fn returned(&mut self, transfer: TransferId, end: &TransferEnd, moved: usize, data: &[u8]) {
        let urb = self.urbs.get_mut(transfer.0).and_then(Option::take);
        if let (Some(device), Some(urb)) = (&self.device, urb) {
            device.complete(urb, End::of(end), moved, data);
        }
    }

    fn refused(&mut self, transfer: TransferId, error: &PipeError) {
        let urb = self.urbs.get_mut(transfer.0).and_then(Option::take);
        if let (Some(device), Some(urb)) = (&self.device, urb) {
            device.refuse(urb, End::of(&TransferEnd::Failed(error.clone())));
        }
    }

    fn done(&mut self, action: PipeAction, outcome: &Result<(), PipeError>) {
        let device = self.device();
        let end = outcome.as_ref().map_or_else(|error| End::of(&TransferEnd::Failed(error.clone())), |()| End::Done);
        match action {
            PipeAction::ClearHalt(endpoint) => device.control(setup::clear_halt(endpoint), &[], end),
            PipeAction::MassStorageReset => device.control(setup::MASS_STORAGE_RESET, &[], end),
            PipeAction::ResetPort if outcome.is_ok() => self.enumeration(&device),
            PipeAction::ResetPort => {}
        }
    }
}

impl End {
    /// How a transfer ended, in Linux's terms.
    fn of(end: &TransferEnd) -> Self {
        match end {
            TransferEnd::Completed => Self::Done,
            // The system cancels a request that is not answered in time.
            TransferEnd::Cancelled | TransferEnd::Failed(PipeError::Timeout) => Self::Cancelled,
            TransferEnd::Failed(PipeError::Stall) => Self::Stall,
            TransferEnd::Failed(PipeError::Overflow) => Self::Babble,
            TransferEnd::Failed(PipeError::Disconnected) => Self::Disconnected,
            TransferEnd::Failed(PipeError::Other(_)) => Self::Failed,
        }
    }
}

/// Cuts off the alternate settings above this one from a configuration.
fn up_to(configuration: &[u8], alternate: u8) -> &[u8] {
    let mut at = 0;
    while let Some(&[len, kind, _, number, ..]) = configuration.get(at..) {
        if len == 0 || (kind == INTERFACE && number > alternate) {
            break;
        }
        at += usize::from(len);
    }
    &configuration[..at.min(configuration.len())]
}
