#include "ddp_runtime/comm/in_process/run_ranks.h"

#include <exception>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/in_process/in_process_transport.h"
#include "ddp_runtime/comm/p2p_group.h"

namespace ddp::comm {

void run_ranks(int ranks, const std::function<void(Group&)>& body, GroupOptions options,
               const std::function<int(int)>& node_of) {
  FailureState failures;
  InProcessNetwork network(ranks, node_of);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));

  const auto run_rank = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto connect = [&network, rank] { return network.connect(rank); };
    P2pGroup group(connect(), failures, options, connect);
    try {
      body(group);
    } catch (const std::exception& e) {
      errors[r] = std::current_exception();
      failures.fail({rank, e.what()});  // before the group ends: peers may be waiting for this rank
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
