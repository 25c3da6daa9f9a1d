// Places that training writes to: there, roomy, and writable by really writing, because a full or
// read-only file system and a dead server look healthy until then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

struct StorageFacts {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for a user without privileges
  bool sizes_known = false;
  std::string error;        // of the write, in words; empty when all bytes came back as written
  bool timed_out = false;   // the file system did not answer at all
  double seconds = 0;       // that writing and flushing took
  std::string server = {};  // what serves it, "nfs4 files:/export"; empty on a disk of the node
};

// What serves the file system of an absolute path, from the text of /proc/self/mountinfo; empty if
// it is no file system of several nodes. Asks no file system, because a dead one would not answer.
std::string server_of(std::string_view mountinfo, const std::string& path);

// Writes 1 MiB to a file that has no name (nothing is left behind, whatever happens), flushes it
// to the device, reads it back and compares.
StorageFacts probe_storage(const std::string& directory, std::chrono::milliseconds timeout);

struct StorageRule {
  std::string check;  // "storage.shm"
  std::string directory;
  std::uint64_t warn_below = 0;  // bytes free
  std::uint64_t critical_below = 0;
  std::string why;
};

// What cannot be written to is CRITICAL, or, on a file server, UNKNOWN by the name storage.shared:
// one node cannot tell whether it is to blame or the server, and all nodes see the same.
Finding evaluate_storage(const StorageFacts& facts, const StorageRule& rule);

}  // namespace ddp::check
