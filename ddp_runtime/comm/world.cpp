// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/world.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <typeinfo>

#include "base/descriptor_limit.h"
#include "base/errors.h"
#include "base/host.h"
#include "base/text.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/comm/device/gpu_survey.h"
#include "ddp_runtime/comm/device/nccl_group.h"
#include "ddp_runtime/comm/device/staged_group.h"
#include "ddp_runtime/comm/failure/error_channel.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/group/launcher_rank.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/loss_line.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/secret/step_secret.h"
#include "ddp_runtime/comm/start_check.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"
#include "ddp_runtime/comm/transport/mpi/mpi_environment.h"
#include "ddp_runtime/comm/transport/mpi/mpi_transport.h"
#include "ddp_runtime/comm/transport/mpi/process_manager.h"
#include "ddp_runtime/comm/transport/mpi/start_deadline.h"
#include "ddp_runtime/comm/transport/tcp/end_step.h"
#include "ddp_runtime/comm/transport/tcp/tcp_plan.h"
#include "ddp_runtime/comm/transport/tcp/tcp_transport.h"

namespace ddp::comm {
namespace {

// The number of ranks according to the launcher.
struct Announced {
  const char* by = nullptr;
  int ranks = 1;
};

Announced announced_ranks() {
  // Checks the variable of mpirun first, because mpirun inside a SLURM step starts its daemons with
  // srun.
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE", "WORLD_SIZE"}) {
    if (const auto ranks = integer_from_environment(name)) return {name, *ranks};
    if (const char* const text = std::getenv(name)) {
      throw UsageError(
          fmt::format("{}={} is not a number; start the step with srun --ddp, or unset "
                      "{} if the variable is a leftover",
                      name, quote_for_display(text), name));
    }
  }
  return {};
}

// Refuses to run in a step without PMIx, where every task has its own MPI world: N trainings would
// overwrite each other's files.
void require_agreement(const Announced& announced, int joined) {
  if (announced.by == nullptr || announced.ranks == joined) return;
  throw UsageError(fmt::format(
      "{}={}, but MPI connected {}; start the step with 'srun --mpi=pmix' (and use the MPI "
      "library that this program was built with), or unset {} if the variable is a leftover",
      announced.by, announced.ranks, counted(joined, "rank"), announced.by));
}

// Returns the key that the plugin or mpirun drew and that only processes of this user know; nullopt
// if there is none. Does not use MUNGE, which would make the training depend on another daemon.
std::optional<Key> key_of_step() {
  const auto variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto no_munge = [](const std::string&) { return std::optional<Munge>(); };
  const auto job = variable("SLURM_JOB_ID");
  const auto number = variable("SLURM_STEP_ID");
  // The ranks of mpirun are in different steps or not in a step.
  for (const std::string& step : {job.value_or("") + "." + number.value_or(""), std::string()}) {
    const auto secret = find_secret({.step = step}, variable, no_munge);
    if (secret && (secret.source() == KeySource::plugin || step.empty())) return secret.key();
  }
  return std::nullopt;
}

void print_failure(const std::string& program, int rank, int size, const char* text) {
  const std::string host = host_name();
  const std::string who = size > 1 ? fmt::format("rank {} on {}: ", rank, host) : "";
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}{}\n", program, who, text);
  std::fflush(stderr);
}

// How rank 0 ends the other ranks, too.
enum class EndOfJob : std::uint8_t { none, mpi, slurm };

// Terminates a process that is blocked in an MPI call, where it would wait forever for a lost rank.
[[noreturn]] void end_stuck_process(std::chrono::milliseconds limit, EndOfJob way) {
  const std::string host = host_name();
  fmt::print(
      stderr,
      "slurm-ddp: process {} on {} is still running {:.0f} s after a failure; terminating it\n",
      getpid(), host, std::chrono::duration<double>(limit).count());
  std::fflush(stderr);
  if (way == EndOfJob::mpi) MpiEnvironment::end_job(1);
  if (way == EndOfJob::slurm) kill_this_step();
  std::_Exit(1);
}

// The type of the current exception, for programs that `throw 42`.
std::string name_of_current_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "a value of unknown type";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return fmt::format("a value of type {}", name ? name.get() : type->name());
}

std::string text_of_current_exception() {
  return fmt::format("the program threw {}, which is not a std::exception and has no text",
                     name_of_current_exception());
}

}  // namespace

Backend parse_backend(const std::string& name) {
  if (name == "auto") return Backend::automatic;
  if (name == "mpi") return Backend::mpi;
  if (name == "tcp") return Backend::tcp;
  if (name == "nccl") return Backend::nccl;
  throw UsageError(fmt::format("unknown backend '{}'; use auto, mpi, tcp or nccl", name));
}

World::World(const WorldOptions& options, const OnFailure& on_failure, ReportLoss report_loss)
    : silence_(options.liveness.silence), failures_(std::make_unique<FailureState>()) {
  make_start_checks();
  raise_descriptor_limit();
  if (options.backend == Backend::nccl && options.group.in_rank_order) {
    throw UsageError("the NCCL backend does not add in rank order; use --backend mpi or tcp");
  }
  try {
    group_ = std::make_unique<P2pGroup>(connect(options), *failures_, options.group);
    const auto way = group_->rank() > 0 || group_->size() == 1 ? EndOfJob::none
                     : mpi_                                    ? EndOfJob::mpi
                                                               : EndOfJob::slurm;
    errors_ = std::make_unique<ErrorChannel>(
        *group_, *failures_,
        ChannelOptions{options.failure_dump, options.liveness, key_of_step(),
                       [way, limit = options.liveness.exit] { end_stuck_process(limit, way); },
                       std::move(report_loss)});
    if (options.gpus || options.backend == Backend::nccl) open_gpus(options);
  } catch (...) {
    if (errors_ && failures_->failed() && on_failure) {
      // NCCL's error may be an echo of another rank's failure.
      on_failure(*this, verdict().value_or(*failures_->failure()));
    }
    if (failures_->failed() && mpi_) mpi_->abandon();
    throw;
  }
}

// Prefers MPI, for its networks.
std::unique_ptr<Transport> World::connect(const WorldOptions& options) {
  const Announced announced = announced_ranks();
  std::string why_no_plan;
  const auto key = key_of_step();
  const auto plan = tcp_plan(getenv, key, &why_no_plan);
  const bool has_plan = plan && plan->ranks > 1;
  const auto over_tcp = [&](const std::string& reason) {
    failures_->on_slow_wait(options.group.announce);
    auto transport = make_tcp_transport(*plan, *failures_, options.start_timeout);
    failures_->on_slow_wait({});
    if (plan->rank == 0 && options.group.announce && (!reason.empty() || !key)) {
      options.group.announce(fmt::format(
          "{}{}ranks are connected over TCP{}", reason, reason.empty() ? "" : ", so ",
          key ? "" : ", without a key that keeps other programs out; srun --ddp gives one"));
    }
    return transport;
  };
  if (options.backend == Backend::tcp) {
    if (has_plan) return over_tcp("");
    const bool is_alone = std::getenv("RANK") == nullptr && std::getenv("MASTER_ADDR") == nullptr;
    if (announced.ranks > 1 || (!plan && !is_alone)) throw UsageError(why_no_plan);
  }
  const auto against_mpi = missing_process_manager(getenv, pmi_support_of_mpi());
  const bool may_use_tcp = has_plan && options.backend != Backend::mpi;
  if (may_use_tcp && (against_mpi || !MpiEnvironment::launched_by_mpi())) {
    return over_tcp("there is no process manager for MPI");
  }
  if (against_mpi) throw UsageError(*against_mpi);
  const bool by_hand = announced.by != nullptr && std::string_view(announced.by) == "WORLD_SIZE";
  if (by_hand && !plan && !MpiEnvironment::launched_by_mpi()) {
    throw UsageError(why_no_plan + ", or unset WORLD_SIZE if it is a leftover");
  }
  if (!MpiEnvironment::launched_by_mpi() && announced.ranks == 1) {
    return std::move(make_in_process_transports(1).front());
  }
  std::optional<StartDeadline> deadline(options.start_timeout);
  mpi_ = std::make_unique<MpiEnvironment>();
  if (mpi_->size() > 1) {
    require_agreement(announced, mpi_->size());
    return make_mpi_transport(*failures_);
  }
  deadline.reset();  // TCP has a limit of its own
  if (may_use_tcp) {
    mpi_.reset();
    return over_tcp(fmt::format("MPI connects 1 of {} ranks", plan->ranks));
  }
  require_agreement(announced, mpi_->size());
  return std::move(make_in_process_transports(1).front());
}

void World::open_gpus(const WorldOptions& options) {
  NcclOptions gpu = options.nccl;
  gpu.limits = options.group.limits;
  std::optional<std::string> against_nccl;
  if (options.backend == Backend::automatic) {
    against_nccl =
        options.group.in_rank_order
            ? "NCCL does not add in rank order"
            : reason_against_nccl(exchange_facts(*group_, find_this_gpu(*group_, gpu).facts));
    if (against_nccl && group_->rank() == 0 && options.group.announce) {
      options.group.announce(fmt::format("{}, so GPU memory is sent by {} through the host",
                                         *against_nccl,
                                         group_->backend() == "tcp" ? "TCP" : "MPI"));
    }
  }
  if (options.backend == Backend::mpi || options.backend == Backend::tcp || against_nccl) {
    staged_ = std::make_unique<StagedGroup>(*group_, *failures_, gpu, options.staging);
  } else {
    nccl_ = std::make_unique<NcclGroup>(*group_, *failures_, gpu);
  }
}

void World::finish() {
  finished_ = true;
  staged_.reset();  // finishes collectives, in which other ranks may need this one
  if (nccl_) nccl_->wait_until_idle();
  failures_->throw_if_failed();
  group_->barrier("end of the job").wait();  // no rank exits while another still needs it
}

World::~World() {
  if (!finished_ && !failures_->failed()) {
    try {
      finish();
    } catch (const std::exception&) {
      // The rank that failed reports the error, and the destructors below check failures_.
    }
  }
  staged_.reset();
  nccl_.reset();
  errors_.reset();
  group_.reset();
  if (failures_->failed() && mpi_) mpi_->abandon();
}

Group& World::group() noexcept {
  if (nccl_) return *nccl_;
  if (staged_) return *staged_;
  return *group_;
}

std::optional<int> World::device() const noexcept {
  if (nccl_) return nccl_->device();
  if (staged_) return staged_->device();
  return std::nullopt;
}

Failure World::fail(const Failure& failure) {
  failures_->fail(failure);
  return verdict().value_or(*failures_->failure());  // the first that this rank has observed
}

// Rank 0 may first have to ask all ranks for their status. What this rank has observed may also be
// the loss of rank 0's machine, of which only its silence tells.
std::optional<Failure> World::verdict() {
  const auto own = failures_->failure();
  const bool is_symptom = own && own->symptom != Symptom::none;
  constexpr std::chrono::seconds kAnswer{5};
  return errors_->verdict(is_symptom ? kAnswer + silence_ : kAnswer);
}

int World::speaker_for(int lost) const noexcept {
  return lost == 0 ? errors_->deputy() : 0;
}

void World::kill_remaining(int exit_code) {
  if (errors_->wait_for_peer_exit(std::chrono::seconds(10))) return;
  if (mpi_) MpiEnvironment::end_job(exit_code);
  kill_this_step();
}

namespace {

// Prints each failure once, on the rank that failed. If that rank cannot or does not report it,
// another rank prints it.
void print_once(LossLine& line, World& world, const Failure& failure, std::string_view addition) {
  const int speaker = world.speaker_for(failure.rank);
  if (!failure.lost && world.rank() == failure.rank) {
    print_failure(line.program(), world.rank(), world.size(), failure.text.c_str());
  } else if (failure.lost && world.rank() == speaker) {
    line.print(failure, addition);
  } else {
    return;
  }
  tell_failure(failure.rank, failure.text + std::string(addition), failure.is_usage_error);
}

// PyTorch's errors end in about twenty lines of stack frames, which do not help a user who made a
// mistake. Keeps them if PyTorch's own variable requests them.
std::string without_stack_frames(std::string text) {
  const char* const wanted = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  if (wanted != nullptr && std::string_view(wanted) == "1") return text;
  const auto frames = text.find("\nException raised from ");
  return frames == std::string::npos ? text : text.substr(0, frames);
}

int end_after(LossLine& line, World& world, const Failure& observed) {
  const Failure cause = world.fail(observed);
  // What the lost rank did, as far as the program has added it.
  std::string_view addition;
  const bool is_same = cause.lost && observed.lost && cause.rank == observed.rank;
  if (is_same && observed.text.starts_with(cause.text)) {
    addition = std::string_view(observed.text).substr(cause.text.size());
  }
  print_once(line, world, cause, addition);
  const int exit_code = cause.is_usage_error ? 2 : 1;
  world.kill_remaining(exit_code);
  return exit_code;
}

int end_after_error(LossLine& line, World& world, const std::string& text, bool is_usage_error) {
  return end_after(line, world,
                   {.rank = world.rank(), .text = text, .is_usage_error = is_usage_error});
}

int run_in(World& world, LossLine& line, const std::function<void(World&)>& body) {
  try {
    body(world);
    world.finish();
    return 0;
  } catch (const PeerFailure& e) {
    // This may be a failure of this rank: a later collective fails after an earlier one has timed
    // out.
    return end_after(line, world,
                     {.rank = e.rank(),
                      .text = e.what(),
                      .lost = e.lost(),
                      .is_usage_error = e.is_usage_error()});
  } catch (const UsageError& error) {
    return end_after_error(line, world, error.what(), true);
  } catch (const std::exception& error) {
    return end_after_error(line, world, without_stack_frames(error.what()), false);
  } catch (...) {
    return end_after_error(line, world, text_of_current_exception(), false);
  }
}

int run_body(const std::string& program, const WorldOptions& options,
             const std::function<void(World&)>& body) {
  LossLine line(program);
  std::optional<int> ended;
  try {
    World world(
        options,
        [&](World& opening, const Failure& failure) { ended = end_after(line, opening, failure); },
        [&](const Failure& failure) { line.print_without_waiting(failure); });
    return run_in(world, line, body);
  } catch (const std::exception&) {
    if (ended) return *ended;
    throw;
  }
}

}  // namespace

namespace {

// All ranks of a launcher have made the same mistake. A rank that was started by hand may be the
// only one.
void report_usage_error(const std::string& program, const char* text) {
  if (rank_from_environment() == 0 || !has_launcher()) {
    print_failure(program, rank_from_environment(), has_launcher() ? 1 : 2, text);
  }
  let_rank_0_report();
}

// A rank that does not reach rank 0 cannot tell it, and rank 0 would wait for it. SLURM drops
// output that it has not yet passed on.
void end_unconnected_ranks() {
  if (rank_from_environment() == 0) return;
  std::this_thread::sleep_for(std::chrono::seconds(2));
  kill_this_step();
}

}  // namespace

int run(const std::string& program, const WorldOptions& options,
        const std::function<void(World&)>& body) noexcept {
  try {
    return run_body(program, options, body);
  } catch (const PeerFailure& failure) {
    const int rank = rank_from_environment();
    if (failure.lost() || failure.rank() == rank) print_failure(program, rank, 2, failure.what());
    return failure.is_usage_error() ? 2 : 1;
  } catch (const UsageError& error) {
    report_usage_error(program, error.what());
    return 2;
  } catch (const std::exception& error) {
    print_failure(program, rank_from_environment(), 2, error.what());
    end_unconnected_ranks();
    return 1;
  } catch (...) {
    print_failure(program, rank_from_environment(), 2, text_of_current_exception().c_str());
    return 1;
  }
}

void let_rank_0_report() noexcept {
  // Much longer than programs of one start differ on a busy machine. A rank that waits is ended
  // with rank 0.
  if (rank_from_environment() != 0) std::this_thread::sleep_for(std::chrono::seconds(5));
}

}  // namespace ddp::comm
