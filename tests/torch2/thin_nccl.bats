#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# NCCL without the code for other GPUs, on a small library in the format of NCCL's.

bats_require_minimum_version 1.5.0

setup() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  thin_nccl=$here/scripts/gpu_kit/thin_nccl.py
  cd "$BATS_TEST_TMPDIR" || return
  make_library
}

# Makes libnccl.so.2 with device code: two containers in .nv_fatbin, and one with relocatable code. All payloads are
# text, which says what it is.
make_library() {
  python3 - << 'PYTHON'
import struct
def entry(kind, architecture, text):
    payload = text.encode().ljust(len(text) + -len(text) % 8, b".")
    header = struct.pack("<2HIQ4I", kind, 0x101, 64, len(payload), len(text), 0, 0, architecture)
    return header.ljust(64, b"\7") + payload
def container(*entries):
    return struct.pack("<I2HQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)
def all_of(name):
    return [entry(2, sm, f"{name} code for sm_{sm}") for sm in (80, 90, 100)] + [entry(1, 120, f"{name} ptx 120")]
open("code", "wb").write(container(*all_of("first")) + container(entry(2, 100, "second code for sm_100"), entry(1, 75, "second ptx 75")))
open("relocatable", "wb").write(container(*all_of("relocatable")))
PYTHON
  cat > library.c << 'C'
int ncclGetVersion(int* version) { *version = 23007; return 0; }
__asm__(".section .nv_fatbin, \"a\"\n.incbin \"code\"\n.section __nv_relfatbin, \"a\"\n.incbin \"relocatable\"\n.text");
C
  cc -g -shared -fPIC -o libnccl.so.2 library.c
}

thin() { "$thin_nccl" "$@" libnccl.so.2 thin.so; }

# texts FILE: what the payloads in a library say.
texts() { grep -aoE '(first|second|relocatable) (code|ptx)[ a-z_0-9]*' "$1" | sort | paste -sd ,; }

@test "only code that the GPU can run remains, and the library loads" {
  run -0 thin --arch 90
  echo "$output"
  [[ $output == "thin.so: "*" MB are blank; machine code sm_90 (1 pieces) remains" ]]
  [ "$(texts thin.so)" = "first code for sm_90,second ptx 75" ]
  [ "$(stat -c %s thin.so)" = "$(stat -c %s libnccl.so.2)" ]
  # All headers are as before, so that the driver finds its way.
  python3 - << 'PYTHON'
import ctypes
before, after = (open(name, "rb").read() for name in ("libnccl.so.2", "thin.so"))
changed = [i for i in range(len(before)) if before[i] != after[i]]
assert changed and all(after[i] == 0 for i in changed)
magic = bytes.fromhex("50ed55ba")
assert before.count(magic) == after.count(magic) == 3
rest_of_header = b"\7" * 32
assert before.count(rest_of_header) == after.count(rest_of_header) > 8
version = ctypes.c_int()
ctypes.CDLL("./thin.so").ncclGetVersion(ctypes.byref(version))
assert version.value == 23007
PYTHON
  run ! grep -q library.c <(readelf --debug-dump=info thin.so 2> /dev/null)
}

@test "several GPUs, and GPUs that run the code of an older one" {
  run -0 thin --arch 90 --arch 100
  [ "$(texts thin.so)" = "first code for sm_100,first code for sm_90,second code for sm_100,second ptx 75" ]
  run -0 thin --arch 86
  [ "$(texts thin.so)" = "first code for sm_80,second ptx 75" ]
}

@test "a wheel is read as it was downloaded" {
  mkdir -p nvidia/nccl/lib
  cp libnccl.so.2 nvidia/nccl/lib
  python3 -m zipfile -c nccl.whl nvidia
  run -0 "$thin_nccl" --arch 90 nccl.whl thin.so
  [ "$(texts thin.so)" = "first code for sm_90,second ptx 75" ]
}

@test "a file that cannot be thinned is an error of one sentence, and nothing is written" {
  refused() { # text, options...
    run -2 "$thin_nccl" "${@:2}" out.so
    echo "$output"
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == "thin_nccl: $1" ]]
    [ ! -e out.so ]
  }
  refused "missing.so does not exist; it must be libnccl.so.2 or a wheel with it (pip download --no-deps nvidia-nccl-cu13)" \
    --arch 90 missing.so
  refused "libnccl.so.2 cannot be thinned: it has no machine code for sm_120, only for sm_80, sm_90, sm_100" \
    --arch 120 libnccl.so.2
  echo text > text
  refused "text cannot be thinned: it is not a 64-bit shared library" --arch 90 text
  refused "/bin/true cannot be thinned: it has no device code (no section .nv_fatbin), so it is not NCCL" \
    --arch 90 /bin/true
  python3 -m zipfile -c other.whl text
  refused "other.whl has no nvidia/nccl/lib/libnccl.so.2, so it is not a wheel of NCCL" --arch 90 other.whl
  head -c 50 other.whl > half.whl
  refused "half.whl is a damaged or incomplete wheel; download it again" --arch 90 half.whl
}

@test "the kit gets the thinned file, says so, and offers it only to GPUs that can run it" {
  mkdir -p build/bin
  cp /bin/true build/bin/ddp-report
  pack() { "$here/scripts/gpu_day" pack --partial --build build --output kit.tar.xz "$@"; }
  run -2 pack --nccl-arch 90
  [ "$output" = "gpu_day: --nccl-arch thins the file of --nccl, which is missing" ]
  run -2 pack --nccl libnccl.so.2 --nccl-arch 120
  [[ $output == "gpu_day: libnccl.so.2 cannot be thinned: it has no machine code for sm_120, "* ]]
  run -2 pack --nccl /bin/true
  [ "$output" = "gpu_day: /bin/true is not an NCCL that can be loaded here" ]
  run -0 pack --nccl libnccl.so.2 --nccl-arch 90
  [[ $output == *"NCCL 2.30.7: code for sm_90"* ]]
  python3 -m tarfile -e kit.tar.xz .
  [ "$(texts gpu-kit/nccl/libnccl.so.2)" = "first code for sm_90,second ptx 75" ]
  python3 - << 'PYTHON'
import json, pathlib, sys
kit = pathlib.Path("gpu-kit").resolve()
nccl = json.loads((kit / "manifest.json").read_text())["nccl"]
assert (nccl["version"], nccl["kept"], nccl["removed"]) == ("2.30.7", {"90": 1}, {"80": 1, "100": 2}), nccl
sys.path.insert(0, str(kit / "gpu_kit"))
import machine
file = kit / "nccl/libnccl.so.2"
assert machine.extra_nccl(kit, None, 90) == machine.extra_nccl(kit, None, 0) == (file, "")
other, reason = machine.extra_nccl(kit, None, 100)
assert other is None and reason == "the kit's NCCL has code for sm_90 only, and this GPU is sm_100; see --nccl-arch", reason
assert machine.extra_nccl(kit, pathlib.Path("given"), 100) == (pathlib.Path("given"), "")
assert machine.find_nccl(None, file) == [(file, 23007)]
PYTHON
  # Without --nccl-arch, the whole file.
  run -0 pack --nccl libnccl.so.2
  [[ $output == *"NCCL 2.30.7: whole"* ]]
  python3 -m tarfile -e kit.tar.xz whole
  [[ $(texts whole/gpu-kit/nccl/libnccl.so.2) == *"first code for sm_100,"* ]]
}

# A pure function of the bytes: any damage gives a result or an error, and reads nothing outside.
@test "every truncation and damage of the file is found or harmless" {
  strip -o small.so libnccl.so.2
  python3 - "$here/scripts/gpu_kit" << 'PYTHON'
import random, sys
sys.path.insert(0, sys.argv[1])
import thin_nccl
from usage_error import UsageError
data = open("small.so", "rb").read()
assert thin_nccl.thin(bytearray(data), [90])["kept"] == {90: 1}
def outcome(changed):
    try:
        thin_nccl.thin(changed, [90])
    except UsageError as error:
        return str(error)
    return ""
texts = {outcome(bytearray(data[:length])) for length in range(0, len(data), 7)}
assert "" not in texts and any("it ends within" in text for text in texts), texts
code = data.index(bytes.fromhex("50ed55ba"))
def with_bytes(at, new):
    return bytearray(data[:at] + new + data[at + len(new):])
assert "something else than device code at 0" in outcome(with_bytes(code, b"\1"))
assert "ends within device code" in outcome(with_bytes(code + 8, b"\xff" * 8))
assert "ends within device code" in outcome(with_bytes(code + 16 + 8, b"\xff" * 8))
assert "ends within device code" in outcome(with_bytes(code + 16 + 4, b"\0" * 4))  # would not advance
# The last entry of the table of sections is at the end of the file; its size is out of bounds.
assert "it ends within a section" in outcome(with_bytes(len(data) - 32, (1 << 40).to_bytes(8, "little")))
random.seed(1)
for _ in range(3000):
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.choice([random.randrange(64), random.randrange(len(data) - 2000, len(data)),
                            code + random.randrange(400)])
        changed[at] = random.randrange(256)
    outcome(changed)
PYTHON
}
