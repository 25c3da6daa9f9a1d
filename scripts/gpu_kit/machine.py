# SPDX-License-Identifier: Apache-2.0
"""What the machine has: PyTorch, a GPU, NCCL. Imports no torch, which would take seconds."""

import ctypes
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

from thin_nccl import MACHINE_CODE, runs_on

NCCL_FOR_SHARED_GPUS = 23000


def find_torch():
    """Returns the directory of the PyTorch of this Python; None if it has none."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return pathlib.Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def torch_release(root):
    version = root / "version.py"
    found = re.search(r"__version__ = '([^']+)'", version.read_text()) if version.exists() else None
    return found[1] if found else "unknown"


def library_directories(root):
    """Directories with the libraries of PyTorch and of CUDA, as pip installs them."""
    return [root / "lib", *sorted(root.parent.glob("nvidia/*/lib"))]


def count_gpus():
    """Returns the number of GPUs that this process sees, and the reason if there are none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "this machine has no NVIDIA driver (libcuda.so.1 is not found)"
    code = driver.cuInit(0)
    count = ctypes.c_int(0)
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code == 0 and count.value > 0:
        return count.value, ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    because = f"CUDA_VISIBLE_DEVICES is {visible!r}" if visible is not None else "CUDA_VISIBLE_DEVICES is not set"
    return 0, f"the NVIDIA driver sees no GPU (code {code}, {because})"


def gpu_architecture():
    """Returns the compute capability of the first GPU without its dot, such as 90; 0 if it is unknown."""
    major, minor, device = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return 0
    for value, attribute in ((major, 75), (minor, 76)):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
            return 0
    return 10 * major.value + minor.value


def nccl_version(file):
    """Returns 22809 for NCCL 2.28.9; 0 if the file is not NCCL. Loads it in another process."""
    ask = ("import ctypes, sys; version = ctypes.c_int(); "
           "ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(version)); print(version.value)")
    done = subprocess.run([sys.executable, "-c", ask, str(file)], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else 0


def nccl_text(version):
    return f"{version // 10000}.{version % 10000 // 100}.{version % 100}" if version else "unknown"


def extra_nccl(kit, given, gpu):
    """Returns the NCCL that is used besides those of this machine, or None and the reason."""
    if given:
        return given, ""
    file = kit / "nccl" / "libnccl.so.2"
    if not file.exists():
        return None, "the kit has no NCCL of its own; see --nccl"
    packed = json.loads((kit / "manifest.json").read_text()).get("nccl") or {}
    architectures = [int(text) for text in packed.get("kept", {})]
    if gpu and architectures and not any(runs_on(MACHINE_CODE, architecture, gpu) for architecture in architectures):
        has = ", ".join(f"sm_{architecture}" for architecture in architectures)
        return None, f"the kit's NCCL has code for {has} only, and this GPU is sm_{gpu}; see --nccl-arch"
    return file, ""


def find_nccl(torch_root, extra):
    """Returns [(file, version)] of the NCCLs of this machine and the extra one, newest first."""
    files = [extra] if extra else []
    if torch_root:
        files += torch_root.parent.glob("nvidia/nccl/lib/libnccl.so.2")
    found = [(file, nccl_version(file)) for file in files]
    return sorted(found, key=lambda entry: entry[1], reverse=True)


class Machine:
    def __init__(self, kit, given_nccl=None):
        self.kit = kit
        self.torch = find_torch()
        self.gpus, self.no_gpu = count_gpus()
        self.extra_nccl, self.no_extra_nccl = extra_nccl(kit, given_nccl, gpu_architecture())
        self.nccl = find_nccl(self.torch, self.extra_nccl)
        name = "compute-sanitizer"
        self.sanitizer = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")

    def facts(self):
        return {"host": platform.node(), "kernel": platform.release(), "libc": os.confstr("CS_GNU_LIBC_VERSION"),
                "cores": os.cpu_count(), "python": platform.python_version(), "python_file": sys.executable,
                "torch": torch_release(self.torch) if self.torch else None, "torch_directory": str(self.torch),
                "gpus": self.gpus, "no_gpu": self.no_gpu,
                "nccl": {str(file): nccl_text(version) for file, version in self.nccl}}

    def environment(self):
        """Variables for programs of the kit. Others, such as Python, must not get the kit's libraries."""
        mpi = self.kit / "mpi"
        directories = [self.kit / "lib"] + (library_directories(self.torch) if self.torch else [])
        inherited = [text for text in [os.environ.get("LD_LIBRARY_PATH")] if text]
        return {
            "LD_LIBRARY_PATH": ":".join([*map(str, directories), *inherited]),
            "SLURM_DDP_DATASETS": str(self.kit / "datasets"),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            # Where Open MPI and PMIx look for their plugins and texts, and that they run here alone.
            "OPAL_PREFIX": str(mpi), "OPAL_BINDIR": str(mpi / "bin"), "OPAL_LIBDIR": str(self.kit / "lib"),
            "OPAL_PKGLIBDIR": str(mpi / "lib/openmpi"), "OPAL_PKGDATADIR": str(mpi / "share/openmpi"),
            "OPAL_SYSCONFDIR": str(mpi / "etc"),
            "OMPI_MCA_mca_base_component_path": str(mpi / "lib/openmpi"),
            "PMIX_PKGLIBDIR": str(mpi / "lib/pmix"), "PMIX_MCA_mca_base_component_path": str(mpi / "lib/pmix"),
            "OMPI_MCA_plm": "isolated", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
