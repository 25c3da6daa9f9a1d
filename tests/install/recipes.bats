#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# check_prolog and check_health, which slurmd runs as root: they run only the ddp-check that was
# installed with them, from any directory, and report a check that could not run.

bats_require_minimum_version 1.5.0

setup_file() {
  build=$(readlink -e "${SLURM_DDP_BUILD:-$(dirname "$BATS_TEST_FILENAME")/../../build}")
  export build prefix="$BATS_FILE_TMPDIR/a site's prefix"
  export recipes=$prefix/share/slurm-ddp/jobscripts
  cmake -DCMAKE_INSTALL_COMPONENT=tools -DCMAKE_INSTALL_PREFIX="$prefix" \
    -P "$build/jobscripts/cmake_install.cmake" > "$BATS_FILE_TMPDIR/install.log"
}

setup() {
  cd "$BATS_TEST_TMPDIR" || return
  mkdir -p "$prefix/bin"
  cp "$build/bin/ddp-check" "$prefix/bin/"
}

# Replaces the installed ddp-check with one that exits as requested.
fake_check() { # status, output
  printf '#!/bin/sh\necho "%s"\nexit %d\n' "$2" "$1" > "$prefix/bin/ddp-check"
  chmod 755 "$prefix/bin/ddp-check"
}

# Runs a recipe as slurmd does, without an environment. Its output to the system log is in `log`.
as_slurmd() { # recipe, arguments...
  local recipe=$recipes/$1
  shift
  [ "$(id -u)" -eq 0 ] || skip "needs root to replace logger"
  printf '#!/bin/sh\n{ echo "$*"; cat; } >> %q\n' "$BATS_TEST_TMPDIR/log" > fake-logger
  chmod 755 fake-logger
  : > log
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --mount sh -c 'mount --bind fake-logger /usr/bin/logger && exec env -i "$0" "$@"' "$recipe" "$@"
}

@test "the prolog stops a job on a CRITICAL node, using the ddp-check that was installed with it" {
  run -1 --separate-stderr as_slurmd check_prolog --dir /nonexistent
  [[ $stderr == *"CRITICAL"*"/nonexistent"* ]]
  grep -q '^-t check_prolog' log
  grep -q 'CRITICAL.*/nonexistent' log
  DDP_CHECK_ARGS='--dir /nonexistent' run -1 "$recipes/check_prolog"
}

@test "a healthy node produces no output" {
  local status recipe
  for recipe in check_prolog check_health; do
    for status in 0 1; do
      fake_check "$status" "something"
      run -0 as_slurmd "$recipe"
      [ -z "$output" ]
      [ ! -s log ]
    done
  done
}

@test "a check that could not run lets jobs start, and is reported and logged" {
  local recipe
  for recipe in check_prolog check_health; do
    run -0 as_slurmd "$recipe" --dri /typo
    [[ $output == *"$recipe: this node was NOT checked"*"--dri"* ]]
    grep -q 'NOT checked.*status 3' log
    fake_check 3 "GPU 0 does not answer"
    run -0 as_slurmd "$recipe"
    grep -q 'NOT checked.*GPU 0 does not answer' log
    fake_check 139 ""
    run -0 as_slurmd "$recipe"
    grep -q 'NOT checked.*status 139' log
    rm "$prefix/bin/ddp-check"
    run -0 as_slurmd "$recipe"
    grep -qF "NOT checked" log
    grep -qF "$prefix/bin/ddp-check" log
    cp "$build/bin/ddp-check" "$prefix/bin/"
  done
}

@test "no program in the current directory is run, whatever PATH is" {
  local shell path recipe program
  for program in ddp-check timeout logger hostname; do
    printf '#!/bin/sh\ntouch %q\n' "$BATS_TEST_TMPDIR/ran" > $program
    chmod 755 $program
  done
  fake_check 3 unknown
  for recipe in check_prolog check_health; do
    for shell in dash bash; do
      env -i "$(command -v $shell)" "$recipes/$recipe"
      for path in "" . ":/bin" "/bin:"; do
        env -i PATH="$path" "$(command -v $shell)" "$recipes/$recipe"
      done
    done
  done
  [ ! -e ran ]
}

@test "a node that is CRITICAL is reported and logged by check_health, which still exits with 0" {
  fake_check 2 "GPU 0 is dead"
  run -0 as_slurmd check_health
  [[ $output == "check_health: GPU 0 is dead" ]]
  grep -q '^-t check_health' log
  grep -q 'GPU 0 is dead' log
}

@test "the environment cannot set libraries or options for the shell" {
  local recipe name
  name=$(hostname -s)
  printf '#!/bin/sh\nenv > %q\nprintf "%%s\\n" "$@" > %q\n' "$BATS_TEST_TMPDIR/environment" \
    "$BATS_TEST_TMPDIR/arguments" > "$prefix/bin/ddp-check"
  for recipe in check_prolog check_health; do
    LD_LIBRARY_PATH=$PWD LD_PRELOAD='' LD_AUDIT='' DDP_CHECK_ARGS='--dir /*' SLURMD_NODENAME='' \
      run -0 "$recipes/$recipe" '--dir' '/a b'
    run ! grep -E '^LD_' environment
    grep -qx 'PATH=/usr/bin:/bin' environment
    [[ $(paste -sd, arguments) == node,*--dir,/\*,*--dir,'/a b' ]]
  done
  [[ $(paste -sd, arguments) == "node,--name,$name,--act,"* ]]
}

@test "check_health resumes a node, as it is told, and logs it" {
  printf '#!/bin/sh\nprintf "%%s " "$@" > %q\necho "$3: resumed after 3 clean checks"\n' \
    "$BATS_TEST_TMPDIR/arguments" > "$prefix/bin/ddp-check"
  run -0 as_slurmd check_health
  [[ $output == "check_health: $(hostname -s): resumed after 3 clean checks" ]]
  grep -q 'resumed after 3 clean checks' log
  grep -q -- "--resume-after 3 --state /run/ddp-check-$(hostname -s).clean $" arguments
  run -0 as_slurmd check_health --resume-after 9 --state /x
  [ "$(cat arguments)" = "node --name $(hostname -s) --act --resume-after 9 --state /x " ]
  DDP_CHECK_ARGS='--resume-after=9 --state=/x' run -0 "$recipes/check_health"
  [ "$(cat arguments)" = "node --name $(hostname -s) --act --resume-after=9 --state=/x " ]
}
