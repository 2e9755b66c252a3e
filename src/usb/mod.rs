//! Real devices through libusb.
