// SPDX-License-Identifier: Apache-2.0
// Checks that the directories to which training writes exist, have free space, and are writable.
// The check writes a file, because a full or read-only file system and a dead server look healthy
// until the first write.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

struct StorageFacts {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for an unprivileged user
  bool sizes_known = false;
  std::string error;        // error of the write test; empty on success
  int error_code = 0;       // its errno; 0 if there is none
  bool timed_out = false;   // the file system did not respond at all
  double seconds = 0;       // time to write and flush the file
  std::string server = {};  // "nfs4 files:/export"; empty on a file system of the node itself
};

// The server of the file system that contains an absolute path, from the text of
// /proc/self/mountinfo; empty if its type is one that belongs to a node alone, such as ext4 or
// tmpfs. Does not access the file system, because a dead server would not answer.
std::string server_of(std::string_view mountinfo, const std::string& path);

// The same, after following symbolic links on the node's own disks.
std::string server_behind(std::string_view mountinfo, const std::filesystem::path& path);

// Writes 1 MiB to an unnamed file, so that no file remains after a crash, flushes it to the device,
// reads it back and compares.
StorageFacts probe_storage(const std::string& directory, std::chrono::milliseconds timeout);

struct StorageRule {
  std::string check;  // "storage.shm"
  std::string directory;
  std::uint64_t warn_below = 0;  // bytes free
  std::uint64_t critical_below = 0;
  std::string why;
};

// A directory that is not writable is CRITICAL. On a file server, it is UNKNOWN under the name
// storage.shared, because all nodes see the same error and one node cannot determine whether it or
// the server is to blame. For the same reason, a full file server is only a WARNING.
//
// Space that a running job may use is never more than a WARNING, unless the file system is too
// small even if it is empty.
Finding evaluate_storage(const StorageFacts& facts, const StorageRule& rule,
                         bool a_job_runs = false);

}  // namespace ddp::check
