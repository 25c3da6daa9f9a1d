#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Verifies that a run that is killed repeatedly gives the same result, bitwise, as an uninterrupted
# run.
#
#   tests/ranks/killed_often.sh [RUNS [KILLS]]      default: 30 runs with 3 SIGKILLs each
#
# Each kill comes at a random moment and hits one rank or all; each start uses the same command.
# Prints one line per run. Exits with 1 if a result differs or a run leaves an incomplete
# checkpoint. KILLED_OFTEN_SEED repeats the random moments, as far as the machine allows.
set -euo pipefail

runs=${1:-30}
kills=${2:-3}
RANDOM=${KILLED_OFTEN_SEED:-$$}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${SLURM_DDP_BUILD:-$here/build}/bin
# shellcheck source=tests/ranks/mpirun.bash
source "$here/tests/ranks/mpirun.bash"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command=(mpirun -n 2 "$bin/ddp-train" --model mnist-cnn --data digits --batch 32 --epochs 3
  --optimizer adam --lr 0.001 --checkpoint-dir ck --checkpoint-every 2 --checkpoint-share-mb 0.05 --timeout 20)

bits() { grep -o 'parameters 0x[0-9a-f]*$' "$1" | tail -n 1; }

rank_pids() {
  local pid
  for pid in $(pgrep -P "$1"); do
    if [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = ddp-train ]; then echo "$pid"; else rank_pids "$pid"; fi
  done
}

# One start, which is killed once it has saved something new, unless it finishes before that.
start_and_kill() {
  local job before pids
  before=$(cat ck/latest 2> /dev/null || true)
  "${command[@]}" > log 2>&1 &
  job=$!
  while kill -0 "$job" 2> /dev/null && [ "$(cat ck/latest 2> /dev/null || true)" = "$before" ]; do sleep 0.02; done
  sleep "0.$((RANDOM % 10))"
  mapfile -t pids < <(rank_pids "$job")
  if [ "${#pids[@]}" -gt 0 ]; then
    if ((RANDOM % 2)); then kill -KILL "${pids[@]}"; else kill -KILL "${pids[$((RANDOM % ${#pids[@]}))]}"; fi 2> /dev/null || true
  fi
  wait "$job" 2> /dev/null || true
}

"${command[@]}" > log 2>&1
whole=$(bits log)
[ -n "$whole" ]
failed=0
for ((run = 1; run <= runs; ++run)); do
  rm -rf ck
  for ((kill = 0; kill < kills; ++kill)); do
    start_and_kill
    [ ! -d ck ] || "$bin/ddp-ckpt" verify ck > verify.log || { cat verify.log && failed=1; }
  done
  "${command[@]}" > log 2>&1 || { cat log && failed=1; }
  if [ "$(bits log)" != "$whole" ]; then failed=1; fi
  if compgen -G 'ck/.tmp-*' > /dev/null || compgen -G 'ck/.owner*' > /dev/null; then
    ls -A ck
    failed=1
  fi
  echo "run $run of $runs, killed $kills times: $(bits log), undisturbed: $whole"
done
exit "$failed"
