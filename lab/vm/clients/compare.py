"""Helpers that the clients' checks share."""
import random
import sys

CLASS, BUS_NUMBERS, PCI_BRIDGE = 0x08, 0x18, 0x0604
# The clients' deadlines of 1 s suit hardware. An emulated guest on a busy machine needs longer ones.
PATIENCE = 60


def be_patient(libusb):
    """Lengthens the deadlines of synchronous transfers, which are their last argument."""
    for name in ("libusb_control_transfer", "libusb_bulk_transfer"):
        transfer = getattr(libusb, name)
        setattr(libusb, name, lambda *args, transfer=transfer: transfer(*args[:-1], args[-1] * PATIENCE))


def pattern(length, seed):
    return random.Random(seed).randbytes(length)


def same(what, expected, found):
    found = bytes(found)
    if found != expected:
        at = next((n for n, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
        sys.exit(f"{what}: {len(found)} of {len(expected)} bytes came, and from byte {at} on they differ: "
                 f"{expected[at:at + 16].hex()} expected, {found[at:at + 16].hex()} found")
    print(what + ":", len(expected), "bytes, the same", flush=True)


def find_gpu(unit):
    """Finds the first bus below the root port whose device 0 is not a bridge. Assigns each bridge's bus numbers."""
    bus = 0
    while unit.pcie_cfg_req(CLASS, bus=bus) >> 16 == PCI_BRIDGE:
        unit.pcie_cfg_req(BUS_NUMBERS, bus=bus, value=bus | bus + 1 << 8 | 0xFF << 16)
        bus += 1
    return bus
