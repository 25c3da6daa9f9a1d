#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `srun --ddp=watch` on a real SLURM of two nodes: each task has a parent, ddp-guard, which passes everything through,
# names the rank that failed, and ends what the program leaves behind. A step with a guard must not differ from one without.
# shellcheck disable=SC2016,SC2094,SC2103  # the tasks expand variables; files are read while they grow

bats_require_minimum_version 1.5.0
load common
load ../ranks/limited_memory

setup_file() {
  cluster_up 2
  unset MASTER_ADDR MASTER_PORT
}
teardown_file() { cluster_down; }
setup() {
  cd "$work" || return
  rm -rf ./*
  mkfifo fifo # a program that reads it blocks
  ulimit -Sc 0
  input=/dev/null
  python=/usr/bin/python3
  one=(-N1 -n1 -w node1)
  two=(-N2 -n2) # rank 0 on node1, rank 1 on node2
  watching=watch
}
teardown() { end_all_jobs; }

# same_with_watch STATUS ARGUMENTS OF SRUN...: runs a step in the directory `plain` without a guard, and in `watched` with
# one. Compares the exit status, which must match the pattern STATUS, both streams as sorted lines, and all files that the
# step writes. Standard input is the file $input. Each --ddp in the arguments gets the setting, too.
same_with_watch() {
  local directory setting arguments status
  rm -rf plain watched
  for directory in plain watched; do
    setting=rank
    [ $directory = plain ] || setting=rank,$watching
    mapfile -d '' arguments < <(printf '%s\0' "${@:2}" | sed -z "s/^--ddp\$/--ddp=$setting/")
    mkdir $directory
    cd $directory
    status=0
    timeout -k 1 60 srun --ddp="$setting" "${arguments[@]}" < "$input" > stdout 2> stderr || status=$?
    echo $status > status
    normalize
    # shellcheck disable=SC2053  # a pattern
    [[ $status == $1 ]] || { echo "$directory: status $status, not $1"; head std*; return 1; }
    cd ..
  done
  diff -r plain watched
}

# Removes from the files here what differs between two runs: our own lines, numbers of jobs, the order of tasks, and lines
# whose presence depends on a race in SLURM.
normalize() {
  local LC_ALL=C
  sed -E -i '/^([0-9]+: )?ddp: /d' ./*
  sed -E -i '/^srun: job [0-9]+ /d; /[*]{3} (STEP|JOB) /d; s/(StepId=|JobId=)[0-9.+]+/\1N/g; s/^\[[0-9T:.-]+\] //' stderr
  sort -o stdout stdout
  sort -o stderr stderr
}

# start COMMAND... NUMBER[=CODE]...: starts a command in the background that runs $listen, which writes each signal of these
# numbers to `heard`, and exits with CODE if there is one, or with 5 after `finish`. Waits until it listens, and sets
# $background, $program, $guard (process numbers) and $job.
start() {
  rm -f heard
  "$@" > out 2> err < /dev/null 3>&- &
  background=$!
  wait_until 60 grep -q '^ready .*[0-9a-z]$' heard || { cat out err; return 1; }
  read -r _ program guard job < heard
}
listen=(/usr/bin/python3 -c 'import os, signal, sys, threading
def note(*words):
    with open("heard", "a") as file: print(*words, file=file)
def finish():
    with open("fifo") as fifo: fifo.read()
    os._exit(5)
codes = {int(number): code for number, _, code in (argument.partition("=") for argument in sys.argv[1:])}
signal.pthread_sigmask(signal.SIG_BLOCK, codes) # unlike with a handler of Python, each queued signal counts
threading.Thread(target=finish).start()
note("ready", os.getpid(), os.getppid(), os.environ.get("SLURM_JOB_ID", "none"))
while True:
    number = signal.sigwait(codes)
    note(int(number))
    if codes[number]: os._exit(int(codes[number]))')
finish() { timeout 60 bash -c ': > fifo' && ended 5; }
heard() { [ "$(grep -cx "$1" heard)" -ge "$2" ]; } # NUMBER COUNT
exactly() { [ "$(grep -cx "$1" heard)" -eq "$2" ] || { cat heard; return 1; }; }
in_state() { [[ $(ps -o stat= -p "$1") == [$2]* ]]; } # PROCESS STATES
gone() { [[ $(ps -o stat= -p "$1") != [^Z]* ]]; } # a zombie is gone, too
ended() { # STATUS: waits for the command of `start`
  local status=0
  wait_until 60 gone "$background" || { cat out err; return 1; }
  wait "$background" || status=$?
  [ "$status" -eq "$1" ] || { echo "status $status, not $1"; cat out err; return 1; }
}

signaled_once() {
  scancel -s USR1 "$job.0"
  wait_until 60 heard 10 1
  finish
  exactly 10 1
}

# watched STATUS ARGUMENTS...: a step with a guard, whose stderr is in `err`.
watched() {
  local status=0
  timeout -k 1 60 srun --ddp=$watching "${@:2}" > out 2> err < /dev/null || status=$?
  [ "$status" -eq "$1" ] || { echo "status $status, not $1"; cat out err; return 1; }
}

# said PATTERN...: the lines of the watch in `err` are exactly these, in any order.
said() {
  local pattern
  cat err
  [ "$(grep -c '^ddp: watch: ' err)" -eq $# ]
  for pattern in "$@"; do grep -xE "ddp: watch: $pattern" err; done
}

@test "exit codes, signals, an exec chain, a signal to the whole process group: SLURM's status and messages" {
  same_with_watch 7 "${one[@]}" bash -c 'exec bash -c "exec bash -c \"exit 7\""'
  same_with_watch 139 "${one[@]}" bash -c 'kill -SEGV $$'
  same_with_watch 3 "${one[@]}" bash -c 'trap "" TERM; kill -TERM 0; exit 3' # the guard may be in this group
  # All at once: the status is the highest, and srun names the end of each task. PMIx would end the others.
  same_with_watch 143 --mpi=none -K0 -N1 -n4 -w node1 bash -c 'case $SLURM_PROCID in
    0) exit 7 ;; 1) kill -SEGV $$ ;; 2) kill -ABRT $$ ;; 3) kill -TERM $$ ;; esac'
  [ "$(grep -c '^srun: error: node1: task ' plain/stderr)" -eq 4 ]
}

@test "a program that cannot be started: missing, not executable, of no format" {
  same_with_watch 2 "${one[@]}" /nonexistent/program
  echo data > not-executable
  same_with_watch 13 "${one[@]}" "$work/not-executable"
  chmod +x not-executable
  same_with_watch 8 "${one[@]}" "$work/not-executable"
}

@test "labels, and files of each task: both streams of two nodes" {
  local both='echo "out $SLURM_PROCID"; echo "err $SLURM_PROCID" >&2; printf "half $SLURM_PROCID"'
  same_with_watch 0 -l -N2 -n4 bash -c "$both"
  grep -qx '3: err 3' plain/stderr
  same_with_watch 0 -N2 -n4 -o task.%t.out -e task.%t.err bash -c "$both"
  [ "$(cat plain/task.3.err)" = "err 3" ]
}

@test "standard input: 1.3 MB, for rank 0 alone, none" {
  input=$work/numbers
  seq 200000 > numbers
  same_with_watch 0 "${one[@]}" md5sum
  [ "$(cat plain/stdout)" = "$(md5sum < numbers)" ]
  same_with_watch 0 -i0 -l "${two[@]}" bash -c 'read -r line; cat > /dev/null; echo "got [$line]"'
  [ "$(cat plain/stdout)" = $'0: got [1]\n1: got []' ]
  same_with_watch 0 --input=none "${one[@]}" cat
  [ ! -s plain/stdout ]
}

@test "--multi-prog, a step of two components, task prolog and epilog" {
  echo 'echo one; exit 4' > four.sh
  printf '%s\n' '0 echo zero' "1 bash $work/four.sh" > programs.conf
  watching=watch=report
  same_with_watch 4 "${two[@]}" -l --multi-prog "$work/programs.conf"
  [ "$(cat plain/stdout)" = $'0: zero\n1: one' ]
  # --mpi=none: see of_components() in launch.bats.
  same_with_watch 6 --mpi=none -l "${one[@]}" bash -c 'echo "A $SLURM_PROCID"' : \
    --mpi=none --ddp -N1 -n1 -w node2 bash -c 'echo "B $SLURM_PROCID"; exit 6'
  [ "$(wc -l < plain/stdout)" -eq 2 ]
  printf '#!/bin/sh\necho print from the prolog; echo export FROM_PROLOG=1\n' > prolog
  printf '#!/bin/sh\necho "after task $SLURM_PROCID" > "$SLURM_SUBMIT_DIR/epilog"\n' > epilog
  chmod +x prolog epilog
  same_with_watch 3 "${one[@]}" --task-prolog="$work/prolog" --task-epilog="$work/epilog" bash -c 'echo "[$FROM_PROLOG]"; exit 3'
  [ "$(cat plain/stdout)" = $'[1]\nfrom the prolog' ]
  [ "$(cat watched/epilog)" = "after task 0" ]
}

# bats test_tags=full
@test "-K and -W: SLURM ends the other tasks" {
  local signal="1@(37|43)" # KILL or TERM
  watching=watch=report
  # Before its program runs, SLURM may miss rank 0 and wait for KillWait.
  same_with_watch "$signal" -K "${two[@]}" bash -c '[ $SLURM_PROCID = 1 ] || { : > started; read -r < ../fifo; }
    until [ -e started ]; do sleep 0.1; done
    exit 6'
  same_with_watch "$signal" -W 2 "${two[@]}" bash -c '[ $SLURM_PROCID = 0 ] || exit 0; read -r < ../fifo'
}

@test "the program has the same limits, descriptors, signal masks, rights, children and variables" {
  ulimit -Sn 777
  same_with_watch 0 "${one[@]}" bash -c 'ulimit -Sa; ulimit -Ha; umask; nproc; nice; cat /proc/self/oom_score_adj; ls /proc/self/fd
    grep -E "^(Sig(Blk|Ign|Cgt)|[UG]id|Groups|Cap...|NoNewPrivs|Seccomp|(Cpu|Mem)s_allowed):" /proc/self/status'
  grep -qE '^open files .* 777$' plain/stdout
  same_with_watch 1 "${one[@]}" "$python" -c 'import os; os.wait()' # ChildProcessError
  # A program that closes all descriptors continues.
  same_with_watch 3 "${one[@]}" "$python" -c 'import os; os.closerange(0, 1024); open("after", "w"); os._exit(3)'
  [ -e watched/after ]
  # SLURM_DDP_SETTINGS and the step's key differ, and PYTHONPATH makes Python programs tell where they stand.
  same_with_watch 0 "${two[@]}" bash -c '{ compgen -e | grep -vE "^(SLURM_DDP_|PYTHONPATH$)"; echo "$RANK $WORLD_SIZE $MASTER_ADDR $PATH"; } > to.$RANK'
  grep -q '^1 2 ' plain/to.1
}

@test "stderr of 3,000 lines and of binary data with incomplete lines, through srun and to files" {
  { seq -f 'line %g' 3000; head -c 100000 /dev/urandom; printf 'no end of line'; } > noise
  local setting
  { cat noise; echo; } > lines
  for setting in rank rank,watch; do
    # SLURM 22.05 loses the end if the task ends at once, with a guard and without.
    rm -f seen
    srun --ddp=$setting "${one[@]}" bash -c 'dd if=lines bs=777 status=none >&2; until [ -e seen ]; do sleep 0.1; done' 2> err 3>&- &
    background=$!
    wait_until 60 eval 'tail -c "$(stat -c %s lines)" err | cmp - lines' # after our own line
    touch seen
    wait "$background"
    srun --ddp=$setting "${two[@]}" -e file.%t bash -c 'dd if=noise bs=777 status=none >&2'
    cmp file.1 noise
  done
}

@test "core dumps: one of the program, none of the guard, none without permission" {
  [[ $(< /proc/sys/kernel/core_pattern) == core* ]] || skip "this machine does not write core dumps to the working directory"
  same_with_watch 134 "${one[@]}" bash -c 'kill -ABRT $$'
  ! compgen -G 'watched/core*' || false
  ulimit -Sc unlimited || skip "no core dumps are allowed here"
  local setting
  for setting in rank rank,watch; do
    # Without a guard SLURM adds "(core dumped)", for which the guard would have to dump its own core.
    run -134 srun --ddp=$setting "${one[@]}" bash -c 'mkdir "cores.$0" && cd "cores.$0" && kill -ABRT $$' $setting
    [[ $output == *"task 0: Aborted"* ]]
    [ "$(find cores.$setting -type f | wc -l)" -eq 1 ]
  done
}

@test "--pty: stderr is the terminal, the program is in the foreground, Ctrl-C reaches it once" {
  command -v script > /dev/null || skip "no script(1) on this machine"
  cat > terminal.py <<'PY'
import os, signal, sys
interrupts = []
signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
os.system("stty -echo")
print("see", *(os.ttyname(d) == os.ttyname(0) for d in (1, 2)), os.tcgetpgrp(2) == os.getpgrp(), "ready", flush=True)
print("see", sys.stdin.readline().strip(), flush=True)
while not interrupts: signal.pause()
print("see interrupt", os.get_terminal_size(2), file=sys.stderr)
sys.stdin.readline() # a second SIGINT precedes this line
print("see", len(interrupts), "in all", flush=True)
sys.stdin.readline() # srun's own line comes later
sys.exit(6)
PY
  local setting
  for setting in rank rank,watch; do
    : > screen
    { wait_until 60 grep ready screen && echo typed && wait_until 60 grep 'see typed' screen && printf '\003' &&
      wait_until 60 grep 'see interrupt' screen && echo end && wait_until 60 grep 'in all' screen && echo bye; } |
      timeout -k 1 90 script -qefc "srun --ddp=$setting --pty ${one[*]} $python terminal.py" /dev/null > screen ||
      { [ $? -eq 6 ] || { cat screen; false; }; }
    cat screen
    grep -o 'see .*' screen > screen.$setting
  done
  grep 'see True True True ready' screen.rank,watch
  grep 'see 1 in all' screen.rank,watch
  diff screen.rank screen.rank,watch
}

@test "signals of scancel, and those sent to the guard, arrive once each" {
  start srun --ddp=watch "${one[@]}" "${listen[@]}" 10 12 37
  local count
  for count in 1 2 3; do
    scancel -s USR1 "$job.0"
    wait_until 60 heard 10 $count
    scancel -s 37 "$job.0" # SIGRTMIN+3. Such signals are queued, so none of two is lost.
    wait_until 60 heard 37 $count
    kill -USR2 "$guard"
    wait_until 60 heard 12 $count
  done
  finish
  for count in 10 12 37; do exactly $count 3; done
}

# bats test_tags=full
@test "a signal that a descendant sends to the process group arrives once" {
  cat > group.py <<'PY'
# Its child signals the group, which the guard is in, when it gets a line, and stays alive until the program has ended.
import signal, subprocess, sys, time

count = 0
def heard(*_):
    global count
    count += 1

signal.signal(37, heard)
sender = subprocess.Popen(["bash", "-c", 'trap "" 37; while read -r _; do kill -37 0; done'], stdin=subprocess.PIPE)
for expected in range(1, 11):
    sender.stdin.write(b"\n")
    sender.stdin.flush()
    while count < expected:
        time.sleep(0.01)
sys.exit(count)
PY
  local status=0
  timeout 60 srun --ddp=watch "${one[@]}" /usr/bin/python3 group.py || status=$?
  [ "$status" -eq 10 ]
}

@test "scancel of the job, and Ctrl-C at srun: the program's own exit code arrives" {
  start srun --ddp=watch "${one[@]}" "${listen[@]}" 15=9
  scancel "$job"
  ended 9
  exactly 15 1
  said # because SLURM ended it
  # -X: srun sends the first interrupt to the program, instead of waiting one second for another.
  start env --default-signal=INT srun -X --ddp=watch "${one[@]}" "${listen[@]}" 2=4
  kill -INT "$background"
  ended 4
  exactly 2 1
}

@test "STOP and CONT, scontrol suspend and resume: the program continues, and ends normally" {
  start srun --ddp=watch "${one[@]}" "${listen[@]}"
  scancel -s STOP "$job.0"
  wait_until 60 in_state "$program" TD # a cgroup is frozen
  scancel -s CONT "$job.0"
  wait_until 60 in_state "$program" RS
  scontrol suspend "$job"
  wait_until 60 in_state "$program" TD
  scontrol resume "$job"
  wait_until 60 in_state "$program" RS
  finish
}

@test "kill -9 of the guard: the program is gone, and srun names the task" {
  start srun --ddp=watch "${one[@]}" "${listen[@]}" 15 # it survives SIGTERM
  wait_until 60 grep -x ddp-guard "/proc/$guard/comm" # not slurmstepd
  kill -9 "$guard"
  ended 137
  wait_until 60 gone "$program"
  grep 'node1: task 0: Killed' err
  exactly 15 0
  # A guard that waits, with its memory in place, has begun.
  printf '%s\n' '[ "$RANK" = 0 ] && exec sleep 1000' 'until grep -q memfd: "/proc/$PPID/maps" &&' \
    'grep -q "^State:.S" "/proc/$PPID/status"; do :; done' 'kill -9 "$PPID"; exec sleep 1000' > kill_guard.sh
  watched 137 -N1 -n2 -w node1 bash kill_guard.sh
  said 'rank 1 \(node1\) was killed, with its guard; ending the step'
}

@test "the rank that failed is named with its error and place, once for each node, and success is silent" {
  printf '%s\n' 'import os, sys' 'def load(): raise ValueError("bad sample 17")' \
    'print("Traceback (most recent call last):", file=sys.stderr)' 'if os.environ["RANK"] in sys.argv: load()' > train.py
  watched 1 "${two[@]}" "$python" train.py 1
  grep -x 'ValueError: bad sample 17' err
  said 'rank 1 \(node2\) failed: ValueError: bad sample 17 \(train\.py:2\), exit code 1; ending the step'
  watched 0 "${two[@]}" "$python" train.py none
  said
  watching=watch=report
  watched 1 -N2 -n8 "$python" train.py 0 1 2 3 4 5 6 7
  said 'rank [0-3] \(node1\) failed: ValueError: bad sample 17 \(train\.py:2\), exit code 1' \
    'rank [4-7] \(node2\) failed: ValueError: bad sample 17 \(train\.py:2\), exit code 1'
}

@test "a signal, and an exit code without text, are named, also with labels" {
  # srun closes the streams of a step as soon as a task has ended by a signal.
  watched 137 "${two[@]}" bash -c '[ $RANK = 1 ] || kill -9 $$'
  said 'rank 0 \(node1\) was killed by signal 9 \(SIGKILL\); ending the step'
  watched 3 "${two[@]}" bash -c '[ $RANK = 0 ] || exit 3'
  said 'rank 1 \(node2\) ended with exit code 3; ending the step'
  watched 3 -l "${two[@]}" bash -c '[ $RANK = 0 ] || exit 3'
  grep -xE '1: ddp: watch: rank 1 \(node2\) ended with exit code 3; ending the step' err
}

@test "a rank that only lost its connection is not named" {
  printf '%s\n' 'import os' 'if os.environ["RANK"] == "0": raise ConnectionResetError(104, "Connection reset by peer")' \
    'if os.environ["CAUSE"]: raise ValueError("the cause")' > train.py
  CAUSE='' watched 1 "${two[@]}" "$python" train.py
  said
  CAUSE=1 watched 1 "${two[@]}" "$python" train.py
  said 'rank 1 \(node2\) failed: ValueError: the cause \(train\.py:3\), exit code 1; ending the step'
}

@test "helpers of a failed program write everything, and both streams of one file keep their order" {
  # More than a pipe holds. Files, because srun sometimes loses the end of an output.
  watched 1 "${one[@]}" bash -c 'exec > >(tee log) 2>&1; seq 200000; exit 1'
  cmp log <(seq 200000)
  watched 0 "${one[@]}" -e numbers.%t bash -c 'seq 200000 >&2 & exit 0'
  grep -v '^ddp: ' numbers.0 | cmp - <(seq 200000)
  srun --ddp=watch "${one[@]}" -o order.%t bash -c 'for i in $(seq 40); do echo "o$i"; echo "e$i" >&2; done'
  grep -v '^ddp: ' order.0 | diff - <(for i in $(seq 40); do echo "o$i"; echo "e$i"; done)
}

@test "a program leads its process group, may stop it, and survives a full disk" {
  same_with_watch 143 "${one[@]}" bash -c 'sleep 60 & kill -TERM -- -$$; wait; exit 3'
  same_with_watch 3 "${one[@]}" bash -c 'p=$$
    setsid bash -c "touch there; until grep -q \") T \" /proc/$p/stat; do sleep 0.1; done; kill -CONT $p" &
    until [ -e there ]; do sleep 0.1; done; kill -STOP 0; exit 3'
  run -3 ddp-launch --watch -- bash -c 'for i in $(seq 50); do echo $i >&2 || true; done; exit 3' 2> /dev/full
}

@test "the first rank that fails is named, even if it leaves a process behind, and on a line of its own" {
  cat > fail.sh <<'SH'
if [ $RANK = 0 ]; then
  setsid bash -c 'trap : TERM; while :; do sleep 0.1; done' > /dev/null 2>&1 < /dev/null &
  python3 -c 'raise ValueError("the cause")'
  touch failed
  exit 1
fi
until [ -e failed ]; do sleep 0.1; done
until grep -q 'the cause (' err; do sleep 0.1; done
echo "RuntimeError: peer 0 is gone" >&2
exit 1
SH
  watching=watch=report
  watched 1 -N1 -n2 -w node1 bash fail.sh
  said 'rank 0 \(node1\) failed: ValueError: the cause \(<string>:1\), exit code 1' 'rank 0 \(node1\) left [12] process(es)? behind, now ended: .*'
  watched 3 "${one[@]}" bash -c 'printf "progress 30 %%" >&2; exit 3'
  said 'rank 0 \(node1\) ended with exit code 3'
}

# Writes train.py: rank 0 fails as `bash -c "$fault"` does when all are ready, rank 1 saves when it is told to end, rank 2
# only notes that, and rank 3 leaves it to the kernel, and a child behind. They also get numbers in reversed order.
write_ranks() {
  cat > train.py <<'PY'
import glob, os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
if "reversed" in sys.argv: rank = 3 - rank
def save(*_):
    end = time.monotonic() + 3
    while time.monotonic() < end: pass
    open("saved", "w").close()
    sys.exit(0)
if rank == 1: signal.signal(signal.SIGTERM, save)
if rank == 2: signal.signal(signal.SIGTERM, lambda *_: open("told", "w").close())
if rank == 3: child = subprocess.Popen(["sleep", "1000"])
open(f"ready.{rank}", "w").close()
while rank == 0 and len(glob.glob("ready.*")) < 4: time.sleep(0.01)
if rank == 0: os.execvp("bash", ["bash", "-c", os.environ["fault"]])
while True: time.sleep(1000)
PY
}

@test "a rank that fails ends those of all nodes: each may save, and the step has its exit code" {
  write_ranks
  fault='exit 85' watched 85 -N2 --ntasks-per-node=2 "$python" train.py
  said 'rank 0 \(node1\) ended with exit code 85; ending the step'
  [ -e saved ]
  [ -e told ]
  run ! pgrep -f "^sleep 1000|train.py"
  rm -f ready.* saved told
  # From the other node, and by a signal; the one that saves is behind a shell, which dies at once.
  fault='kill -9 $$' watched 137 -N2 --ntasks-per-node=2 bash -c "[ \$RANK = 2 ] || exec $python train.py reversed
    $python train.py reversed; exit"
  said 'rank 3 \(node2\) was killed by signal 9 \(SIGKILL\); ending the step'
  [ -e saved ]
  [ -e told ]
}

@test "the others finish with watch=report, and if SLURM had sent a warning before" {
  watching=watch=report
  watched 3 "${two[@]}" bash -c '[ $RANK = 1 ] && exit 3; until grep -q "exit code 3" err; do sleep 0.1; done; echo finished'
  grep -x finished out
  said 'rank 1 \(node2\) ended with exit code 3'
  srun --ddp=watch "${two[@]}" bash -c '
    trap "[ $RANK = 0 ] || exit 85; touch warned" USR1
    echo $SLURM_JOB_ID > ready.$RANK
    until [ -e go ]; do sleep 0.1; done
    echo finished' > out 2> err < /dev/null 3>&- &
  background=$!
  wait_until 60 eval '[ -s ready.0 ] && [ -s ready.1 ]'
  scancel -s USR1 "$(cat ready.0).0"
  wait_until 60 eval '[ -e warned ] && grep -q "Exited with exit code 85" err'
  sleep 1 # in which rank 0 would be ended
  touch go
  ended 85
  grep -x finished out
}

@test "a rank that fails at once ends one whose guard has not yet spoken to that of another node" {
  local rank
  for rank in 0 1; do
    failing=$rank watched 4 "${two[@]}" bash -c '[ $RANK = $failing ] && exit 4; exec sleep 1000'
    said "rank $rank \(node$((rank + 1))\) ended with exit code 4; ending the step"
  done
}

# bats test_tags=full
@test "ranks are ended that wait for one whose end is unknown" {
  watched 1 -N2 -n4 "$python" -c 'import os, time
if os.environ["RANK"] == "1": raise ConnectionResetError(104, "Connection reset by peer")
time.sleep(1000)'
  said 'a rank lost its connection to another one 10 s ago, and none says why; ending the step'
}

@test "ranks that hang are ended if the user asks for it" {
  watching=watch=end,watch_stall=3s
  watched 143 -N2 --ntasks-per-node=2 "$python" -c 'import time
for i in range(3_000_000): pass
time.sleep(1000)'
  said 'no rank has made progress for [0-9.]+ s \(processor, files, TCP\): .* a timer \(sleep\)[^;]*; ending the step'
}

@test "a rank that the kernel kills for lack of memory is told from another killed rank" {
  local eat='x = bytearray(200 << 20)'
  local status=0 # not by `run`, in which nothing can be skipped
  in_limited_memory 64 ddp-launch --watch -- "$python" -c "$eat" 2> err || status=$?
  [ "$status" -eq 137 ]
  said 'rank 0 \([^)]+\) was killed by the kernel for lack of memory; ask for more with --mem, or .*'
  # A loader worker is killed, and the rank ends because of it.
  status=0
  in_limited_memory 64 ddp-launch --watch -- bash -c "$python -c '$eat'; exit 4" 2> err || status=$?
  [ "$status" -eq 4 ]
  said 'rank 0 \([^)]+\) failed: .*, exit code 4; meanwhile the kernel killed 1 process of its cgroup for lack of memory; ask .*'
}

@test "ddp-report why: a job that failed, one that was cancelled, and one that SLURM does not know" {
  printf '%s\n' 'import os' 'if os.environ["SLURM_PROCID"] == "1": raise ValueError("bad sample 17")' > train.py
  printf '%s\n' '#!/bin/bash' '#SBATCH -N2 -n2 -o out.%j' "srun $python train.py" > job.sh
  run_job job.sh || [ $? -eq 1 ]
  job=$(compgen -G 'out.*')
  run -0 ddp-report why "${job#out.}"
  [ "$output" = "the first error: ValueError: bad sample 17 (train.py:2)" ]
  run -0 ddp-report why "$job"
  [ "$output" = "the first error: ValueError: bad sample 17 (train.py:2)" ]
  start srun "${one[@]}" "${listen[@]}" 10
  scancel "$job"
  wait_until 60 job_is_over "$job" # until then, SLURM says COMPLETING
  run -0 ddp-report why "$job"
  [ "$output" = "it was cancelled" ]
  run -2 ddp-report why 999999
  [[ $output == "ddp-report: SLURM does not know job 999999; "* ]]
  echo "epoch 1" > fine.log
  run -3 ddp-report why fine.log
  run -3 ddp-report why <(echo text)
  [[ $output == *"it is not a file" ]]
}

# A program that writes down its process; as rank $WAITS, or as any rank if that is empty, it waits for a lock; the others work,
# and say so in `worked` after 5 s of processor time, until `stop` or `stop.RANK` is there. Then it works until `over` is there.
hanging='import fcntl, os, time
rank, waits = os.environ["SLURM_PROCID"], os.environ.get("WAITS", "")
def work_until(file):
    while not os.path.exists(file) and not os.path.exists(file + "." + rank):
        sum(range(100000))
        if time.process_time() > 5: open("worked", "w")
with open("started", "a") as file: print(rank, os.getpid(), file=file)
if waits in ("", rank): fcntl.flock(open("lock", "w"), fcntl.LOCK_SH)
else: work_until("stop")
if not waits or waits == rank: work_until("over")'
# hang ARGUMENTS OF SRUN...: in the background, until `let_go`.
hang() {
  rm -f started worked stop stop.* over
  exec 7> lock
  flock 7
  SLURM_DDP=watch_stall=2s srun --ddp=watch "$@" "$python" -c "$hanging" > out 2> err < /dev/null 3>&- 7>&- &
  background=$!
}
let_go() { exec 7>&-; }
started() { [ "$(grep -c . started)" -eq "$1" ]; }

@test "ranks that hang: said once, with what they wait for, and again when there is progress; a busy rank is no hang" {
  export WAITS=1
  hang -N1 -n2 -w node1
  wait_until 90 [ -e worked ]
  said
  touch stop # rank 0 ends, and rank 1 still waits
  wait_until 90 grep -q 'no rank has made progress' err
  let_go
  wait_until 90 grep -q 'progress again' err
  touch over
  ended 0
  said 'no rank has made progress for [0-9.]+ s \(processor, files, TCP\): rank 1 waits for a file lock( at <string>:[0-9]+)?; rank 0 has ended with 0; the step still runs' \
    'the ranks make progress again, after [0-9.]+ s'
}

@test "a stopped rank is named with the command that continues it" {
  local stopped command
  hang -N1 -n2 -w node1
  wait_until 60 started 2
  stopped=$(sed -n 's/^1 //p' started)
  kill -STOP "$stopped"
  wait_until 90 grep -q 'has been stopped' err
  command=$(sed -n 's/^.*; to continue, run \(kill -CONT [0-9]*\) on node1$/\1/p' err | head -n 1)
  $command
  let_go
  touch over
  ended 0
  grep -qxE 'ddp: watch: rank 1 has been stopped for [0-9.]+ s; to continue, run kill -CONT '"$stopped"' on node1' err
}

# The guards of node2 end, and then the first one of node1, which spoke for the step.
@test "a rank that waits for those of another node is no hang, and one that is left over is" {
  export WAITS=1
  hang -N2 --ntasks-per-node=2
  wait_until 90 [ -e worked ]
  said
  for rank in 3 2 0; do
    guard=$(awk '$1 == "PPid:" { print $2 }' "/proc/$(sed -n "s/^$rank //p" started)/status")
    touch "stop.$rank"
    wait_until 90 gone "$guard"
  done
  wait_until 90 grep -q 'no rank has made progress' err
  touch over
  let_go
  ended 0
  grep -qxE 'ddp: watch: no rank has made progress for [0-9.]+ s \(processor, files, TCP\): rank 1 waits for a file lock( at <string>:[0-9]+)?; ranks 0, 2, 3 have ended with 0; the step still runs' err
}

# Ranks of which one waits for a lock in its function `load`, and the others for it in `step`. The watch makes Python tell
# these places, below a shell, in a process that has changed its directory, and with the site's own sitecustomize.
standing='import fcntl, os, sys
def load():
    fcntl.flock(open("lock", "w"), fcntl.LOCK_SH)
def step():
    fcntl.flock(open("other", "w"), fcntl.LOCK_SH)
open("site." + os.environ["RANK"], "w").write(str(getattr(sys, "site_was_here", "no")))
load() if os.environ["RANK"] == "1" else step()'

@test "Python programs that hang: the line says where each stands; of a program that is not Python nothing dies" {
  mkdir site
  echo 'import sys; sys.site_was_here = "yes"' > site/sitecustomize.py
  echo "$standing" > train.py
  exec 7> lock 8> other
  flock 7
  flock 8
  local places='rank 1 waits for a file lock at train.py:3 in load, the others wait for a file lock at train.py:5 in step'
  SLURM_DDP=watch_stall=6s PYTHONPATH=$work/site srun --ddp=watch -N1 -n3 -w node1 bash -c "$python train.py; exit" \
    > out 2> err < /dev/null 3>&- 7>&- 8>&- &
  background=$!
  wait_until 90 grep -q 'no rank has made progress' err
  exec 7>&- 8>&-
  ended 0
  grep -qE '^ddp: watch: no rank has made progress for [0-9.]+ s \(processor, files, TCP\): '"$places"'; the step still runs$' err
  [ "$(cat site.*)" = yesyesyes ]
  # One rank without Python, and one whose Python ignores the variables.
  hang_without_python='[ $RANK = 0 ] && exec flock lock true; exec '"$python"' -I -c "import fcntl; fcntl.flock(open(\"lock\", \"w\"), fcntl.LOCK_SH)"'
  exec 7> lock
  flock 7
  SLURM_DDP=watch_stall=4s srun --ddp=watch -N1 -n2 -w node1 bash -c "$hang_without_python" > out 2> err < /dev/null 3>&- 7>&- &
  background=$!
  wait_until 90 grep -q 'no rank has made progress' err
  exec 7>&-
  ended 0
  said 'no rank has made progress for [0-9.]+ s \(processor, files, TCP\): all wait for a file lock; the step still runs'
}

@test "ranks of two nodes that hang: one line for the step, and where each rank stands" {
  echo "$standing" > train.py
  exec 7> lock 8> other
  flock 7
  flock 8
  SLURM_DDP=watch_stall=12s srun --ddp=watch -N2 --ntasks-per-node=2 "$python" train.py > out 2> err < /dev/null 3>&- 7>&- 8>&- &
  background=$!
  wait_until 90 grep -q 'no rank has made progress' err
  exec 7>&- 8>&-
  ended 0
  said 'no rank has made progress for [0-9.]+ s \(processor, files, TCP\): rank 1 waits for a file lock at train.py:3 in load, the others wait for a file lock at train.py:5 in step; the step still runs'
}

@test "workers that hang below an agent: the line says where each rank stands, and not those that a worker has started" {
  # Each has a child of its own, which inherits its rank.
  { echo 'import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)'; echo "$standing"; } > train.py
  # As torchrun starts them.
  cat > agent.py <<'PY'
import os, subprocess, sys
workers = [subprocess.Popen(["bash", "-c", sys.executable + " train.py; exit"], env={**os.environ, "RANK": str(rank)}) for rank in range(3)]
sys.exit(max(worker.wait() for worker in workers))
PY
  exec 7> lock 8> other
  flock 7
  flock 8
  SLURM_DDP=watch_stall=6s srun --ddp=torchrun,watch -N1 -n1 -w node1 "$python" agent.py > out 2> err < /dev/null 3>&- 7>&- 8>&- &
  background=$!
  wait_until 90 grep -q 'no rank has made progress' err
  exec 7>&- 8>&-
  ended 0
  grep -E '^ddp: watch: no rank .*: rank 1 waits for a file lock at train.py:5 in load, the others wait for a file lock at train.py:7 in step; the' err
}

# A guard is between the task and slurmstepd. Its own name may be late, because it starts beside the program.
parent='read -r _ _ _ grandparent _ < /proc/$PPID/stat
case $(cat /proc/$grandparent/comm) in slurmstepd) echo guarded ;; *) echo alone ;; esac'

@test "only steps with watch have a guard: in a job of sbatch or salloc, not the shell" {
  [ "$(srun --ddp=watch "${one[@]}" bash -c "$parent")" = guarded ]
  [ "$(SLURM_DDP=watch srun --ddp "${one[@]}" bash -c "$parent")" = guarded ]
  [ "$(SLURM_DDP=watch srun "${one[@]}" bash -c "$parent")" = alone ]
  [ "$(srun --ddp "${one[@]}" bash -c "$parent")" = alone ]
  cat > job.sh <<JOB
#!/bin/bash
#SBATCH --ddp=watch -N2 -n2 -o job.out
$parent
srun bash -c '$parent'
srun --ddp=off bash -c '$parent'
srun --ddp=rank,watch=off -N1 -n1 bash -c '$parent'
srun bash -c 'exit 5'
JOB
  run -5 run_job job.sh
  cat job.out
  # off and watch=off of a step replace the watch of the job's #SBATCH line.
  [ "$(grep -E '^(guarded|alone)$' job.out | paste -sd' ')" = \
    "alone guarded guarded alone alone alone" ]
  grep -E '^ddp: watch: rank [01] \(node[12]\) ended with exit code 5; ending the step$' job.out
  salloc -Q --ddp=watch "${one[@]}" bash -c "$parent; srun bash -c '$parent'" > out
  [ "$(paste -sd' ' out)" = "alone guarded" ]
  [ "$(srun --ddp=watch,rank --export=NONE "${one[@]}" /bin/bash -c "$parent")" = guarded ]
}

@test "an ordinary user: the guard has this user's rights, no environment, and not the step's key" {
  local user=nobody
  chmod 777 .
  start setpriv --reuid $user --regid nogroup --clear-groups env HOME="$work" SECRET=1 \
    srun --ddp=watch "${one[@]}" "${listen[@]}" 10
  wait_until 60 grep -x ddp-guard "/proc/$guard/comm"
  [ "$(awk '$1 == "Uid:" { print $2, $3, $4, $5 }' "/proc/$guard/status" | tr ' ' '\n' | sort -u)" = "$(id -u $user)" ]
  [ "$(awk '$1 ~ /^Cap(Prm|Eff|Amb):/ { print $2 }' "/proc/$guard/status" | sort -u)" = 0000000000000000 ]
  [ "$(wc -c < "/proc/$guard/environ")" -eq 0 ]
  tr '\0' '\n' < "/proc/$program/environ" | grep -x SECRET=1
  run ! grep -aE '[0-9a-f]{64}' "/proc/$guard/cmdline"
  signaled_once
}

# Two processes in sessions of their own with the streams of the step, of which one ignores SIGTERM.
leave_two='rm -f left
setsid bash -c "trap \"\" TERM; echo \$\$ >> left; read -r -t 120 <> fifo" &
setsid bash -c "echo \$\$ >> left; read -r -t 120 <> fifo" &
until [ "$(cat left 2>&- | wc -l)" = 2 ]; do sleep 0.1; done
exit $0'
none_left() {
  [ "$(wc -l < left)" -eq 2 ]
  run ! ps -o pid,args -p "$(paste -sd, left)"
}

@test "processes that a program leaves behind, one of which ignores SIGTERM, do not keep the step" {
  local left='rank 0 \(node1\) left 2 processes behind, now ended: bash, bash'
  watched 1 "${one[@]}" bash -c "$leave_two" 1
  none_left
  said 'rank 0 \(node1\) ended with exit code 1' "$left"
  # Without a guard, srun waits for them, because they hold its standard output. With one, they have 5 s.
  watched 0 "${one[@]}" bash -c "$leave_two" 0
  none_left
  said "$left"
}

@test "ddp-launch --watch under srun without the plugin's option" {
  [ "$(srun "${one[@]}" ddp-launch --watch -- bash -c "$parent")" = guarded ]
  run -3 --separate-stderr srun "${two[@]}" ddp-launch --watch -- bash -c '[ $RANK = 0 ] || exit 3'
  echo "$stderr" > err
  said 'rank 1 \(node2\) ended with exit code 3'
  run -3 --separate-stderr srun -N1 -n2 -w node1 ddp-launch --watch -- bash -c '[ $RANK = 1 ] && exec sleep 1000
    until [ "$(grep -l memfd:ddp-guard- /proc/[0-9]*/maps 2> /dev/null | wc -l)" -eq 2 ]; do sleep 0.1; done # both guards
    exit 3'
  echo "$stderr" > err
  said 'rank 0 \(node1\) ended with exit code 3; ending the step'
  watched 3 "${one[@]}" ddp-launch --watch -- bash -c 'exit 3' # one guard is enough
  said 'rank 0 \(node1\) ended with exit code 3'
  start srun "${one[@]}" ddp-launch --watch -- "${listen[@]}" 10
  signaled_once
}

@test "ddp-launch --watch under srun: the guards of a node find each other, so a hang is seen" {
  echo "$standing" > train.py
  exec 7> lock 8> other
  flock 7
  flock 8
  SLURM_DDP=watch_stall=6s srun -N1 -n3 -w node1 ddp-launch --watch -- "$python" train.py > out 2> err < /dev/null 3>&- 7>&- 8>&- &
  background=$!
  wait_until 90 grep -q 'no rank has made progress' err
  exec 7>&- 8>&-
  ended 0
  said 'no rank has made progress for [0-9.]+ s .*: rank 1 waits for a file lock at train.py:3 in load, the others wait for a file lock at train.py:5 in step; the step still runs'
}

@test "ddp-launch --watch without SLURM: exit code, streams, signals, processes left behind" {
  run -42 --separate-stderr ddp-launch --watch -- bash -c 'cat; echo error >&2; exit 42' <<< "typed"
  [ "$output" = typed ]
  [ "$(grep -cx error <<< "$stderr")" -eq 1 ]
  grep -xE 'ddp: watch: rank 0 \([^ ]+\) ended with exit code 42' <<< "$stderr"
  run -139 ddp-launch --watch -- bash -c 'kill -SEGV $$'
  run -127 ddp-launch --watch -- no-such-command
  [[ $output == *"cannot run 'no-such-command'"* ]]
  # Closed streams stay closed, and leave the guard's own descriptors alone.
  status=0 # not by `run`, which would open it
  ddp-launch --watch -- bash -c 'echo text >&2; echo text >&2; [ ! -e /proc/self/fd/0 ] && exit 5' <&- || status=$?
  [ "$status" -eq 5 ]
  start ddp-launch --watch -- "${listen[@]}" 15=9
  kill -TERM "$background"
  ended 9
  exactly 15 1
  run -1 timeout -k 1 60 ddp-launch --watch -- bash -c "$leave_two" 1
  none_left
}

@test "ddp-launch --watch in an interactive shell: Ctrl-Z gives the shell back, and fg continues" {
  cat > shell.py <<'PY'
import os, pty, signal

seen = b""
def expect(text):
    global seen
    while text not in seen:
        seen += os.read(terminal, 4096)
    seen = seen.partition(text)[2]

def type_in(command):
    expect(b"prompt> ") # what is typed before is lost
    os.write(terminal, command + b"\n")

process, terminal = pty.fork()
if process == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL) # a shell leaves it ignored if it was when the shell started
    os.execve("/bin/bash", ["bash", "--norc", "-i"], {**os.environ, "PS1": "prompt> "})
type_in(b"ddp-launch --watch -- bash -c 'echo star''ted; read -r line; echo got $line; exit 7'")
expect(b"started")
os.write(terminal, b"\x1a")
expect(b"Stopped")
type_in(b"echo ba''ck; fg")
expect(b"back")
os.write(terminal, b"word\n")
expect(b"got word")
type_in(b"echo status=$?")
expect(b"status=7")
type_in(b"ddp-launch --watch -- bash -c 'echo run''ning; read -r line'")
expect(b"running")
os.write(terminal, b"\x03")
type_in(b"echo status=$?")
expect(b"status=130")
PY
  timeout 60 "$python" shell.py
}
