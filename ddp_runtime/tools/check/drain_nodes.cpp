// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/drain_nodes.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/atomic_file.h"
#include "base/deadline.h"
#include "base/errors.h"
#include "base/subprocess.h"

namespace ddp::tools {
namespace {

// A controller that does not respond must not delay a job.
constexpr std::chrono::seconds kTimeout{10};
constexpr int kNotFound = 127;  // exit code of Subprocess

SubprocessOutput run(const std::vector<std::string>& command) {
  auto answer = Subprocess::running(command).wait(Clock::now() + kTimeout);
  if (answer.timed_out) {
    throw RuntimeError(
        fmt::format("{} did not respond; no further nodes were drained", command[0]));
  }
  if (answer.exit_code == kNotFound) {
    throw RuntimeError(fmt::format("cannot start {}: No such file or directory", command[0]));
  }
  return answer;
}

SubprocessOutput scontrol(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"scontrol"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run(command);
}

std::vector<check::SlurmNode> all_nodes() {
  const auto answer = run({"sinfo", "--noheader", "--Node", "--format=%N|%T|%E"});
  auto nodes = check::slurm_nodes_in(answer.text);
  if (answer.exit_code != 0 || nodes.empty()) {
    throw RuntimeError("sinfo does not report which nodes are drained; no node was drained");
  }
  return nodes;
}

std::string resume(const std::string& node) {
  const auto done = scontrol({"update", "nodename=" + node, "state=resume"});
  return done.exit_code == 0 ? "" : done.text;
}

// The text after "Reason=" in `scontrol show node`; empty if there is none.
std::string reason_in(const std::string& description) {
  const std::string key = "Reason=";
  const std::size_t at = description.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return description.substr(begin, description.find('\n', begin) - begin);
}

std::string over_the_limit(const std::string& node, const check::DrainLimit& limit,
                           std::size_t all) {
  return fmt::format(
      "{}: NOT drained although it is bad: --max-drain allows {} of {} nodes to be drained, and "
      "that many already are; look for a fault that they share\n",
      node, check::most_drained(limit, all), all);
}

std::string drain_one(const check::Drain& drain, const std::optional<check::DrainLimit>& limit) {
  const SubprocessOutput shown = scontrol({"--oneliner", "show", "node", drain.node});
  if (shown.exit_code != 0) {
    return fmt::format("{}: not drained: {}", drain.node, shown.text);
  }
  const std::string reason = reason_in(shown.text);
  if (!reason.empty() && !reason.starts_with(check::kReasonPrefix)) {
    return fmt::format("{}: not touched, already drained for another reason: {}\n", drain.node,
                       reason);
  }
  if (limit) {
    const auto nodes = all_nodes();
    if (!check::may_drain(nodes, drain.node, *limit)) {
      return over_the_limit(drain.node, *limit, nodes.size());
    }
  }
  const SubprocessOutput done =
      scontrol({"update", "nodename=" + drain.node, "state=drain", "reason=" + drain.reason});
  if (done.exit_code != 0) return fmt::format("{}: not drained: {}", drain.node, done.text);
  const bool was_ours = reason.starts_with(check::kReasonPrefix);
  if (limit && !was_ours) {  // other nodes may have been drained at the same moment
    const auto nodes = all_nodes();
    if (check::must_come_back(nodes, drain.node, *limit) && resume(drain.node).empty()) {
      return over_the_limit(drain.node, *limit, nodes.size());
    }
  }
  return fmt::format("{}: drained, {}\n", drain.node, drain.reason);
}

// Removes the user and the time that SLURM appends to a reason, "[root@2026-01-31T12:00:00]".
std::string without_author(const std::string& reason) {
  const auto author = reason.rfind(" [");
  return author == std::string::npos ? reason : reason.substr(0, author);
}

std::string content_of(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

std::string drain_nodes(std::span<const check::Drain> drains,
                        const std::optional<check::DrainLimit>& limit) {
  std::string text;
  for (const auto& drain : drains) text += drain_one(drain, limit);
  return text;
}

std::string resume_node(const check::Verdict& verdict, int clean_runs,
                        const std::string& state_file) {
  const std::string& node = verdict.nodes.at(0);
  const SubprocessOutput shown = scontrol({"--oneliner", "show", "node", node});
  if (shown.exit_code != 0) return {};
  const std::string reason = without_author(reason_in(shown.text));
  if (!reason.starts_with(check::kReasonPrefix)) {
    std::filesystem::remove(state_file);
    return {};
  }
  const auto runs = check::counted_on(check::clean_runs_in(content_of(state_file)), reason,
                                      check::made_again_and_clean(verdict, node, reason));
  if (runs.count < clean_runs) {
    write_file(state_file, check::text_of(runs));
    if (runs.count == 0) return {};
    return fmt::format("{}: {} of the {} clean checks in a row needed to resume it, {}\n", node,
                       runs.count, clean_runs, reason);
  }
  const std::string complaint = resume(node);
  if (!complaint.empty()) return fmt::format("{}: not resumed: {}", node, complaint);
  std::filesystem::remove(state_file);
  return fmt::format("{}: resumed after {} clean checks in a row, {}\n", node, runs.count, reason);
}

}  // namespace ddp::tools
