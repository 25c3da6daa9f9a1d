# SPDX-License-Identifier: Apache-2.0
# Compiles the plugin with the headers of other SLURM releases, from the directories in
# SLURM_DDP_HEADERS=DIR:DIR. Each is an include directory or a checkout of SLURM's source. The
# default is none, because a distribution has the headers of only one release. Does not need a
# running SLURM.

bats_require_minimum_version 1.5.0
load common

setup() { cd "$BATS_TEST_TMPDIR" || return; }

@test "the plugin compiles against the headers of other releases" {
  [[ -n ${SLURM_DDP_HEADERS:-} ]] || skip "no headers of other releases here: SLURM_DDP_HEADERS=DIR:DIR"
  local headers
  IFS=: read -ra directories <<<"$SLURM_DDP_HEADERS"
  for headers in "${directories[@]}"; do compile-plugin "$headers"; done
}
