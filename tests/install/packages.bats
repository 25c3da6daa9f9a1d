#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests the development package (headers, libraries and the CMake package), unpacked outside the
# build directory and the build's prefix, as on another machine. tests/cluster/launch_package.bats
# tests the other packages.

bats_require_minimum_version 1.5.0

setup_file() {
  command -v dpkg-deb > /dev/null || skip "no dpkg on this machine"
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  build=$(readlink -e "${SLURM_DDP_BUILD:-$here/build}")
  export here build root=$BATS_FILE_TMPDIR/root OMP_NUM_THREADS=1
  cpack --config "$build/CPackConfig.cmake" -G DEB -B "$BATS_FILE_TMPDIR/packages" -D CPACK_COMPONENTS_ALL=development \
    > "$BATS_FILE_TMPDIR/log" 2>&1 || { cat "$BATS_FILE_TMPDIR/log" && return 1; }
  package=$(echo "$BATS_FILE_TMPDIR"/packages/*.deb)
  export package
  dpkg-deb -x "$package" "$root"
}

setup() { cd "$BATS_TEST_TMPDIR" || return; }

with_torch() { [ -e "$root/usr/include/slurm_ddp/ddp_runtime/ddp.h" ] || skip "this build has no libtorch"; }

@test "slurm-ddp-dev has headers, libraries and the CMake package, and depends on the packages that it searches for" {
  [[ $(basename "$package") == slurm-ddp-dev_* ]]
  [ -s "$root/usr/include/slurm_ddp/hdf5_ckpt/directory/checkpoint_directory.h" ]
  [ -s "$root/usr/lib/libslurm_ddp_hdf5_ckpt.a" ]
  [ -s "$root/usr/lib/cmake/slurm_ddp/slurm_ddpConfig.cmake" ]
  [ ! -e "$root/usr/bin" ]
  local name
  for name in libhdf5-dev zlib1g-dev libfmt-dev nlohmann-json3-dev; do
    [[ ", $(dpkg-deb -f "$package" Depends)," == *", $name,"* ]]
  done
}

@test "the CMake package contains no paths of the machine that built it" {
  local directory=$root/usr/lib/cmake/slurm_ddp
  run ! grep -rnF -e "$here" -e "$build" "$directory"
  # If the prefix is /usr, CMake writes it there to resolve a link /lib -> /usr/lib.
  run ! grep -n -e '/usr/' -e '/opt/' <(grep -hv _realOrig "$directory"/slurm_ddpTargets*.cmake)
}

@test "a libtorch of another release is refused with a one-sentence error" {
  with_torch
  mkdir fake
  echo 'set(TORCH_LIBRARIES torch)' > fake/TorchConfig.cmake
  printf '%s\n' 'set(PACKAGE_VERSION 99.1.0)' 'set(PACKAGE_VERSION_COMPATIBLE TRUE)' > fake/TorchConfigVersion.cmake
  run -1 cmake -S "$here/examples/own_model" -B own -DCMAKE_PREFIX_PATH="$root/usr" -DTorch_DIR="$PWD/fake"
  [[ $(tr -s ' \n' ' ' <<< "$output") == *"slurm_ddp was built with libtorch "*"is libtorch 99.1.0"* ]]
}

# bats test_tags=full
@test "find_package(slurm_ddp) builds a custom model, which trains on two ranks" {
  with_torch
  run -0 cmake -S "$here/examples/own_model" -B own -DCMAKE_PREFIX_PATH="$root/usr"
  run -0 cmake --build own
  run -0 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe -n 2 own/own-model
  accuracy=$(sed -n 's/^accuracy //p' <<< "$output")
  python3 -c "import sys; sys.exit(not 0.95 < float('$accuracy') <= 1)"
}
