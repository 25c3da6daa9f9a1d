// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/spank/task_guard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "base/text_file.h"
#include "spank_plugin/guard/fork_task.h"
#include "spank_plugin/guard/guard.h"
#include "spank_plugin/guard/node_record.h"
#include "spank_plugin/guard/python_path.h"
#include "spank_plugin/guard/signal_rule.h"
#include "spank_plugin/spank/log.h"

namespace ddp::spank {
namespace {

// What is installed beside the plugin.
std::string path_beside_plugin(std::string_view name) {
  static const char kOwn = 0;
  Dl_info library{};
  if (dladdr(&kOwn, &library) == 0 || library.dli_fname == nullptr) return std::string(name);
  const std::string_view plugin = library.dli_fname;
  return std::string(plugin.substr(0, plugin.rfind('/') + 1)).append(name);
}

// The plugins by which slurmstepd tracks the processes of a step.
struct Trackers {
  bool by_parents = false;
  bool in_another_way = false;
};

int look_at_tracker(dl_phdr_info* library, std::size_t /*size*/, void* result) {
  auto& found = *static_cast<Trackers*>(result);
  const std::string_view path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!file.starts_with("proctrack_")) return 0;
  (file == "proctrack_linuxproc.so" ? found.by_parents : found.in_another_way) = true;
  return 0;
}

// With cgroups slurmstepd signals only its own children, and with process groups only the guards'
// group; by parents it signals every process of the step.
bool slurmstepd_reaches_all() {
  Trackers found;
  dl_iterate_phdr(look_at_tracker, &found);
  if (found.by_parents || found.in_another_way) return found.by_parents;
  return guard::reaches_all("slurmstepd", read_kernel_file("/proc/self/cgroup"));
}

guard::GuardOptions options_for(const GuardFacts& facts, const launch::Plan& plan) {
  return {.rank = plan.rank,
          .task_count = plan.task_count,
          .local_rank = plan.local_rank,
          .local_task_count = plan.local_task_count,
          .is_agent = plan.mode == launch::Mode::torchrun,
          .launcher_reaches_all = facts.slurmstepd_reaches_all,
          .stall = facts.stall,
          .ends_on_failure = facts.watch != launch::Watch::report && !plan.tasks_may_leave,
          .ends_on_stall = facts.watch == launch::Watch::end,
          .node = plan.node,
          .node_record = facts.record.get(),
          .hub = facts.hub};
}

// For exec.
void keep_open(int file) noexcept {
  if (file >= 0) fcntl(file, F_SETFD, 0);
}

void execute_guard(const GuardFacts& facts, const guard::GuardOptions& options,
                   const guard::ForkedTask& task) {
  keep_open(task.errors.get());
  keep_open(options.node_record);
  auto words = guard::format_arguments({task.child, task.errors.get(), options});
  words.insert(words.begin(), "ddp-guard");
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // An empty environment: nothing of the user's, such as LD_PRELOAD, is meant for the guard.
  std::array<char*, 1> nothing{};
  fexecve(facts.program.get(), arguments.data(), nothing.data());
}

// In the parent, which must not return: the task would run twice. Where the program cannot be
// executed, for example for want of memory, this process is the guard itself.
[[noreturn]] void become_guard(const GuardFacts& facts, const guard::GuardOptions& options,
                               guard::ForkedTask task) noexcept {
  try {
    execute_guard(facts, options, task);
  } catch (const std::exception&) {  // no memory for the arguments
  }
  guard::guard_task(std::move(task), options);
}

}  // namespace

std::optional<GuardFacts> prepare_guard(const launch::Settings& settings, guard::HubPlace hub,
                                        std::string_view key) {
  const std::string path = path_beside_plugin("ddp-guard");
  FileDescriptor program(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!program || access(path.c_str(), X_OK) != 0) {
    log_error("watch: the ranks of this node are not watched: cannot open " + path + ": " +
              std::strerror(errno));
    return std::nullopt;
  }
  std::string python = path_beside_plugin(guard::kPythonDirectory);
  if (access(python.c_str(), R_OK | X_OK) != 0) python.clear();
  FileDescriptor record = guard::make_node_record();
  guard::NodeRecord(record.get()).set_key(key);
  return GuardFacts{std::move(program),      std::move(record),      std::move(python),
                    settings.watch.value,    settings.stall_limit(), std::move(hub),
                    slurmstepd_reaches_all()};
}

bool put_guard_before_task(const GuardFacts& facts, const launch::Plan& plan) {
  const guard::GuardOptions options = options_for(facts, plan);
  std::optional<guard::ForkedTask> task;
  try {
    task = guard::fork_task();
  } catch (const std::exception& error) {
    log_error("watch: " + options.who() + " is not watched: " + error.what());
    return false;
  }
  if (task) become_guard(facts, options, std::move(*task));
  return true;
}

}  // namespace ddp::spank
