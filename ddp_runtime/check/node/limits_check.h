// SPDX-License-Identifier: Apache-2.0
// Process limits that training may run into: locked memory (RDMA registers buffers), open files
// (connections and loader workers), processes (threads count), stack.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct Limit {
  std::uint64_t soft = 0;  // kUnlimited if there is no limit
  std::uint64_t hard = 0;
};

// A limit is empty if the kernel did not report it.
struct Limits {
  std::optional<Limit> locked_memory;  // bytes
  std::optional<Limit> open_files;
  std::optional<Limit> processes;
  std::optional<Limit> stack;  // bytes
};

Limits read_limits() noexcept;

// `has_rdma`: whether jobs on the node use RDMA, which needs locked memory.
std::vector<Finding> evaluate_limits(const Limits& limits, bool has_rdma);

}  // namespace ddp::check
