"""What the clients' checks share."""
import random
import sys

CLASS, BUS_NUMBERS, PCI_BRIDGE = 0x08, 0x18, 0x0604
# The clients' deadlines of 1 s are those of hardware. A guest that is emulated on a busy machine needs more.
PATIENCE = 60


def be_patient(libusb):
    """Stretches the deadlines of synchronous transfers, which are their last argument."""
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
    """The first bus, from the root port down, whose device 0 is no bridge. Each bridge gets its bus numbers."""
    bus = 0
    while unit.pcie_cfg_req(CLASS, bus=bus) >> 16 == PCI_BRIDGE:
        unit.pcie_cfg_req(BUS_NUMBERS, bus=bus, value=bus | bus + 1 << 8 | 0xFF << 16)
        bus += 1
    return bus
