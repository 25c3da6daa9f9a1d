// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/same_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace ddp {
namespace {

constexpr std::uint64_t kOddMultiplier = 0x9e3779b97f4a7c15U;

// A multiplication takes several cycles, but one can start in each: this many chains keep it busy.
constexpr std::size_t kChains = 8;

// The rotation moves high bits down, since the low bits of a product do not depend on them.
std::uint64_t absorb(std::uint64_t hash, std::uint64_t word) {
  return std::rotl((hash ^ word) * kOddMultiplier, 29);
}

std::uint64_t absorb_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  std::array<std::uint64_t, kChains> chains{};
  for (std::size_t i = 0; i < kChains; ++i) chains[i] = absorb(hash, i);
  std::array<std::uint64_t, kChains> words{};
  while (bytes.size() >= sizeof(words)) {
    std::memcpy(words.data(), bytes.data(), sizeof(words));
    for (std::size_t i = 0; i < kChains; ++i) chains[i] = absorb(chains[i], words[i]);
    bytes = bytes.subspan(sizeof(words));
  }
  words.fill(0);
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < kChains; ++i) hash = absorb(absorb(hash, chains[i]), words[i]);
  return absorb(hash, bytes.size());
}

// The memory layout of a dense tensor is the same on all ranks. Waits for a tensor on a device.
std::uint64_t absorb_tensor(std::uint64_t hash, const torch::Tensor& tensor) {
  const auto here = tensor.detach().to(torch::kCPU);
  const auto values = here.is_non_overlapping_and_dense() ? here : here.contiguous();
  return absorb_bytes(hash, {static_cast<const std::byte*>(values.data_ptr()), values.nbytes()});
}

// The most frequent checksum; in a tie, that of the lowest rank.
std::int64_t most_frequent(const std::vector<std::int64_t>& checksums) {
  const auto count = [&](std::int64_t c) {
    return std::count(checksums.begin(), checksums.end(), c);
  };
  return *std::max_element(checksums.begin(), checksums.end(),
                           [&](std::int64_t a, std::int64_t b) { return count(a) < count(b); });
}

// Collective. Returns the first parameter of each rank that differs from `leader`'s.
std::vector<std::string> first_differences(comm::Group& group,
                                           std::span<const NamedTensor> parameters, int leader) {
  std::vector<std::int64_t> mine;
  for (const auto& parameter : parameters) mine.push_back(checksum_of({&parameter, 1}));
  auto of_leader = mine;
  group.broadcast(comm::buffer_of(std::span(of_leader)), leader, "checksums of parameters").wait();
  const auto at = std::mismatch(mine.begin(), mine.end(), of_leader.begin()).first - mine.begin();
  return group.all_gather_text(
      at < std::ssize(parameters) ? parameters[static_cast<std::size_t>(at)].name : "");
}

std::vector<std::int64_t> gather_checksums(comm::Group& group, std::int64_t mine) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
  group.all_gather(comm::buffer_of(mine), comm::buffer_of(std::span(all)), "checksum of parameters")
      .wait();
  return all;
}

}  // namespace

std::int64_t checksum_of(std::span<const NamedTensor> tensors) {
  std::uint64_t hash = 0;
  for (const auto& named : tensors) hash = absorb_tensor(hash, named.tensor);
  return static_cast<std::int64_t>(hash >> 1);
}

void throw_different_parameters(comm::Group& group, std::span<const NamedTensor> parameters,
                                const std::string& when) {
  const auto checksums = gather_checksums(group, checksum_of(parameters));
  const auto agreed = most_frequent(checksums);
  const auto leader =
      static_cast<int>(std::find(checksums.begin(), checksums.end(), agreed) - checksums.begin());
  const auto names = first_differences(group, parameters, leader);
  std::vector<std::string> differing;
  for (std::size_t rank = 0; rank < checksums.size(); ++rank) {
    if (checksums[rank] == agreed) continue;
    differing.push_back(fmt::format("rank {} (first in '{}')",
                                    group.world_rank(static_cast<int>(rank)), names[rank]));
  }
  const auto agreeing = checksums.size() - differing.size() - 1;  // in addition to the leader
  constexpr std::size_t kMaxNamed = 8;
  if (differing.size() > kMaxNamed) {
    const auto more = differing.size() - kMaxNamed;
    differing.resize(kMaxNamed);
    differing.push_back(fmt::format("{} more", more));
  }
  throw RuntimeError(fmt::format(
      "the parameters are no longer the same on all ranks {}: {} differ{} from rank {}{}; a rank "
      "may have skipped step.apply(), used a different learning rate, written to parameters or run "
      "on a different type of CPU; make every rank do the same, or set "
      "check_parameters_every to 0 if ranks should differ",
      when, fmt::join(differing, ", "), differing.size() == 1 ? "s" : "", group.world_rank(leader),
      agreeing == 0 ? "" : " and " + counted(agreeing, "other")));
}

void require_same_parameters(comm::Group& group, std::span<const NamedTensor> parameters,
                             const std::string& when) {
  if (group.size() == 1) return;
  const auto checksums = gather_checksums(group, checksum_of(parameters));
  const bool same = std::all_of(checksums.begin(), checksums.end(),
                                [&](std::int64_t c) { return c == checksums.front(); });
  if (!same) throw_different_parameters(group, parameters, when);
}

}  // namespace ddp
