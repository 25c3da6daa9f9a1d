// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/run_loop.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/channel/running_clock.h"
#include "base/deadline.h"
#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/secret/random_token.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/wake_event.h"
#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/elastic/event_json.h"
#include "ddp_runtime/elastic/run/head.h"
#include "ddp_runtime/elastic/run/host_watch.h"
#include "ddp_runtime/elastic/run/journal.h"
#include "ddp_runtime/elastic/run/messages.h"
#include "ddp_runtime/elastic/run/node_checks.h"
#include "ddp_runtime/elastic/run/node_watch.h"
#include "ddp_runtime/elastic/run/run_environment.h"
#include "ddp_runtime/elastic/supervisor.h"

namespace ddp::elastic {
namespace {

constexpr std::chrono::milliseconds kTick{200};
constexpr std::chrono::seconds kWatchInterval{15};
// A launcher that waits for a lost node does not end by itself.
constexpr std::chrono::seconds kLauncherGrace{3};
constexpr std::chrono::seconds kCommandTime{20};
// For a terminal or a pipe that takes no more.
constexpr std::chrono::seconds kLastWords{1};
// Processes that were killed hold their memory for a moment.
constexpr std::chrono::seconds kMemoryPatience{2};
constexpr std::size_t kMaxSaid = 1000;
// SIGCHLD: a launcher has ended.
constexpr std::array kSignals = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD};

// Signals as events: blocked before any thread starts, so that all threads have them blocked.
FileDescriptor open_run_signals() {
  // Where messages and events are written may be full or gone; the program is not to suffer.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) {
    // nohup ignores SIGHUP.
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  FileDescriptor signals(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals) throw RuntimeError("cannot receive signals");
  return signals;
}

std::vector<std::string> check_prefix(const LaunchPlan& launch) {
  if (launch.kind != LauncherKind::srun) return {};
  return {"srun", "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none", "--nodelist"};
}

class RunLoop {
 public:
  explicit RunLoop(const RunPlan& plan)
      : plan_(plan),
        signals_(open_run_signals()),
        key_(random_key()),
        head_(key_),
        supervisor_(plan.settings, plan.launch.allocation, plan.switches),
        journal_(plan.journal, messages_),
        checks_(check_prefix(plan.launch), plan.check,
                std::chrono::seconds(static_cast<int>(plan.settings.check_time)), wake_),
        watch_(plan.launch.allocation, plan.journal.job, kWatchInterval),
        host_watch_(plan.launch, plan.own_node) {
    setenv(kHeadVariable, head_.address().c_str(), 1);
    setenv(kKeyVariable, hex_of(key_).c_str(), 1);
    setenv(comm::kRunIdVariable, run_id_.c_str(), 1);
    unsetenv(comm::kRunSaveVariable);
  }

  int run() {
    tell(Begin{});
    while (!exit_code_) {
      const auto events = head_.wait(Clock::now() + kTick, wakes_);
      clock_.look();
      for (const auto& event : events) tell(event);
      wake_.clear();
      take_signals();
      for (const auto& event : checks_.take()) tell(event);
      for (const auto& event : watch_.take()) tell(event);
      look_after_processes();
      tell(Tick{});
      journal_.tick();
      host_watch_.tick();
      messages_.flush();
    }
    remove_memory();
    journal_.report();
    if (const auto sentence = journal_.sentence(); !sentence.empty()) say(sentence);
    messages_.flush_until(Clock::now() + kLastWords);
    return *exit_code_;
  }

 private:
  // For the supervisor, to which a job that was suspended for an hour is not an hour late.
  Seconds now() const { return std::chrono::duration<Seconds>(clock_.now() - begun_).count(); }

  void tell(const Event& event) {
    if (exit_code_) return;
    if (std::holds_alternative<RankReady>(event)) has_ready_ = true;
    note_memory(event);
    note(event);
    // Before the next generation has processes.
    if (std::holds_alternative<ExecutorGone>(event)) journal_.report();
    const auto actions = supervisor_.handle(event, now());
    if (const auto blame = supervisor_.take_blame()) {
      journal_.note({{"event", "failed"},
                     {"generation", blame->generation},
                     {"why", sanitize_lines(blame->why, kMaxSaid)},
                     {"blamed", blame->nodes}});
    }
    for (const auto& action : actions) {
      journal_.note(json_of(action));
      std::visit([this](const auto& one) { carry_out(one); }, action);
    }
  }

  void note_memory(const Event& event) {
    if (const auto* lost = std::get_if<NodeLost>(&event)) memory_nodes_.erase(lost->node);
    const auto* kept = std::get_if<Kept>(&event);
    if (kept == nullptr || kept->state.tier != Tier::memory) return;
    keeps_memory_ = true;
    memory_nodes_.insert(supervisor_.members().begin(), supervisor_.members().end());
  }

  // Nodes are up again and again.
  void note(const Event& event) {
    if (std::holds_alternative<Tick>(event) || std::holds_alternative<NodeUp>(event)) return;
    auto entry = json_of(event);
    if (std::holds_alternative<Begin>(event)) {
      entry["nodes"] = plan_.settings.max_nodes;
      entry["allocated"] = plan_.launch.allocation.size();
      entry["ranks_per_node"] = plan_.settings.ranks_per_node;
    }
    journal_.note(std::move(entry));
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const auto signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      // Somebody at a terminal who asks twice does not want to wait.
      if (signal == SIGINT && std::exchange(interrupted_, true)) {
        end_processes();
        exit_code_ = 128 + SIGINT;
        journal_.note(json_of(Finish{*exit_code_}));
        return;
      }
      tell(Signaled{signal});
    }
  }

  // --- Actions

  void carry_out(const Start& start) {
    processes_.clear();
    killed_at_.reset();
    launchers_left_at_.reset();
    failed_launch_.clear();
    has_processes_ = true;
    has_ready_ = false;
    try {
      for (const auto& command : commands_for(plan_.launch, start))
        processes_.emplace_back(command);
    } catch (const RuntimeError& error) {
      failed_launch_ = error.what();
      for (auto& process : processes_) process.signal(SIGKILL);
    }
  }

  void carry_out(const Stop& stop) {
    head_.signal(stop.generation, SIGTERM);
    // A launcher that is about to end by itself is left alone: Open MPI's crashes then.
    if (has_ready_) return;
    for (auto& process : processes_) process.signal(SIGTERM);
  }

  void carry_out(const Kill& kill) {
    head_.signal(kill.generation, SIGKILL);
    // It takes its time if a node does not answer, and is not waited for.
    const auto step = head_.step_of(kill.generation);
    if (!step.empty()) cancel(step);
    killed_at_ = Clock::now();
  }

  void cancel(const std::string& step) {
    try {
      canceler_.emplace(Command{{"scancel", "--signal=KILL", step}, {}, ""});
    } catch (const RuntimeError& error) {
      say(error.what());  // its agents have been told, too
    }
  }

  void carry_out(const Check& check) { checks_.begin(check.node); }

  void carry_out(const Exclude& exclude) {
    say(exclude.until >= kForever
            ? fmt::format("{} is not used any more: {}", exclude.node, exclude.why)
            : fmt::format("{} is not used for {:.0f} s: {}", exclude.node, exclude.until - now(),
                          exclude.why));
  }

  void carry_out(const Requeue& /*requeue*/) {
    remove_memory();  // SLURM may end this process at once
    say("requeueing the job");
    journal_.report();  // SLURM may end this process at once
    if (!output_of({"scontrol", "requeue", plan_.journal.job}, kCommandTime, 4096)) {
      say("scontrol could not requeue the job; submit it again to continue");
    }
    exit_code_ = kContinueCode;
  }

  void carry_out(const Finish& finish) {
    end_processes();
    exit_code_ = finish.code;
  }

  void carry_out(const Note& note) { say(note.text); }

  // What the program has kept in the memory of nodes. It removes its own at a good end.
  void remove_memory() {
    comm::remove_run_memory(run_id_, kMemoryPatience);
    if (!std::exchange(keeps_memory_, false)) return;
    if (exit_code_ == 0) {
      for (const auto& node : supervisor_.members()) memory_nodes_.erase(node);
    }
    const auto command = forget_command(plan_.launch, {memory_nodes_.begin(), memory_nodes_.end()});
    if (!command.empty()) output_of(command, kCommandTime, 4096);
  }

  // The text of a program could contain anything.
  void say(const std::string& text) { messages_.add(sanitize_lines(text, kMaxSaid)); }

  // --- Processes

  void look_after_processes() {
    if (!has_processes_) return;
    const int generation = supervisor_.generation();
    const bool launchers_ended =
        std::ranges::all_of(processes_, [](auto& process) { return process.has_ended(); });
    const bool overdue = killed_at_ && Clock::now() - *killed_at_ > kLauncherGrace;
    if (overdue) {
      for (auto& process : processes_) process.signal(SIGKILL);
      if (launchers_ended) head_.forget(generation);
    }
    if (head_.has_agents(generation)) {
      if (launchers_ended) look_after_orphans();
      return;
    }
    if (!launchers_ended) return;
    has_processes_ = false;
    tell(ExecutorGone{generation, ending_of_launchers()});
  }

  // Agents leave before their launcher. If it was killed instead, nothing that the program prints
  // arrives any more.
  void look_after_orphans() {
    if (!launchers_left_at_) launchers_left_at_ = Clock::now();
    if (killed_at_ || Clock::now() - *launchers_left_at_ < kLauncherGrace) return;
    const auto why = ending_of_launchers();
    say(fmt::format("the processes have lost what started them and are ended{}{}",
                    why.empty() ? "" : ": ", why));
    carry_out(Kill{supervisor_.generation()});
  }

  std::string ending_of_launchers() const {
    if (!failed_launch_.empty()) return failed_launch_;
    for (const auto& process : processes_) {
      if (auto text = process.ending(); !text.empty()) return text;
    }
    return "";
  }

  void end_processes() {
    if (!has_processes_) return;
    const int generation = supervisor_.generation();
    carry_out(Kill{generation});
    const auto deadline = Clock::now() + kLauncherGrace;
    while (Clock::now() < deadline && head_.has_agents(generation)) head_.wait(deadline, {});
    // A launcher has files to remove.
    const auto has_ended = [](auto& process) { return process.has_ended(); };
    while (Clock::now() < deadline && !std::ranges::all_of(processes_, has_ended)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    processes_.clear();
    has_processes_ = false;
  }

  RunPlan plan_;
  FileDescriptor signals_;
  Key key_;
  const std::string run_id_ = random_token();
  const Clock::time_point begun_ = Clock::now();
  RunningClock clock_{std::chrono::seconds(1), begun_};
  WakeEvent wake_;
  const std::array<int, 2> wakes_{wake_.fd(), signals_.get()};
  Head head_;
  Supervisor supervisor_;
  Messages messages_{STDERR_FILENO};
  Journal journal_;
  NodeChecks checks_;
  NodeWatch watch_;
  HostWatch host_watch_;

  std::vector<LaunchedProcess> processes_;
  std::optional<LaunchedProcess> canceler_;  // the last scancel
  std::string failed_launch_;                // why not all launchers could be started
  bool has_processes_ = false;
  bool has_ready_ = false;  // a rank of this generation has started
  std::optional<Clock::time_point> killed_at_;
  std::optional<Clock::time_point> launchers_left_at_;  // while they had agents
  bool keeps_memory_ = false;                           // the program has told so
  std::set<std::string> memory_nodes_;                  // where it does
  bool interrupted_ = false;
  std::optional<int> exit_code_;
};

}  // namespace

int run_with_restarts(const RunPlan& plan) {
  return RunLoop(plan).run();
}

}  // namespace ddp::elastic
