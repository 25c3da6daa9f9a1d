// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/wait_channel.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/text_file.h"

namespace ddp::watch {
namespace {

struct Wait {
  std::string_view prefix;  // the names differ between releases of the kernel in their ends
  std::string_view words;
};

constexpr std::string_view kChild = "a child process";

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
    {"__do_sys_pause", "a signal"},
    {"do_sigtimedwait", "a signal"},
    {"sigsuspend", "a signal"},
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

}  // namespace

std::string read_wait_channel(const std::string& proc, std::span<const Process> processes) {
  if (processes.empty()) return "";
  const Process* process = &processes.front();
  for (std::size_t i = 0; i < processes.size(); ++i) {  // more steps would be a circle
    std::string channel = read_kernel_file(proc + "/" + std::to_string(process->pid) + "/wchan");
    if (channel == "0") return "";  // it runs, or the kernel keeps it secret
    const auto child = std::ranges::find(processes, process->pid, &Process::parent);
    if (wait_in_words(channel) != kChild || child == processes.end()) return channel;
    process = &*child;
  }
  return "";
}

std::string wait_in_words(std::string_view channel) {
  for (const auto& wait : kWaits) {
    if (channel.starts_with(wait.prefix)) return std::string(wait.words);
  }
  return sanitize(channel);
}

std::vector<Waiting> group_by_wait(std::span<const RankWait> ranks) {
  std::vector<Waiting> groups;
  for (const auto& rank : ranks) {
    std::string how;
    if (!rank.channel.empty()) how += " for " + wait_in_words(rank.channel);
    if (!rank.place.empty()) how += " at " + sanitize(rank.place);
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
