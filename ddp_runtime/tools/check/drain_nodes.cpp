#include "ddp_runtime/tools/check/drain_nodes.h"

#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "ddp_runtime/check/bounded_child.h"
#include "ddp_runtime/check/clock.h"
#include "ddp_runtime/comm/errors.h"

namespace ddp::tools {
namespace {

// A controller that does not answer must not hold up a job.
constexpr std::chrono::seconds kPatience{10};
constexpr int kNotFound = 127;  // of BoundedChild

check::ChildOutput scontrol(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"scontrol"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto answer = check::BoundedChild::running(command).wait(check::Clock::now() + kPatience);
  if (answer.timed_out) throw RuntimeError("scontrol did not answer; nothing more was drained");
  if (answer.exit_code == kNotFound) {
    throw RuntimeError("cannot start scontrol: No such file or directory");
  }
  return answer;
}

// The text behind "Reason=" of `scontrol show node`; empty if there is none.
std::string reason_in(const std::string& description) {
  const std::string key = "Reason=";
  const std::size_t at = description.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return description.substr(begin, description.find('\n', begin) - begin);
}

std::string drain_one(const check::Drain& drain) {
  const check::ChildOutput shown = scontrol({"--oneliner", "show", "node", drain.node});
  if (shown.exit_code != 0) {
    return fmt::format("{}: not drained: {}", drain.node, shown.text);
  }
  const std::string reason = reason_in(shown.text);
  if (!reason.empty() && !reason.starts_with(check::kReasonPrefix)) {
    return fmt::format("{}: left alone, somebody gave it a reason: {}\n", drain.node, reason);
  }
  const check::ChildOutput done =
      scontrol({"update", "nodename=" + drain.node, "state=drain", "reason=" + drain.reason});
  if (done.exit_code != 0) return fmt::format("{}: not drained: {}", drain.node, done.text);
  return fmt::format("{}: drained, {}\n", drain.node, drain.reason);
}

}  // namespace

std::string drain_nodes(std::span<const check::Drain> drains) {
  std::string text;
  for (const auto& drain : drains) text += drain_one(drain);
  return text;
}

}  // namespace ddp::tools
