// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/node_watch.h"

#include <algorithm>
#include <condition_variable>
#include <unordered_set>
#include <utility>

#include "base/errors.h"
#include "base/hostlist.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace ddp::elastic {
namespace {

constexpr std::chrono::seconds kAnswerTime{10};
constexpr std::size_t kMaxAnswer = std::size_t{8} << 20;

}  // namespace

// A suffix such as '*' (does not answer) or '$' (maintenance) makes a node unusable. "draining" is
// not listed: the node finishes what runs there, and gets nothing new.
std::vector<std::string> usable_nodes(std::string_view sinfo) {
  std::vector<std::string> names;
  for (const auto line : split(sinfo, '\n')) {
    const auto words = words_of(line, 2);
    if (words.size() < 2) continue;
    const auto state = trimmed(words[1]);
    if (state == "idle" || state == "allocated" || state == "mixed" || state == "completing") {
      names.emplace_back(words[0]);
    }
  }
  return names;
}

std::vector<std::string> question_for_nodes(const std::string& job) {
  return {"squeue", "-h", "-j", job, "-o", "%T %N"};
}

std::optional<std::vector<std::string>> nodes_of_job(std::string_view squeue) {
  const auto words = words_of(squeue, 2);
  if (words.size() < 2 || words[0] != "RUNNING") return std::nullopt;
  try {
    return expand_hostlist(trimmed(words[1]));
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

NodeWatch::NodeWatch(std::vector<std::string> nodes, std::string job, std::chrono::seconds interval)
    : nodes_(std::move(nodes)),
      job_(std::move(job)),
      interval_(interval),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void NodeWatch::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  for (;;) {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, stop, interval_, [&] { return stop.stop_requested(); })) return;
    look();
  }
}

// No step can be started on a node that the job has lost, also when the node is up again.
void NodeWatch::look() {
  std::vector<Event> events;
  auto usable = nodes_;
  if (!job_.empty()) {
    const auto job = output_of(question_for_nodes(job_), kAnswerTime, kMaxAnswer);
    const auto left = job ? nodes_of_job(*job) : std::nullopt;
    if (left) {
      const std::unordered_set<std::string_view> there(left->begin(), left->end());
      std::erase_if(nodes_, [&](const std::string& node) {
        if (there.contains(node)) return false;
        events.emplace_back(NodeLost{node, "SLURM has taken it out of the job"});
        return true;
      });
    }
    usable.clear();
    if (!nodes_.empty()) {
      const auto answer =
          output_of({"sinfo", "-h", "-N", "-n", compress_hostlist(nodes_), "-o", "%N %T"},
                    kAnswerTime, kMaxAnswer);
      if (answer) usable = usable_nodes(*answer);
    }
  }
  const std::lock_guard lock(mutex_);
  events_.insert(events_.end(), events.begin(), events.end());
  for (auto& node : usable) events_.emplace_back(NodeUp{std::move(node)});
}

std::vector<Event> NodeWatch::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

}  // namespace ddp::elastic
