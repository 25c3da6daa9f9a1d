// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/node_checks.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace ddp::elastic {
namespace {

constexpr std::string_view kVerdict = "\nddp-run-verdict ";
constexpr std::string_view kCritical = "2";
constexpr std::size_t kMaxFinding = 200;
constexpr std::chrono::seconds kPingTime{4};  // of slurmctld

bool slurmctld_is_up() {
  const auto said = output_of({"scontrol", "ping"}, kPingTime, 4096);
  return said && said->find("is UP") != std::string::npos;
}

}  // namespace

Checked judge_check(const std::string& node, const std::string& output, bool in_time,
                    bool slurm_answers) {
  const auto at = output.rfind(kVerdict);
  const auto text = std::string_view(output).substr(0, at);
  const auto finding = sanitize_first_line(trimmed(text), kMaxFinding);
  if (at == std::string::npos) {
    if (!slurm_answers)
      return {node, false, "not checked, because slurmctld does not answer", true};
    return {node, false,
            in_time ? "its check could not start: " + finding : "its check did not end in time"};
  }
  const auto code = trimmed(std::string_view(output).substr(at + kVerdict.size()));
  return {node, code != kCritical, code == kCritical ? "ddp-check: " + finding : ""};
}

NodeChecks::NodeChecks(std::vector<std::string> prefix, std::string check,
                       std::chrono::seconds limit, const WakeEvent& wake)
    : prefix_(std::move(prefix)), check_(std::move(check)), limit_(limit), wake_(wake) {}

// The exit code of srun is also its own, so the shell prints that of the check.
Checked NodeChecks::check(const std::string& node, const std::stop_token& stop) const {
  auto command = prefix_;
  if (!command.empty()) command.push_back(node);
  command.insert(command.end(), {"sh", "-c",
                                 fmt::format("{} node 2>&1; code=$?; echo; echo {} $code",
                                             shell_word(check_), trimmed(kVerdict))});
  const auto output = Subprocess::running(command).wait(Clock::now() + limit_ - 2 * kPingTime, {},
                                                        [&stop] { return stop.stop_requested(); });
  auto checked = judge_check(node, output.text, !output.timed_out, true);
  if (checked.healthy || prefix_.empty() || slurmctld_is_up()) return checked;
  return judge_check(node, output.text, !output.timed_out, false);
}

void NodeChecks::begin(const std::string& node) {
  threads_.emplace_back([this, node](const std::stop_token& stop) {
    Checked checked{node, false, "its check could not start"};
    try {
      checked = check(node, stop);
    } catch (const RuntimeError& error) {
      checked.finding = error.what();
    }
    {
      const std::lock_guard lock(mutex_);
      done_.emplace_back(std::move(checked));
    }
    wake_.notify();
  });
}

std::vector<Event> NodeChecks::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

}  // namespace ddp::elastic
