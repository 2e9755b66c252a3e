"""Drives a unit that runs open firmware with the USB code of tinygrad 0.14.0, as it was published.

    tinygrad-0.14.0.py check VENDOR PRODUCT        memory behind the bridge, written one way and read another
    tinygrad-0.14.0.py rate VENDOR PRODUCT ROW...  MB/s of each row: kind, bytes, bytes a transfer, transfers in flight
    tinygrad-0.14.0.py hold VENDOR PRODUCT         takes the runtime's lock and the unit, and reads until it is killed

A byte that differs ends it with status 1.
"""
import os
import struct
import sys
import time
from collections import deque

from compare import PATIENCE, be_patient, find_gpu, pattern, same
from tinygrad.runtime.autogen import libusb
from tinygrad.runtime.support.system import System
from tinygrad.runtime.support.usb import USB3, CustomASM24Controller

WINDOW, WINDOW_PAGE = 0xF000, 0xC8D9
# XDATA that the firmware doesn't use: its variables start at 0x6000.
FREE = 0x3000
READ, WRITE_STREAM = 0x20 | 0x0F << 8, 0x60 | 0x0F << 8


class PatientUSB3(USB3):
    def _submit_async(self, endpoint, xtype, payload, timeout):
        return super()._submit_async(endpoint, xtype, payload, timeout * PATIENCE)


def check_xdata(unit):
    data = pattern(16, seed=1)
    unit.write(FREE, data)
    same("XDATA by E5, read by E4", data, unit.read(FREE, len(data)))
    reads = [(n, unit.usb.control_read_async(0xE4, 200, value=FREE + 200 * n)) for n in range(20)]
    for _, (tag, _) in reads:
        unit.usb.bulk_wait(tag)
    found = b"".join(bytes(view) for _, (_, view) in reads)
    same("20 control reads in flight against one at a time", unit.read(FREE, len(found)), found)
    for tag in [unit.usb.control_write_async(0xE5, value=FREE + n, index=255 - value) for n, value in enumerate(data)]:
        unit.usb.bulk_wait(tag)
    same("16 control writes in flight", bytes(255 - value for value in data), unit.read(FREE, len(data)))


def check_sram(unit):
    for length, first in ((0x1000, 1), (0x4E00, 0)):
        data = pattern(length, seed=length)
        unit.scsi_write(data, first)
        found = b""
        for page in range(first * 4, first * 4 + -(-length // 0x1000)):
            unit.write(WINDOW_PAGE, bytes([page]))
            found += unit.read(WINDOW, 0x1000)
        same(f"SRAM from slot {first} on by F2, read page by page", data, found[:length])
    unit.write(WINDOW_PAGE, b"\0")


def check_memory(unit):
    bus = find_gpu(unit)
    base, size = System.pci_setup_usb_bars(unit, gpu_bus=bus, mem_base=0x10000000, pref_mem_base=32 << 30)[0]
    print(f"GPU on bus {bus}, BAR0 at {base:#x}, {size >> 10} KiB", flush=True)
    data = pattern(0x10000, seed=7)
    for place in (0, size - len(data)):
        unit.pcie_mem_write(base + place, data)
        same(f"BAR0 + {place:#x} by a stream, read by a stream", data, unit.pcie_mem_read(base + place, len(data)))
    for length in (4, 1020, 1024, 1028):
        unit.pcie_mem_write(base + 4, data[:length])
        same("a short stream", data[:length], unit.pcie_mem_read(base + 4, length))
    words = [unit.pcie_request(0x20, base + 4 + at) for at in range(0, 64, 4)]
    same("single reads", data[:64], struct.pack("<16I", *words))
    unit.pcie_request(0x60, base + 6, 0xA5, 1)
    same("one byte of a dword", data[:2] + b"\xA5" + data[3:4], unit.pcie_mem_read(base + 4, 4))
    # The client sends only from writable buffers.
    other = bytearray(pattern(0x4000, seed=8))
    unit.usb.control_write(0xF0, WRITE_STREAM, 1, struct.pack("<QI", base, len(other) // 4))
    for tag in [unit.usb.bulk_write_async(memoryview(other)[at:at + 1024]) for at in range(0, len(other), 1024)]:
        unit.usb.bulk_wait(tag)
    same("a stream whose 16 packets are in flight at once", bytes(other), unit.pcie_mem_read(base, len(other)))


def opened(vendor, product):
    (device, where), = USB3.list_devices(vendor, product)
    unit = CustomASM24Controller(PatientUSB3(device))
    print("at", where, repr(unit.usb.product), flush=True)
    return unit


def check(vendor, product):
    unit = opened(vendor, product)
    check_xdata(unit)
    check_sram(unit)
    check_memory(unit)


def hold(vendor, product):
    """Takes the lock and the unit in the order of the wheel's USBPCIDevice."""
    (device, where), = USB3.list_devices(vendor, product)
    System.flock_acquire(f"am_{where}.lock")
    unit = CustomASM24Controller(PatientUSB3(device))
    print("holds", where, "as process", os.getpid(), flush=True)
    while True:
        unit.read(0xB450, 1)


def in_flight(usb, depth, submissions):
    """Keeps transfers in flight, and waits for the oldest when there are enough."""
    tags = deque()
    for tag in submissions:
        tags.append(tag)
        if len(tags) == depth:
            usb.bulk_wait(tags.popleft())
    for tag in tags:
        usb.bulk_wait(tag)


def pieces(data, piece):
    return (memoryview(data)[at:at + piece] for at in range(0, len(data), piece))


def write_stream(unit, base, data, piece, depth):
    if depth == 1:
        unit.pcie_mem_write(base, data)
    else:
        unit.usb.control_write(0xF0, WRITE_STREAM, 1, struct.pack("<QI", base, len(data) // 4))
        in_flight(unit.usb, depth, map(unit.usb.bulk_write_async, pieces(data, piece)))
    # Once this is answered, the last bytes sent are written.
    unit.read(0xB450, 1)


def write_sram(unit, data, piece, depth):
    if depth == 1:
        unit.scsi_write(data)
    else:
        unit.usb.control_write(0xF2, len(data) // 512, -(-len(data) // 0x4000) << 8)
        in_flight(unit.usb, depth, map(unit.usb.bulk_write_async, pieces(data, piece)))


def single_reads(unit, base, length, depth):
    if depth == 1:
        return struct.pack(f"<{length // 4}I", *[unit.pcie_request(0x20, base + at) for at in range(0, length, 4)])
    answers = []

    def submissions():
        for at in range(0, length, 4):
            yield unit.usb.control_write_async(0xF0, READ, 0, struct.pack("<QI", base + at, 0))
            tag, answer = unit.usb.control_read_async(0xF0, 8)
            answers.append(answer)
            yield tag

    in_flight(unit.usb, depth, submissions())
    return b"".join(bytes(answer[:4]) for answer in answers)


def rate(vendor, product):
    unit = opened(vendor, product)
    base, _ = System.pci_setup_usb_bars(unit, gpu_bus=find_gpu(unit), mem_base=0x10000000, pref_mem_base=32 << 30)[0]
    for row in sys.argv[4:]:
        kind, *numbers = row.split()
        length, piece, depth = map(int, numbers)
        # The client sends only from writable buffers.
        data = bytearray(pattern(length, seed=length))
        if kind in ("f0-read", "tlp"):
            unit.pcie_mem_write(base, data)
        run = {"f0-write": lambda: write_stream(unit, base, data, piece, depth),
               "f0-read": lambda: unit.pcie_mem_read(base, length),
               "f2-write": lambda: write_sram(unit, data, piece, depth),
               "tlp": lambda: single_reads(unit, base, length, depth)}[kind]
        run()
        took, count = 0, 0
        while took < 0.5:
            began = time.perf_counter()
            found = run()
            took, count = took + time.perf_counter() - began, count + 1
        if kind == "f0-write":
            found = unit.pcie_mem_read(base, length)
        elif kind == "f2-write":
            found, data = unit.read(WINDOW, min(length, 0x1000)), data[:0x1000]
        same(row, data, found)
        print("MB/s", count * length / took / 1e6, row, flush=True)


if __name__ == "__main__":
    be_patient(libusb)
    {"check": check, "rate": rate, "hold": hold}[sys.argv[1]](int(sys.argv[2], 16), int(sys.argv[3], 16))
