// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/mpi/mpi_transport.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/node/machine_key.h"

namespace ddp::comm {
namespace {

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw RuntimeError(fmt::format("{} failed: {}", what, text));
}

bool is_truncated(int code) {
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  return kind == MPI_ERR_TRUNCATE;
}

// Note [Bounded run-ahead]
// Open MPI accepts all messages that arrive over TCP, and stores unexpected ones in memory that it
// never frees: up to 32 MiB while a model was being distributed. So every eighth piece of bulk data
// is sent synchronously. A synchronous send completes when the receiver has posted its receive and,
// because messages match in order, also the receives of the previous seven pieces. The window of
// segments then bounds the data in flight. Below the eager limit, the data still leaves
// immediately, and only a short acknowledgment returns. Small messages are not sent synchronously,
// because their latency matters.
constexpr int kYieldingCalls = 128;  // see MpiTransport::idle()

class MpiTransport final : public Transport {
 public:
  // Takes the communicator over. `world_ranks`: the rank in the job of each rank; empty: the same.
  MpiTransport(const FailureState& failures, MPI_Comm communicator, std::vector<int> world_ranks)
      : failures_(failures), communicator_(communicator), world_ranks_(std::move(world_ranks)) {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    bulk_sent_.resize(static_cast<std::size_t>(size_));
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  ~MpiTransport() override {
    // MPI_Comm_free is collective, so it would never return if a rank is gone.
    if (!failures_.failed()) MPI_Comm_free(&communicator_);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::string_view name() const noexcept override { return "mpi"; }
  int world_rank(int rank) const noexcept override {
    return world_ranks_.empty() ? rank : world_ranks_[static_cast<std::size_t>(rank)];
  }
  std::string node_key() const override { return machine_key(); }
  bool one_process() const noexcept override { return false; }

  Ticket post_send(std::span<const std::byte> data, int peer, int tag) override {
    const Ticket ticket = free_slot({peer, kSending});
    const auto start = waits_for(peer, data.size()) ? MPI_Issend : MPI_Isend;
    check(start(data.data(), count(data.size()), MPI_BYTE, peer, tag, communicator_,
                &requests_[ticket]),
          "a send");
    return ticket;
  }

  Ticket post_receive(std::span<std::byte> data, int peer, int tag) override {
    const Ticket ticket = free_slot({peer, count(data.size())});
    check(MPI_Irecv(data.data(), count(data.size()), MPI_BYTE, peer, tag, communicator_,
                    &requests_[ticket]),
          "MPI_Irecv");
    return ticket;
  }

  bool poll(Ticket ticket) override {
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&requests_[ticket], &done, &status);
    if (code == MPI_SUCCESS && done == 0) return false;
    const auto [peer, expected] = expected_[ticket];
    int received = kSending;
    if (code == MPI_SUCCESS && expected != kSending) {
      MPI_Get_count(&status, MPI_BYTE, &received);
    }
    // MPI reports an error if a message is too long, but not if it is too short.
    if (is_truncated(code) || received != expected) {
      throw_wrong_length(world_rank(rank_), world_rank(peer), static_cast<std::size_t>(expected));
    }
    check(code, "a message");
    free_.push_back(ticket);
    return true;
  }

  // Progress requires polling, which takes a core from ranks that compute. After a short time
  // without progress, yields the core and then sleeps, for at most 0.1 ms to keep the latency
  // small.
  void idle(int calls) override {
    if (calls < 32) return;
    if (calls < kYieldingCalls) return std::this_thread::yield();
    std::this_thread::sleep_for(nap_after(calls));
  }
  std::chrono::microseconds nap_after(int calls) const noexcept override {
    return std::chrono::microseconds(
        calls < kYieldingCalls ? 0 : std::min(100, calls - kYieldingCalls + 10));
  }

  void abandon(Ticket ticket) noexcept override {
    // The process is about to exit. MPI keeps the request, but makes no progress on it without
    // further calls.
    requests_[ticket] = MPI_REQUEST_NULL;
    free_.push_back(ticket);
  }

  std::unique_ptr<Transport> split(std::span<const int> members) override {
    // Parts are disjoint, so the first member tells them apart.
    const int color = members.empty() ? MPI_UNDEFINED : members.front();
    const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(communicator_, color, static_cast<int>(place), &part), "MPI_Comm_split");
    if (members.empty()) return nullptr;
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(world_rank(member));
    return std::make_unique<MpiTransport>(failures_, part, std::move(world_ranks));
  }

 private:
  struct Expected {
    int peer;
    int bytes;  // number of bytes to receive, or kSending
  };

  static int count(std::size_t bytes) {
    if (bytes > 0x7fffffff) throw RuntimeError("a message segment is larger than 2 GiB");
    return static_cast<int>(bytes);
  }

  // See Note [Bounded run-ahead].
  bool waits_for(int peer, std::size_t bytes) {
    return bytes >= kBulk && ++bulk_sent_[static_cast<std::size_t>(peer)] % kBulkPerAnswer == 0;
  }

  Ticket free_slot(Expected expected) {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(requests_.size()));
      requests_.push_back(MPI_REQUEST_NULL);
      expected_.push_back(expected);
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    expected_[ticket] = expected;
    return ticket;
  }

  static constexpr int kSending = -1;
  static constexpr std::size_t kBulk = 16384;
  static constexpr unsigned kBulkPerAnswer = 8;

  const FailureState& failures_;
  MPI_Comm communicator_;
  std::vector<int> world_ranks_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;  // by ticket
  std::vector<Ticket> free_;
  std::vector<unsigned> bulk_sent_;  // by peer
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const FailureState& failures) {
  MPI_Comm communicator = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(failures, communicator, std::vector<int>());
}

}  // namespace ddp::comm
