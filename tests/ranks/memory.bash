# SPDX-License-Identifier: Apache-2.0
# Runs ddp-train with copies in the memory of nodes. A directory takes its place.
# shellcheck shell=bash

memory_setup() {
  training_setup
  run_program=$bin/ddp-run
  mpi=(--launcher mpirun --launcher-options "--oversubscribe --bind-to none" --ranks-per-node 2)
  mlp=(--model mlp --data digits --batch 16 --optimizer adam --lr 0.001 --checkpoint-dir ck --checkpoint-every 10000)
  mkdir memory
  export DDP_RUN_MEMORY=$work/memory train
}

memory_teardown() {
  kill_job
  mountpoint -q memory && umount memory
  return 0
}

run_it() { timeout 150 "$run_program" --events events.jsonl "${mpi[@]}" "$@"; }

# What an undisturbed run without copies ends with.
undisturbed() { # ARGS...
  run -0 ranks 2 "${mlp[@]}" --checkpoint-dir undisturbed "$@"
  parameters
}

ends_with() { grep -q "$1\$" log; } # PARAMETERS

# The steps of the copies that are whole, ascending.
copies() { # [DIRECTORY]
  find "${1:-memory}" -name '*.h5.json' 2> /dev/null | sed 's/.*step-0*\([0-9]*\)\..*/\1/' | sort -nu
}

# Whether the newest copy is the NUMBER-th or a later one, if each 20th step has one.
has_copies() { # NUMBER
  [ "$(copies "${place:-memory}" | tail -n 1)" -ge $(($1 * 20)) ] 2> /dev/null
}

kill_a_rank() { kill -KILL "$(processes "^$train" | shuf -n 1)"; }

nothing_left() { [ -z "$(ls -A memory)" ]; }

# A start by hand: RUN is the id that ddp-run would give it.
started() { # RANKS, ARGS...
  local n=$1
  shift
  DDP_RUN_ID=${id:-00000000000000000000000000000001} ranks "$n" "$@"
}

# Trains until there are two copies from step $1 on, and is killed then.
killed_at() { # STEP, RANKS, ARGS...
  local step=$1 n=$2
  shift 2
  DDP_RUN_ID=${id:-00000000000000000000000000000001} timeout 180 mpirun -n "$n" "${program[@]:-$train}" "$@" > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" "${until:-copied}" "$step" || { cat log && false; }
  kill -KILL "$(rank_pids "$job" | head -n 1)"
  wait "$job" || true
  job=
}

# Two nodes: each rank has a host name and memory of its own, as long as the test.
nodes() {
  unshare --mount --uts true || skip "no right to make namespaces (needs root)"
  mkdir nodes nodes/0 nodes/1
  cat > node.sh << 'NODE'
#!/bin/bash
hostname "node$OMPI_COMM_WORLD_RANK"
mount --bind "nodes/$OMPI_COMM_WORLD_RANK" memory
exec "$train" "$@"
NODE
  chmod +x node.sh
  program=(unshare --mount --uts ./node.sh)
}

copied() { # STEP
  local node
  for node in $([ -d nodes ] && echo nodes/0 nodes/1 || echo memory); do
    [ "$(copies "$node" | awk -v least="$1" '$1 >= least' | wc -l)" -ge 2 ] || return 1
  done
}

# shellcheck disable=SC2030,SC2031
again() { # ARGS...
  DDP_RUN_ID=00000000000000000000000000000001 run -0 timeout 180 mpirun -n 2 "${program[@]}" "$@"
  echo "$output"
}
