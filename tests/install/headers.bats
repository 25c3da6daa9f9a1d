#!/usr/bin/env bats
# The installed headers: those that users' programs need and no other.

bats_require_minimum_version 1.5.0

setup_file() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  export here prefix=$BATS_FILE_TMPDIR/prefix headers=$BATS_FILE_TMPDIR/prefix/include/slurm_ddp
  cmake --install "${SLURM_DDP_BUILD:-$here/build}" --component development --prefix "$prefix" > "$BATS_FILE_TMPDIR/install.log"
}

setup() { cd "$BATS_TEST_TMPDIR" || return; }

# What the documentation names as the way in, and what the examples include.
entries() {
  printf '%s\n' ddp_runtime/ddp.h hdf5_ckpt/checkpoint_directory.h slurm_ddp/version.h
  sed -n 's/^#include <\(\(ddp_runtime\|hdf5_ckpt\)[^>]*\)>.*/\1/p' "$here"/examples/*/*.cpp
}

@test "every header that a user's program includes is installed, and no other" {
  mapfile -t entries < <(entries)
  run -0 "$here/tests/install/public_headers.py" check "$headers" "${entries[@]}"
  echo "# $output" >&3
}

@test "a header that is missing, and one that nobody needs, are named" {
  mapfile -t entries < <(entries)
  cp -r "$headers" changed
  rm changed/ddp_runtime/comm/group.h
  : > changed/hdf5_ckpt/private.h
  run -1 "$here/tests/install/public_headers.py" check changed "${entries[@]}"
  [[ $output == *"ddp_runtime/comm/group.h: "*" includes it; add it"*"hdf5_ckpt/private.h: no header for users"* ]]
}
