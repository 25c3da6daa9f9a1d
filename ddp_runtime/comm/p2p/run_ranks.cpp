// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/p2p/run_ranks.h"

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"

namespace ddp::comm {

void run_ranks(int ranks, const std::function<void(Group&)>& body, const GroupOptions& options,
               const std::function<int(int)>& node_of) {
  auto transports = make_in_process_transports(ranks, node_of);
  const auto take = [&](int rank, const FailureState&) {
    return std::move(transports[static_cast<std::size_t>(rank)]);
  };
  run_ranks_over(take, ranks, body, options);
}

void run_ranks_over(const MakeTransport& make, int ranks, const std::function<void(Group&)>& body,
                    const GroupOptions& options) {
  FailureState failures;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));

  const auto run_rank = [&](int rank) {
    const auto fail = [&](const std::exception& e) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      failures.fail({rank, e.what()});
    };
    try {
      P2pGroup group(make(rank, failures), failures, options);
      try {
        body(group);
      } catch (const std::exception& e) {
        fail(e);  // before the group is destroyed, because peers may be waiting for this rank
      }
    } catch (const std::exception& e) {
      fail(e);
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  for (auto& thread : threads) thread.join();

  const auto failure = failures.failure();
  if (failure) std::rethrow_exception(errors[static_cast<std::size_t>(failure->rank)]);
}

}  // namespace ddp::comm
