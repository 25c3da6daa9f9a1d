// All ranks of the job: how a program joins them, and how it ends when one of them fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ddp_runtime/comm/failure/error_channel.h"
#include "ddp_runtime/comm/failure/failure_state.h"
#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/comm/p2p_group.h"

namespace ddp::comm {

class MpiEnvironment;

enum class Backend : std::uint8_t { automatic, mpi, nccl };

// Throws UsageError naming the backends there are.
Backend parse_backend(const std::string& name);

struct WorldOptions {
  Backend backend = Backend::automatic;
  GroupOptions group;
  // Where rank 0 records what all ranks were doing when one failed (JSON); empty: nowhere.
  std::string failure_dump;
  // How ranks are found that are stopped or whose machine is gone.
  LivenessLimits liveness;
  // For MPI to connect all processes of the job; then this one ends with exit code 1.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
};

class World {
 public:
  // Collective over the job. Alone, without mpirun or srun, it is a world of one. Throws
  // UsageError if what started the processes and MPI disagree on how many there are, and
  // PeerFailure if a rank cannot connect to rank 0 or is lost meanwhile.
  explicit World(const WorldOptions& options = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  int rank() const noexcept { return group_->rank(); }
  int size() const noexcept { return group_->size(); }
  // The only rank that prints what concerns all of them.
  bool is_leader() const noexcept { return rank() == 0; }
  Group& group() noexcept { return *group_; }

  // This rank failed, or was told of a failure: tells the others if it is news. Returns what all
  // are told: this failure, or the one that came before or caused it.
  Failure fail(const Failure& failure);
  // The rank that speaks of a failure which the one that failed cannot tell.
  int speaker_for(int lost) const noexcept { return lost == 0 ? errors_->deputy() : 0; }
  // Rank 0 after a failure: ends processes that are still there (stopped, or deaf) after a while.
  void kill_remaining(int exit_code);

 private:
  FailureState failures_;
  std::unique_ptr<MpiEnvironment> mpi_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<ErrorChannel> errors_;
};

// Runs `body` in the world and turns the outcome into an exit code: 0, 1 after a failure, 2 after a
// UsageError. An error of one rank ends all of them within seconds; its text is printed once, on
// stderr, as "<program>: rank 3 on node2: <text>".
int run(const std::string& program, const WorldOptions& options,
        const std::function<void(World&)>& body) noexcept;

// This process's rank as its launcher tells, for what happens before the world is joined; 0 if
// nobody tells.
int rank_from_environment() noexcept;

}  // namespace ddp::comm
