// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/post_mortem/job_record.h"

#include <chrono>

#include "base/subprocess.h"
#include "base/text.h"

namespace ddp::post_mortem {
namespace {

constexpr std::size_t kMaxAnswer = 1U << 20U;

std::string_view first_line(std::string_view text) noexcept {
  return text.substr(0, text.find('\n'));
}

// The value of "KEY=VALUE KEY=VALUE ...". Paths may contain spaces, so a value ends at the next
// key.
std::string value_of(std::string_view line, std::string_view key) {
  const std::string start = " " + std::string(key) + "=";
  const auto at = line.find(start);
  if (at == line.npos) return "";
  std::string_view value = line.substr(at + start.size());
  for (auto space = value.find(' '); space != value.npos; space = value.find(' ', space + 1)) {
    const auto next = value.substr(space + 1);
    const auto end = next.find_first_of("= ");
    if (end == next.npos || next[end] == '=') return std::string(value.substr(0, space));
  }
  return std::string(trimmed(value));
}

// "(null)" is SLURM's word for none.
std::string known(std::string value) {
  return value == "(null)" || value == "None assigned" ? "" : std::move(value);
}

}  // namespace

bool is_job_number(std::string_view text) noexcept {
  const auto number = text.substr(0, text.find('_'));
  if (!parse_decimal(number)) return false;
  return number.size() == text.size() || parse_decimal(text.substr(number.size() + 1));
}

std::optional<JobRecord> read_scontrol_job(std::string_view text) {
  const std::string_view line = first_line(text);
  if (!line.starts_with("JobId=")) return std::nullopt;
  JobRecord job{value_of(line, "JobState"), known(value_of(line, "NodeList")),
                value_of(line, "WorkDir"), value_of(line, "StdOut"), value_of(line, "StdErr")};
  if (job.state.empty()) return std::nullopt;
  return job;
}

std::optional<JobRecord> read_sacct_job(std::string_view text) {
  const auto fields = split(first_line(text), '|');
  if (fields.size() != 3) return std::nullopt;
  // "CANCELLED by 1000"
  const auto words = words_of(fields[0], 1);
  if (words.empty()) return std::nullopt;
  return JobRecord{std::string(words[0]), known(std::string(fields[1])), std::string(fields[2]), "",
                   ""};
}

std::optional<JobRecord> find_job(const std::string& number) {
  constexpr auto kPatience = std::chrono::seconds(10);
  if (const auto text =
          output_of({"scontrol", "--oneliner", "show", "job", number}, kPatience, kMaxAnswer)) {
    if (auto job = read_scontrol_job(*text)) return job;
  }
  const auto text = output_of({"sacct", "--parsable2", "--noheader", "--allocations",
                               "--format=state,nodelist,workdir", "--jobs=" + number},
                              kPatience, kMaxAnswer);
  return text ? read_sacct_job(*text) : std::nullopt;
}

}  // namespace ddp::post_mortem
