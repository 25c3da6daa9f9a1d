// Places that training writes to: there, roomy, and writable by really writing, because a full or
// read-only file system and a dead server look healthy until then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

struct StorageFacts {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for a user without privileges
  bool sizes_known = false;
  std::string error;       // of the write, in words; empty when all bytes came back as written
  bool timed_out = false;  // the file system did not answer at all
};

// Writes 1 MiB to a file that has no name (nothing is left behind, whatever happens), flushes it
// to the device, reads it back and compares.
StorageFacts probe_storage(const std::string& directory, std::chrono::milliseconds patience);

struct StorageRule {
  std::string check;  // "storage.shm"
  std::string directory;
  std::uint64_t warn_below = 0;  // bytes free
  std::uint64_t critical_below = 0;
  std::string why;
};

Finding judge_storage(const StorageFacts& facts, const StorageRule& rule);

}  // namespace ddp::check
