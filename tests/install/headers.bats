#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The installed headers are exactly those that users' programs need, and each compiles by itself.
# Also tests their reference.

bats_require_minimum_version 1.5.0

setup_file() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  export here prefix=$BATS_FILE_TMPDIR/prefix headers=$BATS_FILE_TMPDIR/prefix/include/slurm_ddp
  cmake --install "${SLURM_DDP_BUILD:-$here/build}" --component development --prefix "$prefix" > "$BATS_FILE_TMPDIR/install.log"
}

setup() { cd "$BATS_TEST_TMPDIR" || return; }

# Prints the headers that the documentation names for users, and those that the examples include.
entries() {
  printf '%s\n' ddp_runtime/ddp.h hdf5_ckpt/directory/checkpoint_directory.h slurm_ddp/version.h
  sed -n 's/^#include <\(\(ddp_runtime\|hdf5_ckpt\)[^>]*\)>.*/\1/p' "$here"/examples/*/*.cpp
}

@test "every header that a user's program includes is installed, and no other" {
  mapfile -t entries < <(entries)
  run -0 "$here/tests/install/public_headers.py" check "$headers" "${entries[@]}"
  echo "# $output" >&3
}

@test "a missing header and a superfluous one are named" {
  mapfile -t entries < <(entries)
  cp -r "$headers" changed
  rm changed/ddp_runtime/comm/group/group.h
  : > changed/hdf5_ckpt/private.h
  run -1 "$here/tests/install/public_headers.py" check changed "${entries[@]}"
  [[ $output == *"ddp_runtime/comm/group/group.h: "*" includes it; add it"*"hdf5_ckpt/private.h: no public header"* ]]
}

# Headers that include libtorch take a minute each, so only the examples compile them, all together.
# bats test_tags=full
@test "each installed header without libtorch compiles by itself against the installed tree" {
  mkdir sources
  "$here/tests/install/public_headers.py" sources "$headers" sources
  [ "$(find sources -name '*.cpp' | wc -l)" -gt 25 ]
  run -0 cmake -S "$here/tests/install/headers" -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DSOURCES="$PWD/sources"
  run -0 cmake --build build
}

@test "the reference is built from the public headers without a warning" {
  command -v doxygen > /dev/null || skip "no doxygen on this machine (apt-get install doxygen)"
  mkdir reference
  local out=$PWD
  cd "$here"
  run -0 env SLURM_DDP_HEADERS="$headers" SLURM_DDP_REFERENCE="$out/reference" doxygen docs/Doxyfile
  [ -z "$output" ]
  grep -rq 'Collective over the job' "$out/reference/html/classddp_1_1comm_1_1World.html"
  [ ! -e "$out/reference/html/unique__fd_8h.html" ]
}

@test "the reference rejects a parameter or a name that does not exist" {
  command -v doxygen > /dev/null || skip "no doxygen on this machine (apt-get install doxygen)"
  local out=$PWD text
  mkdir -p reference wrong
  cd "$here"
  for text in '@param nothing Not there.' 'See @ref nothing_like_this.'; do
    printf '// A file.\n#pragma once\n\n// Doubles.\n// %s\nint twice(int value);\n' "$text" > "$out/wrong/twice.h"
    run -1 env SLURM_DDP_HEADERS="$out/wrong" SLURM_DDP_REFERENCE="$out/reference" doxygen docs/Doxyfile
    [[ $output == *"twice.h"*"nothing"* ]]
  done
}
