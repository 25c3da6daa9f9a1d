// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/wait_channel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::watch {
namespace {

struct Wait {
  std::string_view prefix;  // the names differ between releases of the kernel in their ends
  std::string_view words;
};

constexpr std::string_view kChild = "a child process";
constexpr std::string_view kSignal = "a signal";

constexpr auto kWaits = std::to_array<Wait>({
    {"futex", "another thread (futex)"},
    {"do_poll", "a socket or a pipe"},
    {"poll_schedule", "a socket or a pipe"},
    {"do_sys_poll", "a socket or a pipe"},
    {"do_select", "a socket or a pipe"},
    {"ep_poll", "a socket or a pipe"},
    {"do_epoll", "a socket or a pipe"},
    {"wait_woken", "a socket or a terminal"},
    {"sk_wait", "a socket"},
    {"inet_csk_accept", "a connection"},
    {"unix_stream", "a local socket"},
    {"anon_pipe_read", "data from a pipe"},
    {"pipe_read", "data from a pipe"},
    {"pipe_wait_readable", "data from a pipe"},
    {"anon_pipe_write", "the reader of a pipe"},
    {"pipe_write", "the reader of a pipe"},
    {"pipe_wait_writable", "the reader of a pipe"},
    {"wait_for_partner", "the other end of a FIFO"},
    {"fifo_open", "the other end of a FIFO"},
    {"locks_lock", "a file lock"},
    {"flock_lock", "a file lock"},
    {"posix_lock", "a file lock"},
    {"fcntl_setlk", "a file lock"},
    {"hrtimer_nanosleep", "a timer (sleep)"},
    {"do_nanosleep", "a timer (sleep)"},
    {"do_wait", kChild},
    {"kernel_wait", kChild},
    {"kernel_clone", "a child of vfork"},
    {"n_tty_read", "a terminal"},
    {"__do_sys_pause", kSignal},
    {"do_sigtimedwait", kSignal},
    {"sigsuspend", kSignal},
    {"do_signal_stop", "SIGCONT"},
    {"nfs", "NFS"},
    {"rpc_", "NFS"},
    {"request_wait_answer", "a FUSE file system"},
    {"fuse_", "a FUSE file system"},
    {"ptlrpc", "Lustre"},
    {"ldlm_", "Lustre"},
    {"cl_sync", "Lustre"},
    {"io_schedule", "a disk"},
    {"folio_wait", "a disk"},
    {"wait_on_page", "a disk"},
    {"bit_wait_io", "a disk"},
});

// timeout(1) waits for a signal of its child.
bool waits_for_child(std::string_view channel) {
  const std::string words = wait_in_words(channel);
  return words == kChild || words == kSignal;
}

// The processor time of each process with all below it.
std::map<pid_t, std::chrono::milliseconds> times_of_trees(std::span<const Process> processes) {
  std::map<pid_t, std::chrono::milliseconds> times;
  // Parents come before their children.
  for (auto process = processes.rbegin(); process != processes.rend(); ++process) {
    times[process->parent] += times[process->pid] += process->cpu;
  }
  return times;
}

// 0 if there is none.
pid_t busiest_child(std::span<const Process> processes, pid_t parent) {
  const auto times = times_of_trees(processes);
  pid_t busiest = 0;
  for (const auto& process : processes) {
    if (process.parent != parent || process.pid == parent) continue;
    if (busiest == 0 || times.at(process.pid) > times.at(busiest)) busiest = process.pid;
  }
  return busiest;
}

}  // namespace

WaitingProcess find_waiting_process(const std::string& proc, std::span<const Process> processes) {
  if (processes.empty()) return {};
  WaitingProcess found{processes.front().pid, {}};
  for (std::size_t i = 0; i < processes.size(); ++i) {  // more steps would be a circle
    found.channel = read_kernel_file(proc + "/" + std::to_string(found.pid) + "/wchan");
    if (found.channel == "0") found.channel.clear();  // it runs, or the kernel keeps it secret
    const pid_t child = waits_for_child(found.channel) ? busiest_child(processes, found.pid) : 0;
    if (child == 0) return found;
    found.pid = child;
  }
  return {};
}

std::string wait_in_words(std::string_view channel) {
  for (const auto& wait : kWaits) {
    if (channel.starts_with(wait.prefix)) return std::string(wait.words);
  }
  return sanitize(channel);
}

std::vector<Waiting> group_by_wait(std::span<const RankWait> ranks) {
  std::vector<Waiting> groups;
  const bool has_places =
      std::ranges::any_of(ranks, [](auto& rank) { return !rank.place.empty(); });
  for (const auto& rank : ranks) {
    std::string how;
    if (!rank.channel.empty()) how += " for " + wait_in_words(rank.channel);
    if (!rank.place.empty()) how += " at " + sanitize(rank.place);
    // It may be where others are.
    if (rank.place.empty() && has_places) how += " at an unknown place";
    if (how.empty()) continue;
    how.erase(0, 1);
    auto group = std::ranges::find(groups, how, &Waiting::how);
    if (group == groups.end()) group = groups.insert(group, {std::move(how), {}});
    group->ranks.push_back(rank.rank);
  }
  std::ranges::stable_sort(groups, {}, [](const Waiting& group) { return group.ranks.size(); });
  return groups;
}

}  // namespace ddp::watch
