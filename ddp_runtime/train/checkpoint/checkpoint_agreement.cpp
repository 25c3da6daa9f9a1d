// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/checkpoint_agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <unordered_set>

#include "base/errors.h"
#include "ddp_runtime/train/state/array_views.h"
#include "hdf5_ckpt/core/crc32c.h"

namespace ddp::train {
namespace {

std::string type_text(torch::ScalarType type) {
  const auto stored = stored_type(type);
  return stored ? std::string(ckpt::dtype_name(*stored)) : c10::toString(type);
}

// One line per array.
std::string list_of(const std::vector<StateArray>& arrays) {
  std::string list;
  for (const auto& array : arrays) {
    list += fmt::format("'{}' {} [{}]\n", array.name, type_text(array.tensor.scalar_type()),
                        fmt::join(array.sizes(), ", "));
  }
  return list;
}

// Returns the first line of `a` that is not in `b`, or an empty string.
std::string first_line_missing(const std::string& a, const std::string& b) {
  std::istringstream text(b);
  std::unordered_set<std::string> there;
  for (std::string line; std::getline(text, line);) there.insert(line);
  std::istringstream lines(a);
  for (std::string line; std::getline(lines, line);) {
    if (!there.contains(line)) return line;
  }
  return {};
}

// Describes the first rank whose list differs from rank 0's, and one array that differs.
std::string first_mismatch(const std::vector<std::string>& lists) {
  const auto differs = std::find_if(lists.begin(), lists.end(),
                                    [&](const auto& list) { return list != lists.front(); });
  const auto rank = differs - lists.begin();
  if (const auto more = first_line_missing(*differs, lists.front()); !more.empty()) {
    return fmt::format("rank {} has {} but rank 0 does not", rank, more);
  }
  if (const auto less = first_line_missing(lists.front(), *differs); !less.empty()) {
    return fmt::format("rank {} lacks {}, which rank 0 has", rank, less);
  }
  return fmt::format("rank {} has the arrays of rank 0 in a different order", rank);
}

}  // namespace

void require_same_arrays(comm::Group& group, const std::vector<StateArray>& arrays) {
  const std::string list = list_of(arrays);
  const auto mine = static_cast<std::int64_t>(ckpt::crc32c(std::as_bytes(std::span(list))));
  const auto largest = group.all_reduce_value(mine, comm::ReduceOp::max);
  const auto smallest = -group.all_reduce_value(-mine, comm::ReduceOp::max);
  if (largest == smallest) return;
  throw RuntimeError(
      fmt::format("ranks disagree on the contents of a checkpoint: {}; build the same model and "
                  "optimizer, and add the same values, on every rank",
                  first_mismatch(group.all_gather_text(list))));
}

}  // namespace ddp::train
