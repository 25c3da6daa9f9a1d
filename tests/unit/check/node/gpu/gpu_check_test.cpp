// SPDX-License-Identifier: Apache-2.0
// Tests the GPU findings with a fake of NVIDIA's library, loaded the same way as the real one. None
// of these tests uses a real GPU.
#include "ddp_runtime/check/node/gpu/gpu_check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "ddp_runtime/check/node/gpu/gpus_without_driver.h"
#include "ddp_runtime/check/node/run_node_checks.h"
#include "tests/unit/check/complaints.h"
#include "tests/unit/check/environment_of.h"
#include "tests/unit/check/node/gpu/fake_gpus.h"
#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::check {
namespace {

constexpr GpuCase kGpuCases[] = {
    {"", ""},
    {"ecc=1", "gpu.ecc 0000:02:00.0=CRITICAL"},
    {"ecc_error=3", ""},  // a GPU without ECC
    {"ecc_error=4", "gpu.ecc 0000:02:00.0=UNKNOWN, gpu.ecc_lifetime 0000:02:00.0=UNKNOWN"},
    {"ecc_error=16",
     "gpu.reset 0000:02:00.0=CRITICAL, gpu.ecc 0000:02:00.0=UNKNOWN, "
     "gpu.ecc_lifetime 0000:02:00.0=UNKNOWN"},
    {"ecc_ever=1", "gpu.ecc_lifetime 0000:02:00.0=WARNING"},
    {"recovery=1", "gpu.reset 0000:02:00.0=CRITICAL"},
    {"recovery=2", "gpu.reset 0000:02:00.0=CRITICAL"},
    {"recovery=3", "gpu.reset 0000:02:00.0=WARNING"},
    {"recovery=4", "gpu.reset 0000:02:00.0=WARNING"},
    {"recovery=1 recovery_error=3", ""},  // an older driver
    {"throttle=4", ""},                   // an intentional power limit
    {"throttle=8", "gpu.throttle 0000:02:00.0=CRITICAL"},
    {"throttle=96", "gpu.throttle 0000:02:00.0=CRITICAL"},
    {"throttle=32", "gpu.throttle 0000:02:00.0=WARNING"},
    {"throttle=72 passing=1", "gpu.throttle 0000:02:00.0=WARNING"},
    {"throttle_error=4", "gpu.throttle 0000:02:00.0=UNKNOWN"},
    {"clock=345", ""},  // idle
    {"clock=345 throttle=0 load=90 generation=5", "gpu.clock 0000:02:00.0=WARNING"},
    {"clock=345 throttle=1 load=90", ""},               // idle now
    {"clock=345 throttle=4 load=90 generation=5", ""},  // a power limit
    {"clock=1005 throttle=0 load=90 generation=5", ""},
    {"clock_error=4", "gpu.clock 0000:02:00.0=UNKNOWN"},
    {"generation=1 width=8", ""},  // idle
    {"clock=1900 throttle=0 load=90 generation=5", ""},
    {"clock=1900 throttle=0 load=90", "gpu.pcie 0000:02:00.0=WARNING"},
    {"clock=1900 throttle=0 load=90 generation=5 width=8", "gpu.pcie 0000:02:00.0=WARNING"},
    {"pcie_error=4", "gpu.pcie 0000:02:00.0=UNKNOWN"},
    {"pending=1", "gpu.rows 0000:02:00.0=WARNING"},
    {"pending=1 failed=1", "gpu.rows 0000:02:00.0=CRITICAL"},
    {"links=3", "gpu.nvlink 0000:02:00.0=CRITICAL"},
    {"pid=11 used_mib=70000", ""},
    {"pid=12 used_mib=700", "gpu.memory 0000:02:00.0=WARNING"},
    {"used_mib=70000", "gpu.memory 0000:02:00.0=WARNING"},
    {"lost=15", "gpu.reached GPU 1=CRITICAL"},
    {"gpus=1", "gpu.present=CRITICAL"},
    {"gpus=0", "gpu.present=CRITICAL"},
    {"init=18", "gpu.health=UNKNOWN"}};

TEST(GpuCheck, EachFaultHasItsFindings) {
  GpuExpectations expected;
  expected.wanted = 2;
  expected.nvidia_in_kernel = 2;
  expected.all_visible = true;
  expected.is_own = [](int pid) { return pid == 11; };
  for (const auto& [scenario, findings] : kGpuCases) {
    EXPECT_EQ(complaints(evaluate_gpus(told(scenario), expected)), findings) << scenario;
  }
}

TEST(GpuCheck, LinkDownOnASingleGpuIsReported) {
  auto facts = told("links=3");
  facts.gpus.erase(facts.gpus.begin());
  facts.pairs.clear();
  EXPECT_EQ(complaints(evaluate_gpus(facts, {})), "gpu.nvlink 0000:02:00.0=CRITICAL");
  facts.gpus.front().links_up.value = 0;  // a GPU without connected links
  EXPECT_EQ(complaints(evaluate_gpus(facts, {})), "");
}

TEST(GpuCheck, OtherJobsMayComputeIfNoGpusAreRequested) {
  EXPECT_EQ(complaints(evaluate_gpus(told("pid=12 used_mib=70000"), {})), "");
}

TEST(GpuCheck, NoFindingsWithoutGpusIfNoneAreRequested) {
  EXPECT_TRUE(evaluate_gpus(read_nvml("/nowhere/libnvidia-ml.so.1"), {}).empty());
  EXPECT_TRUE(evaluate_gpus(told("gpus=0"), {}).empty());
  EXPECT_TRUE(evaluate_gpus(told("init=9"), {})
                  .empty());  // an image may contain the library on a node without GPUs
}

TEST(GpuCheck, MissingLibraryIsUnknown) {
  const auto facts = read_nvml("/nowhere/libnvidia-ml.so.1");
  GpuExpectations expected;
  expected.wanted = 2;
  EXPECT_EQ(complaints(evaluate_gpus(facts, expected)), "gpu.present=CRITICAL, gpu.health=UNKNOWN");
  expected.nvidia_in_kernel = 2;
  EXPECT_EQ(complaints(evaluate_gpus(facts, expected)), "gpu.health=UNKNOWN");
}

TEST(GpuCheck, GpusOfOtherVendorsAreOnlyCounted) {
  GpuExpectations expected;
  expected.others_in_kernel = 2;
  const auto facts = read_nvml("/nowhere/libnvidia-ml.so.1");
  EXPECT_TRUE(evaluate_gpus(facts, expected).empty());  // possibly a display
  expected.wanted = 2;
  EXPECT_EQ(complaints(evaluate_gpus(facts, expected)), "gpu.health=UNKNOWN");
  expected.wanted = 3;
  EXPECT_EQ(complaints(evaluate_gpus(facts, expected)), "gpu.present=CRITICAL, gpu.health=UNKNOWN");
}

// SLURM counts MIG devices, and NVML the GPUs that are divided into them.
TEST(GpuCheck, MigDevicesAreCountedInsteadOfTheirGpu) {
  const auto found = [](const char* scenario, int wanted) {
    GpuExpectations expected;
    expected.wanted = wanted;
    expected.nvidia_in_kernel = 2;
    return complaints(evaluate_gpus(told(scenario), expected));
  };
  EXPECT_EQ(found("mig=1 mig_devices=3", 4), "");
  EXPECT_EQ(found("mig=1 mig_devices=3", 5), "gpu.present=CRITICAL");
  EXPECT_EQ(found("mig=1 mig_devices=0", 2), "gpu.present=CRITICAL");
  EXPECT_EQ(found("mig=1 mig_devices=3 mig_error=4", 5), "") << "unknown";
  EXPECT_EQ(found("mig=0 mig_devices=3", 3), "gpu.present=CRITICAL");
}

TEST(GpuCheck, UnknownNumberOfMigDevicesIsNotJudged) {
  GpuExpectations expected;
  expected.wanted = 7;
  expected.nvidia_in_kernel = 2;
  expected.mig_listed = true;
  expected.listed = 1;
  const auto found = [&expected](const NvmlFacts& facts) {
    return complaints(evaluate_gpus(facts, expected));
  };
  EXPECT_EQ(found(told("")), "");
  EXPECT_EQ(found(read_nvml(SLURM_DDP_FAKE_OLD_NVML)), "");
  EXPECT_EQ(found(told("init=18")), "gpu.health=UNKNOWN");
  EXPECT_EQ(found(told("gpus=0")), "gpu.present=CRITICAL");
  EXPECT_TRUE(gpu_notes(told(""), expected).empty());
}

TEST(GpuCheck, OtherJobsMayUseOtherMigDevicesOfAGpu) {
  GpuExpectations expected;
  expected.wanted = 4;
  EXPECT_EQ(complaints(evaluate_gpus(told("mig=1 mig_devices=3 pid=12 used_mib=70000"), expected)),
            "");
}

TEST(GpuCheck, DividedGpuWithoutMigDevicesIsPresent) {
  GpuExpectations expected;
  expected.nvidia_in_kernel = 2;
  expected.all_visible = true;
  EXPECT_EQ(complaints(evaluate_gpus(told("mig=1 mig_devices=0"), expected)), "");
  EXPECT_EQ(complaints(evaluate_gpus(told("mig=1 mig_devices=7 gpus=1"), expected)),
            "gpu.present=CRITICAL");
}

TEST(GpuCheck, CorrectedErrorsAreOnlyInformation) {
  int seen = 0;
  for (const auto& finding : evaluate_gpus(told(""), {})) {
    if (finding.check != "gpu.ecc_corrected") continue;
    ++seen;
    EXPECT_EQ(finding.severity, Severity::ok);
    EXPECT_EQ(finding.value, Value(77.0));
  }
  EXPECT_EQ(seen, 2);
}

Finding finding_of(const std::vector<Finding>& findings, const std::string& check) {
  for (const auto& finding : findings) {
    if (finding.check == check && finding.device == "0000:02:00.0") return finding;
  }
  return {};
}

TEST(GpuCheck, ThrottleFindingNamesAllReasons) {
  const auto finding = finding_of(evaluate_gpus(told("throttle=72"), {}), "gpu.throttle");
  EXPECT_EQ(finding.value, Value("hardware slowdown, too hot, slowed by the hardware"));
}

TEST(GpuCheck, PcieFindingNamesTheLink) {
  auto facts = told("generation=4 width=8 throttle=0 load=1");
  auto finding = finding_of(evaluate_gpus(facts, {}), "gpu.pcie");
  EXPECT_EQ(finding.value, Value("Gen 4 x8"));
  EXPECT_EQ(finding.expected, "Gen 5 x16");
  EXPECT_EQ(finding.evidence, "trained down to 25 % of the speed");
  facts = told("generation=4 width=8");
  finding = finding_of(evaluate_gpus(facts, {}), "gpu.pcie");
  EXPECT_EQ(finding.severity, Severity::ok);
  EXPECT_EQ(finding.evidence, "idle, so its link saves power and is not judged");
  facts.gpus[1].read_under_load = true;
  EXPECT_EQ(finding_of(evaluate_gpus(facts, {}), "gpu.pcie").severity, Severity::warning);
}

TEST(GpuCheck, MissingFunctionsAreListed) {
  setenv("FAKE_NVML", "recovery=1", 1);
  const auto facts = read_nvml(SLURM_DDP_FAKE_OLD_NVML);
  EXPECT_EQ(facts.not_checked,
            (std::vector<std::string>{
                "the recovery that the driver requests (no nvmlDeviceGetFieldValues)",
                "MIG (no nvmlDeviceGetMigMode)"}));
  EXPECT_EQ(complaints(evaluate_gpus(facts, {})), "");
  EXPECT_TRUE(told("").not_checked.empty());
}

TEST(GpuCheck, FactsSurviveSerialization) {
  const auto facts = told("ecc=5 ecc_error=0 links=3 pid=12");
  EXPECT_EQ(facts.driver, "999.1 (fake)");
  ASSERT_EQ(facts.gpus.size(), 2U);
  EXPECT_EQ(facts.gpus[1].name, "Fake GPU");
  EXPECT_EQ(facts.gpus[1].uncorrected.value, 5U);
  EXPECT_EQ(facts.gpus[1].corrected.value, 77U);
  EXPECT_EQ(facts.gpus[1].uncorrected_ever.value, 0U);
  EXPECT_EQ(facts.gpus[1].recovery.value, 0U);
  EXPECT_EQ(facts.gpus[1].links_down.value, 1U);
  EXPECT_EQ(told("mig=1 mig_devices=3").gpus[1].mig_devices.value, 3U);
  EXPECT_FALSE(facts.gpus[1].mig_devices.value);
  EXPECT_EQ(facts.gpus[1].processes, std::vector{12});
  EXPECT_FALSE(facts.gpus[1].pages_pending.value);
}

TEST(GpuCheck, ReadsTheRequestOfTheStep) {
  const auto wanted = [](const Variables& variables) {
    return gpus_wanted(environment_of(variables));
  };
  const auto of_four = [&wanted](const char* visible) {
    return wanted({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", visible}});
  };
  EXPECT_EQ(wanted({}), std::nullopt);
  EXPECT_EQ(wanted({{"CUDA_VISIBLE_DEVICES", "0,1"}}), std::nullopt) << "set by the user";
  EXPECT_EQ(wanted({{"SLURM_GPUS_ON_NODE", "4"}}), 4);
  EXPECT_EQ(wanted({{"SLURM_GPUS_ON_NODE", "0"}}), std::nullopt);
  EXPECT_EQ(of_four("0,1"), 2) << "a task bound to two of them";
  EXPECT_EQ(of_four("0,1,-1,2"), 2) << "an invalid entry hides all after it";
  EXPECT_EQ(of_four("-1"), std::nullopt) << "the user wants none";
}

TEST(GpuCheck, ReadsTheKernelsLog) {
  const char* log =
      "6,1,1,-;NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
      "6,2,2,-;NVRM: Xid (PCI:0000:02:00): 31, pid=7, name=python, a fault of the program\n"
      "6,3,3,-;NVRM: Xid (PCI:0000:03:00): 79, pid=7\n"
      "6,4,4,-;NVRM: Xid (PCI:0000:04:00\n";
  EXPECT_EQ(complaints(evaluate_xids(log)),
            "gpu.xid_79 0000:02:00=WARNING, gpu.xid_79 0000:03:00=WARNING");
  EXPECT_TRUE(evaluate_xids("").empty());
  const test::FakeSysfs tree("kmsg = a\\nb");
  EXPECT_EQ(read_kernel_log(tree.root() / "kmsg"), "a\nb\n");
  EXPECT_EQ(read_kernel_log(tree.root() / "none"), std::nullopt);
}

TEST(GpuXids, FailuresOfGpusAreToldFromThoseOfPrograms) {
  const auto found = [](int number, const std::string& text) {
    return complaints(evaluate_xids("NVRM: Xid (PCI:0000:02:00): " + std::to_string(number) + ", " +
                                    text + "\n"));
  };
  for (const int failure : {48,  79,  110, 119, 121, 140, 143, 144, 145, 146,
                            147, 148, 149, 150, 151, 154, 155, 156, 157, 158}) {
    EXPECT_EQ(found(failure, "pid=1"),
              "gpu.xid_" + std::to_string(failure) + " 0000:02:00=WARNING");
  }
  for (const int of_a_program : {0, 13, 31, 43, 45, 63, 68, 69, 109, 137, 152, 999}) {
    EXPECT_EQ(found(of_a_program, "pid=1"), "") << of_a_program;
  }
  EXPECT_EQ(found(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0)"),
            "gpu.xid_149 0000:02:00=WARNING");
  EXPECT_EQ(found(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x0)"), "");
}

TEST(GpuXids, ARecoveryThatIsNoLongerRequestedIsNotReported) {
  const std::string reset =
      "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
      "Reset Required)\n";
  const std::string none =
      "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) "
      "to 0x0 (None)\n";
  const std::string other = "NVRM: Xid (PCI:0000:03:00): 154, to 0x2 (Node Reboot Required)\n";
  EXPECT_EQ(complaints(evaluate_xids(reset)), "gpu.xid_154 0000:02:00=WARNING");
  EXPECT_EQ(complaints(evaluate_xids(other + reset + none)), "gpu.xid_154 0000:03:00=WARNING");
  EXPECT_EQ(complaints(evaluate_xids(none + reset)), "gpu.xid_154 0000:02:00=WARNING");
}

TEST(GpuXids, OlderDriversOmitTheBus) {
  EXPECT_EQ(complaints(evaluate_xids("NVRM: Xid (0000:1b:00): 79, fallen off the bus.\n")),
            "gpu.xid_79 0000:1b:00=WARNING");
}

TEST(GpuCheck, ProcessesOfTheJobAreFoundByJobId) {
  std::ifstream own("/proc/self/environ", std::ios::binary);
  std::string value;
  for (std::string entry; std::getline(own, entry, '\0');) {
    if (entry.starts_with("SLURM_JOB_ID=")) value = entry.substr(13);
  }
  EXPECT_EQ(is_of_job(getpid(), "123456789"), value == "123456789");
  EXPECT_FALSE(is_of_job(getpid(), ""));
  EXPECT_FALSE(is_of_job(-1, "1"));
}

TEST(GpuNotes, NameWhatIsUnusual) {
  GpuExpectations expected;
  expected.nvidia_in_kernel = 2;
  EXPECT_TRUE(gpu_notes(told(""), expected).empty());
  EXPECT_EQ(gpu_notes(told("mig=1 persistence=0"), expected),
            (std::vector<std::string>{
                "MIG is enabled, which disables peer access: 0000:02:00.0",
                "persistence mode is off, so programs start slowly; use nvidia-persistenced: "
                "0000:02:00.0"}));
  expected.listed = 1;
  EXPECT_EQ(gpu_notes(told(""), expected),
            std::vector<std::string>{"CUDA_VISIBLE_DEVICES shows programs 1 of 2 GPUs; the driver "
                                     "was asked about all of them"});
  expected.listed = 2;
  expected.nvidia_in_kernel = 8;
  EXPECT_EQ(gpu_notes(told(""), expected),
            std::vector<std::string>{
                "the job's limits hide 6 of the node's 8 GPUs, which were not checked"});
  expected.all_visible = true;  // outside a job, this is a finding
  EXPECT_TRUE(gpu_notes(told(""), expected).empty());
  expected.without_driver = 2;
  EXPECT_EQ(
      gpu_notes(NvmlFacts{}, expected),
      std::vector<std::string>{"2 NVIDIA GPUs without NVIDIA's driver, which no program can use"});
  setenv("FAKE_NVML", "", 1);
  EXPECT_EQ(gpu_notes(read_nvml(SLURM_DDP_FAKE_OLD_NVML), {}).back(),
            "not checked: MIG (no nvmlDeviceGetMigMode) in this driver's library");
}

TEST(GpuNotes, GpusWithoutDriverAreCounted) {
  const test::FakeSysfs tree(R"(
    sys/bus/pci/devices/0000:01:00.0/vendor = 0x10de
    sys/bus/pci/devices/0000:01:00.0/class = 0x030200
    sys/bus/pci/devices/0000:02:00.0/vendor = 0x10de
    sys/bus/pci/devices/0000:02:00.0/class = 0x030200
    sys/bus/pci/devices/0000:02:00.0/driver -> ../../../drivers/nouveau
    sys/bus/pci/devices/0000:03:00.0/vendor = 0x10de
    sys/bus/pci/devices/0000:03:00.0/class = 0x030200
    sys/bus/pci/devices/0000:03:00.0/driver -> ../../../drivers/nvidia
    sys/bus/pci/devices/0000:04:00.0/vendor = 0x10de
    sys/bus/pci/devices/0000:04:00.0/class = 0x068000
    sys/bus/pci/devices/0000:05:00.0/vendor = 0x8086
    sys/bus/pci/devices/0000:05:00.0/class = 0x030000
  )");
  EXPECT_EQ(count_gpus_without_driver(tree.root()), 2);
  EXPECT_EQ(count_gpus_without_driver(tree.root() / "none"), 0);
}

// Runs the whole check on a fake tree with two GPUs.
class GpusOfANode : public testing::Test {
 protected:
  std::string run(const std::string& scenario,
                  std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
    setenv("FAKE_NVML", scenario.c_str(), 1);
    NodeOptions options;
    options.node = "n1";
    options.root = tree_.root();
    options.nvml_library = SLURM_DDP_FAKE_NVML;
    options.kernel_log = tree_.root() / "kmsg";
    options.gpu_timeout = timeout;
    options.gpu_copies = copies_;
    options.copies.cuda_library = SLURM_DDP_FAKE_CUDA;
    options.copies.bytes = 5000;
    std::vector<Finding> about_gpus;
    const auto outcome = run_node_checks(options, environment_of({}));
    verdict_ = outcome.verdict;
    for (const auto& finding : outcome.verdict.findings.all()) {
      if (finding.check.starts_with("gpu") && finding.unit != "GB/s") about_gpus.push_back(finding);
    }
    return about_gpus.empty() ? "nothing" : complaints(about_gpus);
  }

  bool copies_ = false;
  Verdict verdict_;
  test::FakeSysfs tree_{R"(
    sys/bus/pci/drivers/nvidia/0000:01:00.0/
    sys/bus/pci/drivers/nvidia/0000:02:00.0/
    sys/bus/pci/devices/0000:01:00.0/class = 0x030200
    sys/bus/pci/devices/0000:02:00.0/class = 0x030200
    kmsg = 6,1,1,-;NVRM: Xid (PCI:0000:02:00): 48, pid=1
  )"};
};

TEST_F(GpusOfANode, AreQueriedAndTheLogIsRead) {
  EXPECT_EQ(run("ecc=1"), "gpu.ecc n1/0000:02:00.0=CRITICAL, gpu.xid_48 n1/0000:02:00=WARNING");
}

TEST_F(GpusOfANode, ReadingsAndNotesAreInTheOutput) {
  run("mig=1 width=8");
  const auto json = json_of(verdict_, "ddp-check", 0);
  const auto& gpu = json.at("measurements").at("gpus").at("gpus").at(1);
  EXPECT_EQ(gpu.at("bus_address"), "0000:02:00.0");
  EXPECT_EQ(gpu.at("pcie_width").at("value"), 8);
  const std::string note = "MIG is enabled, which disables peer access: 0000:02:00.0";
  EXPECT_EQ(json.at("notes"), nlohmann::json::array({note}));
  EXPECT_NE(text_of(verdict_).find("note: " + note + "\nddp-check node "), std::string::npos);
}

// Wrong data is found, and links that are slow even under load are judged; that of the first fake
// GPU always is.
TEST_F(GpusOfANode, DataIsCopiedIfRequested) {
  setenv("FAKE_CUDA", "corrupt=21", 1);
  EXPECT_EQ(run("width=8"), "gpu.xid_48 n1/0000:02:00=WARNING");
  copies_ = true;
  EXPECT_EQ(run("width=8"),
            "gpu.pcie n1/0000:01:00.0=WARNING, gpu.pcie n1/0000:02:00.0=WARNING, "
            "gpu.xid_48 n1/0000:02:00=WARNING, "
            "gpu.copy_data n1/0000:02:00.0-0000:01:00.0=CRITICAL");
  EXPECT_EQ(verdict_.measurements.at("gpu_copies").at("pairs").size(), 2U);
}

TEST_F(GpusOfANode, NothingIsCopiedOnAGpuThatOthersUse) {
  setenv("FAKE_CUDA", "", 1);
  copies_ = true;
  EXPECT_EQ(run("pid=1"),
            "gpu.pcie n1/0000:01:00.0=WARNING, gpu.xid_48 n1/0000:02:00=WARNING, "
            "gpu.copy n1/0000:02:00.0=UNKNOWN");
  EXPECT_EQ(verdict_.measurements.at("gpu_copies").at("pairs").size(), 0U);
}

TEST_F(GpusOfANode, HangingDriverIsUnknown) {
  EXPECT_EQ(run("hang=1", std::chrono::milliseconds(300)),
            "gpu.health n1=UNKNOWN, gpu.xid_48 n1/0000:02:00=WARNING");
}

TEST_F(GpusOfANode, GpuThatNvmlDoesNotListIsCritical) {
  EXPECT_EQ(run("gpus=1"), "gpu.present n1=CRITICAL, gpu.xid_48 n1/0000:02:00=WARNING");
}

}  // namespace
}  // namespace ddp::check
