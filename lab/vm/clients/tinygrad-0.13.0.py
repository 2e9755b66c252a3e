"""Drives a unit that runs patched vendor firmware with the USB code of tinygrad 0.13.0, as it was published.

    tinygrad-0.13.0.py check VENDOR PRODUCT        memory behind the bridge, written one way and read another
    tinygrad-0.13.0.py rate VENDOR PRODUCT         commands a second on the plain responder, a line a row

A byte that differs ends it with status 1.
"""
import struct
import sys
import time

from compare import PATIENCE, be_patient, find_gpu, pattern, same
from tinygrad.runtime.autogen import libusb
from tinygrad.runtime.support.system import System
from tinygrad.runtime.support.usb import USB3, ASM24Controller, ReadOp, ScsiWriteOp

WINDOW, WINDOW_PAGE = 0xF000, 0xC8D9
# XDATA that no firmware uses.
FREE = 0x3000
# The client repeats the first answers of a batch that is longer than its 31 streams, because it never empties
# `op_window`.
BATCH = 31


class PatientUSB3(USB3):
    def _prep_transfer(self, *args):
        transfer = super()._prep_transfer(*args)
        transfer.contents.timeout *= PATIENCE
        return transfer


def opened(vendor, product, use_bot=False):
    (device, where), = USB3.list_devices(vendor, product)
    print("at", where, "over", "Bulk-Only" if use_bot else "UAS", flush=True)
    return ASM24Controller(PatientUSB3(device, 0x81, 0x83, 0x02, 0x04, use_bot=use_bot))


def check_xdata(unit, seed):
    data = pattern(BATCH, seed)
    unit.write(FREE, data)
    same("XDATA by E5, read by E4", data, unit.read(FREE, len(data)))


def check_batch(unit):
    together = unit.read(FREE, 255 * BATCH)
    same("31 E4 in flight against one at a time", b"".join(unit.read(FREE + 255 * n, 255) for n in range(BATCH)), together)


def check_sram(unit):
    short = pattern(0x1000, seed=2)
    unit.scsi_write(short)
    same("SRAM by one WRITE(16), read through the window", short, unit.read(WINDOW, len(short)))
    # The window shows only eight pages.
    data = pattern(0x8000, seed=3)
    unit.scsi_write(data)
    found = b""
    for page in range(8):
        unit.write(WINDOW_PAGE, bytes([page]))
        found += unit.read(WINDOW, 0x1000)
    unit.write(WINDOW_PAGE, b"\0")
    same("SRAM by a WRITE(16) of 64 KiB, read page by page", data, found)


def check_memory(unit, length, seed):
    bus = find_gpu(unit)
    base, size = System.pci_setup_usb_bars(unit, gpu_bus=bus, mem_base=0x10000000, pref_mem_base=32 << 30)[0]
    print(f"GPU on bus {bus}, BAR0 at {base:#x}, {size >> 10} KiB", flush=True)
    data = pattern(length, seed)
    values = list(struct.unpack(f"<{len(data) // 4}I", data))
    for place in (0, size - len(data)):
        unit.pcie_mem_write(base + place, values, 4)
        found = b"".join(struct.pack("<I", unit.pcie_mem_req(base + place + at)) for at in range(0, len(data), 4))
        same(f"BAR0 + {place:#x} by memory writes, read by memory reads", data, found)
    unit.pcie_mem_req(base + 2, 0xA5, 1)
    same("one byte of a dword", data_with(unit, base, 2, 0xA5), struct.pack("<I", unit.pcie_mem_req(base)))


def data_with(unit, base, at, value):
    other = [unit.pcie_mem_req(base + n, size=1) for n in range(4)]
    other[at] = value
    return bytes(other)


def check(vendor, product):
    unit = opened(vendor, product)
    check_xdata(unit, seed=1)
    check_batch(unit)
    check_sram(unit)
    check_memory(unit, 0x80, seed=4)
    libusb.libusb_close(unit.usb.handle)
    # Without an SSD, WRITE(16) over Bulk-Only is never answered.
    unit = opened(vendor, product, use_bot=True)
    check_xdata(unit, seed=5)
    check_memory(unit, 0x20, seed=6)


def per_second(run, commands, seconds=2.0):
    run()
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        run()
        count += commands
    return count / took


def rate(vendor, product):
    unit = opened(vendor, product)
    for depth in (1, BATCH):
        print("e4", depth, per_second(lambda: unit.exec_ops([ReadOp(WINDOW, 255)] * depth), depth), flush=True)
    data = pattern(0x10000, seed=7)
    for depth in (1, 8, BATCH):
        print("write", depth, per_second(lambda: unit.exec_ops([ScsiWriteOp(data)] * depth), depth), flush=True)


if __name__ == "__main__":
    be_patient(libusb)
    {"check": check, "rate": rate}[sys.argv[1]](int(sys.argv[2], 16), int(sys.argv[3], 16))
