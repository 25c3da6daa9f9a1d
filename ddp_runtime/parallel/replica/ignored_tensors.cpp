// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/ignored_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/errors.h"

namespace ddp {
namespace {

bool matches(const std::string& entry, const std::string& name) {
  if (!entry.ends_with('*')) return name == entry;
  return name.compare(0, entry.size() - 1, entry, 0, entry.size() - 1) == 0;
}

// Under all of their names.
std::vector<NamedTensor> all_names_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> all;
  const auto add = [&](const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
    for (const auto& item : tensors) all.push_back({item.key(), item.value()});
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return all;
}

std::string quoted(const std::vector<std::string>& entries) {
  return entries.empty() ? "nothing" : fmt::format("'{}'", fmt::join(entries, "', '"));
}

// Of one rank, as it tells the others.
struct IgnoreList {
  std::vector<std::string> entries;
  std::string problem;  // empty: none
};

std::vector<IgnoreList> gather_lists(comm::Group& group, const IgnoreList& mine) {
  const nlohmann::json json = {mine.entries, mine.problem};
  // Broken UTF-8 in an entry must not be an error on this rank alone.
  const auto text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::vector<IgnoreList> lists;
  for (const auto& of_rank : group.all_gather_text(text)) {
    const auto list = nlohmann::json::parse(of_rank);
    lists.push_back({list[0], list[1]});
  }
  return lists;
}

}  // namespace

IgnoredTensors::IgnoredTensors(const torch::nn::Module& module, std::vector<std::string> entries,
                               comm::Group& group)
    : entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end());
  entries_.erase(std::unique(entries_.begin(), entries_.end()), entries_.end());
  const auto lists = gather_lists(group, {entries_, problem_with(module)});
  for (std::size_t rank = 1; rank < lists.size(); ++rank) {
    if (lists[rank].entries == lists[0].entries) continue;
    throw UsageError(
        fmt::format("DataParallelOptions::ignore has {} on rank {} but {} on rank {}; give all "
                    "ranks the same list",
                    quoted(lists[rank].entries), group.world_rank(static_cast<int>(rank)),
                    quoted(lists[0].entries), group.world_rank(0)));
  }
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (lists[rank].problem.empty()) continue;
    throw UsageError(
        fmt::format("{} (rank {})", lists[rank].problem, group.world_rank(static_cast<int>(rank))));
  }
}

bool IgnoredTensors::contains(const std::string& name) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const std::string& entry) { return matches(entry, name); });
}

std::vector<NamedTensor> IgnoredTensors::removed_from(std::vector<NamedTensor> tensors) const {
  std::erase_if(tensors, [&](const NamedTensor& tensor) { return contains(tensor.name); });
  return tensors;
}

std::string IgnoredTensors::problem_with(const torch::nn::Module& module) const {
  if (entries_.empty()) return {};
  const auto all = all_names_of(module);
  for (const auto& entry : entries_) {
    if (std::any_of(all.begin(), all.end(),
                    [&](const NamedTensor& tensor) { return matches(entry, tensor.name); })) {
      continue;
    }
    return fmt::format(
        "DataParallelOptions::ignore has '{}', but the model has no such parameter or buffer{}; "
        "give a full name, or the beginning of names and a '*'",
        entry, all.empty() ? "" : fmt::format(", only such as '{}'", all.front().name));
  }
  std::unordered_map<const c10::TensorImpl*, std::string> first_names;
  for (const auto& [name, tensor] : all) {
    const auto& first = first_names.emplace(tensor.unsafeGetTensorImpl(), name).first->second;
    if (contains(name) == contains(first)) continue;
    return fmt::format(
        "DataParallelOptions::ignore has '{}' but not '{}', although they are the same tensor; "
        "list both or neither",
        contains(name) ? name : first, contains(name) ? first : name);
  }
  return {};
}

}  // namespace ddp
