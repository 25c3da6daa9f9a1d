// SPDX-License-Identifier: Apache-2.0
// What the guards of one step on one node share: a page of memory in a file without a name, which
// slurmstepd makes before it starts the tasks.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/file_descriptor.h"

namespace ddp::guard {

// Makes the file; none if the kernel refuses, and then each guard speaks for itself.
FileDescriptor make_node_record() noexcept;

class NodeRecord {
 public:
  // Takes the file's number, or -1 for none.
  explicit NodeRecord(int file) noexcept;
  NodeRecord(const NodeRecord&) = delete;
  NodeRecord& operator=(const NodeRecord&) = delete;
  ~NodeRecord();

  // Counts this rank among those that failed by themselves. True if it is the first of its node:
  // what the others say is most often an echo.
  bool is_first_failure() noexcept;

 private:
  struct Page {
    std::atomic<std::uint32_t> failures;
  };
  Page* page_ = nullptr;  // mapped memory, zero at first
};

}  // namespace ddp::guard
