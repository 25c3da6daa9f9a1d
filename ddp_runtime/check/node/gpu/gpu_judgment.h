// SPDX-License-Identifier: Apache-2.0
// The judgment of one GPU's readings, without side effects. A reading that does not apply to a GPU
// gives no finding. Only CRITICAL findings exclude or drain a node, so they are limited to what
// makes results wrong or stops a job.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/node/gpu/gpu_facts.h"

namespace ddp::check {

// An OK finding about the GPU.
Finding finding_about(const GpuFacts& gpu, const char* check, const char* rule);
// An UNKNOWN finding for a failed reading; no findings if it succeeded or does not apply.
std::vector<Finding> unknown_reading(const GpuFacts& gpu, const char* check,
                                     const GpuReading& reading);

// Whether the readings are those of a working GPU. The clocks and links of an idle GPU are slow.
bool is_under_load(const GpuFacts& gpu);
// Whether these bits contain a reason other than idleness and settings.
bool is_throttled_by_a_fault(std::uint64_t reasons);

// Memory errors since the driver was loaded and in the GPU's life, rows and pages that wait for a
// reset, and whether the driver requests one.
std::vector<Finding> evaluate_gpu_memory_errors(const GpuFacts& gpu);
// CRITICAL only for what the hardware reports in all readings.
std::vector<Finding> evaluate_throttle(const GpuFacts& gpu);
std::vector<Finding> evaluate_clock(const GpuFacts& gpu);
std::vector<Finding> evaluate_pcie(const GpuFacts& gpu);

// NVLinks of all GPUs: those that are down, and their errors.
std::vector<Finding> evaluate_links(const NvmlFacts& facts);
// Access between pairs of GPUs. A GPU that no other can access is named instead of its pairs.
std::vector<Finding> evaluate_peers(const NvmlFacts& facts);
// "00000000:1B:00.0-00000000:43:00.0"
std::string name_of_pair(const GpuFacts& first, const GpuFacts& second);

}  // namespace ddp::check
