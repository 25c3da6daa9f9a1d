#!/usr/bin/env bats
# Loss of power, emulated: a file system in a file, copied without unmounting in the moment in which
# the save has been acknowledged. What the copy lacks is what had not reached the disk.

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

@test "what was written without fsync does not survive: the test can fail" {
  "$CKPT_FIXTURE" save "$DISK/ckpt" 1
  cp -r "$DISK/ckpt/step-00000001" "$DISK/ckpt/step-00000002"
  cut_power
  run "$CKPT_BIN" verify "$AFTER/ckpt/step-00000002"
  [ "$status" -eq 1 ]
}
