// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/running_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "spank_plugin/fabric/attribute.h"
#include "spank_plugin/fabric/text_file.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxBytes = 4096;
// An idle node does not have so many processes, and reading more of them takes too long.
constexpr int kMaxProcesses = 100'000;

constexpr int kRoot = 0;

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

// The number behind a key of /proc/PID/status, the first if there are several.
std::optional<int> number_in(const std::filesystem::path& process, std::string_view key) {
  const auto status = fabric::read_text(process / "status", kMaxBytes).value_or("");
  const std::size_t at = status.find(fmt::format("\n{}:\t", key));
  if (at == std::string::npos) return std::nullopt;
  int number = 0;
  const char* digits = status.data() + at + key.size() + 3;
  const auto [end, error] = std::from_chars(digits, status.data() + status.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Several nodes on one machine have different host names.
bool is_of_another_node(const std::filesystem::path& root, const std::filesystem::path& process) {
  const auto own = fabric::read_link_name(root / "proc/self/ns/uts");
  const auto other = fabric::read_link_name(process / "ns/uts");
  return own && other && *own != *other;
}

// Whether this is a process "slurmstepd: [12.extern]", which SLURM starts for each step of a job.
// With cgroup v2 there is also a "slurmstepd infinity", which is always there. Users can give their
// processes any name.
bool is_step(const std::filesystem::path& root, const std::filesystem::path& process) {
  if (!fabric::read_attribute(process / "comm").value_or("").starts_with("slurmstepd")) {
    return false;
  }
  const auto title = fabric::read_text(process / "cmdline", kMaxBytes).value_or("");
  return title.starts_with("slurmstepd: [") && number_in(process, "Uid") == kRoot &&
         !is_of_another_node(root, process);
}

// The processes that started this one.
std::vector<int> ancestors(const std::filesystem::path& root) {
  constexpr std::size_t kMost = 100;
  std::vector<int> found;
  auto parent = number_in(root / "proc/self", "PPid");
  while (parent && *parent > 0 && found.size() < kMost) {
    found.push_back(*parent);
    parent = number_in(root / "proc" / std::to_string(*parent), "PPid");
  }
  return found;
}

}  // namespace

bool a_job_runs(const std::filesystem::path& root, const Environment& environment) {
  const std::string context = environment("SLURM_SCRIPT_CONTEXT").value_or("");
  const bool around_a_job = context == "prolog_slurmd" || context == "epilog_slurmd";
  if (!environment("SLURM_JOB_ID").value_or("").empty() && !around_a_job) return true;
  const auto own = around_a_job ? ancestors(root) : std::vector<int>();
  int processes = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(root / "proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto pid = number_of(entry->path().filename().string());
    if (!pid) continue;
    if (++processes > kMaxProcesses) return true;
    const bool counts = std::find(own.begin(), own.end(), *pid) == own.end();
    if (counts && is_step(root, entry->path())) return true;
  }
  return false;
}

void excuse_for_a_job(Finding& finding) {
  finding.severity = std::min(finding.severity, Severity::warning);
  finding.evidence += finding.evidence.empty() ? "" : "; ";
  finding.evidence += "a job runs on this node";
  finding.action = "check again when the job has ended";
}

}  // namespace ddp::check
