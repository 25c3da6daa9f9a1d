# SPDX-License-Identifier: Apache-2.0
#
# To use it, put this file in a directory slurm_ddp below the packages of a Spack repository (Spack
# 1.0 or newer), then
#
#   git archive --prefix=slurm-ddp-0.1.0/ -o slurm-ddp-0.1.0.tar.gz v0.1.0    (where Spack is started)
#   spack install --no-checksum slurm-ddp
#
# or, in a checkout, `spack dev-build slurm-ddp@0.1.0`.

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class SlurmDdp(CMakePackage):
    """One flag, srun --ddp, turns a SLURM job step into a distributed training job. A SPANK plugin, a C++
    runtime on libtorch, crash-safe HDF5 checkpoints, checks that name bad nodes, and scaling reports."""

    manual_download = True
    url = f"file://{os.getcwd()}/slurm-ddp-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("plugin", default=True, description="Build the SPANK plugin, for the release of ^slurm")
    variant("runtime", default=True, description="Build communication, ddp-check and ddp-report")
    variant("torch", default=True, when="+runtime", description="Build ddp-train and the training library")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.23:", type="build")
    depends_on("cli11@2.1:", type="build")

    depends_on("fmt@9.1:")
    depends_on("nlohmann-json@3.11:")
    depends_on("zlib-api")
    depends_on("openssl@3:")
    # A parallel HDF5 would make every program that reads a checkpoint depend on MPI.
    depends_on("hdf5@1.10:~mpi")

    # The plugin works only with the SLURM release whose headers it is built with, so use the site's
    # own SLURM as an external package. srun starts MPI programs by PMIx.
    depends_on("slurm+pmix", when="+plugin")

    with when("+runtime"):
        depends_on("openmpi@4.1: schedulers=slurm")

    depends_on("py-torch@1.13:", when="+torch")

    def cmake_args(self):
        return [
            self.define_from_variant("SLURM_DDP_PLUGIN", "plugin"),
            self.define_from_variant("SLURM_DDP_RUNTIME", "runtime"),
            self.define_from_variant("SLURM_DDP_TORCH", "torch"),
            self.define("SLURM_DDP_TESTS", False),  # run-tests starts its own SLURM
        ]
