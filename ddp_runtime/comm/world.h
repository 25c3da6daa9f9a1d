// SPDX-License-Identifier: Apache-2.0
// The world of all ranks of a job. A program joins it, and exits when one of its ranks fails.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "ddp_runtime/comm/device/nccl_options.h"
#include "ddp_runtime/comm/device/staging_options.h"
#include "ddp_runtime/comm/failure/liveness_limits.h"
#include "ddp_runtime/comm/failure/state/failure.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/group/launcher_rank.h"  // also for users: rank_from_environment()
#include "ddp_runtime/comm/p2p/group_options.h"

namespace ddp::comm {

class ErrorChannel;
class FailureState;
class MpiEnvironment;
class NcclGroup;
class StagedGroup;
class Transport;

// mpi, tcp: all collectives are messages over MPI or TCP, and GPU memory is copied through the
// host. nccl: collectives of GPU memory run on the GPUs. automatic: nccl on GPUs, unless ranks
// share one or sums must be in rank order. Messages of automatic and nccl use MPI where a process
// manager connects all ranks, and else TCP.
enum class Backend : std::uint8_t { automatic, mpi, tcp, nccl };

// Throws UsageError with the list of available backends.
Backend parse_backend(const std::string& name);

struct WorldOptions {
  Backend backend = Backend::automatic;
  // The ranks train on GPUs, so collectives of GPU memory are needed. Backend::nccl implies it. If
  // the backend is chosen automatically and is not the usual one, group.announce is called with the
  // reason.
  bool gpus = false;
  GroupOptions group;
  // For nccl; `limits` are those of `group`. `device`, `prepare`, `cuda_library` and `node` also
  // count for GPUs with the backend mpi.
  NcclOptions nccl;
  StagingOptions staging;  // for GPUs with the backend mpi
  // File in which rank 0 records what all ranks were doing when one failed (JSON); empty: no file.
  std::string failure_dump;
  // Limits for detecting ranks that are stopped or whose machine is gone.
  LivenessLimits liveness;
  // Time limit for connecting all processes of the job. After that, this process exits with code 1.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
};

class World {
 public:
  // Collective over the job. A process started without mpirun or srun is a world of one rank.
  // Throws UsageError if the launcher and MPI disagree on the number of processes, and PeerFailure
  // if a rank cannot connect to rank 0 or is lost meanwhile. See start_nccl() and StagedGroup for
  // errors of GPUs.
  //
  // `on_failure` is called before the constructor throws, if the ranks can already tell each other
  // of failures, with the failure that all ranks report.
  using OnFailure = std::function<void(World& world, const Failure& failure)>;
  //
  // `report_loss`: see ChannelOptions.
  using ReportLoss = std::function<void(const Failure& failure)>;
  explicit World(const WorldOptions& options = {}, const OnFailure& on_failure = {},
                 ReportLoss report_loss = {});
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  int rank() const noexcept { return group_->rank(); }
  int size() const noexcept { return group_->size(); }
  // Whether this is the rank that prints on behalf of all of them.
  bool is_leader() const noexcept { return rank() == 0; }
  Group& group() noexcept;
  // The number of this rank's GPU among those that this process sees; nullopt if it does not train
  // on a GPU.
  std::optional<int> device() const noexcept;

  // Called at the end of a program without a failure: returns when all ranks have done so. Throws
  // as collectives do. No collective may follow.
  void finish();
  // Reports a failure to the other ranks, unless they already know it: a failure of this rank, or
  // one that this rank was notified of. Returns the failure that all ranks report: this one, or an
  // earlier one that may have caused it.
  Failure fail(const Failure& failure);
  // The rank that reports the failure of the lost rank `lost`.
  int speaker_for(int lost) const noexcept;
  // On rank 0 after a failure: waits a while, then terminates processes that are still running
  // because they are stopped or unresponsive.
  void kill_remaining(int exit_code);

 private:
  std::unique_ptr<Transport> connect(const WorldOptions& options);
  void open_gpus(const WorldOptions& options);
  std::optional<Failure> verdict();

  std::chrono::milliseconds silence_;
  bool finished_ = false;
  std::unique_ptr<FailureState> failures_;
  std::unique_ptr<MpiEnvironment> mpi_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<ErrorChannel> errors_;
  std::unique_ptr<NcclGroup> nccl_;
  std::unique_ptr<StagedGroup> staged_;
};

// Runs `body` in the world and turns the outcome into an exit code: 0, 1 after a failure, 2 after a
// UsageError. An error on one rank ends all ranks within seconds. Its text is printed once, on
// stderr, as "<program>: rank 3 on node2: <text>".
int run(const std::string& program, const WorldOptions& options,
        const std::function<void(World&)>& body) noexcept;

// For a body that returns an exit code, such as RunResult::exit_code(): returns that code, unless a
// failure has one of its own.
template <class Body>
requires std::same_as < std::invoke_result_t<Body&, World&>,
int > int run(const std::string& program, const WorldOptions& options, Body body) noexcept {
  int code = 0;
  const std::function<void(World&)> keep_code = [&](World& world) { code = body(world); };
  const int failure = run(program, options, keep_code);
  return failure != 0 ? failure : code;
}

// For an error that all ranks have, and rank 0 reports: every other rank calls this before it
// exits. mpirun ends all ranks when one of them exits with an error, and then sometimes loses what
// rank 0 has printed (Open MPI 4.1.4: in 5 of 60 runs). Returns at once on rank 0.
void let_rank_0_report() noexcept;

}  // namespace ddp::comm
