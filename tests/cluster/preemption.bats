#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# preemptible.sbatch on a real SLURM. However the job loses its nodes, it continues from its last
# step, and the result is bitwise equal to that of an undisturbed job.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  local conf=$BATS_FILE_TMPDIR/preemption.conf
  printf 'PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n' > "$conf"
  cluster_up 2 --mpi-default none --slurm-conf-extra "$conf" # the job scripts request what they need
  export OMP_NUM_THREADS=1
}
teardown_file() { cluster_down; }

setup() {
  cd "$work"
  rm -rf ./run ./log
  script=$project_root/jobscripts/preemptible.sbatch
}

training=(--model mnist-cnn --data digits --batch 32 --lr 0.05 --checkpoint-every 10)

# Trains 8 epochs without an interruption.
undisturbed() {
  if [ ! -e whole.log ]; then
    RUN_DIR=$work/whole run_job -o whole.log "$script" "${training[@]}" --epochs 8 --keep-last 20
  fi
  parameters_of whole.log
}

checkpoint_appears() { compgen -G "run/checkpoints/step-*" > /dev/null; }

@test "scancel --signal: a checkpoint of that step, status 75, a requeue, and a bitwise equal result" {
  grep -qx '#SBATCH --signal=USR2@[0-9]*' "$script" # the signal that SLURM sends at preemption
  whole=$(undisturbed)
  job=$(RUN_DIR=$work/run sbatch --parsable -o log "$script" "${training[@]}" --epochs 8)
  wait_until 60 checkpoint_appears
  scancel --signal=USR2 "$job"
  wait_until 120 job_is_over "$job"
  grep -E 'stopped at step [0-9]+ of 200, because SIGUSR2 was received' log
  grep -F 'requeueing the job (restart 1 of' log
  step=$(grep -oE 'stopped at step [0-9]+' log | grep -oE '[0-9]+')
  grep -E "resumed from .*step-0*$step \(step $step," log
  [ "$whole" = "$(parameters_of log)" ]
}

# bats test_tags=full
@test "a user's --resume PATH applies to the first start, not to restarts" {
  whole=$(undisturbed)
  cp -r whole/checkpoints/step-00000030 start
  job=$(RUN_DIR=$work/run sbatch --parsable -o log "$script" "${training[@]}" --epochs 8 --resume "$work/start")
  wait_until 60 checkpoint_appears
  # A site or a user may signal the job script as well.
  scancel --batch --signal=USR2 "$job"
  scancel --signal=USR2 "$job"
  wait_until 120 job_is_over "$job"
  grep -F "resumed from $work/start (step 30," log
  step=$(grep -oE 'stopped at step [0-9]+' log | grep -oE '[0-9]+')
  [ "$step" -gt 30 ]
  grep -E "resumed from .*step-0*$step \(step $step," log
  [ "$whole" = "$(parameters_of log)" ]
  grep -F 'waiting for the last checkpoint' log
}

# bats test_tags=full
@test "scontrol requeue: the step gets SIGTERM, saves, and the job starts again" {
  whole=$(undisturbed)
  job=$(RUN_DIR=$work/run sbatch --parsable -o log "$script" "${training[@]}" --epochs 8)
  wait_until 60 checkpoint_appears
  scontrol requeue "$job"
  wait_until 200 job_is_over "$job"
  grep -F 'resumed from' log
  [ "$whole" = "$(parameters_of log)" ]
}

@test "scancel: a last checkpoint, and the job does not come back" {
  job=$(RUN_DIR=$work/run sbatch --parsable -o log "$script" "${training[@]}" --epochs 1000000)
  wait_until 60 checkpoint_appears
  scancel "$job"
  wait_until 60 job_is_over "$job"
  cat log
  grep -E 'stopped at step [0-9]+ of [0-9]+, because SIGTERM was received; checkpoint:' log
  grep -F 'the job was cancelled, so it does not go back into the queue' log
  scontrol --oneliner show job "$job" | grep -E 'JobState=CANCELLED .* Restarts=0 '
}

# bats test_tags=full
@test "a job that loses its nodes to another (PreemptMode=CANCEL) goes back into the queue" {
  scontrol create partition=high nodes=ALL PriorityTier=10
  job=$(RUN_DIR=$work/run sbatch --parsable --exclusive -o log "$script" "${training[@]}" --epochs 1000000)
  wait_until 60 checkpoint_appears
  sbatch --partition=high --exclusive -N2 -o /dev/null --wrap 'sleep 5'
  wait_until 60 grep -F 'requeueing the job (restart 1 of' log
  cat log
  grep -F 'DUE TO PREEMPTION' log
  scontrol --oneliner show job "$job" | grep -F ' Restarts=1 '
  scancel "$job"
  wait_until 60 job_is_over "$job"
}

@test "the time limit is known without a signal, and the last save precedes it" {
  [ -n "${SLURM_DDP_LONG_TESTS:-}" ] || skip "takes a minute, SLURM's shortest limit; SLURM_DDP_LONG_TESTS=1"
  grep -v '^#SBATCH --signal' "$script" > without_signal.sbatch
  job=$(RUN_DIR=$work/run MAX_RESTARTS=0 sbatch --parsable --time=1 -o log without_signal.sbatch \
    "${training[@]}" --epochs 1000000)
  wait_until 150 job_is_over "$job"
  grep -E "stopped at step [0-9]+ of [0-9]+, because the job's time is nearly up" log
  step=$(grep -oE 'stopped at step [0-9]+' log | grep -oE '[0-9]+')
  [ -d "run/checkpoints/step-$(printf %08d "$step")" ]
  ddp-ckpt verify run/checkpoints
  run ! grep -F 'DUE TO TIME LIMIT' log
}
