# SPDX-License-Identifier: Apache-2.0
# Real clients on a real SLURM of two nodes: programs of other projects, unmodified, under `srun
# --ddp`. JAX and Lightning are not in Debian, so SLURM_DDP_TEST_PYTHON names a Python that has
# them, in a directory that the nodes can see (not below /tmp).

bats_require_minimum_version 1.5.0
load common

setup_file() {
  cluster_up 2
  unset GLOO_SOCKET_IFNAME OMP_NUM_THREADS RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
  export USE_LIBUV=0 # Debian 13 builds PyTorch without it
}

teardown_file() { cluster_down; }

setup() { cd "$work"; }

teardown() { end_all_jobs; }

# need_module NAME: skips the test if $python does not have the module.
need_module() {
  python=${SLURM_DDP_TEST_PYTHON:-/usr/bin/python3}
  "$python" -c "import $1" 2>/dev/null || skip "no $1 in $python; see SLURM_DDP_TEST_PYTHON in clients.bats"
}

compile() { # PROGRAM [COMPILER]: prints its path
  "${2:-gcc}" -Wall -o "$work/$1" "$project_root/tests/cluster/programs/$1.c" >&2 && echo "$work/$1"
}

@test "PyTorch, gloo, DistributedDataParallel: two nodes with two ranks each, block" {
  need_torch
  srun --ddp -N2 -n4 --ntasks-per-node=2 torch-client >out
  four_ranks_reduced
}

# bats test_tags=full
@test "PyTorch in cyclic order" {
  need_torch
  srun --ddp -N2 -n4 -m cyclic torch-client >out
  four_ranks_reduced
}

@test "PyTorch in arbitrary order: rank 0 is on the second node" {
  need_torch
  printf 'node2\nnode1\nnode2\nnode1\n' >hosts
  SLURM_HOSTFILE=hosts srun --ddp -n4 torch-client >out
  four_ranks_reduced
}

@test "two simultaneous PyTorch jobs on the same nodes do not mix" {
  need_torch
  srun --ddp --resv-ports=0 --oversubscribe -N2 -n2 torch-client --jobs-apart >first 2>&1 &
  srun --ddp --resv-ports=0 --oversubscribe -N2 -n2 torch-client --jobs-apart >second 2>&1
  wait $!
  [ "$(cat first second | grep -c 'of 2: gradient 0.5')" -eq 4 ]
}

@test "an MPI program: MPI's ranks equal RANK" {
  need_pmix
  command -v mpicc >/dev/null || skip "no mpicc on this machine"
  local program
  program=$(compile mpi-client mpicc)
  srun --ddp -N2 -n4 "$program" >out
  grep -q '^4 of 4 ranks agree with RANK$' out
  srun --ddp -N2 -n4 -m cyclic "$program" >out
  grep -q '^4 of 4 ranks agree with RANK$' out
}

@test "a PMIx fence waits for the ranks of all nodes" {
  need_pmix
  pkg-config --exists pmix || skip "no libpmix-dev on this machine"
  local flags
  read -ra flags <<<"$(pkg-config --cflags --libs pmix)"
  gcc -Wall -o fence-client "$project_root/tests/cluster/programs/fence-client.c" "${flags[@]}"
  srun --ddp -N2 -n3 ./fence-client "$PWD/began" >out
  [ "$(grep -c 'the fence waited' out)" -eq 3 ]
  # The user's choice is kept, and the plugin's ends with the step.
  run srun --ddp -N1 -n1 printenv SLURM_PMIX_FENCE
  [ "$status" -ne 0 ]
  SLURM_PMIX_FENCE=mixed srun --ddp -N1 -n1 printenv SLURM_PMIX_FENCE >out
  [ "$(<out)" = mixed ]
}

@test "a C program that only reads its environment" {
  local program
  program=$(compile environment-client)
  srun --ddp -N2 -n4 --ntasks-per-node=2 "$program" | sort >out
  [ "$(cut -d' ' -f1-3 out | paste -sd,)" = "0/4 0/2 0,1/4 1/2 0,2/4 0/2 1,3/4 1/2 1" ]
  [ "$(cut -d' ' -f4 out | sort -u | wc -l)" -eq 1 ]
  run srun -n1 "$program" # must fail without --ddp
  [ "$status" -ne 0 ]
}

@test "JAX finds its coordinator in any order of ranks" {
  need_module jax
  srun --ddp -N2 -n4 --ntasks-per-node=2 "$python" "$(command -v jax-client)" >out
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
  srun --ddp -N2 -n4 -m cyclic "$python" "$(command -v jax-client)" >out
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
  printf 'node2\nnode1\n' >hosts
  SLURM_HOSTFILE=hosts srun --ddp -n2 "$python" "$(command -v jax-client)" >out
  [ "$(grep -c 'of 2: sum 1' out)" -eq 2 ]
}

@test "Lightning accepts a step that was started with -n, and a step smaller than its job" {
  need_module lightning_fabric.plugins.environments.slurm
  srun --ddp -N2 -n2 "$python" "$(command -v lightning-client)" >out
  [ "$(grep -c 'of 2 agrees' out)" -eq 2 ]
  salloc -Q -N2 --ntasks-per-node=2 -J training srun --ddp -N2 -n2 "$python" "$(command -v lightning-client)" >out
  [ "$(grep -c 'of 2 agrees' out)" -eq 2 ]
}

@test "accelerate launch: its processes on all nodes train together, or those of each node" {
  need_module accelerate
  # Its launcher only compares the number of GPUs with that of the processes, of which --multi_gpu needs two.
  local launch="$python -m accelerate.commands.launch --multi_gpu --num_processes 2 --mixed_precision no --dynamo_backend no"
  cat >which.py <<'PY'
import os
names = ["SLURM_NODEID", "RANK", "WORLD_SIZE", "LOCAL_RANK"]
os.write(1, ("rank " + " ".join(os.environ[name] for name in names) + "\n").encode())
PY
  srun --ddp -N2 --ntasks-per-node=1 bash -c "$launch which.py" >out 2>err
  [ "$(grep ^rank out | cut -c6- | sort | paste -sd,)" = "0 0 4 0,0 1 4 1,1 2 4 0,1 3 4 1" ]
  grep -q 'without --num_machines the 2 nodes train together' err
  srun --ddp -N2 --ntasks-per-node=1 bash -c "$launch --num_machines 1 which.py" >out 2>err
  [ "$(grep ^rank out | cut -c6- | sort | paste -sd,)" = "0 0 2 0,0 1 2 1,1 0 2 0,1 1 2 1" ]
  grep -q 'it trains on each of the 2 nodes by itself' err
}

# bats test_tags=full
@test "DeepSpeed's launcher: each of its processes has a LOCAL_RANK of its own, and a note says what it does" {
  need_module deepspeed
  cat >which.py <<'PY'
import os
os.write(1, ("rank " + " ".join(os.environ[name] for name in ["SLURM_NODEID", "RANK", "WORLD_SIZE", "LOCAL_RANK"]) + "\n").encode())
PY
  srun --ddp -N2 --ntasks-per-node=1 "$python" -m deepspeed.launcher.runner --num_gpus 2 which.py >out 2>err
  [ "$(grep ^rank out | cut -c6- | sort | paste -sd,)" = "0 0 2 0,0 1 2 1,1 0 2 0,1 1 2 1" ]
  grep -q 'deepspeed starts processes by itself and does not know' err
}
