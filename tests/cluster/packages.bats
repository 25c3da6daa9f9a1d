#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The first use at a site. Installs the two Debian packages on Debian's own SLURM as an
# administrator would, and runs all of their job scripts as an ordinary user. MpiDefault has SLURM's
# own value, none.
#
# dpkg works on overlays of the machine's directories. The nodes and the user see only the overlays,
# and the machine itself does not change.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  command -v dpkg-deb > /dev/null || skip "no dpkg on this machine"
  cluster_up 2 --mpi-default none
  [ "$cluster_mode" = netns ] || skip "plain mode: the nodes share the machine's /usr"
  export site=$work/site home=$work/home
  install -d -o nobody -g nogroup "$home"
  cpack --config "$build_dir/CPackConfig.cmake" -G DEB -B "$work/packages" > "$work/log" 2>&1 || { cat "$work/log" && return 1; }
  as_administrator dpkg --install "$work"/packages/slurm-ddp{,-plugin}_*.deb
  # From SLURM 26.05 on, a batch job with --export=ALL,... gets the user's login environment, for which a shell must start.
  awk -F : -v OFS=: -v user=nobody -v home="$home" '$1 == user { $6 = home; $7 = "/bin/sh" } 1' /etc/passwd > "$work/passwd"
  local number
  for number in 1 2; do
    "$cluster" exec node$number -- mount -t overlay -o "lowerdir=$site/usr/new:/usr" overlay /usr
    "$cluster" exec node$number -- mount --bind "$work/passwd" /etc/passwd
  done
  echo 'include /usr/share/slurm-ddp/plugstack.conf.d/*.conf' > "$state/plugstack.conf"
}
teardown_file() { cluster_down; }

setup() { cd "$home"; }

# Runs a command as root on the machine with the packages.
as_administrator() {
  local directory
  for directory in usr etc var/lib var/cache var/log; do mkdir -p "$site/$directory"/{new,scratch}; done
  # shellcheck disable=SC2016  # the inner shell expands them
  unshare --mount bash -c 'for directory in usr etc var/lib var/cache var/log; do
      mount -t overlay -o "lowerdir=/$directory,upperdir=$0/$directory/new,workdir=$0/$directory/scratch" overlay "/$directory" || exit
    done
    exec "$@"' "$site" env -u BASH_ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# Runs a command as a user who has just logged in, with only the site's environment.
as_user() {
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t overlay -o "lowerdir=$0/usr/new:/usr" overlay /usr && exec "$@"' "$site" \
    setpriv --reuid nobody --regid nogroup --clear-groups \
    env -i HOME="$home" PATH=/usr/bin:/bin SLURM_CONF="$SLURM_CONF" "$@"
}
sbatch() { as_user sbatch "$@"; } # called by run_job

# submit NAME [options of sbatch] -- [arguments of the script]: waits for the end of the job; its
# output is in NAME.log.
submit() {
  local script=/usr/share/slurm-ddp/jobscripts/$1.sbatch log=$home/$1.log options=()
  shift
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  run_job -o "$log" --export="ALL,RUN_DIR=${log%.log},REPEATS=1" "${options[@]}" "$script" "$@" || { cat "$log" && false; }
}

trained_on() { # directory of the report, ranks
  python3 - "$1/run.json" "$2" << 'PY'
import json, sys
record = json.load(open(sys.argv[1]))
assert record["world_size"] == int(sys.argv[2]) and record["steps"] > 0, record
PY
}

@test "the plugin works immediately after installation" {
  run -0 as_user srun --ddp -N2 -n2 bash -c 'echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR"'
  grep -x 'rank 0 of 2 at node1' <<< "$output"
  grep -x 'rank 1 of 2 at node1' <<< "$output"
}

@test "without PMIx, ranks connect over TCP, or without a plan name the missing srun option, before MPI starts" {
  local type
  for type in none pmi2; do
    run -0 as_user srun --mpi=$type --ddp -N2 -n2 ddp-train --epochs 1
    [[ $output == *'so ranks are connected over TCP'*'done: '* ]] || { echo "$output"; false; }
    run as_user srun --mpi=$type -N2 -n2 ddp-train --epochs 1
    [ "$status" -ne 0 ]
    [[ $output == *'--mpi=pmix'*'--ddp'* && $output != *'OMPI was not built'* ]] || { echo "$output"; false; }
  done
  [[ $output == *'with PMI-2'* ]]
  run -0 as_user srun --mpi=pmi2 --ddp -N2 -n2 ddp-check net
  [[ $output != *'OMPI was not built'* ]]
}

@test "train.sbatch trains" {
  submit train -- --epochs 1
  trained_on train/report 2
}

@test "resume.sbatch resumes" {
  submit resume -- --epochs 1
  submit resume -- --epochs 2
  grep -F 'resumed from' resume.log
  trained_on resume/report 2
}

@test "preemptible.sbatch trains to the end" {
  submit preemptible -- --epochs 1
  trained_on preemptible/report 2
}

@test "elastic.sbatch trains to the end" {
  submit elastic -- --epochs 1
  trained_on elastic/report 2
  grep -F '"action":"finish","code":0' elastic/events.jsonl
}

@test "checked_train.sbatch checks two nodes and trains on them" {
  submit checked_train -- --epochs 1
  grep -x 'training on node\[1-2\]' checked_train.log
  trained_on checked_train/report 2
}

@test "checked_train.sbatch has no pairs to check on one node, and trains" {
  rm -rf checked_train
  submit checked_train -N1 -- --epochs 1
  grep -x 'training on node1' checked_train.log
  trained_on checked_train/report 1
}

@test "scaling_sweep.sbatch writes its report" {
  submit scaling_sweep -- --epochs 1 --model mlp --data digits
  trained_on scaling_sweep/ranks-4-repeat-1 4
  grep -q '<svg' scaling_sweep/scaling.html
}

@test "every job script is covered" {
  [ "$(cd "$project_root/jobscripts" && echo *.sbatch)" = "$(cd "$site/usr/new/share/slurm-ddp/jobscripts" && echo *.sbatch)" ]
  local script
  for script in "$project_root"/jobscripts/*.sbatch; do
    grep -qE "^  submit $(basename "$script" .sbatch) " "$BATS_TEST_FILENAME"
  done
}

@test "removing the packages leaves nothing behind" {
  [ -x "$site/usr/new/bin/ddp-train" ]
  as_administrator dpkg --purge slurm-ddp slurm-ddp-plugin
  [ -z "$(find "$site" -path '*/scratch' -prune -o -iname '*ddp*' -not -type c -not -path '*/dpkg/*' -print)" ]
  [ ! -e /usr/bin/ddp-train ]
}
