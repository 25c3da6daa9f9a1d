# SPDX-License-Identifier: Apache-2.0
# The plugin's files compile against the headers of SLURM releases other than the build's own: those
# of every directory in SLURM_DDP_HEADERS=DIR:DIR, each an include directory or a checkout of
# SLURM's source. Distributions have the headers of one release only, so there are none by default.
# Does not need a running SLURM.

bats_require_minimum_version 1.5.0
load common

setup() { cd "$BATS_TEST_TMPDIR" || return; }

@test "the plugin compiles against the headers of other releases" {
  [[ -n ${SLURM_DDP_HEADERS:-} ]] || skip "no headers of other releases here: SLURM_DDP_HEADERS=DIR:DIR"
  local headers
  IFS=: read -ra directories <<<"$SLURM_DDP_HEADERS"
  for headers in "${directories[@]}"; do compile-plugin "$headers"; done
}
