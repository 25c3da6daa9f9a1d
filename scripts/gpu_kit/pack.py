# SPDX-License-Identifier: Apache-2.0
"""Makes the archive that gpu_day takes to another machine."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time

from libraries import GRAPH_LIBRARY
from usage_error import UsageError

PROGRAMS = ["ddp-train", "ddp-check", "ddp-report", "ddp-bench", "ddp-ckpt"]
# Beside them, all other tests whose names end in _gpu_test.
GPU_TESTS = ["nccl_gpu_test", "nccl_launch_cost"]
MODULES = ["ceilings.py", "libraries.py", "machine.py", "parts.py", "runner.py", "shard_parts.py",
           "step_cases.py", "step_parts.py", "thin_nccl.py", "trainings.py", "usage_error.py"]
PYTHON_PEER = ["python_ddp_peer.py", "python_models.py", "python_pipeline.py", "python_shards.py"]  # of ddp-bench
ROOT = "gpu-kit"

# Plugins of Open MPI for networks, other launchers and OpenSHMEM, which one machine does not need
# and which would bring libraries of their own.
MPI_PLUGINS_LEFT_OUT = re.compile(
    r"ucx|uct|ofi|openib|psm|flux|monitoring|slurm|gridengine|jsm|lsf|alps|romio"
    r"|_(atomic|memheap|scoll|spml|sshmem|tm)[_.]")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_names(file):
    """Returns the names of the libraries that an ELF file asks for itself."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", str(file)))


def resolved(file):
    """Returns {name: path} for all libraries of an ELF file, as the dynamic linker finds them here."""
    found = {}
    for line in output_of("ldd", str(file)).splitlines():
        match = re.match(r"\s*(\S+) => (\S+) \(", line)
        if match:
            found[match[1]] = pathlib.Path(match[2])
        elif "=> not found" in line:
            raise UsageError(f"{file} needs {line.split()[0]}, which this machine does not have")
    return found


def libraries_to_carry(files, is_of_machine):
    """Returns {name: path} of the libraries that the files need, directly or not, and that the other
    machine does not have. Libraries that only its own libraries need are its own matter."""
    carried = {}
    for file in files:
        paths = resolved(file)
        names = needed_names(file)
        while names:
            name = names.pop()
            if name in carried or name not in paths or is_of_machine(name, paths[name]):
                continue
            carried[name] = paths[name]
            names += needed_names(paths[name])
    return carried


def torch_of(program):
    """Returns the directory of the PyTorch wheel that a program was linked to, and its release."""
    library = next((path for name, path in resolved(program).items() if name.startswith("libtorch_cpu.so")), None)
    if library is None:
        return None, None
    root = library.resolve().parent.parent
    version = root / "version.py"
    release = re.search(r"__version__ = '([^']+)'", version.read_text()) if version.exists() else None
    return (root, release[1]) if release else (None, None)


def find_programs(builds, partial):
    """Returns {path in the kit: path here}."""
    found, missing = {}, []
    wanted = [f"bin/{name}" for name in PROGRAMS] + [f"tests/{name}" for name in GPU_TESTS] + [f"lib/{GRAPH_LIBRARY}"]
    for build in builds:
        wanted += sorted(f"tests/{path.name}" for path in (build / "tests").glob("*_gpu_test"))
    for name in dict.fromkeys(wanted):
        path = next((build / name for build in builds if (build / name).exists()), None)
        if path is None:
            missing.append(name)
        else:
            found[name] = path
    where = " and ".join(map(str, builds))
    if not found:
        raise UsageError(f"there are no programs in {where}; build first, or give --build DIR")
    if missing and not partial:
        raise UsageError(f"{where} has no {', '.join(missing)}; build them, or pack without them (--partial)")
    return found, missing


class Kit:
    """A directory that becomes the archive."""

    def __init__(self, root):
        self.root = root

    def copy(self, source, name, strip=False):
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if strip:
            output_of("strip", "--strip-all", "-o", str(target), str(source))
        else:
            shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def mpi_directory(name):
    return pathlib.Path(output_of("ompi_info", "--parsable", "--path", name).strip().split(":")[-1])


def copy_mpi(kit):
    """Copies mpirun, its plugins and the texts of its messages. Returns the ELF files, as they are here."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise UsageError("this machine has no mpirun of Open MPI to pack (Debian: apt-get install openmpi-bin)")
    files = [pathlib.Path(mpirun).resolve()]
    kit.copy(files[0], "mpi/bin/mpirun", strip=True)
    for plugin in sorted(mpi_directory("pkglibdir").glob("mca_*.so")):
        if not MPI_PLUGINS_LEFT_OUT.search(plugin.name):
            kit.copy(plugin, f"mpi/lib/openmpi/{plugin.name}")
            files.append(plugin)
    for text in mpi_directory("pkgdatadir").glob("help-*.txt"):
        kit.copy(text, f"mpi/share/openmpi/{text.name}")
    # PMIx has plugins of its own, in a directory beside its library.
    library = next((path for file in files for name, path in resolved(file).items() if name == "libpmix.so.2"), None)
    if library is not None:
        pmix = library.resolve().parent.parent
        for plugin in [path for path in pmix.glob("lib*/pmix/*.so") if "slurm" not in path.name]:
            kit.copy(plugin, f"mpi/lib/pmix/{plugin.name}")
            files.append(plugin)
    return files


def write_nccl(options, file):
    """Writes the NCCL to pack. Returns what the manifest says about it."""
    from machine import nccl_text, nccl_version
    from thin_nccl import read_nccl, thin_file
    data, told = thin_file(options.nccl, options.nccl_arch) if options.nccl_arch else (read_nccl(options.nccl), {})
    file.write_bytes(data)
    version = nccl_version(file)
    if version == 0:
        raise UsageError(f"{options.nccl} is not an NCCL that can be loaded here")
    return {"version": nccl_text(version), "arch": options.nccl_arch or [], **told}


def compress(root, output):
    """Writes the archive. The default is xz, because Python, which the other machine has, unpacks it; zstd takes
    a tenth of the time, but may be missing there."""
    if output.name.endswith(".tar.zst"):
        command = ["zstd", "-q", "-10"]
        with open(output, "wb") as file, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file) as zstd:
            with tarfile.open(fileobj=zstd.stdin, mode="w|") as archive:
                archive.add(root, root.name)
            zstd.stdin.close()
        if zstd.returncode != 0:
            raise UsageError(f"zstd failed with exit code {zstd.returncode}")
    else:
        with tarfile.open(output, "w:xz", preset=6) as archive:
            archive.add(root, root.name)


def unpack_command(output):
    tool = "tar --zstd -xf" if output.name.endswith(".tar.zst") else "python3 -m tarfile -e"
    return f"{tool} {output.name}" + ("" if tool.startswith("tar ") else " .")


def machine_has(torch_root):
    from libraries import is_of_machine
    inside = [torch_root.resolve(), torch_root.resolve().parent / "nvidia"] if torch_root else []

    def test(name, path):
        real = path.resolve()
        return is_of_machine(name) or any(real.is_relative_to(directory) for directory in inside)
    return test


def commit_of(source):
    def git(*arguments):
        done = subprocess.run(["git", "-C", str(source), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    changed = git("status", "--porcelain").splitlines()
    return {"commit": git("rev-parse", "HEAD") or "unknown", "changed_files": len(changed)}


def version_of(source):
    return re.search(r"project\(\w+ VERSION ([\d.]+)", (source / "CMakeLists.txt").read_text())[1]


def pack(source, options):
    start = time.monotonic()
    if not options.output.name.endswith((".tar.xz", ".tar.zst")):
        raise UsageError(f"the name of {options.output} must end in .tar.xz or .tar.zst")
    if options.output.name.endswith(".zst") and shutil.which("zstd") is None:
        raise UsageError("this machine has no zstd; give --output a name that ends in .tar.xz")
    builds = options.build or [source / "build-torch2" / "2.11.0"]
    programs, missing = find_programs(builds, options.partial)
    torch_root, torch_release = None, None
    if "bin/ddp-train" in programs:
        torch_root, torch_release = torch_of(programs["bin/ddp-train"])
        if torch_root is None and not options.partial:
            raise UsageError(f"{programs['bin/ddp-train']} uses a libtorch that is not of a PyTorch wheel, so it "
                             "cannot run with the PyTorch of another machine; build against the wheel "
                             "(tests/torch2/build 2.11.0)")
    if options.nccl_arch and not options.nccl:
        raise UsageError("--nccl-arch thins the file of --nccl, which is missing")
    with tempfile.TemporaryDirectory() as work:
        kit = Kit(pathlib.Path(work) / ROOT)
        for name, path in programs.items():
            kit.copy(path, name, strip=True)
        # The library of graphs needs PyTorch's CUDA half, which the machine that packs may lack.
        files = [path for path in programs.values() if path.name != GRAPH_LIBRARY] + copy_mpi(kit)
        carried = libraries_to_carry(files, machine_has(torch_root))
        for name, path in sorted(carried.items()):
            kit.copy(path, f"lib/{name}")
        nccl = None
        if options.nccl:
            file = pathlib.Path(work) / "libnccl.so.2"
            nccl = write_nccl(options, file)
            kit.copy(file, "nccl/libnccl.so.2", strip=True)
        kit.copy(source / "datasets/digits/digits.csv.gz", "datasets/digits/digits.csv.gz")
        for script in PYTHON_PEER:
            kit.copy(source / "bench" / script, f"share/slurm-ddp/bench/{script}")
        kit.copy(source / "scripts/gpu_day", "gpu_day")
        for module in MODULES:
            kit.copy(source / "scripts/gpu_kit" / module, f"gpu_kit/{module}")
        contents = sorted(path for path in kit.root.rglob("*") if path.is_file())
        manifest = {"schema": "slurm-ddp/gpu-kit/1", "version": version_of(source), **commit_of(source),
                    "torch": torch_release, "libc": os.confstr("CS_GNU_LIBC_VERSION"), "missing": missing, "nccl": nccl,
                    "files": {str(path.relative_to(kit.root)): path.stat().st_size for path in contents}}
        (kit.root / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        compress(kit.root, options.output)
        unpacked = sum(manifest["files"].values())
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB, unpacked {unpacked / 1e6:.0f} MB, "
          f"{len(programs)} programs, {len(carried)} libraries, PyTorch {torch_release or 'unknown'}, "
          f"{time.monotonic() - start:.0f} s")
    if nccl:
        whole = "whole" if not nccl["arch"] else "code for " + ", ".join(f"sm_{arch}" for arch in nccl["kept"])
        print(f"NCCL {nccl['version']}: {whole}")
    if missing:
        print(f"missing: {', '.join(missing)}")
    print(f"next, on the other machine: {unpack_command(options.output)} && {ROOT}/gpu_day run cpu smoke")
    return 0
