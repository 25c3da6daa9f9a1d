// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/running_jobs.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/text_file.h"
#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxBytes = 4096;
// An idle node does not have so many processes, and reading more of them takes too long.
constexpr int kManyProcesses = 100'000;

constexpr int kRoot = 0;

bool is_number(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

// The number of a job in the title of a process, which the kernel may have cut off.
struct JobInTitle {
  std::string digits;
  bool is_cut = false;

  bool may_be(const std::string& job) const {
    return is_cut ? !job.empty() && job.starts_with(digits) : job == digits;
  }
};

// The number behind a key of /proc/PID/status, the first if there are several.
std::optional<int> number_in(const std::filesystem::path& process, std::string_view key) {
  const auto status = read_text(process / "status", kMaxBytes).value_or("");
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

// The job in the title of a process "slurmstepd: [12.extern]", which SLURM starts for each step of
// a job; nullopt for other processes. With cgroup v2 there is also a "slurmstepd infinity", which
// is always there. Users can give their processes any name.
std::optional<JobInTitle> job_of(const std::filesystem::path& root,
                                 const std::filesystem::path& process) {
  constexpr std::string_view kBegin = "slurmstepd: [";
  if (!fabric::read_attribute(process / "comm").value_or("").starts_with("slurmstepd")) {
    return std::nullopt;
  }
  const auto title = read_text(process / "cmdline", kMaxBytes).value_or("");
  if (!title.starts_with(kBegin) || number_in(process, "Uid") != kRoot ||
      is_of_another_node(root, process)) {
    return std::nullopt;
  }
  const auto end = title.find_first_not_of("0123456789", kBegin.size());
  const auto id = title.substr(kBegin.size(), end - kBegin.size());
  const bool is_whole = end != std::string::npos &&
                        std::string_view(".+]").find(title[end]) != std::string_view::npos;
  return JobInTitle{id, !is_whole};
}

}  // namespace

bool a_job_runs(const std::filesystem::path& root, const Environment& environment) {
  const std::string own = environment("SLURM_JOB_ID").value_or("");
  int processes = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(root / "proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (!is_number(entry->path().filename().string())) continue;
    if (++processes > kManyProcesses) return true;
    const auto job = job_of(root, entry->path());
    if (job && !job->may_be(own)) return true;
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
