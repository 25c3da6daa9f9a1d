#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blanks the code in libnccl.so.2 that some GPUs do not need, so that the file compresses to a tenth.

  scripts/gpu_kit/thin_nccl.py --arch 90 [--arch N]... FILE OUTPUT

FILE is libnccl.so.2, or the wheel with it: pip download --no-deps nvidia-nccl-cu13
N is the compute capability of a GPU without its dot: 90 for H100 and H200, 80 for A100.

NCCL carries machine code for each kind of GPU. A GPU takes that of its own number, or of a lower one with the same
tens. The rest is overwritten with zeros here, as are debug information and the relocatable code from which a driver
would link code for other GPUs. Nothing moves, so all offsets in the file stay right. On another kind of GPU the
result does not run.
"""

import argparse
import io
import pathlib
import struct
import sys
import zipfile

from usage_error import UsageError

CODE, RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"
IN_WHEEL = "nvidia/nccl/lib/libnccl.so.2"
# Of ELF (64 bits, little-endian).
ELF_HEADER, SECTION_HEADER = struct.Struct("<16s2HI3QI6H"), struct.Struct("<2I4Q2I2Q")
SECTION_WITHOUT_BYTES = 8
# A container of device code: magic, version, size of this header, bytes after it. An entry of it: kind, version, size
# of this header, bytes after it, (12 bytes: compressed size, options, version), architecture.
CONTAINER, ENTRY = struct.Struct("<I2HQ"), struct.Struct("<2HIQ4I")
MAGIC = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2


def unpacked(structure, data, offset, what):
    if offset < 0 or offset + structure.size > len(data):
        raise UsageError(f"it ends within {what}: it is damaged or incomplete")
    return structure.unpack_from(data, offset)


def elf_sections(data):
    """Returns [(name, offset, size)] of the sections that have bytes in the file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise UsageError("it is not a 64-bit shared library")
    header = unpacked(ELF_HEADER, data, 0, "the ELF header")
    table, size, count, names_index = header[6], header[11], header[12], header[13]
    headers = [unpacked(SECTION_HEADER, data, table + index * size, "the table of sections") for index in range(count)]
    if names_index >= count:
        raise UsageError("its sections have no names")
    names = headers[names_index][4]
    found = []
    for name, kind, _, _, offset, length, *_ in headers:
        if kind == SECTION_WITHOUT_BYTES:
            continue
        if offset + length > len(data):
            raise UsageError("it ends within a section: it is damaged or incomplete")
        begin = names + name
        found.append((data[begin:data.find(b"\0", begin)].decode(errors="replace"), offset, length))
    return found


def device_code(data, begin, size, section):
    """Returns [(kind, architecture, offset, size)] of all pieces of device code in a section, without their headers."""
    found, at, end = [], begin, begin + size
    while at < end:
        magic, _, header, length = unpacked(CONTAINER, data[:end], at, section)
        if magic != MAGIC or header < CONTAINER.size:
            raise UsageError(f"{section} has something else than device code at {at - begin}")
        at += header
        stop = at + length
        if stop > end:
            raise UsageError(f"{section} ends within device code: the file is damaged or of a format unknown here")
        while at < stop:
            kind, _, header, length, *_, architecture = unpacked(ENTRY, data[:stop], at, section)
            if header < ENTRY.size or at + header + length > stop:
                raise UsageError(f"{section} ends within device code: the file is damaged or of a format unknown here")
            found.append((kind, architecture, at + header, length))
            at += header + length
    return found


def runs_on(kind, architecture, gpu):
    """Whether a GPU can run this code. Intermediate code (PTX) is compiled by the driver for any later GPU."""
    if kind == MACHINE_CODE:
        return architecture // 10 == gpu // 10 and architecture <= gpu
    return kind == PTX and architecture <= gpu


def thin(data, gpus):
    """Blanks, in a bytearray with libnccl.so.2, what these GPUs do not need. Returns what remains and what went:
    {"kept": {architecture: pieces of machine code}, "removed": the same, "removed_bytes": all that was blanked}."""
    sections = elf_sections(data)
    code = {name: (begin, size) for name, begin, size in sections if name in (CODE, RELOCATABLE)}
    if CODE not in code:
        raise UsageError(f"it has no device code (no section {CODE}), so it is not NCCL")
    view = memoryview(data)
    pieces = device_code(view, *code[CODE], CODE)
    known = {architecture for kind, architecture, *_ in pieces if kind == MACHINE_CODE}
    for gpu in gpus:
        if not any(runs_on(MACHINE_CODE, architecture, gpu) for architecture in known):
            raise UsageError(f"it has no machine code for sm_{gpu}, only for "
                             + ", ".join(f"sm_{architecture}" for architecture in sorted(known)))
    kept, removed, blank = {}, {}, []
    for kind, architecture, begin, size in pieces:
        needed = any(runs_on(kind, architecture, gpu) for gpu in gpus)
        if kind == MACHINE_CODE:
            counts = kept if needed else removed
            counts[architecture] = counts.get(architecture, 0) + 1
        if not needed:
            blank.append((begin, size))
    if RELOCATABLE in code:
        blank += [piece[2:] for piece in device_code(view, *code[RELOCATABLE], RELOCATABLE)]
    blank += [(begin, size) for name, begin, size in sections if name.startswith(".debug_")]
    for begin, size in blank:
        view[begin:begin + size] = bytes(size)
    return {"kept": dict(sorted(kept.items())), "removed": dict(sorted(removed.items())),
            "removed_bytes": sum(size for _, size in blank)}


def read_nccl(file):
    """Returns the bytes of libnccl.so.2, or of the one in a wheel."""
    if not file.is_file():
        raise UsageError(f"{file} does not exist; it must be libnccl.so.2 or a wheel with it (pip download --no-deps "
                         "nvidia-nccl-cu13)")
    data = bytearray(file.read_bytes())
    if data[:2] != b"PK":
        return data
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            return bytearray(wheel.read(IN_WHEEL))
    except KeyError:
        raise UsageError(f"{file} has no {IN_WHEEL}, so it is not a wheel of NCCL") from None
    except zipfile.BadZipFile:
        raise UsageError(f"{file} is a damaged or incomplete wheel; download it again") from None


def thin_file(file, gpus):
    """Returns the bytes of a thinned library, and what thin() returns."""
    data = read_nccl(file)
    try:
        return data, thin(data, gpus)
    except UsageError as error:
        raise UsageError(f"{file} cannot be thinned: {error}") from None


def main(arguments):
    parser = argparse.ArgumentParser(usage="thin_nccl.py --arch N [--arch N]... FILE OUTPUT", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, action="append", required=True, metavar="N")
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args(arguments)
    try:
        data, told = thin_file(options.file, options.arch)
    except UsageError as error:
        print(f"thin_nccl: {error}", file=sys.stderr)
        return 2
    options.output.write_bytes(data)
    kept = ", ".join(f"sm_{architecture} ({count} pieces)" for architecture, count in told["kept"].items())
    print(f"{options.output}: {told['removed_bytes'] / 1e6:.0f} of {len(data) / 1e6:.0f} MB are blank; "
          f"machine code {kept} remains")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
