// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/host_watch.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/subprocess.h"
#include "ddp_runtime/elastic/run/node_watch.h"

namespace ddp::elastic {
namespace {

constexpr std::chrono::seconds kLook{15};
constexpr std::chrono::seconds kStartAgain{60};
constexpr std::chrono::seconds kEnd{3};
constexpr std::chrono::seconds kSlurmAnswers{20};
constexpr std::size_t kMaxHostAnswer = std::size_t{1} << 20;

}  // namespace

HostWatch::HostWatch(const LaunchPlan& plan, std::string own_node)
    : agent_(plan.agent), own_node_(std::move(own_node)) {
  const auto& all = plan.allocation;
  const auto own = std::ranges::find(all, own_node_);
  if (plan.kind != LauncherKind::srun || own == all.end()) return;
  others_.assign(own + 1, all.end());
  others_.insert(others_.end(), all.begin(), own);
}

HostWatch::~HostWatch() {
  if (!step_) return;
  step_->signal(SIGTERM);
  const auto deadline = Clock::now() + kEnd;
  while (!step_->has_ended() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void HostWatch::tick() {
  if (others_.empty() || Clock::now() < not_before_ || (step_ && !step_->has_ended())) return;
  not_before_ = Clock::now() + kStartAgain;
  Command command;
  command.arguments = {"srun",       "--overlap", "--mem=0",    "--nodes=1",    "--ntasks=1",
                       "--mpi=none", "--quiet",   "--nodelist", others_[next_], agent_,
                       "watch",      "--",        own_node_};
  command.silent = true;  // what srun says of a node that is down is no news
  next_ = (next_ + 1) % others_.size();
  try {
    step_.reset();
    step_.emplace(command);
  } catch (const RuntimeError&) {  // tried again later; the job does not depend on it
  }
}

int watch_host(const std::string& host) {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) throw UsageError("ddp-run watch is started by ddp-run, in a SLURM job");
  std::signal(SIGTERM, [](int) { _exit(0); });  // from ddp-run: accounting should show no failure
  const auto question = question_for_nodes(job);
  for (;;) {
    std::this_thread::sleep_for(kLook);
    const auto answer = output_of(question, kSlurmAnswers, kMaxHostAnswer);
    const auto nodes = answer ? nodes_of_job(*answer) : std::nullopt;
    if (nodes && std::ranges::find(*nodes, host) == nodes->end()) break;
  }
  if (output_of({"scontrol", "requeue", job}, kSlurmAnswers, kMaxHostAnswer)) return 0;
  return output_of({"scancel", job}, kSlurmAnswers, kMaxHostAnswer) ? 0 : 1;
}

}  // namespace ddp::elastic
