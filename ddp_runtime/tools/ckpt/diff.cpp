// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt diff: reports which arrays of two checkpoints differ, and by how much.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/compare.h"
#include "ddp_runtime/tools/ckpt/paths.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string kind_of(const StoredArray& array) {
  return fmt::format("{} {}", dtype_name(array.dtype), shape_text(array.shape));
}

json names_only_in(const Checkpoint& here, const Checkpoint& there) {
  json names = json::array();
  for (const StoredArray& array : here.arrays())
    if (there.find(array.name) == nullptr) names.push_back(array.name);
  return names;
}

std::uint64_t bytes_to_compare(const Checkpoint& a, const Checkpoint& b) {
  std::uint64_t bytes = 0;
  for (const StoredArray& in_a : a.arrays()) {
    const StoredArray* in_b = b.find(in_a.name);
    if (in_b != nullptr && in_a.dtype == in_b->dtype && in_a.shape == in_b->shape)
      bytes += in_a.length + in_b->length;
  }
  return bytes;
}

// Returns null if the two arrays are bitwise equal.
json difference_of(const Checkpoint& a, const StoredArray& in_a, const Checkpoint& b,
                   const StoredArray& in_b, const Output& output, Meter& meter) {
  if (in_a.dtype != in_b.dtype || in_a.shape != in_b.shape)
    return {{"name", in_a.name}, {"a", kind_of(in_a)}, {"b", kind_of(in_b)}};
  const auto read = [&](const Checkpoint& from, const std::string& name) {
    std::uint64_t told = 0;
    return from.read(name, {output.threads, [&](std::uint64_t done, std::uint64_t) {
                              meter.add(done - std::exchange(told, done));
                            }});
  };
  const ArrayDifference difference = compare_arrays(read(a, in_a.name), read(b, in_b.name));
  if (difference.elements == 0) return nullptr;
  return {{"name", in_a.name},
          {"elements", difference.elements},
          {"max_abs", std::isnan(difference.max_abs) ? json() : json(difference.max_abs)}};
}

void print_for_people(const json& result) {
  for (const auto& name : result["only_in_a"])
    fmt::print("only in A: {}\n", name.get<std::string>());
  for (const auto& name : result["only_in_b"])
    fmt::print("only in B: {}\n", name.get<std::string>());
  for (const auto& entry : result["different"]) {
    const auto name = entry["name"].get<std::string>();
    if (entry.contains("a"))
      fmt::print("different kind: {} is {} in A and {} in B\n", name, entry["a"].get<std::string>(),
                 entry["b"].get<std::string>());
    else
      fmt::print("different values: {}, {} elements, max |A - B| = {}\n", name,
                 entry["elements"].get<std::uint64_t>(),
                 entry["max_abs"].is_null()
                     ? "not finite"
                     : fmt::format("{:.6g}", entry["max_abs"].get<double>()));
  }
  fmt::print("{} bitwise equal, {} different, {} only in A, {} only in B\n",
             counted(result["equal_arrays"].get<std::size_t>(), "array"),
             result["different"].size(), result["only_in_a"].size(), result["only_in_b"].size());
}

}  // namespace

int run_diff(const fs::path& path_a, const fs::path& path_b, const Output& output) {
  const Checkpoint a = Checkpoint::open(checkpoint_at(path_a));
  const Checkpoint b = Checkpoint::open(checkpoint_at(path_b));
  json different = json::array();
  std::size_t equal = 0;
  const Progress progress = terminal_progress("diff");
  Meter meter(progress, bytes_to_compare(a, b));
  for (const StoredArray& in_a : a.arrays()) {
    const StoredArray* in_b = b.find(in_a.name);
    if (in_b == nullptr) continue;
    json difference = difference_of(a, in_a, b, *in_b, output, meter);
    if (difference.is_null())
      ++equal;
    else
      different.push_back(std::move(difference));
  }
  json result = {{"a", a.path().string()},
                 {"b", b.path().string()},
                 {"equal_arrays", equal},
                 {"only_in_a", names_only_in(a, b)},
                 {"only_in_b", names_only_in(b, a)},
                 {"different", std::move(different)}};
  result["equal"] =
      result["different"].empty() && result["only_in_a"].empty() && result["only_in_b"].empty();
  if (output.json)
    fmt::print("{}\n", json_text(result));
  else
    print_for_people(result);
  return result["equal"].get<bool>() ? 0 : 1;
}

}  // namespace ddp::ckpt::tool
