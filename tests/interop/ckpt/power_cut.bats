#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# An emulated loss of power. The file system is in a file, which is copied without unmounting when
# the save has been acknowledged. Data that is missing in the copy had not reached the disk.

setup() {
  DISK="$BATS_TEST_TMPDIR/disk"
  AFTER="$BATS_TEST_TMPDIR/after"
  mkdir "$DISK" "$AFTER"
  truncate -s 64M "$BATS_TEST_TMPDIR/image"
  mkfs.ext4 -q "$BATS_TEST_TMPDIR/image" || skip "no mkfs.ext4"
  mount -o loop,commit=300 "$BATS_TEST_TMPDIR/image" "$DISK" || skip "mounting an image needs root and a loop device"
}

teardown() {
  mountpoint -q "$AFTER" && umount "$AFTER"
  mountpoint -q "$DISK" && umount "$DISK"
  return 0
}

cut_power() {
  cp --sparse=always "$BATS_TEST_TMPDIR/image" "$BATS_TEST_TMPDIR/image-after"
  mount -o loop "$BATS_TEST_TMPDIR/image-after" "$AFTER"
}

@test "an acknowledged checkpoint survives" {
  "$CKPT_FIXTURE" save "$DISK/new/ckpt" 1
  "$CKPT_FIXTURE" save "$DISK/new/ckpt" 2
  cut_power
  run "$CKPT_BIN" verify "$AFTER/new/ckpt"
  [ "$status" -eq 0 ]
  [[ "${lines[0]}" == "whole: "*"step-00000002"* ]]
  [[ "${lines[1]}" == "whole: "*"step-00000001"* ]]
  [ "$(cat "$AFTER/new/ckpt/latest")" = step-00000002 ]
}

@test "data written without fsync does not survive, so this test can fail" {
  "$CKPT_FIXTURE" save "$DISK/ckpt" 1
  cp -r "$DISK/ckpt/step-00000001" "$DISK/ckpt/step-00000002"
  cut_power
  run "$CKPT_BIN" verify "$AFTER/ckpt/step-00000002"
  [ "$status" -eq 1 ]
}

# Emulates a power failure at the K-th such call of a save: only data that has reached the disk by
# then remains. The previous checkpoint must be whole, the new one either whole or absent.
cut_at() { # call, number; returns 1 if there is no such call
  local image=$BATS_TEST_TMPDIR/image
  cp --sparse=always "$image" "$image-now"
  mount -o loop,commit=300 "$image-now" "$DISK"
  strace -f -o "$BATS_TEST_TMPDIR/trace" -e "trace=$1" -e "inject=$1:signal=SIGKILL:when=$2" \
    "$CKPT_FIXTURE" save "$DISK/ckpt" 2 || true
  cp --sparse=always "$image-now" "$image-after"
  umount "$DISK"
  grep -q 'killed by SIGKILL' "$BATS_TEST_TMPDIR/trace" || return 1
  mount -o loop "$image-after" "$AFTER"
  "$CKPT_BIN" verify "$AFTER/ckpt/step-00000001"
  [ ! -e "$AFTER/ckpt/step-00000002" ] || "$CKPT_BIN" verify "$AFTER/ckpt/step-00000002"
  umount "$AFTER"
}

@test "the power fails at any fsync, rename or reservation of a save: one checkpoint is whole, none is torn" {
  strace -o /dev/null true || skip "strace is not allowed to trace here"
  "$CKPT_FIXTURE" save "$DISK/ckpt" 1
  umount "$DISK"
  local call number points=0
  for call in fallocate fsync renameat2 rename; do
    for ((number = 1; number < 50; ++number)); do
      run cut_at "$call" "$number"
      [ "$status" -eq 0 ] || break
      points=$((points + 1))
    done
    echo "$call $number: $output"
    ! mountpoint -q "$AFTER"  # otherwise the verification failed
  done
  echo "fault matrix: power cut at a call of a save: $points points" >&3
  local row
  row=$(grep '^| power cut at a call of a save |' "$BATS_TEST_DIRNAME/../../../docs/evidence/checkpoint.md")
  [ "$points" -ge "$(cut -d'|' -f3 <<< "$row")" ]
}
