//! The header that Linux's usbmon puts before each packet, 64 bytes.
//!
//! Source: `struct usbmon_packet` in the Linux kernel's Documentation/usb/usbmon.rst, and tcpdump.org's page of
//! LINKTYPE_USB_LINUX_MMAPPED. The fields have the byte order of the file's section, which is little-endian here.

use std::time::Duration;

use asm2464_host::bridge::is_to_host;

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 64;

/// The transfer type of an URB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TransferType {
    /// A transfer on endpoint 0.
    Control = 2,
    /// A transfer on a bulk endpoint.
    Bulk = 3,
}

/// An event of an URB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum UsbmonEvent {
    /// The host submitted the URB.
    Submission = b'S',
    /// The transfer has ended.
    Completion = b'C',
    /// The host controller's driver refused the URB.
    SubmissionError = b'E',
}

/// The contents of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsbmonHeader {
    /// The URB's number: the same in its submission and its completion.
    pub id: u64,
    /// The event.
    pub event: UsbmonEvent,
    /// The transfer type.
    pub transfer: TransferType,
    /// bEndpointAddress; bit 7 is also the direction of a control transfer's data.
    pub endpoint: u8,
    /// The device's address.
    pub device: u8,
    /// The bus's number.
    pub bus: u16,
    /// The setup packet of a control transfer's submission.
    pub setup: Option<[u8; 8]>,
    /// The time since 1970.
    pub time: Duration,
    /// 0, or a negative Linux error number.
    pub status: i32,
    /// How many bytes were requested (submission) or moved (completion).
    pub length: u32,
    /// How many bytes of data follow the header.
    pub captured: u32,
}

impl UsbmonHeader {
    /// Encodes the header.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        const URB_DIR_IN: u32 = 0x200;
        let is_in = is_to_host(self.endpoint);
        let no_data = match (self.event, is_in) {
            // The host's data follow at submission, the device's data at completion.
            (UsbmonEvent::Submission, false) | (UsbmonEvent::Completion, true) => 0,
            (_, true) => b'<',
            (_, false) => b'>',
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&[self.event as u8, self.transfer as u8, self.endpoint, self.device]);
        bytes[12..14].copy_from_slice(&self.bus.to_le_bytes());
        bytes[14..16].copy_from_slice(&[if self.setup.is_some() { 0 } else { b'-' }, no_data]);
        bytes[16..24].copy_from_slice(&self.time.as_secs().to_le_bytes());
        bytes[24..28].copy_from_slice(&self.time.subsec_micros().to_le_bytes());
        bytes[28..32].copy_from_slice(&self.status.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.length.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.captured.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.setup.unwrap_or_default());
        // Interval and start frame (48 to 55) and the count of descriptors (60 to 63) are for periodic transfers.
        bytes[56..60].copy_from_slice(&(if is_in { URB_DIR_IN } else { 0 }).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: UsbmonHeader = UsbmonHeader {
        id: 0x1122_3344_5566_7788,
        event: UsbmonEvent::Submission,
        transfer: TransferType::Control,
        endpoint: 0x80,
        device: 5,
        bus: 0x0203,
        setup: Some([0x80, 6, 0, 1, 0, 0, 18, 0]),
        time: Duration::new(0x6543_2100, 999_999_999),
        status: -115,
        length: 18,
        captured: 0,
    };

    #[test]
    fn a_control_submission_carries_its_setup_packet() {
        #[rustfmt::skip]
        let expected = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, b'S', 2, 0x80, 5, 3, 2, 0, b'<',
            0x00, 0x21, 0x43, 0x65, 0, 0, 0, 0, 0x3F, 0x42, 0x0F, 0, 0x8D, 0xFF, 0xFF, 0xFF,
            18, 0, 0, 0, 0, 0, 0, 0, 0x80, 6, 0, 1, 0, 0, 18, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(HEADER.to_bytes(), expected);
    }

    #[test]
    fn data_follow_the_submission_of_a_write_and_the_completion_of_a_read() {
        let flags = |event, endpoint| {
            let bytes =
                UsbmonHeader { event, endpoint, transfer: TransferType::Bulk, setup: None, ..HEADER }.to_bytes();
            (bytes[8], bytes[14], bytes[15])
        };
        assert_eq!(flags(UsbmonEvent::Submission, 0x02), (b'S', b'-', 0));
        assert_eq!(flags(UsbmonEvent::Completion, 0x02), (b'C', b'-', b'>'));
        assert_eq!(flags(UsbmonEvent::Submission, 0x81), (b'S', b'-', b'<'));
        assert_eq!(flags(UsbmonEvent::Completion, 0x81), (b'C', b'-', 0));
        assert_eq!(flags(UsbmonEvent::SubmissionError, 0x81), (b'E', b'-', b'<'));
    }
}
