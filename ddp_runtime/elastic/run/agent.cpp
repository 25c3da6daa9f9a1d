// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/channel/connection.h"
#include "base/channel/greeting.h"
#include "base/channel/running_clock.h"
#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/host.h"
#include "base/json/bounded_json.h"
#include "base/text.h"
#include "ddp_runtime/comm/ddp_run/run_events.h"
#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/elastic/event_json.h"
#include "ddp_runtime/elastic/run/messages.h"
#include "ddp_runtime/elastic/run/run_environment.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kConnectTime{5};
constexpr std::chrono::seconds kGoodbyeTime{2};
constexpr std::chrono::milliseconds kProgressInterval{200};
constexpr std::size_t kMaxLine = 8192;
constexpr int kMaxGenerations = 100;  // of processes that start others while they are ended
constexpr std::chrono::seconds kConnectFor{30};
constexpr std::chrono::seconds kStoppedAfter{4};
constexpr std::array kForwarded = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    throw UsageError(fmt::format("{} is not set: `ddp-run task` is started by ddp-run", name));
  }
  return value;
}

// The signals, as a descriptor. They stay blocked, so that none is lost.
FileDescriptor open_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  FileDescriptor signals(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals) throw RuntimeError("cannot receive signals");
  return signals;
}

Connection connect(const AgentSettings& settings) {
  // Thousands of agents may connect at the same time.
  auto connection = Connection::open(settings.hosts, settings.port, kConnectTime);
  for (const auto deadline = Clock::now() + kConnectFor; !connection && Clock::now() < deadline;) {
    std::this_thread::sleep_for(kHeartbeat);
    connection = Connection::open(settings.hosts, settings.port, kConnectTime);
  }
  if (!connection) {
    throw RuntimeError(fmt::format("cannot connect to ddp-run at {} port {}",
                                   join(settings.hosts, ", "), settings.port));
  }
  const json who{
      {"generation", settings.generation}, {"node", settings.node}, {"step", settings.step}};
  if (greet(*connection, RankGreeting(settings.key, settings.rank, who.dump()), kConnectTime) !=
      Greeted::welcome) {
    throw RuntimeError(fmt::format("what listens at {} port {} is not ddp-run",
                                   join(settings.hosts, ", "), settings.port));
  }
  return std::move(*connection);
}

// The processes that have this one as their parent.
std::vector<pid_t> own_children() {
  std::vector<pid_t> pids;
  std::ifstream file(fmt::format("/proc/self/task/{}/children", gettid()));
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

// The program in a process group of its own. Its children end with it, also those that have left
// the group: this process becomes the parent of all whose parent has ended.
class Program {
 public:
  Program(const std::vector<std::string>& arguments, int generation) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw RuntimeError("cannot open a pipe");
    events_ = FileDescriptor(ends[0]);
    const FileDescriptor write_end(ends[1]);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const auto descriptor = std::to_string(write_end.get());
    const auto number = std::to_string(generation);
    const pid_t parent = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_ = fork();
    if (pid_ < 0) throw RuntimeError("cannot start a process: " + std::string(strerror(errno)));
    if (pid_ > 0) {
      setpgid(pid_, pid_);
      return;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    // A program that writes while the pipe is full waits; it must not see EAGAIN.
    fcntl(write_end.get(), F_SETFD, 0);
    fcntl(write_end.get(), F_SETFL, 0);
    std::signal(SIGPIPE, SIG_DFL);
    unsetenv(kRankVariable);
    setenv(comm::kRunEventsVariable, descriptor.c_str(), 1);
    setenv(kGenerationVariable, number.c_str(), 1);
    unsetenv(kKeyVariable);
    execvp(argv[0], argv.data());
    const int reason = errno;
    const auto text = fmt::format("ddp-run: cannot start {}: {}\n", quote_for_display(arguments[0]),
                                  strerror(reason));
    [[maybe_unused]] const bool written = write_all(STDERR_FILENO, text);
    _exit(reason == ENOENT || reason == EACCES ? kUsageCode : 1);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    kill(-pid_, SIGKILL);
    for (int i = 0; i < kMaxGenerations; ++i) {
      const auto left = own_children();
      if (left.empty()) return;
      for (const pid_t pid : left) kill(pid, SIGKILL);
      for (const pid_t pid : left) waitpid(pid, nullptr, 0);
    }
  }

  // -1 once the program and its children have closed it.
  int events() const noexcept { return events_.get(); }
  void close_events() noexcept { events_.close(); }
  // A request is for the program itself, which may need its children to save.
  void signal(int number) const noexcept { kill(number == SIGKILL ? -pid_ : pid_, number); }

  // Whether it was stopped by a signal, or by a terminal; not whether a debugger holds it.
  bool is_stopped() const {
    std::ifstream file(fmt::format("/proc/{}/stat", pid_));
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(") ");
    return name_end != std::string::npos && text.substr(name_end + 2, 1) == "T";
  }

  // The status of waitpid(2), once the program has ended.
  std::optional<int> status() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == pid_) return status;
    }
    return std::nullopt;
  }

 private:
  pid_t pid_ = -1;
  FileDescriptor events_;
};

// The lines that the program writes.
class Lines {
 public:
  // Calls `take` with each complete line. Lines that are too long are dropped. Returns false at the
  // end of the file. Reads a bounded amount, so that a program that floods it keeps nothing else
  // waiting.
  template <class Take>
  bool read_from(int descriptor, Take take) {
    std::array<char, 65536> chunk{};
    const ssize_t n = read(descriptor, chunk.data(), chunk.size());
    if (n > 0) {
      for (const char c : std::string_view(chunk.data(), static_cast<std::size_t>(n))) {
        if (c != '\n') {
          if (line_.size() <= kMaxLine) line_ += c;
          continue;
        }
        if (line_.size() <= kMaxLine) take(line_);
        line_.clear();
      }
    }
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  }

 private:
  std::string line_;
};

class Agent {
 public:
  Agent(const AgentSettings& settings, const std::vector<std::string>& program)
      : settings_(settings),
        signals_(open_signals()),
        connection_(connect(settings)),
        program_(program, settings.generation) {}

  int run() {
    tell(RankReady{settings_.generation, settings_.rank});
    std::optional<int> status;
    while (!(status = program_.status())) {
      wait();
      clock_.look();
      take_signals();
      take_events();
      listen();
      beat();
      messages_.flush();
    }
    take_events();
    flush_progress();
    const bool killed = WIFSIGNALED(*status);
    const int code = killed ? 0 : WEXITSTATUS(*status);
    const int signal = killed ? WTERMSIG(*status) : 0;
    tell(RankEnded{settings_.generation, settings_.rank, code, signal, false});
    release_memory();
    connection_.send({MessageKind::goodbye, settings_.rank, ""});
    connection_.flush_within(kGoodbyeTime);
    return killed ? 128 + signal : code;
  }

 private:
  void wait() const {
    std::array<pollfd, 3> ready{{{signals_.get(), POLLIN, 0},
                                 {program_.events(), POLLIN, 0},
                                 {left_ ? -1 : connection_.fd(), POLLIN, 0}}};
    poll(ready.data(), ready.size(), 200);
  }

  void tell(const Event& event) {
    if (!left_) connection_.send({MessageKind::status, settings_.rank, json_of(event).dump()});
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) program_.signal(static_cast<int>(info.ssi_signo));
    }
  }

  void take_events() {
    if (program_.events() >= 0 &&
        !lines_.read_from(program_.events(),
                          [this](const std::string& line) { take_line(line); })) {
      program_.close_events();
    }
    if (Clock::now() - told_progress_ >= kProgressInterval) flush_progress();
  }

  // What a program writes is not trusted: other events than its own are dropped.
  void take_line(const std::string& line) {
    auto object = parse_bounded_json_or_null(line);
    if (!object.is_object()) return;
    object["generation"] = settings_.generation;
    try {
      const auto event = event_from_json(object);
      if (const auto* progress = std::get_if<Progress>(&event)) {
        progress_ = *progress;
      } else if (std::holds_alternative<Restoring>(event)) {
        if (!std::exchange(told_restoring_, true)) tell(event);
      } else if (std::holds_alternative<Training>(event)) {
        if (!std::exchange(told_training_, true)) tell(event);
      } else if (std::holds_alternative<Kept>(event) || std::holds_alternative<Told>(event)) {
        flush_progress();
        tell(event);
      }
    } catch (const RuntimeError&) {
      // not an event
    }
  }

  void flush_progress() {
    if (!progress_) return;
    tell(*std::exchange(progress_, std::nullopt));
    told_progress_ = Clock::now();
  }

  void listen() {
    if (left_) return;
    const bool open = connection_.fill();
    try {
      while (const auto message = connection_.next()) {
        heard_ = Clock::now();
        heard_running_ = clock_.now();
        if (message->kind == MessageKind::status_request) obey(message->text);
      }
    } catch (const RuntimeError&) {
      return leave();
    }
    // See Note [A cut link].
    const auto now = Clock::now();
    if (now - std::exchange(listened_, now) > kCutAfter) woke_up_ = now;
    const bool stood_still = woke_up_ && now - *woke_up_ < kCutAfter;
    const bool cut = now - heard_ > kCutAfter && connection_.unacknowledged_for(kCutAfter);
    if (cut || (stood_still && !open)) return end_cut_off();
    if (!open || clock_.now() - heard_running_ > kHeadSilence) leave();
  }

  void obey(const std::string& text) const {
    if (const auto signal = parse_decimal(text, 64)) program_.signal(static_cast<int>(*signal));
  }

  void beat() {
    const auto now = Clock::now();
    if (left_) {
      if (now - *left_ > kLastGrace) program_.signal(SIGKILL);
      return;
    }
    connection_.flush();
    if (now - beaten_ < kHeartbeat) return;
    beaten_ = now;
    connection_.send({MessageKind::alive, 0, ""});
    watch_program();
  }

  // The other ranks of ddp-train notice it, unless they have ended; those of other programs do not.
  void watch_program() {
    if (!program_.is_stopped()) {
      stopped_since_.reset();
      if (std::exchange(told_stopped_, false)) {
        tell(RankAnswered{settings_.generation, settings_.rank});
      }
      return;
    }
    if (!stopped_since_) stopped_since_ = clock_.now();
    if (told_stopped_ || clock_.now() - *stopped_since_ < kStoppedAfter) return;
    told_stopped_ = true;
    tell(RankSilent{settings_.generation, settings_.rank});
  }

  // The next start of the program may need it; without ddp-run, there is none.
  void release_memory() const {
    const auto run = comm::run_id();
    if (run) left_ ? comm::remove_run_memory(*run) : comm::touch_run_memory(*run);
  }

  void leave() {
    left_ = Clock::now();
    program_.signal(SIGTERM);
    say("ddp-run is gone, so the program is asked to save and to end");
  }

  void end_cut_off() {
    left_ = Clock::now();
    program_.signal(SIGKILL);
    say("ddp-run cannot be reached and may start the program elsewhere, so this rank is killed");
  }

  void say(const char* text) { messages_.add(fmt::format("rank {}: {}", settings_.rank, text)); }

  AgentSettings settings_;
  FileDescriptor signals_;
  Connection connection_;
  Program program_;
  Messages messages_{STDERR_FILENO};
  Lines lines_;
  std::optional<Progress> progress_;
  Clock::time_point told_progress_;
  bool told_restoring_ = false;
  bool told_training_ = false;
  std::optional<Clock::time_point> stopped_since_;  // the program
  bool told_stopped_ = false;
  RunningClock clock_;
  Clock::time_point heard_ = Clock::now();
  Clock::time_point heard_running_ = clock_.now();
  Clock::time_point listened_ = Clock::now();
  std::optional<Clock::time_point> woke_up_;  // after it did not run for kCutAfter
  Clock::time_point beaten_;
  std::optional<Clock::time_point> left_;
};

}  // namespace

AgentSettings agent_settings_from_environment(int rank) {
  AgentSettings settings;
  const std::string head = variable(kHeadVariable);
  const auto colon = head.rfind(':');
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : parse_decimal(std::string_view(head).substr(colon + 1), 65535);
  const auto key = key_from_hex(variable(kKeyVariable));
  const auto generation = parse_decimal(variable(kGenerationVariable), 1'000'000'000);
  if (!port || !key || !generation) {
    throw UsageError(fmt::format("{}, {} or {} is not what ddp-run has set", kHeadVariable,
                                 kKeyVariable, kGenerationVariable));
  }
  for (const auto host : split(std::string_view(head).substr(0, colon), ',')) {
    settings.hosts.emplace_back(host);
  }
  settings.port = static_cast<std::uint16_t>(*port);
  settings.key = *key;
  settings.generation = static_cast<int>(*generation);
  settings.rank = rank;
  const char* slurm = std::getenv("SLURMD_NODENAME");
  settings.node = slurm != nullptr ? slurm : host_name();
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* step = std::getenv("SLURM_STEP_ID");
  if (job != nullptr && step != nullptr) settings.step = fmt::format("{}.{}", job, step);
  return settings;
}

int run_agent(const AgentSettings& settings, const std::vector<std::string>& program) {
  return Agent(settings, program).run();
}

}  // namespace ddp::elastic
