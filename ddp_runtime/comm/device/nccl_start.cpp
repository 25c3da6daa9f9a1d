// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/nccl_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/text.h"

namespace ddp::comm {
namespace {

bool environment_says(const char* name, std::string_view value) {
  const char* const text = std::getenv(name);
  return text != nullptr && value == text;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// ---- what the ranks tell each other

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
int default_device(const DeviceCalls& calls, int local_rank) {
  int count = 0;
  const bool known = calls.device_count(&count) == cuda::kSuccess && count > 0;
  return known ? local_rank % count : 0;  // require_device() reports the other case
}

struct ThisRank {
  RankFacts facts;
  DeviceLibraries libraries;
  int device = 0;
};

ThisRank facts_of_this_rank(Group& host, const NcclOptions& options) {
  ThisRank rank;
  RankFacts& facts = rank.facts;
  facts.node = options.node.empty() ? host_name() : options.node;
  const int on_node = local_rank(host, facts.node);
  facts.shares_gpus = environment_says("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  try {
    if (environment_says("NCCL_COMM_BLOCKING", "1")) {
      throw UsageError(
          "NCCL_COMM_BLOCKING=1 makes collectives that cannot be ended when a rank fails; unset "
          "it");
    }
    if (options.prepare) options.prepare();
    const DeviceCalls calls = rank.libraries.device = load_device_calls(options.cuda_library);
    rank.libraries.nccl = load_nccl_calls(options.nccl_library);
    facts.nccl_version = rank.libraries.nccl.version;
    rank.device = options.device.value_or(default_device(calls, on_node));
    require_device(calls, rank.device);
    std::array<char, 32> address{};
    check_device(calls, calls.set_device(rank.device), "be used by this process");
    check_device(
        calls, calls.pci_bus_id(address.data(), static_cast<int>(address.size()) - 1, rank.device),
        "report its PCI address");
    facts.gpu = address.data();
  } catch (const UsageError& e) {
    facts.error = e.what();
    facts.is_usage_error = true;
  } catch (const std::exception& e) {
    facts.error = e.what();
  }
  return rank;
}

// ---- what the ranks may have in common

std::optional<StartProblem> find_error(std::span<const RankFacts> ranks) {
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
  return StartProblem{
      fmt::format("the NCCL backend cannot start ({}): {}", who, ranks[first].error),
      ranks[first].is_usage_error};
}

std::optional<StartProblem> find_different_versions(std::span<const RankFacts> ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_version == ranks[0].nccl_version) continue;
    return StartProblem{fmt::format(
        "rank 0 on {} has NCCL {}, but rank {} on {} has NCCL {}; install the same version on all "
        "nodes",
        ranks[0].node, nccl_release(ranks[0].nccl_version), rank, ranks[rank].node,
        nccl_release(ranks[rank].nccl_version))};
  }
  return std::nullopt;
}

std::optional<StartProblem> find_shared_gpu(std::span<const RankFacts> ranks) {
  std::map<std::pair<std::string, std::string>, std::size_t> users;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& facts = ranks[rank];
    const auto [other, is_first] = users.emplace(std::pair(facts.node, facts.gpu), rank);
    if (is_first || facts.shares_gpus) continue;
    return StartProblem{
        fmt::format("ranks {} and {} on {} both use the GPU {}; request one GPU per task with "
                    "--gpus-per-task=1, start fewer tasks, or use --device cpu",
                    other->second, rank, facts.node, facts.gpu)};
  }
  return std::nullopt;
}

// ---- connecting

// Throws the same text on all ranks if rank 0 cannot create an id.
NcclId agree_on_id(Group& host, const NcclCalls& nccl) {
  NcclId id{};
  std::string mine;
  if (host.rank() == 0) {
    const int code = nccl.get_unique_id(&id);
    mine = code == nccl::kSuccess ? "+" + std::string(id.bytes.data(), id.bytes.size())
                                  : std::string("-") + nccl.error_string(code);
  }
  const std::string told = host.broadcast_text(mine, 0);
  if (told.size() != id.bytes.size() + 1 || told.front() != '+') {
    throw RuntimeError(
        fmt::format("rank 0 cannot create an id for NCCL: {}; check the network "
                    "interfaces of its node and NCCL_SOCKET_IFNAME",
                    sanitize_lines(told.empty() ? told : told.substr(1), 300)));
  }
  std::memcpy(id.bytes.data(), told.data() + 1, id.bytes.size());
  return id;
}

std::string variable_text(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? fmt::format("{} is not set", name)
                          : fmt::format("{} is {}", name, quote_for_display(value));
}

// Waits that end when a rank fails or at the deadline.
class StartWait {
 public:
  StartWait(const Group& host, const FailureState& failures, std::chrono::milliseconds timeout)
      : host_(host), failures_(failures), timeout_(timeout), deadline_(Clock::now() + timeout) {}

  void check(const char* what) const {
    failures_.throw_if_failed();
    if (Clock::now() < deadline_) return;
    throw RuntimeError(fmt::format(
        "NCCL did not {} {} ranks within {:.3g} s; check that the nodes reach each other over the "
        "interface that NCCL uses ({}), and set NCCL_DEBUG=INFO to see how far it gets",
        what, host_.size(), std::chrono::duration<double>(timeout_).count(),
        variable_text("NCCL_SOCKET_IFNAME")));
  }

 private:
  const Group& host_;
  const FailureState& failures_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
};

// The sum of ones over all ranks. Later collectives would hang or give wrong data on the same
// defect, without such a clear text. `word` is memory for one number on the GPU.
void prove_connection(const DeviceLibraries& libraries, const StartedNccl& started, void* word,
                      const Group& host, const StartWait& wait) {
  const auto& calls = libraries.device;
  DeviceStream stream = started.stream.get();
  const auto finish_stream = [&] {
    int code = calls.stream_query(stream);
    for (; code == cuda::kNotReady; code = calls.stream_query(stream)) {
      calls.take_last_error();
      wait.check("exchange data between the GPUs of");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    check_device(calls, code, "exchange data with other GPUs");
  };
  std::int32_t value = 1;
  const auto copy = [&](void* to, const void* from) {
    check_device(calls, calls.copy(to, from, sizeof value, cuda::kCopyDefault, stream), "copy");
    finish_stream();
  };
  copy(word, &value);
  started.communicator->all_reduce({static_cast<std::byte*>(word), 1, ElementType::i32},
                                   ReduceOp::sum, stream);
  settle(*started.communicator, [&] { wait.check("connect the GPUs of"); });
  // The copy to this thread's memory may block until it is done, so the reduction is waited for
  // first.
  finish_stream();
  copy(&value, word);
  if (value == host.size()) return;
  throw RuntimeError(fmt::format(
      "the GPUs of {} ranks exchanged wrong data: the sum of ones is {}; run 'ddp-check "
      "net' to find the pair, and see whether NCCL_P2P_DISABLE=1 helps, because PCIe "
      "Access Control Services are a frequent cause",
      host.size(), value));
}

}  // namespace

std::optional<StartProblem> find_start_problem(std::span<const RankFacts> ranks) {
  if (auto problem = find_error(ranks)) return problem;
  if (auto problem = find_different_versions(ranks)) return problem;
  return find_shared_gpu(ranks);
}

StartedNccl start_nccl(Group& host, FailureState& failures, const NcclOptions& options) {
  const ThisRank mine = facts_of_this_rank(host, options);
  const DeviceLibraries& libraries = mine.libraries;
  std::vector<RankFacts> all;
  for (const auto& text : host.all_gather_text(to_text(mine.facts))) {
    all.push_back(facts_from_text(text));
  }
  if (const auto problem = find_start_problem(all)) {
    if (problem->is_usage_error) throw UsageError(problem->text);
    throw RuntimeError(problem->text);
  }
  const NcclId id = agree_on_id(host, libraries.nccl);
  const auto& calls = libraries.device;
  // Declared first, because after an error the communicator ends before the memory that its kernel
  // may use.
  std::unique_ptr<void, int (*)(void*)> word(nullptr, calls.free);
  StartedNccl started;
  started.device = mine.device;
  try {
    const StartWait wait(host, failures, options.start_timeout);
    started.events = std::make_shared<EventPool>(calls, mine.device);
    int lowest = 0;
    int highest = 0;
    check_device(calls, calls.priority_range(&lowest, &highest), "report its priorities");
    DeviceStream stream = nullptr;
    check_device(calls, calls.stream_create(&stream, cuda::kNonBlockingStream, highest),
                 "create a stream");
    started.stream = {stream, calls.stream_destroy};
    started.communicator = std::make_unique<Communicator>(
        libraries, id, Communicator::Rank{host.rank(), host.size(), options.max_ctas});
    settle(*started.communicator, [&] { wait.check("connect the GPUs of"); });
    void* memory = nullptr;
    check_device(calls, calls.allocate(&memory, sizeof(std::int32_t)), "allocate memory");
    word.reset(memory);
    prove_connection(libraries, started, memory, host, wait);
  } catch (const std::exception& e) {
    // The others wait inside NCCL for this rank.
    failures.fail({host.rank(), e.what()});
    throw;
  }
  return started;
}

}  // namespace ddp::comm
