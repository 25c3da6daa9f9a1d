// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "ddp_runtime/check/findings/threshold.h"
#include "ddp_runtime/check/node/gpu/gpu_copies.h"
#include "ddp_runtime/gpu/cuda_types.h"

namespace ddp::check {
namespace {

constexpr double kGigabyte = 1e9;
// GPUs below the CPU whose memory is used are up to a third faster than the others.
constexpr PeerRule kSlowCopies{.warning = 0.4, .critical = 1.0};
// Large copies reach 80 to 90 % of a PCIe link.
constexpr double kLowFraction = 0.5;

Finding about_copy(const char* check, const std::string& device, const char* rule) {
  return {.check = check, .severity = Severity::ok, .device = device, .rule = rule};
}

bool is_of_the_hardware(int code) {
  return code == cuda::kUncorrectableMemoryError || code == cuda::kUncorrectableLinkError;
}

Finding failed_copy(const std::string& device, int code, const std::string& trouble) {
  Finding finding = about_copy("gpu.copy", device, "data is copied without errors");
  finding.severity = is_of_the_hardware(code) ? Severity::critical : Severity::unknown;
  finding.value = "failed";
  finding.evidence = trouble;
  finding.action = "check nvidia-smi and the kernel log on this node";
  return finding;
}

// The findings of one direction, without those about its speed.
void judge_data(const std::string& device, const CopyResult& result, const std::string& way,
                std::vector<Finding>& findings) {
  if (!result.measured) {
    if (!result.trouble.empty()) {
      findings.push_back(failed_copy(device, result.code, way + ": " + result.trouble));
    }
    return;
  }
  Finding finding = about_copy("gpu.copy_data", device, "every byte is copied unchanged");
  finding.value = static_cast<double>(result.wrong_bytes);
  finding.unit = "wrong bytes";
  if (result.wrong_bytes != 0) {
    finding.severity = Severity::critical;
    finding.expected = "none";
    finding.evidence = way;
    finding.action = "do not use the node; replace the GPU, its riser or its links";
  }
  findings.push_back(std::move(finding));
}

struct Speed {
  const char* check;
  std::string device;
  double bytes_per_second = 0;
  std::optional<double> limit = {};  // of the link
};

// Bytes per second of a PCIe link, with its encoding: 0.25, 0.5, 0.985, 1.97, .. GB/s per lane.
std::optional<double> pcie_limit_of(const GpuCopies& gpu) {
  if (!gpu.pcie_generation.value || !gpu.pcie_width.value) return std::nullopt;
  const auto generation = static_cast<int>(std::min<std::uint64_t>(*gpu.pcie_generation.value, 8));
  const auto lanes = static_cast<double>(*gpu.pcie_width.value);
  if (generation < 1 || lanes < 1) return std::nullopt;
  const double lane = generation < 3 ? 0.125 * std::ldexp(1.0, generation)
                                     : 0.985 * std::ldexp(1.0, generation - 3);
  return lane * lanes * kGigabyte;
}

// Compares speeds of one kind with each other and with their links.
void judge_speeds(const std::vector<Speed>& speeds, std::vector<Finding>& findings) {
  std::vector<double> values;
  values.reserve(speeds.size());
  for (const auto& speed : speeds) values.push_back(speed.bytes_per_second);
  const auto thresholds = peer_thresholds(values, kSlowCopies);
  for (const auto& speed : speeds) {
    Finding finding = about_copy(speed.check, speed.device,
                                 "copies are as fast as those of the node's other GPUs");
    finding.value = speed.bytes_per_second / kGigabyte;
    finding.unit = "GB/s";
    if (thresholds && speed.bytes_per_second < thresholds->warning) {
      finding.severity = Severity::warning;
      finding.expected = fmt::format("at least {:.3g} GB/s", thresholds->warning / kGigabyte);
      finding.evidence = fmt::format("the median is {:.3g} GB/s", thresholds->median / kGigabyte);
    } else if (speed.limit && speed.bytes_per_second < kLowFraction * *speed.limit) {
      finding.severity = Severity::warning;
      finding.expected =
          fmt::format("at least {:.3g} GB/s", kLowFraction * *speed.limit / kGigabyte);
      finding.evidence = fmt::format("the link allows {:.3g} GB/s", *speed.limit / kGigabyte);
    }
    if (finding.severity != Severity::ok) {
      finding.action =
          "check gpu.pcie and gpu.nvlink of these GPUs; run the check again when the "
          "node is idle";
    }
    findings.push_back(std::move(finding));
  }
}

std::string pair_name(const CopyFacts& copies, const PairCopies& pair) {
  return copies.gpus.at(pair.from).bus_address + "-" + copies.gpus.at(pair.to).bus_address;
}

void judge_gpus(const CopyFacts& copies, std::vector<Finding>& findings) {
  std::vector<Speed> to;
  std::vector<Speed> from;
  for (const auto& gpu : copies.gpus) {
    if (!gpu.trouble.empty()) {
      findings.push_back(failed_copy(gpu.bus_address, gpu.to_gpu.code, gpu.trouble));
      continue;
    }
    judge_data(gpu.bus_address, gpu.to_gpu, "from host to GPU and back", findings);
    judge_data(gpu.bus_address, gpu.from_gpu, "from GPU to host", findings);
    const auto limit = pcie_limit_of(gpu);
    if (gpu.to_gpu.measured) {
      to.push_back({"gpu.copy_to", gpu.bus_address, gpu.to_gpu.bytes_per_second, limit});
    }
    if (gpu.from_gpu.measured) {
      from.push_back({"gpu.copy_from", gpu.bus_address, gpu.from_gpu.bytes_per_second, limit});
    }
  }
  judge_speeds(to, findings);
  judge_speeds(from, findings);
}

// Pairs with access to each other's memory are compared among themselves, because the others copy
// through the host.
void judge_pairs(const CopyFacts& copies, std::vector<Finding>& findings) {
  std::map<bool, std::vector<Speed>> speeds;
  for (const auto& pair : copies.pairs) {
    const std::string device = pair_name(copies, pair);
    judge_data(device, pair.result, "from the first GPU to the second", findings);
    if (!pair.result.measured) continue;
    speeds[pair.direct].push_back({"gpu.copy_between", device, pair.result.bytes_per_second, {}});
  }
  for (const auto& [direct, of_kind] : speeds) judge_speeds(of_kind, findings);
}

}  // namespace

std::vector<Finding> evaluate_copies(const CopyFacts& copies) {
  std::vector<Finding> findings;
  for (const auto* text : {&copies.trouble, &copies.unfinished}) {
    if (!text->empty()) findings.push_back(failed_copy("", 0, *text));
  }
  judge_gpus(copies, findings);
  judge_pairs(copies, findings);
  return findings;
}

bool is_same_bus_address(const std::string& a, const std::string& b) {
  const auto normal = [](std::string address) {
    const auto digits = address.find_first_not_of('0');
    if (digits != std::string::npos) address.erase(0, digits);
    std::transform(address.begin(), address.end(), address.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return address;
  };
  return normal(a) == normal(b);
}

void enter_loaded_links(const CopyFacts& copies, NvmlFacts& facts) {
  for (const auto& copied : copies.gpus) {
    if (!copied.pcie_generation.value || !copied.pcie_width.value) continue;
    for (auto& gpu : facts.gpus) {
      if (!is_same_bus_address(gpu.bus_address, copied.bus_address)) continue;
      gpu.pcie_generation = copied.pcie_generation;
      gpu.pcie_width = copied.pcie_width;
      gpu.read_under_load = true;
    }
  }
}

}  // namespace ddp::check
