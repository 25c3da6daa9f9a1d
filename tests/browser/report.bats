#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The HTML of ddp-report in a real browser, light and dark, wide and narrow. Texts of a chart must
# not overlap or be clipped, all text must be legible on its background, and nothing may be wider
# than the window. REPORT_SCREENSHOTS=DIRECTORY keeps screenshots.

bats_require_minimum_version 1.5.0

setup_file() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  export here report=${SLURM_DDP_BUILD:-$here/build}/bin/ddp-report
  export sweeps=$BATS_FILE_TMPDIR/sweeps
  "$here/tests/browser/sweeps.py" "$sweeps"
}

setup() {
  command -v chromium chromium-browser google-chrome > /dev/null || skip "no Chromium is installed"
}

# looks NAME FILE.html ARGS...: fails if the page has problems.
looks() {
  local name=$1 file=$2 mode
  shift 2
  for mode in light dark; do
    local options=("$@")
    [ $mode = light ] || options+=(--dark)
    [ -z "${REPORT_SCREENSHOTS:-}" ] || options+=(--screenshot "$REPORT_SCREENSHOTS/$name-$mode.png")
    echo "$name, $mode:"
    "$here/tests/browser/measure.py" "$file" "${options[@]}"
  done
}

sweep_looks_right() {
  "$report" sweep "$sweeps/$1"/* --html "$BATS_TEST_TMPDIR/sweep.html"
  looks "$1" "$BATS_TEST_TMPDIR/sweep.html"
}

@test "strong scaling with repeats" { sweep_looks_right strong; }
# bats test_tags=full
@test "weak scaling" { sweep_looks_right weak; }
# bats test_tags=full
@test "one number of ranks" { sweep_looks_right one; }
# bats test_tags=full
@test "two numbers of ranks" { sweep_looks_right two; }
# bats test_tags=full
@test "twenty numbers of ranks" { sweep_looks_right crowded; }
# bats test_tags=full
@test "low efficiency, tiny steps" { sweep_looks_right poor; }
# bats test_tags=full
@test "faster than ideal" { sweep_looks_right faster; }
# bats test_tags=full
@test "65536 ranks" { sweep_looks_right huge; }

@test "one run with many ranks" {
  "$report" run "$sweeps/huge/run-01" --html "$BATS_TEST_TMPDIR/run.html"
  looks run "$BATS_TEST_TMPDIR/run.html"
}

# bats test_tags=full
@test "a comparison of two runs" {
  "$report" compare "$sweeps/strong/run-00" "$sweeps/weak/run-03" --html "$BATS_TEST_TMPDIR/compare.html"
  looks compare "$BATS_TEST_TMPDIR/compare.html"
}

# bats test_tags=full
@test "a comparison of two groups of runs" {
  "$report" compare "$sweeps"/strong/run-0[0-2] --with "$sweeps"/strong/run-0[3-5] --html "$BATS_TEST_TMPDIR/groups.html"
  looks groups "$BATS_TEST_TMPDIR/groups.html"
}

# bats test_tags=full
@test "a narrow window" {
  "$report" sweep "$sweeps"/strong/* --html "$BATS_TEST_TMPDIR/sweep.html"
  looks narrow "$BATS_TEST_TMPDIR/sweep.html" --width 700
}

@test "the measurement detects overlaps, clipped texts and faint colors" {
  "$report" sweep "$sweeps"/strong/* --html "$BATS_TEST_TMPDIR/sweep.html"
  sed -e 's/svg text { font-size: 12.5px/svg text { font-size: 30px/' \
    -e 's/--muted: #59636e/--muted: #d9dfe6/' "$BATS_TEST_TMPDIR/sweep.html" > "$BATS_TEST_TMPDIR/bad.html"
  run -1 "$here/tests/browser/measure.py" "$BATS_TEST_TMPDIR/bad.html"
  [[ $output == *" overlap"* ]]
  [[ $output == *" is cut"* ]]
  [[ $output == *"contrast "* ]]
}

@test "the page of ddp-check" {
  # shellcheck source=tests/ranks/mpirun.bash
  source "$BATS_TEST_DIRNAME/../ranks/mpirun.bash"
  timeout 60 mpirun -n 5 "${report%-report}-check" net --pretend-nodes 'a-rather-long-name[1-5]' --mib 1 \
    --no-mpi --slow-warning 0.9 --slow-critical 0.9 --out "$BATS_TEST_TMPDIR/out" --inject corrupt:a-rather-long-name2 || true
  looks check "$BATS_TEST_TMPDIR/out/report.html"
  looks check-narrow "$BATS_TEST_TMPDIR/out/report.html" --width 700
}
