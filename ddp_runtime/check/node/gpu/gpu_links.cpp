// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "ddp_runtime/check/node/gpu/gpu_judgment.h"

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

// Whether the boards of this node connect every GPU by NVLink. Otherwise a bridge connects two or
// more of its cards, and the others have no active link.
bool connects_all_gpus(const NvmlFacts& facts) {
  return std::any_of(facts.gpus.begin(), facts.gpus.end(), [](const GpuFacts& gpu) {
    // "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
    return gpu.links_to_switch.value.value_or(0) > 0 || gpu.name.find("SXM") != gpu.name.npos ||
           gpu.name.find("HBM3") != gpu.name.npos;
  });
}

// The largest number of active links on GPUs of the same model; for a single GPU, links that are
// down count, too.
std::uint64_t most_links(const NvmlFacts& facts, const GpuFacts& gpu) {
  std::uint64_t most = 0;
  for (const auto& other : facts.gpus) {
    const bool comparable = other.name == gpu.name && !is_divided(other);
    if (comparable) most = std::max(most, other.links_up.value.value_or(0));
  }
  if (facts.gpus.size() == 1 && most > 0) most += gpu.links_down.value.value_or(0);
  return most;
}

// GPUs connected by NVLink all have the same number of links. A single GPU has either all of its
// links up or none of them. A GPU that is divided by MIG may have none.
std::vector<Finding> evaluate_number_of_links(const NvmlFacts& facts, const GpuFacts& gpu) {
  if (!gpu.links_up.value || !gpu.links_down.value) {
    return unknown_reading(gpu, "gpu.nvlink", gpu.links_up);
  }
  const std::uint64_t most = most_links(facts, gpu);
  if (most == 0 || is_divided(gpu)) return {};
  Finding finding =
      finding_about(gpu, "gpu.nvlink", "as many NVLinks are up as on other GPUs of this model");
  finding.value = static_cast<double>(*gpu.links_up.value);
  finding.unit = "links";
  if (*gpu.links_up.value >= most) return {finding};
  if (*gpu.links_up.value == 0 && !connects_all_gpus(facts)) {
    finding.evidence = "none of its links is up, as on a card without a bridge";
    return {finding};
  }
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
  for (const auto& gpu : facts.gpus) {
    if (!gpu.trouble.empty()) continue;
    for (auto& finding : evaluate_number_of_links(facts, gpu)) findings.push_back(finding);
    for (auto& finding : evaluate_link_errors(gpu)) findings.push_back(finding);
  }
  return findings;
}

}  // namespace ddp::check
