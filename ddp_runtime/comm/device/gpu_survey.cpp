// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/gpu_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/host.h"
#include "base/text.h"

namespace ddp::comm {
namespace {

bool environment_says(const char* name, std::string_view value) {
  const char* const text = std::getenv(name);
  return text != nullptr && value == text;
}

constexpr std::size_t kFacts = 6;

std::string to_text(const RankFacts& facts) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", facts.is_usage_error ? 1 : 0, facts.nccl_version,
                     facts.shares_gpus ? 1 : 0, sanitize(facts.node), sanitize(facts.gpu),
                     sanitize_lines(facts.error, 600));
}

RankFacts facts_from_text(const std::string& text) {
  const auto parts = split(text, '\n', kFacts);
  if (parts.size() != kFacts) throw RuntimeError("malformed facts from a rank about its GPU");
  return {.error = std::string(parts[5]),
          .is_usage_error = parts[0] == "1",
          .nccl_version = static_cast<int>(parse_decimal(parts[1]).value_or(0)),
          .node = std::string(parts[3]),
          .gpu = std::string(parts[4]),
          .shares_gpus = parts[2] == "1"};
}

// Collective. The number of ranks on `node` whose rank is lower than this one's.
int local_rank(Group& host, const std::string& node) {
  const auto nodes = host.all_gather_text(sanitize(node));
  return static_cast<int>(std::count(nodes.begin(), nodes.begin() + host.rank(), sanitize(node)));
}

// The GPU of the rank with this number on its node.
int default_device(const cuda::Runtime& calls, int local_rank) {
  int count = 0;
  const bool known = calls.device_count(&count) == cuda::kSuccess && count > 0;
  return known ? local_rank % count : 0;  // require_device() reports the other case
}

}  // namespace

std::optional<StartProblem> find_gpu_error(std::span<const RankFacts> ranks,
                                           std::string_view cannot) {
  std::size_t failed = 0;
  std::size_t first = 0;
  for (std::size_t rank = ranks.size(); rank-- > 0;) {
    if (ranks[rank].error.empty()) continue;
    ++failed;
    first = rank;
  }
  if (failed == 0) return std::nullopt;
  const std::string who =
      failed == ranks.size() && failed > 1
          ? fmt::format("all {} ranks, the first on {}", failed, ranks[first].node)
      : failed > 1 ? fmt::format("{} of {} ranks, the first is rank {} on {}", failed, ranks.size(),
                                 first, ranks[first].node)
                   : fmt::format("rank {} on {}", first, ranks[first].node);
  return StartProblem{fmt::format("{} ({}): {}", cannot, who, ranks[first].error),
                      ranks[first].is_usage_error};
}

std::optional<std::string> find_shared_gpu(std::span<const RankFacts> ranks) {
  std::map<std::pair<std::string, std::string>, std::size_t> users;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& facts = ranks[rank];
    const auto [other, is_first] = users.emplace(std::pair(facts.node, facts.gpu), rank);
    if (is_first || facts.shares_gpus) continue;
    return fmt::format("ranks {} and {} on {} both use the GPU {}", other->second, rank, facts.node,
                       facts.gpu);
  }
  return std::nullopt;
}

std::optional<std::string> reason_against_nccl(std::span<const RankFacts> ranks) {
  for (const auto& facts : ranks) {
    if (!facts.error.empty()) return std::nullopt;
  }
  const auto shared = find_shared_gpu(ranks);
  if (!shared) return std::nullopt;
  return fmt::format("{}, which NCCL refuses", *shared);
}

ThisGpu find_this_gpu(Group& host, const NcclOptions& options,
                      const std::function<void(RankFacts&)>& load_more) {
  ThisGpu mine;
  RankFacts& facts = mine.facts;
  facts.node = options.node.empty() ? host_name() : options.node;
  const int on_node = local_rank(host, facts.node);
  facts.shares_gpus = environment_says("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  try {
    if (options.prepare) options.prepare();
    const cuda::Runtime calls = cuda::load_runtime(options.cuda_library);
    if (load_more) load_more(facts);
    mine.device = options.device.value_or(default_device(calls, on_node));
    require_device(calls, mine.device);
    std::array<char, 32> address{};
    check_device(calls, calls.set_device(mine.device), "be used by this process");
    check_device(
        calls, calls.pci_bus_id(address.data(), static_cast<int>(address.size()) - 1, mine.device),
        "report its PCI address");
    facts.gpu = address.data();
    mine.calls = calls;
  } catch (const UsageError& e) {
    facts.error = e.what();
    facts.is_usage_error = true;
  } catch (const std::exception& e) {
    facts.error = e.what();
  }
  return mine;
}

std::vector<RankFacts> exchange_facts(Group& host, const RankFacts& mine) {
  std::vector<RankFacts> all;
  for (const auto& text : host.all_gather_text(to_text(mine))) all.push_back(facts_from_text(text));
  return all;
}

void throw_if(const std::optional<StartProblem>& problem) {
  if (!problem) return;
  if (problem->is_usage_error) throw UsageError(problem->text);
  throw RuntimeError(problem->text);
}

}  // namespace ddp::comm
