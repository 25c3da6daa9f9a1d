// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ddp_runtime/check/node/gpu_judgment.h"

namespace ddp::check {
namespace {

// Links repeat damaged data without loss, and a few repetitions in months are within their
// specification.
constexpr std::uint64_t kManyRepeats = 100;

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

std::string links_that_are_down(const GpuFacts& gpu) {
  std::string list;
  for (const auto& link : gpu.links) {
    if (!link.up) append(list, std::to_string(link.number));
  }
  return list;
}

// The largest number of active links on any GPU of this node; for a single GPU, links that are down
// count, too.
std::uint64_t most_links(const NvmlFacts& facts) {
  std::uint64_t most = 0;
  for (const auto& gpu : facts.gpus) most = std::max(most, gpu.links_up.value.value_or(0));
  if (facts.gpus.size() == 1 && most > 0) most += facts.gpus.front().links_down.value.value_or(0);
  return most;
}

// GPUs connected by NVLink all have the same number of links. A single GPU has either all of its
// links up or none of them.
std::vector<Finding> evaluate_number_of_links(const GpuFacts& gpu, std::uint64_t most) {
  if (!gpu.links_up.value || !gpu.links_down.value) {
    return unknown_reading(gpu, "gpu.nvlink", gpu.links_up);
  }
  if (most == 0) return {};
  Finding finding =
      finding_about(gpu, "gpu.nvlink", "as many NVLinks are up as on the node's other GPUs");
  finding.value = static_cast<double>(*gpu.links_up.value);
  finding.unit = "links";
  if (*gpu.links_up.value >= most) return {finding};
  finding.severity = Severity::critical;
  finding.expected = fmt::format("{} links", most);
  finding.evidence = fmt::format("{} links are down", *gpu.links_down.value);
  if (const auto list = links_that_are_down(gpu); !list.empty()) finding.evidence += ": " + list;
  finding.action = "check fabric manager and nvidia-smi nvlink; reset or replace the GPU";
  return {finding};
}

std::vector<Finding> evaluate_link_errors(const GpuFacts& gpu) {
  if (std::none_of(gpu.links.begin(), gpu.links.end(),
                   [](const NvLink& link) { return link.errors_known; })) {
    return {};
  }
  Finding finding = finding_about(gpu, "gpu.nvlink_errors", "the NVLinks repeat hardly any data");
  double sum = 0;
  for (const auto& link : gpu.links) {
    const std::uint64_t repeats = link.replays + link.crc_errors;
    sum += static_cast<double>(link.recoveries + repeats);
    if (link.recoveries == 0 && repeats < kManyRepeats) continue;
    append(finding.evidence,
           fmt::format("link {}: {} recoveries, {} replays, {} CRC errors", link.number,
                       link.recoveries, link.replays, link.crc_errors));
  }
  finding.value = sum;
  finding.unit = "errors";
  if (finding.evidence.empty()) return {finding};
  finding.severity = Severity::warning;
  finding.expected = fmt::format("no recoveries, less than {} repetitions per link", kManyRepeats);
  finding.action = "check nvidia-smi nvlink -e; reseat or replace the GPU if the numbers grow";
  return {finding};
}

}  // namespace

std::vector<Finding> evaluate_links(const NvmlFacts& facts) {
  std::vector<Finding> findings;
  const std::uint64_t most = most_links(facts);
  for (const auto& gpu : facts.gpus) {
    if (!gpu.trouble.empty()) continue;
    for (auto& finding : evaluate_number_of_links(gpu, most)) findings.push_back(finding);
    for (auto& finding : evaluate_link_errors(gpu)) findings.push_back(finding);
  }
  return findings;
}

}  // namespace ddp::check
