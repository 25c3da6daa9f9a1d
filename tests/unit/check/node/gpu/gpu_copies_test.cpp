// SPDX-License-Identifier: Apache-2.0
// Tests the copies between host and GPUs with fakes of NVIDIA's libraries. None of these tests uses
// a real GPU, and none depends on a speed.
#include "ddp_runtime/check/node/gpu/gpu_copies.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <variant>

#include "ddp_runtime/check/node/gpu/gpu_check.h"
#include "tests/unit/check/node/gpu/fake_gpus.h"

namespace ddp::check {
namespace {

CopyFacts copy_with_fake(const std::string& scenario, CopyOptions options = {}) {
  setenv("FAKE_CUDA", scenario.c_str(), 1);
  setenv("FAKE_NVML", "generation=5 width=8", 1);
  options.cuda_library = SLURM_DDP_FAKE_CUDA;
  options.nvml_library = SLURM_DDP_FAKE_NVML;
  options.bytes = 5000;
  return measure_copies(options);
}

// "CRITICAL gpu.copy_data DEVICE: EVIDENCE; .." of the findings that are not OK, except for those
// about speeds.
std::string bad_copies(const CopyFacts& facts) {
  std::string text;
  for (const auto& finding : evaluate_copies(facts)) {
    if (finding.severity == Severity::ok || finding.unit == "GB/s") continue;
    text += (text.empty() ? "" : "; ") + std::string(name_of(finding.severity)) + " " +
            finding.check + " " + finding.device + ": " + finding.evidence;
  }
  return text;
}

constexpr GpuCase kCopyCases[] = {
    {"", ""},
    {"gpus=4", ""},
    {"direct=0", ""},
    {"corrupt_to=2", "CRITICAL gpu.copy_data 0000:02:00.0: from host to GPU and back"},
    {"gpus=3 corrupt=23",
     "CRITICAL gpu.copy_data 0000:02:00.0-0000:03:00.0: from the first GPU to the "
     "second"},
    {"gpus=3 skip=32",
     "CRITICAL gpu.copy_data 0000:03:00.0-0000:02:00.0: from the first GPU to the "
     "second"},
    {"failing=2 error=2",
     "UNKNOWN gpu.copy 0000:02:00.0: from host to GPU and back: "
     "cannot copy: fake trouble (2)"},
    {"failing=2 error=214",
     "CRITICAL gpu.copy 0000:02:00.0: from host to GPU and "
     "back: cannot copy: fake trouble (214)"},
    {"lost=2", "UNKNOWN gpu.copy 0000:02:00.0: cannot use the GPU: fake trouble (46)"},
    {"crash=2",
     "UNKNOWN gpu.copy : the driver's library crashed while copying to "
     "0000:02:00.0"},
    {"gpus=0", "UNKNOWN gpu.copy : no GPU is visible to programs"},
    {"init=100", "UNKNOWN gpu.copy : no GPU is visible to programs"},
    {"init=999", "UNKNOWN gpu.copy : cannot start: fake trouble (999)"}};

TEST(GpuCopies, EachFaultHasItsFindings) {
  for (const auto& [scenario, findings] : kCopyCases) {
    EXPECT_EQ(bad_copies(copy_with_fake(scenario)), findings) << scenario;
  }
}

TEST(GpuCopies, DamageOnTheWayBackIsFound) {
  auto facts = copy_with_fake("corrupt_from=1");
  EXPECT_EQ(facts.gpus.at(0).to_gpu.wrong_bytes, 0);
  EXPECT_EQ(facts.gpus.at(0).from_gpu.wrong_bytes, 1);
  EXPECT_EQ(facts.gpus.at(1).from_gpu.wrong_bytes, 0);
  EXPECT_TRUE(facts.pairs.empty()) << "a GPU that damages data would accuse its partners";
  EXPECT_EQ(bad_copies(facts), "CRITICAL gpu.copy_data 0000:01:00.0: from GPU to host");
}

TEST(GpuCopies, CopiesThatDoNothingAreFound) {
  EXPECT_GT(copy_with_fake("skip_to=1").gpus.at(0).to_gpu.wrong_bytes, 4000);
  EXPECT_GT(copy_with_fake("skip_from=1").gpus.at(0).from_gpu.wrong_bytes, 4000);
}

TEST(GpuCopies, HangingCopyIsNamedAndOthersAreKept) {
  CopyOptions options;
  options.timeout = std::chrono::seconds(5);
  const auto facts = copy_with_fake("hang=2", options);
  EXPECT_EQ(facts.unfinished, "no end in time while copying to 0000:02:00.0");
  ASSERT_EQ(facts.gpus.size(), 2U);
  EXPECT_TRUE(facts.gpus[0].to_gpu.measured);
  EXPECT_FALSE(facts.gpus[1].to_gpu.measured);
  EXPECT_EQ(bad_copies(facts), "UNKNOWN gpu.copy : no end in time while copying to 0000:02:00.0");
}

TEST(GpuCopies, GpusOfOthersAreLeftAlone) {
  CopyOptions options;
  options.busy = {"00000000:02:00.0"};
  const auto facts = copy_with_fake("", options);
  EXPECT_EQ(bad_copies(facts), "UNKNOWN gpu.copy 0000:02:00.0: another program uses the GPU");
  EXPECT_TRUE(facts.gpus.at(0).to_gpu.measured);
  EXPECT_TRUE(facts.pairs.empty());
}

TEST(GpuCopies, MissingLibraryOrFunctionIsUnknown) {
  CopyOptions options;
  options.cuda_library = "/nowhere/libcuda.so.1";
  auto facts = measure_copies(options);
  EXPECT_NE(bad_copies(facts).find("UNKNOWN gpu.copy : /nowhere/libcuda.so.1: "), std::string::npos)
      << bad_copies(facts);
  options.cuda_library = SLURM_DDP_FAKE_NVML;
  facts = measure_copies(options);
  EXPECT_NE(bad_copies(facts).find(" does not contain cuGetErrorString"), std::string::npos)
      << bad_copies(facts);
}

TEST(GpuCopies, LinksAreReadUnderLoad) {
  const auto copied = copy_with_fake("");
  NvmlFacts facts;
  facts.gpus.resize(1);
  facts.gpus[0].bus_address = "00000000:02:00.0";
  enter_loaded_links(copied, facts);
  EXPECT_TRUE(facts.gpus[0].read_under_load);
  EXPECT_EQ(facts.gpus[0].pcie_generation.value, 5U);
  EXPECT_EQ(facts.gpus[0].pcie_width.value, 8U);
}

TEST(GpuCopies, BusAddressesOfBothLibrariesAreEqual) {
  EXPECT_TRUE(is_same_bus_address("0000:1b:00.0", "00000000:1B:00.0"));
  EXPECT_TRUE(is_same_bus_address("0001:1b:00.0", "00000001:1B:00.0"));
  EXPECT_FALSE(is_same_bus_address("0001:1b:00.0", "00000000:1B:00.0"));
  EXPECT_FALSE(is_same_bus_address("0000:1b:00.0", "0000:1c:00.0"));
}

// Speeds in GB/s of four GPUs, and the devices of the findings.
std::string slow_copies(const std::vector<double>& speeds, std::uint64_t width = 16) {
  CopyFacts facts;
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    GpuCopies gpu;
    gpu.bus_address = std::to_string(i);
    gpu.to_gpu = {true, speeds[i] * 1e9, 0, 0, {}};
    gpu.from_gpu = {true, 50e9, 0, 0, {}};
    gpu.pcie_generation.value = 5;
    gpu.pcie_width.value = width;
    facts.gpus.push_back(gpu);
  }
  std::string text;
  for (const auto& finding : evaluate_copies(facts)) {
    if (finding.severity == Severity::ok) continue;
    text += std::string(name_of(finding.severity)) + " " + finding.check + " " + finding.device +
            ": " + finding.evidence + ";";
  }
  return text;
}

TEST(GpuCopies, SlowGpuIsNamed) {
  EXPECT_EQ(slow_copies({55, 54, 55, 56}), "");
  EXPECT_EQ(slow_copies({55, 54, 55, 30}), "WARNING gpu.copy_to 3: the median is 54.5 GB/s;");
  EXPECT_EQ(slow_copies({55, 55, 40, 40}), "") << "GPUs below another CPU";
  EXPECT_EQ(slow_copies({25}), "WARNING gpu.copy_to 0: the link allows 63 GB/s;");
  EXPECT_EQ(slow_copies({25}, 8), "");
}

TEST(GpuCopies, SlowPairIsNamed) {
  CopyFacts facts;
  facts.gpus.resize(3);
  for (std::size_t i = 0; i < 3; ++i) {
    facts.gpus[i].bus_address = std::to_string(i);
    for (std::size_t to = 0; to < 3; ++to) {
      if (to == i) continue;
      const bool slow = i == 2 && to == 1;
      facts.pairs.push_back({i, to, true, {true, slow ? 20e9 : 300e9, 0, 0, {}}});
    }
  }
  int slow = 0;
  for (const auto& finding : evaluate_copies(facts)) {
    if (finding.severity == Severity::ok) continue;
    ++slow;
    EXPECT_EQ(finding.severity, Severity::warning);
    EXPECT_EQ(finding.check, "gpu.copy_between");
    EXPECT_EQ(finding.device, "2-1");
  }
  EXPECT_EQ(slow, 1);
  facts.pairs[5].direct = false;  // through the host, and not comparable
  for (const auto& finding : evaluate_copies(facts)) EXPECT_EQ(finding.severity, Severity::ok);
}

TEST(GpuCopies, GpusOfOtherJobsAreListed) {
  NvmlFacts facts;
  facts.gpus.resize(2);
  facts.gpus[0].bus_address = "a";
  facts.gpus[0].processes = {11};
  facts.gpus[1].bus_address = "b";
  facts.gpus[1].processes = {11, 12};
  GpuExpectations expected;
  expected.is_own = [](int pid) { return pid == 11; };
  EXPECT_EQ(gpus_of_others(facts, expected), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace ddp::check
