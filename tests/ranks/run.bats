#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-run on one host: a program continues when its ranks are killed.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  run_program=$bin/ddp-run
  mpi=(--launcher mpirun --launcher-options "--oversubscribe --bind-to none" --ranks-per-node 2)
  mlp=(--model mlp --data digits --batch 16 --checkpoint-dir ck --checkpoint-every 20 --keep-last 3)
  # A program that counts to $STEPS, and resumes where it was.
  cat > counts.sh <<'PROGRAM'
#!/bin/bash
step=$(cat "state.$RANK" 2> /dev/null || echo 0)
echo "rank $RANK of $WORLD_SIZE, start $DDP_RUN_GENERATION, from step $step"
while [ "$step" -lt "${STEPS:-20}" ]; do
  sleep 0.1
  step=$((step + 1))
  echo "$step" > "state.$RANK.new" && mv "state.$RANK.new" "state.$RANK"
  [ "$RANK" -ne 0 ] || echo "{\"event\": \"progress\", \"step\": $step}" >&"$DDP_RUN_EVENTS"
done
PROGRAM
  chmod +x counts.sh
}

teardown() { kill_job; }

run_it() { timeout 120 "$run_program" --events events.jsonl "$@"; }

# Prints the values of a key in the lines of events.jsonl that have a text.
values() { # TEXT, KEY
  grep -F "$1" events.jsonl | python3 -c 'import json, sys; [print(json.loads(line)[sys.argv[1]]) for line in sys.stdin]' "$2"
}

# Starts 40 steps of two ranks in the background, and waits until the step of rank 1 matches.
counting() { # PATTERN
  STEPS=40 run_it --ranks-per-node 2 -- ./counts.sh > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q "$1" state.1
}

left_behind() { processes 'ddp-run|ddp-train|counts.sh'; }

nothing_left() {
  for _ in {1..600}; do
    [ -n "$(left_behind)" ] || return 0
    sleep 0.1
  done
  echo "left behind: $(left_behind)"
  return 1
}

# bats test_tags=full
@test "a program that ends well is started once, with the variables of its rank" {
  run -0 run_it --ranks-per-node 2 -- ./counts.sh
  [[ $output == *"rank 0 of 2, start 1, from step 0"* && $output == *"rank 1 of 2, start 1, from step 0"* ]]
  [ "$(values '"start"' generation)" = 1 ]
  [ "$(values '"finish"' code)" = 0 ]
  nothing_left
}

@test "a killed rank is named, and the program continues from where it was" {
  counting '^1[0-9]$'
  kill -KILL "$(processes counts.sh | tail -n 1)"
  wait "$job"
  cat log
  grep -E 'generation 2 .*: rank [01]: signal 9 \(Killed\)' log
  grep -E 'rank 0 of 2, start 2, from step [1-9]' log
  [ "$(cat state.0)" = 40 ] && [ "$(cat state.1)" = 40 ]
  [ "$(values '"rank_ended"' signal 2> /dev/null | head -n 1)" = 9 ] || values '"signal":9' signal
  nothing_left
}

@test "mpirun says what it has to say, and removes its files, before ddp-run has the last word" {
  mkdir files
  TMPDIR=$work/files run -1 run_it --launcher mpirun --max-restarts 1 --ranks-per-node 2 -- sh -c 'ls -d "$TMPDIR"/*; exit 3'
  [[ $output == *"$work/files/"* ]]
  [[ ${lines[-1]} == "ddp-run: all 1 restarts are used up (--max-restarts)"* ]]
  [ -z "$(ls files)" ]
  [ -z "$(processes '^mpirun')" ]
}

# Rank 1 needs SECONDS to save when it is asked to end.
saves_slowly() { # SECONDS
  cat > slow.sh <<PROGRAM
#!/bin/bash
trap 'sleep $1; echo saved > state; exit 75' TERM
[ "\${RANK:-\$OMPI_COMM_WORLD_RANK}" != 0 ] || { sleep 0.5; exit 75; }
: > begun
while :; do sleep 0.1; done
PROGRAM
  chmod +x slow.sh
}

# bats test_tags=full
@test "a rank that is still saving when another has ended is waited for" {
  saves_slowly 4
  local launcher
  for launcher in mpirun direct; do
    rm -f state
    run -75 run_it --launcher "$launcher" --ranks-per-node 2 -- ./slow.sh
    [ "$(cat state)" = saved ]
    nothing_left
  done
}

# full_pipe PROGRAM...: starts ddp-run in the background with a full pipe as its standard error, which nothing reads.
full_pipe() {
  mkfifo messages
  exec 9<> messages
  # A page at a time, until the pipe is full.
  python3 -c '
import os
os.set_blocking(9, False)
try:
    while True: os.write(9, b"x" * 4096)
except BlockingIOError: os.set_blocking(9, True)'
  "$run_program" --events events.jsonl --ranks-per-node 1 -- "$@" 2>&9 3>&- &
  job=$!
}

@test "a reader of messages that does not read delays nothing" {
  printf '%s\n' '#!/bin/bash' "trap ': > saved; exit 75' TERM" ': > begun' 'while :; do sleep 0.1; done' > saves.sh
  chmod +x saves.sh
  full_pipe ./saves.sh
  wait_while_running "$job" [ -e begun ]
  kill -TERM "$job"
  status=0
  timeout 60 tail --pid="$job" -f /dev/null
  wait "$job" || status=$?
  exec 9>&-
  [ "$status" -eq 75 ]
  [ -e saved ]
}

# bats test_tags=full
@test "agents end their ranks, too, if the reader of messages does not read" {
  printf '%s\n' '#!/bin/bash' "trap '' TERM" ': > begun' 'while :; do sleep 0.1; done' > ignores.sh
  chmod +x ignores.sh
  full_pipe ./ignores.sh
  wait_while_running "$job" [ -e begun ]
  kill -KILL "$job"
  for _ in {1..600}; do
    [ -n "$(processes ignores.sh)" ] || break
    sleep 0.1
  done
  exec 9>&-
  [ -z "$(processes ignores.sh)" ]
}

# bats test_tags=full
@test "if mpirun is killed, its processes are not left alone" {
  # What prints would notice.
  run_it --launcher mpirun --max-restarts 1 --ranks-per-node 2 -- sh -c 'echo > begun; [ -e again ] || { sleep 100; }' > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" [ -e begun ]
  : > again
  kill -KILL "$(processes '^mpirun')"
  wait "$job"
  cat log
  grep -q 'ddp-run: the processes have lost what started them and are ended: mpirun was killed by signal 9' log
  [ "$(values '"start"' generation | tail -n 1)" = 2 ]
  nothing_left
}

@test "a second Ctrl-C leaves no files of mpirun, and nohup is respected" {
  mkdir files
  printf '%s\n' '#!/bin/bash' "trap '' TERM" ': > begun' 'while :; do sleep 0.1; done' > ignores.sh
  chmod +x ignores.sh
  TMPDIR=$work/files setsid bash -c 'trap - INT; trap "" HUP; exec "$@"' run \
    "$run_program" --launcher mpirun --launcher-options --oversubscribe --ranks-per-node 2 -- ./ignores.sh > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" [ -e begun ]
  kill -HUP "$job"
  sleep 0.5
  run ! grep 'signal 1' log
  kill -INT "$job"
  wait_while_running "$job" grep -q 'signal 2' log
  kill -INT "$job"
  ended_with 130
  [ -z "$(ls files)" ]
}

# bats test_tags=full
@test "training whose ranks are killed again and again ends with the bits of an undisturbed one" {
  run -0 ranks 2 "${mlp[@]}" --checkpoint-dir whole --steps 4000
  whole=$(parameters)
  run_it "${mpi[@]}" --max-restarts 100 -- "$train" "${mlp[@]}" --steps 4000 > log 2>&1 3>&- &
  job=$!
  for i in 1 2 3; do
    # Some progress, or it would be given up.
    wait_while_running "$job" grep -qF "\"event\":\"kept\",\"generation\":$i," events.jsonl || break
    kill -KILL "$(processes "^$train" | shuf -n 1)" || break
    wait_while_running "$job" bash -c "[ \$(grep -c '\"start\"' events.jsonl) -gt $i ]" || break
  done
  wait "$job"
  tail log
  [ "$(values '"start"' generation | tail -n 1)" -ge 2 ]
  grep -q "resumed from" log
  [ "$whole" = "$(grep -o 'parameters 0x[0-9a-f]*$' log)" ]
  nothing_left
}

@test "an error of the program is told, and given up after the third time at one step" {
  run -1 run_it "${mpi[@]}" -- "$train" "${mlp[@]}" --lr 1e30 --steps 100
  [[ $output == *"the same failure 3 times at step "* ]]
  [ "$(values '"start"' generation | tail -n 1)" = 3 ]
  [ "$(values '"told"' text | sort -u | wc -l)" -ge 1 ]
  nothing_left
}

@test "a wrong command line of the program is not repeated" {
  run -2 run_it "${mpi[@]}" -- "$train" --model nonsense
  [ "$(values '"start"' generation)" = 1 ]
  run -2 run_it -- ./does-not-exist
  [[ $output == *"cannot start './does-not-exist': No such file or directory"* ]]
}

@test "a wrong command line of ddp-run is one sentence" {
  run -2 --separate-stderr "$run_program"
  [[ $stderr == "ddp-run: no program is given; put it after --" ]]
  run -2 --separate-stderr "$run_program" --nodes 4:2 -- true
  [[ $stderr == "ddp-run: --nodes '4:2' is not MIN:MAX, such as 2:4" ]]
  run -2 --separate-stderr "$run_program" --nodes 2:2 -- true
  [[ $stderr == "ddp-run: --nodes asks for at least 2 nodes, but the job has 1; "* ]]
  run -2 --separate-stderr env -u SLURM_JOB_NODELIST "$run_program" --launcher srun -- true
  [[ $stderr == "ddp-run: --launcher srun needs a SLURM job; start ddp-run in a batch script" ]]
  run -2 --separate-stderr "$run_program" --launcher direct --launcher-options --quiet -- true
  [[ $stderr == "ddp-run: --launcher-options are for srun and mpirun, which --launcher names" ]]
  run -2 --separate-stderr "$run_program" --launcher mpirun --launcher-options "--prefix '/opt/my mpi" -- true
  [[ $stderr == "ddp-run: --launcher-options are words between blanks, without quotes" ]]
  run -2 --separate-stderr "$run_program" --events /nonexistent/events -- true
  [[ $stderr == "ddp-run: --events /nonexistent/events: No such file or directory" ]]
  run -2 --separate-stderr "$run_program" --ranks-per-node 5 -- ddp-train --global-batch 96 --blocks 12
  [[ $stderr == "ddp-run: --blocks 12 of ddp-train cannot be divided equally among 5 to 5 ranks (5 on each node); change --nodes, --ranks-per-node or that number" ]]
  run -2 --separate-stderr "$run_program" --ranks-per-node 5 --blocks 12 -- python train.py --blocks 10
  [[ $stderr == "ddp-run: --blocks 12 cannot be divided equally among 5 to 5 ranks"* ]]
  run -2 --separate-stderr "$run_program" task -- true
  [[ $stderr == "ddp-run: DDP_RUN_HEAD is not set: \`ddp-run task\` is started by ddp-run" ]]
}

@test "several at once are refused with one sentence" {
  run -2 --separate-stderr mpirun -n 3 "$run_program" -- touch started
  echo "$stderr" # with what mpirun of Open MPI 5 says of it
  [ "$(grep '^ddp-run' <<< "$stderr")" = "ddp-run: mpirun has started it 3 times (OMPI_COMM_WORLD_SIZE); start it once, in the batch script itself: it starts the ranks" ]
  run -2 --separate-stderr env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$run_program" -- touch started
  [[ $stderr == "ddp-run: srun has started it 2 times (SLURM_STEP_NUM_TASKS); "* ]]
  run -2 --separate-stderr env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$run_program" -- touch started
  [ -z "$stderr" ]
  [ ! -e started ]
}

@test "a signal makes the program save, and the next run continues from there" {
  run_it "${mpi[@]}" -- "$train" "${mlp[@]}" --steps 100000 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q '"kept"' events.jsonl
  kill -TERM "$(processes "^$run_program --events")"
  ended_with 75
  grep -q 'signal 15: the program is asked to save and to end' log
  saved=$(values '"kept"' step | tail -n 1)
  run -0 run_it "${mpi[@]}" -- "$train" "${mlp[@]}" --steps $((saved + 40))
  [[ $output == *"(step $saved, made by 2 ranks)"* ]]
  nothing_left
}

@test "if ddp-run is killed, the program saves and ends by itself" {
  run_it "${mpi[@]}" -- "$train" "${mlp[@]}" --steps 100000 > log 2>&1 3>&- &
  job=$!
  wait_while_running "$job" grep -q '"kept"' events.jsonl
  kill -KILL "$(processes "^$run_program --events")"
  wait "$job" || true
  for _ in {1..600}; do
    [ -n "$(left_behind)" ] || break
    sleep 0.1
  done
  cat log
  grep -q 'ddp-run is gone, so the program is asked to save and to end' log
  nothing_left
  run -0 "$bin/ddp-ckpt" verify ck
}

@test "what ddp-train reads from a file counts, and its own options count more" {
  printf '%s\n' '# a comment' 'blocks=12' 'report-dir="from file"' > job.ini
  run -2 run_it --ranks-per-node 5 -- "$train" --config job.ini
  [[ $output == *"--blocks 12 of ddp-train cannot be divided equally among 5 to 5 ranks"* ]]
  run -2 run_it --ranks-per-node 7 -- "$train" --config job.ini --blocks 10
  [[ $output == *"--blocks 10 of ddp-train cannot be divided"* ]]
  cat > ddp-train <<< $'#!/bin/sh\nexit 0'
  chmod +x ddp-train
  run -0 timeout 60 "$run_program" -- ./ddp-train --config job.ini
  [ -s "from file/events.jsonl" ]
}

# bats test_tags=full
@test "an agent that is killed takes its rank with it, and the program continues" {
  counting '^1[0-9]$'
  kill -KILL "$(processes "$run_program task" | tail -n 1)"
  wait "$job"
  cat log
  [ "$(cat state.0)" = 40 ] && [ "$(cat state.1)" = 40 ]
  [ "$(values '"start"' generation | tail -n 1)" = 2 ]
  nothing_left
}

# bats test_tags=full
@test "a rank that stays stopped is replaced, whether or not other ranks could notice" {
  counting '^1[0-9]$'
  for pid in $(processes '^/bin/bash ./counts.sh'); do
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qx RANK=1; then kill -STOP "$pid"; fi
  done
  wait "$job" || { cat log && false; }
  cat log
  [ "$(cat state.0)" = 40 ] && [ "$(cat state.1)" = 40 ]
  [ "$(values '"start"' generation | tail -n 1)" = 2 ]
  [ "$(values '"rank_silent"' rank)" = 1 ]
  nothing_left
}

# bats test_tags=full
@test "a job that is suspended for longer than a lost node is waited for continues, and nothing is blamed" {
  counting '^1[0-9]$'
  mapfile -t all < <(left_behind)
  [ "${#all[@]}" -ge 5 ] # ddp-run, two agents, two programs
  kill -STOP "${all[@]}"
  sleep 12
  # ddp-run runs again before anything that it waits for.
  kill -CONT "$(processes "^$run_program --events events.jsonl --ranks-per-node 2 -- ./counts.sh")"
  sleep 1
  kill -CONT "${all[@]}"
  wait "$job" || { cat log && false; }
  [ "$(cat state.0)" = 40 ] && [ "$(cat state.1)" = 40 ]
  [ "$(values '"start"' generation)" = 1 ]
  run ! grep -E 'rank_silent|node_lost' events.jsonl
  nothing_left
}

# bats test_tags=full
@test "strangers on its port change nothing" {
  counting '^[1-9]'
  head=$(tr '\0' '\n' < "/proc/$(processes "$run_program task" | tail -n 1)/environ" | sed -n 's/^DDP_RUN_HEAD=.*://p')
  # Garbage, silence, a frame that is too long, and an agent without the key.
  head -c 100000 /dev/urandom > "/dev/tcp/127.0.0.1/$head" 2> /dev/null || true
  exec 7<> "/dev/tcp/127.0.0.1/$head"
  printf '\1\0\0\0\0\377\377\377\377' > "/dev/tcp/127.0.0.1/$head" || true
  run -1 env DDP_RUN_HEAD="127.0.0.1:$head" DDP_RUN_KEY="$(printf '0%.0s' {1..64})" DDP_RUN_GENERATION=1 RANK=0 \
    "$run_program" task -- true
  [[ $output == *"is not ddp-run"* ]]
  exec 7>&-
  wait "$job"
  [ "$(values '"start"' generation)" = 1 ]
  nothing_left
}

@test "what a program leaves in the background ends with it" {
  cat > leaves.sh <<'PROGRAM'
#!/bin/bash
setsid bash -c 'echo $$ > daemon.pid; (setsid sleep 1000 & echo $! > grandchild.pid); exec sleep 1000' &
until [ -s grandchild.pid ]; do sleep 0.05; done
read -r line && echo "read '$line'" # standard input is empty
exit 0
PROGRAM
  chmod +x leaves.sh
  run -0 run_it -- ./leaves.sh
  for file in daemon.pid grandchild.pid; do
    [ -s $file ]
    run ! kill -0 "$(cat $file)"
  done
}

# bats test_tags=full
@test "many strangers do not keep agents away" {
  counting '^[1-9]'
  port=$(tr '\0' '\n' < "/proc/$(processes "$run_program task" | tail -n 1)/environ" | sed -n 's/^DDP_RUN_HEAD=.*://p')
  python3 - "$port" <<'PYTHON'
import socket, sys, time
held = []
for _ in range(900):
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1))
    except OSError:
        break
open("connected", "w").write(str(len(held)))
time.sleep(2)
PYTHON
  [ "$(cat connected)" -ge 500 ]
  kill -KILL "$(processes counts.sh | tail -n 1)" # the agents of the next start must get through
  wait "$job"
  [ "$(values '"start"' generation | tail -n 1)" = 2 ]
  nothing_left
}

@test "in a batch script of SLURM, ranks without a launcher are numbered, too" {
  SLURM_PROCID=0 SLURM_JOB_ID=7 run -0 run_it --launcher direct --ranks-per-node 2 -- ./counts.sh
  [[ $output == *"rank 0 of 2, start 1"* && $output == *"rank 1 of 2, start 1"* ]]
  [ "$(values '"rank_ended"' rank | sort | xargs)" = "0 1" ]
}

@test "messages that cannot be written do not end the program" {
  cat > saves.sh <<'PROGRAM'
#!/bin/bash
trap 'echo saved > saved; exit 75' TERM
echo ready > ready
while :; do sleep 0.1; done
PROGRAM
  chmod +x saves.sh
  run -1 bash -c "exec '$run_program' --events events.jsonl -- sh -c 'sleep 0.2; exit 1' 2> /dev/full"
  [ "$(values '"finish"' code)" = 1 ]
  # A terminal that is closed, also if these tests were started by nohup.
  env --default-signal=HUP "$run_program" --events events.jsonl -- ./saves.sh 2> /dev/full 3>&- &
  job=$!
  wait_while_running "$job" test -e ready
  kill -HUP "$job"
  ended_with 75
  [ -e saved ]
  # And ddp-run itself is killed.
  rm ready saved
  "$run_program" --events events.jsonl -- ./saves.sh 2> /dev/full 3>&- &
  job=$!
  wait_while_running "$job" test -e ready
  kill -KILL "$job"
  for _ in {1..600}; do
    [ ! -e saved ] || break
    sleep 0.1
  done
  [ -e saved ]
  nothing_left
}

@test "what a program tells is one line of text" {
  cat > tells.sh <<'PROGRAM'
#!/bin/bash
printf '{"event": "told", "rank": 0, "text": "\\u001b[2J\\nddp-run: forged"}\n' >&"$DDP_RUN_EVENTS"
exit 1
PROGRAM
  chmod +x tells.sh
  run -1 run_it -- ./tells.sh
  [[ $output != *$'\e'* ]]
  [ "$(grep -c '^ddp-run: forged' <<< "$output")" -eq 0 ]
  [[ $output == *"the same failure 3 times at step 0"* ]]
}

# bats test_tags=full
@test "a program that closes its descriptors costs its agent no time" {
  run_it -- python3 -c 'import os, time; os.closerange(3, 100); time.sleep(4)' 3>&- &
  job=$!
  wait_while_running "$job" is_running 'os.closerange\(3, 100\); time.sleep\(4\)$'
  sleep 2
  agent=$(processes "$run_program task -- python3 -c import os, time; os.closerange" | tail -n 1)
  used=$(awk '{ print $14 + $15 }' "/proc/$agent/stat") # in hundredths of a second
  wait "$job"
  [ "$used" -lt 60 ]
}
