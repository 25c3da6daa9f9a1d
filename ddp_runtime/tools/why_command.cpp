// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/why_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/post_mortem/explanation.h"
#include "ddp_runtime/post_mortem/job_record.h"

namespace ddp::tools {
namespace {

using post_mortem::JobRecord;
using post_mortem::Log;

constexpr int kCannotTell = 3;

// The end of a log: the errors that ended a job are there.
Log read_log(const std::string& path, std::size_t most) {
  const bool is_other = std::filesystem::exists(path) && !std::filesystem::is_regular_file(path);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || is_other) {
    throw RuntimeError(fmt::format("cannot read {}: {}", quote_for_display(path),
                                   is_other ? "it is not a file" : std::strerror(errno)));
  }
  const std::streamoff size = file.tellg();
  const auto limit = static_cast<std::streamoff>(most);
  file.seekg(std::max<std::streamoff>(size - limit, 0));
  std::string text(static_cast<std::size_t>(std::min(size, limit)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return {path, std::move(text)};
}

// The share of each of several logs in the memory for all.
std::size_t most_of_each(std::size_t logs) {
  constexpr std::size_t kOfAll = 64U << 20U;
  constexpr std::size_t kLeast = 1U << 16U;
  return std::max(kOfAll / std::max<std::size_t>(logs, 1), kLeast);
}

// Why there is nothing to explain; empty if there is.
std::string why_not(const JobRecord& job) {
  if (job.state == "COMPLETED") return "the job ended well";
  for (const auto* state :
       {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "STOPPED"}) {
    if (job.state == state) return "the job has not ended";
  }
  return "";
}

// The files of the job, if they are where SLURM wrote them, and readable here.
std::vector<Log> logs_of(const std::string& number, const JobRecord& job) {
  std::vector<std::string> paths{job.output};
  if (job.error_output != job.output) paths.push_back(job.error_output);
  if (job.output.empty()) paths = {job.directory + "/slurm-" + number + ".out"};
  std::vector<Log> logs;
  for (const auto& path : paths) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored))
      logs.push_back(read_log(path, most_of_each(2)));
  }
  return logs;
}

}  // namespace

int explain_end(const std::vector<std::string>& jobs_or_logs) {
  std::optional<JobRecord> job;
  std::vector<Log> logs;
  for (const auto& name : jobs_or_logs) {
    if (!post_mortem::is_job_number(name) || std::filesystem::exists(name)) {
      logs.push_back(read_log(name, most_of_each(jobs_or_logs.size())));
      continue;
    }
    if (job) throw UsageError("why explains one job at a time");
    job = post_mortem::find_job(name);
    if (!job) {
      throw UsageError(fmt::format("SLURM does not know job {}; give its log instead", name));
    }
    if (const std::string text = why_not(*job); !text.empty()) {
      fmt::print("{}: SLURM says {}\n", text, sanitize(job->state));
      return kCannotTell;
    }
    for (auto& log : logs_of(name, *job)) logs.push_back(std::move(log));
  }
  const auto explanation = explain(job ? &*job : nullptr, logs);
  if (!explanation) {
    fmt::print("no cause is found in {}{}\n", counted(logs.size(), "log"),
               job ? fmt::format("; SLURM says {}", sanitize(job->state)) : "");
    return kCannotTell;
  }
  fmt::print("{}\n", sanitize(explanation->what));
  if (!explanation->remedy.empty()) fmt::print("  {}\n", explanation->remedy);
  return 0;
}

}  // namespace ddp::tools
