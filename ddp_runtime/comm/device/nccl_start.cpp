// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/nccl_start.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/text.h"

namespace ddp::comm {
namespace {

void require_abortable() {
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking == nullptr || std::string_view(blocking) != "1") return;
  throw UsageError(
      "NCCL_COMM_BLOCKING=1 makes collectives that cannot be ended when a rank fails; unset it");
}

std::optional<StartProblem> find_different_versions(std::span<const RankFacts> ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].nccl_version == ranks[0].nccl_version) continue;
    return StartProblem{fmt::format(
        "rank 0 on {} has NCCL {}, but rank {} on {} has NCCL {}; install the same version on all "
        "nodes",
        ranks[0].node, nccl::release_of(ranks[0].nccl_version), rank, ranks[rank].node,
        nccl::release_of(ranks[rank].nccl_version))};
  }
  return std::nullopt;
}

// ---- connecting

// Throws the same text on all ranks if the first one cannot create an id.
nccl::UniqueId agree_on_id(Group& host, const nccl::Functions& nccl) {
  nccl::UniqueId id{};
  std::string mine;
  if (host.rank() == 0) {
    const int code = nccl.get_unique_id(&id);
    mine = code == nccl::kSuccess ? "+" + std::string(id.bytes.data(), id.bytes.size())
                                  : std::string("-") + nccl.error_string(code);
  }
  const std::string told = host.broadcast_text(mine, 0);
  if (told.size() != id.bytes.size() + 1 || told.front() != '+') {
    throw RuntimeError(
        fmt::format("rank {} cannot create an id for NCCL: {}; check the network "
                    "interfaces of its node and NCCL_SOCKET_IFNAME",
                    host.world_rank(0), sanitize_lines(told.empty() ? told : told.substr(1), 300)));
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
        "NCCL did not {} {} ranks{} within {:.3g} s; check that the nodes reach each other over "
        "the interface that NCCL uses ({}), and set NCCL_DEBUG=INFO to see how far it gets",
        what, host_.size(), host_.name().after, std::chrono::duration<double>(timeout_).count(),
        variable_text("NCCL_SOCKET_IFNAME")));
  }

 private:
  const Group& host_;
  const FailureState& failures_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
};

// The sum of ones over all ranks. Later collectives would hang or give wrong data on the same
// defect, without such a clear text.
void prove_connection(const StartedNccl& started, const Group& host, const StartWait& wait) {
  const auto& calls = started.communicator->libraries().device;
  void* const word = started.word.get();
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
      "the GPUs of {} ranks{} exchanged wrong data: the sum of ones is {}; run 'ddp-check "
      "net' to find the pair, and see whether NCCL_P2P_DISABLE=1 helps, because PCIe "
      "Access Control Services are a frequent cause",
      host.size(), host.name().after, value));
}

std::shared_ptr<void> make_word(const cuda::Runtime& calls) {
  void* memory = nullptr;
  check_device(calls, calls.allocate(&memory, sizeof(std::int32_t)), "allocate memory");
  return {memory, calls.free};
}

// An error is reported to all ranks of the job: those that it does not reach wait inside NCCL.
StartedNccl connect(Group& host, FailureState& failures, const NcclOptions& options,
                    const DeviceLibraries& libraries, const nccl::UniqueId& id, int device) {
  StartedNccl started;
  started.device = device;
  try {
    const StartWait wait(host, failures, options.start_timeout);
    const auto& calls = libraries.device;
    started.events = std::make_shared<EventPool>(calls, device, EventPool::Timing::yes);
    started.stream = open_urgent_stream(calls);
    started.word = make_word(calls);
    started.communicator = std::make_unique<Communicator>(
        libraries, id, Communicator::Rank{host.rank(), host.size(), options.max_ctas});
    settle(*started.communicator, [&] { wait.check("connect the GPUs of"); });
    prove_connection(started, host, wait);
  } catch (const BrokenCollective& e) {
    failures.fail({.rank = host.world_rank(host.rank()), .text = e.what(), .symptom = e.symptom()});
    throw;
  } catch (const std::exception& e) {
    failures.fail({host.world_rank(host.rank()), e.what()});
    throw;
  }
  return started;
}

}  // namespace

std::optional<StartProblem> find_start_problem(std::span<const RankFacts> ranks) {
  if (auto problem = find_gpu_error(ranks, "the NCCL backend cannot start")) return problem;
  if (auto problem = find_different_versions(ranks)) return problem;
  const auto shared = find_shared_gpu(ranks);
  if (!shared) return std::nullopt;
  return StartProblem{
      fmt::format("{}; request one GPU per task with --gpus-per-task=1, start fewer tasks, or use "
                  "--backend mpi, which sends GPU memory through the host",
                  *shared)};
}

StartedNccl start_nccl(Group& host, FailureState& failures, const NcclOptions& options) {
  DeviceLibraries libraries;
  const ThisGpu mine = find_this_gpu(host, options, [&](RankFacts& facts) {
    require_abortable();
    libraries.nccl = nccl::load(options.nccl_library);
    facts.nccl_version = libraries.nccl.version;
  });
  libraries.device = mine.calls;
  throw_if(find_start_problem(exchange_facts(host, mine.facts)));
  const nccl::UniqueId id = agree_on_id(host, libraries.nccl);
  return connect(host, failures, options, libraries, id, mine.device);
}

StartedNccl start_nccl_of_part(Group& host, FailureState& failures, const NcclOptions& options,
                               const DeviceLibraries& libraries, int device) {
  const cuda::DeviceScope scope(libraries.device, device);
  nccl::UniqueId id{};
  try {
    id = agree_on_id(host, libraries.nccl);
  } catch (const std::exception& e) {
    failures.fail({host.world_rank(host.rank()), e.what()});  // for the ranks of other parts
    throw;
  }
  return connect(host, failures, options, libraries, id, device);
}

}  // namespace ddp::comm
