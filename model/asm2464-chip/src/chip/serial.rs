//! The serial buses: the UART; and the I2C master with, on some boards, the supply's sensor on its bus, an INA231.

use serde::Deserialize;

use super::map::Register;
use crate::mcu::XdataMemory;

/// 0xC001: a byte to send. Source: open firmware.
const UART_DATA: u16 = 0xC001;
/// 0xC006: bits 4:0 count the free places in the transmit FIFO; always 0x10, all of them. Source: b0:0xE7AE waits for
/// 0x10. The open boot stub waits until it isn't 0 before each byte.
const FREE_PLACES: u16 = 0xC006;
/// 0xC009, read-only: line status, .6 and .5 "empty" (chosen: a 16550's bits). Source: open firmware waits for .5.
const LINE_STATUS: u16 = 0xC009;
/// 0xC00E: bits 2:0 count the bytes still to be sent; always 0. Source: b0:0xE7B8 waits for 0.
const BACKLOG: u16 = 0xC00E;

const EMPTY: u8 = 0x60;
/// Length of the transmit FIFO in bytes.
const FIFO_LEN: u8 = 0x10;
/// Maximum number of bytes kept for the caller; later ones are only counted.
const CAPACITY: usize = 0x1_0000;

pub(super) const UART_REGISTERS: &[Register] = &[
    Register::one(UART_DATA, "UART_DATA"),
    Register::one(FREE_PLACES, "UART_FREE_PLACES"),
    Register::one(LINE_STATUS, "UART_LINE_STATUS"),
    Register::one(BACKLOG, "UART_BACKLOG"),
];

#[derive(Debug, Default)]
pub(super) struct Uart {
    sent: Vec<u8>,
    lost: u64,
}

impl Uart {
    pub(super) fn read(addr: u16, stored: u8) -> u8 {
        match addr {
            FREE_PLACES => stored & !0x1F | FIFO_LEN,
            LINE_STATUS => EMPTY,
            BACKLOG => stored & !0x07,
            _ => stored,
        }
    }

    /// Handles a write by the CPU. Returns the byte that was sent.
    pub(super) fn write(&mut self, addr: u16, value: u8) -> Option<u8> {
        if addr != UART_DATA {
            return None;
        }
        if self.sent.len() < CAPACITY {
            self.sent.push(value);
        } else {
            self.lost += 1;
        }
        Some(value)
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sent)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

/// 0xC870: .7:1 the device's address, .0 read. 0xC871: the byte that is written first. 0xC873: nonzero if two bytes at
/// 0xE800 follow it. 0xC874: number of bytes to read. Source: open firmware's monitor of the supply.
const ADDRESS: u16 = 0xC870;
const FIRST: u16 = 0xC871;
const WRITES: u16 = 0xC873;
const READS: u16 = 0xC874;
/// 0xC875: a write of .0 starts a transfer. .6: the transfer is over; write 1 clears. Together with .6, .1: the device
/// accepted the written bytes, .3: it returned the bytes to read. Here a transfer is over at once.
const CONTROL: u16 = 0xC875;
const START: u8 = 0x01;
const TAKEN: u8 = 0x02;
const GIVEN: u8 = 0x08;
const OVER: u8 = 0x40;
/// 0xE800: the bytes of a transfer. 0xC805.4 is on while a read puts them there.
const DATA: usize = 0xE800;
const DATA_LEN: usize = 0x100;
const ENABLES: usize = 0xC805;
const READ_ENABLE: u8 = 0x10;

pub(super) const I2C_REGISTERS: &[Register] = &[
    Register::range(ADDRESS, FIRST, "I2C_ADDRESS").plain(),
    Register::range(WRITES, READS, "I2C_LENGTHS").plain(),
    Register::one(CONTROL, "I2C_CONTROL").plain_to_reads(),
];

/// Address of the INA231. Source: open firmware.
const SENSOR: u8 = 0x45;
/// Its registers, and the configuration at power-on. Source: the INA231's data sheet; open firmware.
const CONFIGURATION: u8 = 0x00;
const SHUNT: u8 = 0x01;
const BUS: u8 = 0x02;
const CONFIGURED: u16 = 0x4127;
/// Units of its bus and shunt registers: 1.25 mV, 2.5 uV. The shunt that open firmware expects (ed4e39b, c:0x15BB).
const BUS_UNIT_UV: u32 = 1_250;
const SHUNT_UNIT_NV: i32 = 2_500;
const SHUNT_UOHM: i32 = 2_197;

/// What the supply's sensor measures, and the fault line beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SupplySensor {
    /// Voltage in millivolts: at most [`SupplySensor::MAX_MV`].
    pub voltage_mv: u16,
    /// Current in milliamperes.
    pub current_ma: i16,
    /// Whether the supply's fault line (GPIO 1) is active.
    #[serde(default)]
    pub fault: bool,
}

impl SupplySensor {
    /// The highest voltage that an INA231 measures, in millivolts.
    pub const MAX_MV: u16 = 28_000;

    fn bus(self) -> u16 {
        let microvolts = u32::from(self.voltage_mv) * 1_000;
        u16::try_from((microvolts + BUS_UNIT_UV / 2) / BUS_UNIT_UV).unwrap_or(u16::MAX)
    }

    fn shunt(self) -> i16 {
        let nanovolts = i32::from(self.current_ma) * SHUNT_UOHM;
        let rounding = nanovolts.signum() * SHUNT_UNIT_NV / 2;
        ((nanovolts + rounding) / SHUNT_UNIT_NV) as i16
    }
}

#[derive(Debug)]
pub(super) struct I2c {
    pub(super) sensor: Option<SupplySensor>,
    /// Number of the sensor's register that is read next.
    pointer: u8,
    configuration: u16,
}

impl I2c {
    pub(super) fn new(sensor: Option<SupplySensor>) -> Self {
        Self { sensor, pointer: CONFIGURATION, configuration: CONFIGURED }
    }

    /// Handles a write by the CPU. Returns `true` if it did something.
    pub(super) fn write(&mut self, addr: u16, value: u8, memory: &mut XdataMemory) -> bool {
        if addr != CONTROL {
            return false;
        }
        let state = if value & (START | OVER) == START { OVER | self.transfer(memory) } else { 0 };
        memory.main_mut()[usize::from(CONTROL)] = state;
        true
    }

    /// Carries out a transfer. Returns the device's answer; 0 if there is no such device.
    fn transfer(&mut self, memory: &mut XdataMemory) -> u8 {
        let page = memory.main_mut();
        let address = page[usize::from(ADDRESS)];
        let Some(sensor) = self.sensor else { return 0 };
        if address >> 1 != SENSOR {
            return 0;
        }
        if address & 1 != 0 {
            if page[ENABLES] & READ_ENABLE != 0 {
                let register = match self.pointer {
                    CONFIGURATION => self.configuration,
                    SHUNT => sensor.shunt() as u16,
                    BUS => sensor.bus(),
                    _ => 0,
                };
                let len = usize::from(page[usize::from(READS)]).min(DATA_LEN);
                let bytes = register.to_be_bytes().into_iter().cycle();
                page[DATA..DATA + len].iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
            }
            return GIVEN;
        }
        if page[usize::from(WRITES)] != 0 || page[usize::from(READS)] != 0 {
            self.pointer = page[usize::from(FIRST)];
        }
        if page[usize::from(WRITES)] != 0 && self.pointer == CONFIGURATION {
            self.configuration = u16::from_be_bytes([page[DATA], page[DATA + 1]]);
        }
        TAKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_kept() {
        let mut uart = Uart::default();
        for _ in 0..CAPACITY + 5 {
            assert_eq!(uart.write(UART_DATA, b'x'), Some(b'x'));
        }
        assert_eq!((uart.take().len(), uart.lost()), (CAPACITY, 5));
    }

    fn transfer(i2c: &mut I2c, memory: &mut XdataMemory, registers: &[(u16, u8)]) -> u8 {
        for (addr, value) in registers {
            memory.main_mut()[usize::from(*addr)] = *value;
        }
        i2c.write(CONTROL, 0xFF, memory);
        assert_eq!(memory.main()[usize::from(CONTROL)], 0, "cleared");
        i2c.write(CONTROL, START, memory);
        memory.main()[usize::from(CONTROL)]
    }

    /// Points the sensor at a register, and reads it.
    fn read(i2c: &mut I2c, memory: &mut XdataMemory, register: u8) -> (u8, u16) {
        transfer(i2c, memory, &[(ADDRESS, SENSOR << 1), (FIRST, register), (WRITES, 0), (READS, 1)]);
        let state = transfer(i2c, memory, &[(ADDRESS, SENSOR << 1 | 1), (READS, 2), (0xC805, READ_ENABLE)]);
        (state, u16::from_be_bytes([memory.main()[DATA], memory.main()[DATA + 1]]))
    }

    #[test]
    fn the_sensor_gives_voltage_and_current_in_its_units() {
        for (voltage_mv, current_ma, bus, shunt) in [(12_000, 1_500, 9_600, 1_318), (11_999, -1_500, 9_599, -1_318)] {
            let mut i2c = I2c::new(Some(SupplySensor { voltage_mv, current_ma, fault: false }));
            let mut memory = XdataMemory::new();
            assert_eq!(read(&mut i2c, &mut memory, BUS), (OVER | GIVEN, bus));
            assert_eq!(read(&mut i2c, &mut memory, SHUNT), (OVER | GIVEN, shunt as i16 as u16));
            assert_eq!(read(&mut i2c, &mut memory, CONFIGURATION).1, CONFIGURED);
            memory.main_mut()[DATA..DATA + 2].copy_from_slice(&[0x45, 0x67]);
            let write = [(ADDRESS, SENSOR << 1), (FIRST, CONFIGURATION), (WRITES, 1), (READS, 0)];
            assert_eq!(transfer(&mut i2c, &mut memory, &write), OVER | TAKEN);
            assert_eq!(read(&mut i2c, &mut memory, CONFIGURATION).1, 0x4567);
        }
    }

    #[test]
    fn a_read_without_its_enable_leaves_the_bytes_alone() {
        let mut i2c = I2c::new(Some(SupplySensor { voltage_mv: 12_000, current_ma: 0, fault: false }));
        let mut memory = XdataMemory::new();
        let registers = [(ADDRESS, SENSOR << 1 | 1), (READS, 2), (0xC805, !READ_ENABLE)];
        assert_eq!(transfer(&mut i2c, &mut memory, &registers), OVER | GIVEN);
        assert_eq!(memory.main()[DATA..DATA + 2], [0, 0]);
    }

    #[test]
    fn nobody_answers_at_another_address_or_on_a_board_without_a_sensor() {
        let sensor = SupplySensor { voltage_mv: 12_000, current_ma: 0, fault: false };
        let mut memory = XdataMemory::new();
        for (sensor, address) in [(None, SENSOR), (Some(sensor), SENSOR + 1)] {
            let mut i2c = I2c::new(sensor);
            for read in [0, 1] {
                let registers = [(ADDRESS, address << 1 | read), (READS, 2), (0xC805, READ_ENABLE)];
                assert_eq!(transfer(&mut i2c, &mut memory, &registers), OVER);
            }
        }
        assert_eq!(memory.main()[DATA..DATA + 2], [0, 0]);
    }
}
