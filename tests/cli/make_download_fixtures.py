#!/usr/bin/env python3
"""Makes the files in download.in: a tiny image of our own, and valid and broken archives and programs around it."""

import hashlib
import io
import pathlib
import struct
import zipfile
import zlib

HERE = pathlib.Path(__file__).parent / "download.in"
STAMP = (2026, 1, 1, 0, 0, 0)


def image():
    body = bytearray((i * 7 + (i >> 3)) & 0xFF for i in range(0x210))
    body[0x200:0x206] = bytes.fromhex("260101000001")
    trailer = struct.pack("<BBI", 0xA5, sum(body) & 0xFF, zlib.crc32(body))
    return struct.pack("<I", len(body)) + body + trailer


def zip_of(*files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(zipfile.ZipInfo(name, STAMP), data, zipfile.ZIP_DEFLATED)
    return bytearray(out.getvalue())


def encrypted(archive):
    """Sets the encryption flag in the local and the central header."""
    archive[6] |= 1
    archive[archive.index(b"PK\x01\x02") + 8] |= 1
    return archive


def program(resources):
    """Makes a PE32 file with one section, .rsrc."""
    optional = bytearray(224)
    optional[0:2] = struct.pack("<H", 0x10B)
    optional[36:40] = struct.pack("<I", 0x200)
    optional[92:96] = struct.pack("<I", 16)
    dos = bytearray(0x80)
    dos[0:2] = b"MZ"
    dos[0x3C:0x40] = struct.pack("<I", 0x80)
    coff = struct.pack("<HHIIIHH", 0x14C, 1, 0, 0, 0, len(optional), 0x102)
    section = struct.pack("<8sIIIIIIHHI", b".rsrc", len(resources), 0x1000, len(resources), 0x200, 0, 0, 0, 0, 0)
    return (dos + b"PE\0\0" + coff + optional + section).ljust(0x200, b"\0") + resources


def manifest(name, sha256, tiny):
    return (
        f'id = "{name}"\nversion = "260101.00.00.01"\nchip = "ASM2464PD"\nsize = {len(tiny)}\n'
        f'md5 = "{hashlib.md5(tiny).hexdigest()}"\nsha256 = "{sha256}"\n'
        '\n[[mirrors]]\nurl = "http://127.0.0.1:9/tiny.zip"\nmember = "fw/tiny.bin"\n'
    )


def main():
    tiny = bytes(image())
    sha256 = hashlib.sha256(tiny).hexdigest()
    changed = bytearray(tiny)
    changed[100] ^= 1
    files = {
        "manifests/tiny.toml": manifest("tiny", sha256, tiny).encode(),
        "forged/forged.toml": manifest("forged", "00" * 32, tiny).encode(),
        "source/only.toml": manifest("only", "22" * 32, tiny).split("\n[[mirrors]]")[0].encode()
        + b"build = \"Build it: `make`, `asmpatch wrap f.ihx -o only.bin`, `asmpatch flash only.bin`.\"\n",
        "unknown-key/bad.toml": manifest("bad", sha256, tiny).replace("chip", "chips").encode(),
        "odd-hex/bad.toml": manifest("bad", sha256[:-1], tiny).encode(),
        "twice/tiny.toml": manifest("tiny", "11" * 32, tiny).encode(),
        "tiny.bin": tiny,
        "changed.bin": changed,
        "truncated.bin": tiny[:-7],
        "empty.bin": b"",
        "page.zip": b"<!DOCTYPE html><title>One moment, please</title>",
        "tiny.zip": zip_of(("readme.txt", b"A tiny image."), ("fw/tiny.bin", tiny)),
        "other.zip": zip_of(("readme.txt", b"No image.")),
        "truncated.zip": zip_of(("fw/tiny.bin", tiny))[:-20],
        "encrypted.zip": encrypted(zip_of(("fw/tiny.bin", tiny))),
        "same-name.zip": zip_of(("fw/tiny.bin", tiny), ("fw/tinyXbin", b"")).replace(b"fw/tinyXbin", b"fw/tiny.bin"),
        "outside.zip": zip_of(("../tiny.bin", tiny)),
        "bomb.zip": zip_of(("fw/tiny.bin", bytes(1 << 20))).replace(struct.pack("<I", 1 << 20), struct.pack("<I", 1000)),
        "updater.exe": program(b"\0" * 100 + changed + tiny + b"\0" * 100),
        "no-image.exe": program(b"\0" * 1000),
        "mine.bin": b"something of mine",
    }
    for name, data in files.items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(data))


main()
