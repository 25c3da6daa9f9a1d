// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/leftovers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <span>

#include "base/text.h"
#include "base/text_file.h"
#include "spank_plugin/watch/process_tree.h"

namespace ddp::guard {
namespace {

// The children of this process, which adopts those of its children that end.
std::vector<pid_t> children() {
  std::size_t threads = 1;
  return watch::read_children("/proc/self", threads);
}

// Those that the next ones to end leave behind do not announce themselves.
Deadline soon() {
  return Clock::now() + std::chrono::milliseconds(50);
}

}  // namespace

bool Leftovers::exist() noexcept {
  siginfo_t info = {};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void Leftovers::end(Clock::duration time_to_end, const std::function<bool(Deadline)>& wait) {
  constexpr auto kTimeToDie = std::chrono::seconds(5);
  const Deadline asked = Clock::now() + time_to_end;
  while (exist() && Clock::now() < asked) {
    ask();
    if (names_.empty()) return;  // without /proc they cannot be found
    if (wait(std::min(asked, soon()))) break;
  }
  const Deadline forced = Clock::now() + kTimeToDie;
  while (exist() && Clock::now() < forced) {
    force();
    wait(soon());
  }
}

std::string Leftovers::text() const {
  constexpr std::size_t kNamed = 4;
  const std::span<const std::string> named(names_.data(), std::min(names_.size(), kNamed));
  return counted(names_.size(), "process", "es") + " behind, now ended: " + join(named, ", ") +
         (names_.size() > kNamed ? ", ..." : "");
}

bool Leftovers::add(pid_t process) {
  if (std::find(asked_.begin(), asked_.end(), process) != asked_.end()) return false;
  asked_.push_back(process);
  const std::string name = read_kernel_file("/proc/" + std::to_string(process) + "/comm");
  names_.push_back(sanitize(trimmed(name)));
  return true;
}

// SIGTERM for each that has not got one yet.
void Leftovers::ask() {
  for (const pid_t process : children()) {
    if (!add(process)) continue;
    kill(process, SIGTERM);
    kill(process, SIGCONT);  // a stopped process must hear it
  }
}

void Leftovers::force() {
  for (const pid_t process : children()) {
    add(process);
    kill(process, SIGKILL);
  }
}

}  // namespace ddp::guard
