// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/run_report.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "hdf5_ckpt/core/crc32c.h"

namespace ddp::train {

namespace {

struct Checksum {
  std::uint32_t crc32c = 0;
  std::uint64_t bytes = 0;

  void append(const Checksum& next) {
    crc32c = ckpt::crc32c_combine(crc32c, next.crc32c, next.bytes);
    bytes += next.bytes;
  }
};

Checksum checksum_of(const torch::Tensor& tensor) {
  const auto values = tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous();
  return {ckpt::crc32c({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()}),
          values.nbytes()};
}

// Of the ranks that have the same rows, one counts.
bool saves(const StateArray& array, int rank) {
  return !array.division || array.division->elements.at(static_cast<std::size_t>(rank)) > 0;
}

std::vector<NamedTensor> sorted_by_name(std::vector<NamedTensor> parameters) {
  std::sort(parameters.begin(), parameters.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return parameters;
}

}  // namespace

std::uint32_t parameters_crc32c(std::vector<NamedTensor> parameters) {
  const auto sorted = sorted_by_name(std::move(parameters));
  Checksum all;
  for (const auto& parameter : sorted) all.append(checksum_of(parameter.tensor));
  return all.crc32c;
}

std::uint32_t parameters_crc32c(comm::Group& group, const std::vector<NamedTensor>& parameters,
                                const DividedParameters& divided) {
  const auto sorted = sorted_by_name(parameters);
  if (!divided.any()) return parameters_crc32c(sorted);
  constexpr std::size_t kNumbers = 3;
  std::vector<std::int64_t>
      mine;  // of each parameter, the first row, and the rows' checksum and bytes
  for (const auto& [name, tensor] : sorted) {
    const bool is_divided = divided.has(tensor);
    Checksum rows;
    std::int64_t first = 0;
    if (is_divided) {
      const auto array = divided.array_of(name, tensor);
      if (saves(array, group.rank())) rows = checksum_of(array.tensor);
      if (array.division) first = array.division->first;
    }
    if (!is_divided && group.rank() == 0) rows = checksum_of(tensor);
    mine.push_back(first);
    mine.push_back(static_cast<std::int64_t>(rows.crc32c));
    mine.push_back(static_cast<std::int64_t>(rows.bytes));
  }
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  group
      .all_gather(comm::buffer_of(std::span(mine)), comm::buffer_of(std::span(all)),
                  "checksums of parameters")
      .wait();
  Checksum sum;
  for (std::size_t i = 0; i < mine.size(); i += kNumbers) {
    std::map<std::int64_t, Checksum> by_row;
    for (std::size_t of_rank = i; of_rank < all.size(); of_rank += mine.size()) {
      const auto bytes = static_cast<std::uint64_t>(all[of_rank + 2]);
      if (bytes == 0) continue;
      by_row[all[of_rank]] = {static_cast<std::uint32_t>(all[of_rank + 1]), bytes};
    }
    for (const auto& [row, rows] : by_row) sum.append(rows);
  }
  return sum.crc32c;
}

}  // namespace ddp::train
