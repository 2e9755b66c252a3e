"""Drives a unit that runs open firmware in the order of calls of tinygrad's next client, hcq2, which no release has.

    tinygrad-hcq2.py check VENDOR PRODUCT          memory behind the bridge, and copies to and from the GPU

The code is ours, on the libusb bindings of tinygrad 0.14.0. The card of docs/lab/tiny-gpu.md stands for the GPU.

A copy to the GPU goes through two halves of the SRAM in turn. A chunk ends in a sector that holds its number; the GPU
waits for the number, takes the data, and writes how many chunks it has taken to the fence. The host arms F2 for a half
only once the chunk before the last is taken. A copy from the GPU is armed first, then the GPU fills the SRAM.

A byte that differs ends it with status 1.
"""
import ctypes
import struct
import sys
import time

from compare import PATIENCE, be_patient, find_gpu, pattern, same
from tinygrad.runtime.autogen import libusb
from tinygrad.runtime.support import c
from tinygrad.runtime.support.system import System
from tinygrad.runtime.support.usb import USB3, checked

SRAM, COMPLETION, FENCE_OF_GPU = 0x200000, 0x822000, 0x820800
LTSSM, LINK_IS_UP, FENCE = 0xB450, 0x78, 0xA800
SECTOR, SLOT, HALF = 0x200, 0x4000, 0x40000
# What a chunk holds beside the sector with its number.
CHUNK = HALF - SECTOR
# A stream's header is repeated after so many bytes.
STREAM = 1 << 20
MEMORY_READ, MEMORY_WRITE, CONFIG_READ, CONFIG_WRITE = 0x20, 0x60, 0x04, 0x44
STREAM_OUT, STREAM_IN = 1, 2
# Places in the card's memory: data to copy to the host, the host's request, bytes that stay 0.
SOURCE, DOORBELL, ZEROS = 0x400000, 0x300000, 0xF00000
MEMORY_BAR, REGISTERS_BAR = 0, 2


class Unit:
    """The client's calls, and the requests that they make."""

    def __init__(self, vendor, product):
        (device, where), = USB3.list_devices(vendor, product)
        self.handle = c.init_c_var(c.POINTER[libusb.struct_libusb_device_handle],
                                   lambda handle: checked(libusb.libusb_open)(device, handle))
        descriptor = libusb.struct_libusb_device_descriptor()
        checked(libusb.libusb_get_device_descriptor)(device, ctypes.byref(descriptor))
        name = (ctypes.c_ubyte * 256)()
        length = checked(libusb.libusb_get_string_descriptor_ascii)(self.handle, descriptor.iProduct, name, len(name))
        print("at", where, bytes(name[:length]).decode(), flush=True)
        if checked(libusb.libusb_kernel_driver_active)(self.handle, 0):
            checked(libusb.libusb_detach_kernel_driver)(self.handle, 0)
            checked(libusb.libusb_reset_device)(self.handle)
        checked(libusb.libusb_set_configuration)(self.handle, 1)
        checked(libusb.libusb_claim_interface)(self.handle, 0)
        checked(libusb.libusb_set_interface_alt_setting)(self.handle, 0, 0)

    def control_write(self, request, value=0, index=0, data=b"", timeout=1000):
        buffer = (ctypes.c_ubyte * max(1, len(data)))(*data)
        sent = checked(libusb.libusb_control_transfer)(self.handle, 0x40, request, value, index, buffer, len(data), timeout)
        assert sent == len(data), f"request {request:#x}: {sent} of {len(data)} bytes"

    def control_read(self, request, length, value=0, index=0, timeout=1000):
        buffer = (ctypes.c_ubyte * length)()
        came = checked(libusb.libusb_control_transfer)(self.handle, 0xC0, request, value, index, buffer, length, timeout)
        assert came == length, f"request {request:#x}: {came} of {length} bytes"
        return bytes(buffer)

    def bulk(self, endpoint, buffer, timeout=1000):
        moved = ctypes.c_int(0)
        checked(libusb.libusb_bulk_transfer)(self.handle, endpoint, buffer, len(buffer), moved, timeout)
        assert moved.value == len(buffer), f"endpoint {endpoint:#x}: {moved.value} of {len(buffer)} bytes"
        return bytes(buffer)

    def bulk_write(self, data):
        self.bulk(0x02, (ctypes.c_ubyte * len(data)).from_buffer_copy(data))

    def bulk_read(self, length):
        return self.bulk(0x81, (ctypes.c_ubyte * length)())

    def read(self, address, length):
        pieces = range(0, length, 0xFF)
        return b"".join(self.control_read(0xE4, min(0xFF, length - at), address + at) for at in pieces)

    def write(self, address, data):
        for at, value in enumerate(data):
            self.control_write(0xE5, address + at, value)

    def pcie_power(self, on):
        self.control_write(0xF3, int(on), timeout=10000)

    def tlp(self, kind, enables, address, value, mode=0):
        self.control_write(0xF0, kind | enables << 8, mode, struct.pack("<QI", address, value), 5000)

    def pcie_request(self, kind, address, value=None, size=4, attempts=11):
        first = address & 3
        for _ in range(attempts):
            self.tlp(kind, (1 << size) - 1 << first, address & ~3, 0 if value is None else value << 8 * first)
            if kind == MEMORY_WRITE:
                return None
            answer = self.control_read(0xF0, 8, timeout=5000)
            if answer[7] == 0:
                break
            time.sleep(0.001)
        status = answer[4] >> 5
        assert answer[7] == 0 and status == 0, f"TLP at {address:#x}: {answer[7]}, completion status {status}"
        if value is None:
            return int.from_bytes(answer[:4], "little") >> 8 * first & (1 << 8 * size) - 1
        return None

    def pcie_cfg_req(self, byte_addr, bus=1, dev=0, fn=0, value=None, size=4):
        kind = (CONFIG_READ if value is None else CONFIG_WRITE) | int(bus > 0)
        return self.pcie_request(kind, bus << 24 | dev << 19 | fn << 16 | byte_addr, value, size)

    def memory_write(self, address, data):
        for at in range(0, len(data), STREAM):
            piece = data[at:at + STREAM]
            self.tlp(MEMORY_WRITE, 0xF, address + at, len(piece) // 4, STREAM_OUT)
            self.bulk_write(piece)

    def memory_read(self, address, length):
        data = b""
        for at in range(0, length, STREAM):
            piece = min(STREAM, length - at)
            self.tlp(MEMORY_READ, 0xF, address + at, piece // 4, STREAM_IN)
            data += self.bulk_read(piece)
        return data

    def arm_out(self, first_slot, length):
        self.control_write(0xF2, length // SECTOR, first_slot | slots(length) << 8)

    def arm_in(self, length):
        self.control_write(0xF2, length // SECTOR | 0x8000, slots(length) << 8)

    def fence(self):
        return self.read(FENCE, 1)[0]

    def wait_for_fence(self, what, is_reached):
        end = time.monotonic() + PATIENCE
        while not is_reached(self.fence()):
            assert time.monotonic() < end, f"{what}: the fence stays at {self.fence()}"


def slots(length):
    return -(-length // SLOT)


class Card:
    """The card's registers, through single requests (docs/lab/tiny-gpu.md)."""

    SEND_FROM, SEND_LEN, SEND_TO, ENTRY_TO, ENTRY, CONTROL, COMMAND_AT = 0x24, 0x28, 0x2C, 0x34, 0x3C, 0x4C, 0x50
    SEND, AWAIT = 2, 8

    def __init__(self, unit):
        self.unit = unit
        bus = find_gpu(unit)
        bars = System.pci_setup_usb_bars(unit, gpu_bus=bus, mem_base=0x10000000, pref_mem_base=32 << 30)
        self.memory, self.registers = bars[MEMORY_BAR][0], bars[REGISTERS_BAR][0]
        print(f"GPU on bus {bus}, BAR0 at {self.memory:#x}", flush=True)

    def put(self, register, *values):
        for at, value in enumerate(values):
            self.unit.pcie_request(MEMORY_WRITE, self.registers + register + 4 * at, value)

    def put_wide(self, register, value):
        self.put(register, value & 0xFFFFFFFF, value >> 32)

    def send(self, source, length, to):
        self.put(self.SEND_FROM, source, length)
        self.put_wide(self.SEND_TO, to)
        self.put_wide(self.ENTRY_TO, 0)
        self.put(self.CONTROL, self.SEND)

    def write_entry(self, to, value, wait_for=None):
        """Writes 16 bytes that begin with a value, once the byte at a place in the SRAM isn't 0 if one is given."""
        self.put(self.SEND_LEN, 0)
        self.put_wide(self.ENTRY_TO, to)
        self.put(self.ENTRY, value, 0, 0, 0)
        if wait_for is not None:
            self.put_wide(self.COMMAND_AT, wait_for)
        self.put(self.CONTROL, self.SEND if wait_for is None else self.SEND | self.AWAIT)


class Copier:
    """Copies to and from the card, as the client queues them."""

    def __init__(self, unit, card):
        self.unit, self.card = unit, card
        self.staging = (ctypes.c_ubyte * (2 * HALF))()
        self.is_done = [True, True]
        self.transfers = [self.new_transfer(half) for half in range(2)]
        self.taken = 0

    def new_transfer(self, half):
        transfer = libusb.libusb_alloc_transfer(0)
        transfer.contents.dev_handle, transfer.contents.endpoint = self.unit.handle, 0x02
        transfer.contents.type = libusb.LIBUSB_TRANSFER_TYPE_BULK
        transfer.contents.timeout = 10000 * PATIENCE

        def on_done(transfer):
            self.is_done[half] = True

        callback = libusb.libusb_transfer_cb_fn(on_done)
        transfer.contents.callback = callback
        return transfer, callback

    def reap(self, half):
        """Waits for a half's transfer."""
        while not self.is_done[half]:
            checked(libusb.libusb_handle_events)(USB3.ctx())
        transfer = self.transfers[half][0].contents
        assert transfer.status == 0 and transfer.actual_length == transfer.length, f"transfer status {transfer.status}"

    def begin(self):
        """Waits until the GPU has done the last copy, and starts to count again."""
        self.unit.wait_for_fence("the copy before", lambda fence: fence == self.taken & 0xFF)
        self.unit.write(FENCE, b"\0")
        self.taken = 0

    def send_chunk(self, number, data):
        """Sends a chunk, so that its number ends at the end of its half. Returns where it begins and ends."""
        half = number & 1
        end, wire = (half + 1) * HALF, slots(len(data) + SECTOR) * SLOT
        start = end - wire
        self.reap(half)
        self.staging[start:start + len(data)] = data
        # The card waits for a byte that isn't 0, which a number may begin with.
        self.staging[end - SECTOR] = 1
        self.staging[end - 4:end] = sentinel(number)
        self.unit.wait_for_fence(f"chunk {number}", lambda fence: number - fence & 0xFF <= 1)
        self.unit.arm_out(start // SLOT, wire)
        transfer = self.transfers[half][0].contents
        buffer = ctypes.addressof(self.staging) + start
        transfer.buffer, transfer.length = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ubyte)), wire
        self.is_done[half] = False
        checked(libusb.libusb_submit_transfer)(self.transfers[half][0])
        return start, end

    def take_chunk(self, number, end):
        """Has the GPU take a chunk."""
        self.card.write_entry(FENCE_OF_GPU, number + 1, wait_for=SRAM + end - SECTOR)
        self.unit.wait_for_fence(f"chunk {number}", lambda fence: fence == number + 1 & 0xFF)
        self.card.send(ZEROS, 4, SRAM + end - SECTOR)

    def copy_in(self, data):
        self.begin()
        chunks = [data[at:at + CHUNK] for at in range(0, len(data), CHUNK)]
        on_the_way, there = [], []
        for number, chunk in enumerate(chunks):
            on_the_way.append((number, *self.send_chunk(number, chunk)))
            # Two are in flight before the first is taken.
            if len(on_the_way) == 2:
                there.append(on_the_way.pop(0))
                self.take_chunk(there[-1][0], there[-1][2])
        for number, start, end in on_the_way:
            there.append((number, start, end))
            self.take_chunk(number, end)
        self.taken = len(chunks)
        for half in range(2):
            self.reap(half)
        # The last chunk of each half is still there.
        sram = self.sram()
        for number, start, end in there[-2:]:
            what = f"chunk {number + 1} of {len(chunks)}, from slot {start // SLOT} on"
            same(what, chunks[number], sram[start:start + len(chunks[number])])
            same("its number", sentinel(number), sram[end - 4:end])

    def sram(self):
        self.unit.arm_in(2 * HALF)
        self.card.write_entry(COMPLETION, 0)
        return self.unit.bulk_read(2 * HALF)

    def copy_out(self, data):
        self.unit.memory_write(self.card.memory + SOURCE, data + bytes(-len(data) % 4))
        self.begin()
        window = 2 * CHUNK
        found = b""
        for number, at in enumerate(range(0, len(data), window)):
            length = min(window, len(data) - at)
            first, second = min(length, CHUNK), max(length - CHUNK, 0)
            wire = -(-(HALF + second if second else first) // SECTOR) * SECTOR
            self.unit.arm_in(wire)
            self.unit.pcie_request(MEMORY_WRITE, self.card.memory + DOORBELL, number + 1)
            self.card.send(SOURCE + at, first, SRAM)
            if second:
                self.card.send(SOURCE + at + CHUNK, second, SRAM + HALF)
            self.card.write_entry(COMPLETION, 0)
            self.card.write_entry(FENCE_OF_GPU, number + 1)
            came = self.unit.bulk_read(wire)
            found += came[:first] + came[HALF:HALF + second]
            self.taken = number + 1
        same(f"a copy of {len(data)} bytes from the GPU", data, found)


def sentinel(number):
    return struct.pack("<I", 0x51000000 | number & 0xFFFFFF)


def check_single_requests(unit, memory):
    data = bytearray(pattern(64, seed=1))
    for at, value in enumerate(struct.unpack("<16I", data)):
        unit.pcie_request(MEMORY_WRITE, memory + 4 * at, value)
    unit.pcie_request(MEMORY_WRITE, memory + 6, 0xA5, 1)
    unit.pcie_request(MEMORY_WRITE, memory + 8, 0x1234, 2)
    data[6], data[8:10] = 0xA5, b"\x34\x12"
    found = [unit.pcie_request(MEMORY_READ, memory + at) for at in range(0, len(data), 4)]
    same("single requests", data, struct.pack("<16I", *found))


def check(vendor, product):
    unit = Unit(vendor, product)
    for on in (False, True):
        unit.pcie_power(on)
    state, = unit.read(LTSSM, 1)
    assert state == LINK_IS_UP, f"LTSSM {state:#x}"
    card = Card(unit)
    copier = Copier(unit, card)

    unit.write(FENCE, bytes(4))
    unit.arm_out(0, 2 * HALF)
    unit.bulk_write(bytes(2 * HALF))
    same("the SRAM, cleared", bytes(2 * HALF), copier.sram())

    check_single_requests(unit, card.memory)
    for length in (4, 8, 1028, STREAM, STREAM + 4, 5 * STREAM // 2):
        data = pattern(length, seed=length)
        unit.memory_write(card.memory + 64, data)
        same("a stream out and in", data, unit.memory_read(card.memory + 64, length))

    into, out_of = copier.copy_in, copier.copy_out
    for copy, length in ((into, 4096), (into, CHUNK), (out_of, 512), (into, CHUNK + 1), (out_of, CHUNK),
                         (out_of, 2 * CHUNK), (into, 2 * CHUNK), (into, CHUNK + 20000), (into, 5 * CHUNK + 100),
                         (out_of, 4 * CHUNK + 1000), (into, 9 * CHUNK)):
        copy(pattern(length, seed=length))
    copier.begin()


if __name__ == "__main__":
    be_patient(libusb)
    {"check": check}[sys.argv[1]](int(sys.argv[2], 16), int(sys.argv[3], 16))
