// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/name_order.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace ddp::ckpt {
namespace {

constexpr std::array<std::string_view, 6> kStepWords = {"step",      "steps",      "iter",
                                                        "iteration", "checkpoint", "ckpt"};
constexpr std::array<std::string_view, 2> kEpochWords = {"epoch", "epochs"};
constexpr std::array<std::string_view, 4> kFileEndings = {".pt", ".pth", ".bin", ".safetensors"};

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// The letters before a number, with at most one separator between: "step" in "global_step=5".
std::string word_before(std::string_view name, std::size_t number) {
  std::size_t end = number;
  if (end > 0 && std::string_view("-_=.").find(name[end - 1]) != std::string_view::npos) --end;
  std::string word;
  while (end > 0 && std::isalpha(static_cast<unsigned char>(name[end - 1])) != 0)
    word.insert(word.begin(),
                static_cast<char>(std::tolower(static_cast<unsigned char>(name[--end]))));
  return word;
}

// One that is too long is as large as the largest.
std::uint64_t value_of(std::string_view digits) {
  std::uint64_t value = 0;
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max() / 10 - 1;
  for (const char digit : digits) {
    if (value > kLast) return std::numeric_limits<std::uint64_t>::max();
    value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

template <typename Words>
bool is_one_of(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != std::end(words);
}

auto order_of(const NumberedName& name, const NamedCheckpoint& checkpoint) {
  const std::int64_t time = name.counts.empty() ? 0 : checkpoint.written_ns;
  return std::tuple(name.counts, time, name.all, checkpoint.name);
}

using Queue = std::vector<std::pair<NumberedName, NamedCheckpoint>>;  // the newest one last

void take_newest(std::map<std::string, Queue>& queues, std::vector<NamedCheckpoint>& sorted) {
  const auto newest = std::ranges::max_element(
      queues, {}, [](const auto& queue) { return queue.second.back().second.written_ns; });
  sorted.push_back(std::move(newest->second.back().second));
  newest->second.pop_back();
  if (newest->second.empty()) queues.erase(newest);
}

}  // namespace

NumberedName numbered_name(std::string_view name) {
  NumberedName result;
  std::vector<std::uint64_t> epochs;
  for (std::size_t i = 0; i < name.size();) {
    if (!is_digit(name[i])) {
      result.pattern += name[i++];
      continue;
    }
    const auto end = static_cast<std::size_t>(
        std::find_if_not(name.begin() + static_cast<std::ptrdiff_t>(i), name.end(), is_digit) -
        name.begin());
    const std::string word = word_before(name, i);
    result.all.push_back(value_of(name.substr(i, end - i)));
    if (is_one_of(kStepWords, word)) result.counts.push_back(result.all.back());
    if (is_one_of(kEpochWords, word)) epochs.push_back(result.all.back());
    result.pattern += '#';
    i = end;
  }
  result.counts.insert(result.counts.end(), epochs.begin(), epochs.end());
  return result;
}

bool is_checkpoint_name(std::string_view name, bool is_directory) {
  if (name.ends_with(".ckpt")) return true;
  const bool may_be = is_directory || std::ranges::any_of(kFileEndings, [&](std::string_view end) {
                        return name.ends_with(end);
                      });
  return may_be && !numbered_name(name).counts.empty();
}

void sort_newest_first(std::vector<NamedCheckpoint>& checkpoints) {
  std::map<std::string, Queue> queues;
  for (NamedCheckpoint& checkpoint : checkpoints) {
    NumberedName name = numbered_name(checkpoint.name);
    queues[name.pattern].emplace_back(std::move(name), std::move(checkpoint));
  }
  for (auto& [pattern, queue] : queues)
    std::ranges::sort(queue, [](const auto& a, const auto& b) {
      return order_of(a.first, a.second) < order_of(b.first, b.second);
    });
  checkpoints.clear();
  while (!queues.empty()) take_newest(queues, checkpoints);
}

}  // namespace ddp::ckpt
