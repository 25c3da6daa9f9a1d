// SPDX-License-Identifier: Apache-2.0
// Tests the checks of one node that do not have their own test file (limits, storage, names, CPUs,
// memory, clock), and the run of all checks.
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>

#include "ddp_runtime/check/findings/resolve.h"
#include "ddp_runtime/check/node/clock_check.h"
#include "ddp_runtime/check/node/host_name_check.h"
#include "ddp_runtime/check/node/hugepages_check.h"
#include "ddp_runtime/check/node/limits_check.h"
#include "ddp_runtime/check/node/memory_check.h"
#include "ddp_runtime/check/node/processor_check.h"
#include "ddp_runtime/check/node/run_node_checks.h"
#include "ddp_runtime/check/node/storage_check.h"
#include "tests/unit/check/environment_of.h"
#include "tests/unit/fabric/fake_sysfs.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::check {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::chrono::milliseconds kNodeTimeout{2000};

Severity severity_of(const std::vector<Finding>& findings, const std::string& check) {
  for (const auto& finding : findings) {
    if (finding.check == check) return finding.severity;
  }
  ADD_FAILURE() << "no finding " << check;
  return Severity::unknown;
}

// ---- huge pages

TEST(Hugepages, ManyIdlePagesAndPagesAllInUseAreReported) {
  const auto said = [](const std::string& meminfo) {
    const auto findings = evaluate_hugepages(parse_hugepages(meminfo));
    return findings.empty() ? "nothing" : name_of(findings.front().severity);
  };
  const auto of_a_gigabyte = [&said](int total, int free) {
    return said("MemTotal: 1000000 kB\nHugePages_Total: " + std::to_string(total) +
                "\nHugePages_Free: " + std::to_string(free) + "\nHugepagesize: 2048 kB\n");
  };
  EXPECT_EQ(said(""), "UNKNOWN");
  EXPECT_EQ(said("MemTotal: 1000000 kB\n"), "nothing");
  EXPECT_EQ(said("MemTotal: 1000000 kB\nHugePages_Total: 9\n"), "UNKNOWN");
  EXPECT_EQ(of_a_gigabyte(0, 0), "OK");
  EXPECT_EQ(of_a_gigabyte(40, 40), "OK");
  EXPECT_EQ(of_a_gigabyte(40, 0), "WARNING");
  EXPECT_EQ(of_a_gigabyte(60, 60), "WARNING");
}

// ---- limits

struct LimitCase {
  const char* check;
  std::uint64_t value;
  Severity severity;
  bool rdma = false;
};

constexpr LimitCase kLimitCases[] = {{"limits.memlock", kUnlimited, Severity::ok, true},
                                     {"limits.memlock", 1024 * kMiB, Severity::warning, true},
                                     {"limits.memlock", 8 * kMiB, Severity::critical, true},
                                     {"limits.memlock", 8 * kMiB, Severity::ok},
                                     {"limits.nofile", 4096, Severity::ok},
                                     {"limits.nofile", 4095, Severity::warning},
                                     {"limits.nofile", 1023, Severity::critical},
                                     {"limits.nproc", 4096, Severity::ok},
                                     {"limits.nproc", 4095, Severity::warning},
                                     {"limits.nproc", 511, Severity::critical},
                                     {"limits.stack", kUnlimited, Severity::ok},
                                     {"limits.stack", 8 * kMiB, Severity::ok},
                                     {"limits.stack", 4 * kMiB, Severity::warning},
                                     {"limits.stack", kMiB / 2, Severity::critical}};

TEST(LimitsCheck, LowLimitsAreReported) {
  for (const auto& [check, value, severity, rdma] : kLimitCases) {
    const Limit limit{value, kUnlimited};
    EXPECT_EQ(severity_of(evaluate_limits({limit, limit, limit, limit}, rdma), check), severity)
        << check << " " << value;
  }
}

TEST(LimitsCheck, UnreadableLimitIsUnknown) {
  for (const auto& finding : evaluate_limits({}, false)) {
    EXPECT_EQ(finding.severity, Severity::unknown) << finding.check;
  }
}

TEST(LimitsCheck, ReadsTheLimitsOfThisProcess) {
  const Limits limits = read_limits();
  ASSERT_TRUE(limits.open_files);
  EXPECT_GT(limits.open_files->soft, 0U);
  EXPECT_GE(limits.open_files->hard, limits.open_files->soft);
}

// ---- storage

const StorageRule kRule{"storage.tmp", "/x", 1024 * kMiB, 64 * kMiB, "why"};

StorageFacts facts_with_free(std::uint64_t free_bytes) {
  return {4096 * kMiB, free_bytes, true, "", 0, false};
}

TEST(StorageCheck, FreeSpaceAndWritesDecideTheSeverity) {
  EXPECT_EQ(evaluate_storage(facts_with_free(1024 * kMiB), kRule).severity, Severity::ok);
  EXPECT_EQ(evaluate_storage(facts_with_free(1023 * kMiB), kRule).severity, Severity::warning);
  EXPECT_EQ(evaluate_storage(facts_with_free(63 * kMiB), kRule).severity, Severity::critical);
  StorageFacts unwritable = facts_with_free(4096 * kMiB);
  unwritable.error = "flushing failed";
  EXPECT_EQ(evaluate_storage(unwritable, kRule).severity, Severity::critical);
  EXPECT_EQ(evaluate_storage({}, kRule).severity, Severity::unknown) << "writable, of unknown size";
}

// A file server that is down must not look like five hundred bad nodes.
TEST(StorageCheck, FailedFileServerDoesNotBlameTheNode) {
  StorageFacts facts = facts_with_free(4096 * kMiB);
  facts.error = "the file system did not answer within 1000 ms";
  facts.server = "nfs4 files:/export";
  const Finding finding = evaluate_storage(facts, kRule);
  EXPECT_EQ(finding.severity, Severity::unknown);
  EXPECT_EQ(finding.check, "storage.shared");
  EXPECT_EQ(finding.evidence, facts.error + ", on nfs4 files:/export");
  facts.error.clear();
  EXPECT_EQ(evaluate_storage(facts, kRule).check, kRule.check);
}

TEST(StorageCheck, FullFileServerDoesNotBlameTheNode) {
  StorageFacts facts = facts_with_free(0);
  facts.server = "lustre 10.0.0.1@tcp:/fs";
  const Finding finding = evaluate_storage(facts, kRule);
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_EQ(finding.evidence, "out of 4096 MiB, on lustre 10.0.0.1@tcp:/fs");
  facts.sizes_known = false;
  EXPECT_EQ(evaluate_storage(facts, kRule).severity, Severity::ok) << "an object store";
}

TEST(StorageCheck, OnlyTypesThatBelongToOneNodeAreItsOwn) {
  const auto server = [](const std::string& type) {
    return server_of("30 22 0:40 / /scratch rw shared:1 - " + type + " source rw\n", "/scratch/u");
  };
  for (const char* own : {"ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs"}) {
    EXPECT_EQ(server(own), "") << own;
  }
  for (const char* shared : {"nfs",
                             "nfs4",
                             "lustre",
                             "beegfs",
                             "gpfs",
                             "ceph",
                             "wekafs",
                             "dvs",
                             "gfs2",
                             "ocfs2",
                             "cifs",
                             "virtiofs",
                             "autofs",
                             "fuse.ceph-fuse",
                             "fuse.juicefs",
                             "fuse.dfuse",
                             "fuse.mount-s3",
                             "fuse.gcsfuse",
                             "fuse.blobfuse2",
                             "fuse.mfs",
                             "fuse.quobyte",
                             "a.type.of.tomorrow"}) {
    EXPECT_EQ(server(shared), std::string(shared) + " source");
  }
}

TEST(StorageCheck, LinksToAFileServerAreFollowed) {
  const test::TemporaryDirectory directory;
  const std::string here = std::filesystem::canonical(directory.path()).string();
  const std::string mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / " + here +
                             "/files rw - nfs4 files:/export rw\n31 30 8:2 / " + here +
                             "/files/local rw - xfs /dev/sdb rw\n";
  const auto server = [&](const char* path) {
    return server_behind(mounts, std::filesystem::path(here) / path);
  };
  std::filesystem::create_directory(directory.path() / "own");
  std::filesystem::create_directory(directory.path() / "files");
  std::filesystem::create_symlink(here + "/own", directory.path() / "files/not-read");
  std::filesystem::create_symlink(here + "/files", directory.path() / "scratch");
  std::filesystem::create_symlink("../scratch/a", directory.path() / "own/link");
  std::filesystem::create_symlink("circle", directory.path() / "circle");
  for (const char* path :
       {"files", "files/a", "files/not-read", "scratch", "scratch/b/c", "own/link/b", "scratch/"}) {
    EXPECT_EQ(server(path), "nfs4 files:/export") << path;
  }
  for (const char* path : {"", "own", "own/x/../y", "scratch/local/a", "circle", "files/.."}) {
    EXPECT_EQ(server(path), "") << path;
  }
}

// What fills a disk while a job runs is probably that job.
TEST(StorageCheck, SpaceThatAJobMayUseIsNotTheFaultOfTheNode) {
  const auto severity = [](const StorageFacts& facts) {
    return evaluate_storage(facts, kRule, true).severity;
  };
  const Finding full = evaluate_storage(facts_with_free(63 * kMiB), kRule, true);
  EXPECT_EQ(full.severity, Severity::warning);
  EXPECT_EQ(full.evidence, "out of 4096 MiB; a job runs on this node");
  EXPECT_EQ(severity(facts_with_free(1024 * kMiB)), Severity::ok);
  for (const int by_use : {ENOSPC, EDQUOT, ENOMEM}) {
    StorageFacts facts = facts_with_free(0);
    facts.error = "writing failed";
    facts.error_code = by_use;
    EXPECT_EQ(severity(facts), Severity::warning) << by_use;
    EXPECT_EQ(evaluate_storage(facts, kRule).severity, Severity::critical) << by_use;
  }
  StorageFacts slow = facts_with_free(0);
  slow.error = "no answer";
  slow.timed_out = true;
  EXPECT_EQ(severity(slow), Severity::warning) << "busy";
  for (const int fault : {0, EROFS, EIO, ENOENT, EACCES}) {
    StorageFacts facts = facts_with_free(0);
    facts.error = "writing failed";
    facts.error_code = fault;
    EXPECT_EQ(severity(facts), Severity::critical) << fault;
  }
  EXPECT_EQ(severity({16 * kMiB, 15 * kMiB, true, "", 0, false}), Severity::critical)
      << "too small even without a job";
}

TEST(StorageCheck, ServerOfADirectoryIsReadFromTheMounts) {
  const std::string mounts =
      "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "30 22 0:40 / /scratch rw,relatime shared:1 - nfs4 files:/export rw,hard\n"
      "31 30 8:2 / /scratch/local rw - xfs /dev/sdb rw\n"
      "32 22 0:41 / /my\\040data rw master:3 - lustre 10.0.0.1@tcp:/fs rw\n"
      "33 22 0:42 / /odd\n";
  EXPECT_EQ(server_of(mounts, "/scratch"), "nfs4 files:/export");
  EXPECT_EQ(server_of(mounts, "/scratch/a/b"), "nfs4 files:/export");
  EXPECT_EQ(server_of(mounts, "/scratch/local/a"), "");
  EXPECT_EQ(server_of(mounts, "/scratchpad"), "");
  EXPECT_EQ(server_of(mounts, "/my data/x"), "lustre 10.0.0.1@tcp:/fs");
  EXPECT_EQ(server_of(mounts, "/odd"), "");
  EXPECT_EQ(server_of("", "/x"), "");
}

TEST(StorageProbe, WritesAndReadsBackAndLeavesNoFile) {
  const test::TemporaryDirectory directory;
  const StorageFacts facts = probe_storage(directory.path(), kNodeTimeout);
  EXPECT_EQ(facts.error, "");
  EXPECT_TRUE(facts.sizes_known);
  EXPECT_GT(facts.free_bytes, 0U);
  EXPECT_GE(facts.total_bytes, facts.free_bytes);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(StorageProbe, ReportsWhyItCannotWrite) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(probe_storage(directory.path() / "nothing", kNodeTimeout).error,
            "creating a file failed: No such file or directory");
  test::write(directory.path() / "file", "x");
  EXPECT_EQ(probe_storage(directory.path() / "file", kNodeTimeout).error,
            "creating a file failed: Not a directory");
}

// ---- names

TEST(HostNameCheck, AddressDecidesTheSeverity) {
  const auto severity = [](const Resolution& name) { return evaluate_host_name(name).severity; };
  EXPECT_EQ(severity({{"10.0.0.1"}, "", false}), Severity::ok);
  EXPECT_EQ(severity({{"10.0.0.1", "127.0.1.1"}, "", false}), Severity::ok);
  EXPECT_EQ(severity({{"127.0.1.1"}, "", false}), Severity::warning);
  EXPECT_EQ(severity({{"::1", "127.0.0.1"}, "", false}), Severity::warning);
  for (const int about_the_name : {EAI_NONAME, EAI_NODATA, EAI_ADDRFAMILY}) {
    EXPECT_EQ(severity(failed_resolution(about_the_name)), Severity::critical) << about_the_name;
  }
}

// A name server that is down must not look like five hundred bad nodes.
TEST(HostNameCheck, FailedNameServiceDoesNotBlameTheNode) {
  for (const int about_the_service : {EAI_AGAIN, EAI_FAIL, EAI_SYSTEM, EAI_MEMORY}) {
    const Finding finding = evaluate_host_name(failed_resolution(about_the_service));
    EXPECT_EQ(finding.severity, Severity::unknown) << about_the_service;
    EXPECT_EQ(finding.evidence, gai_strerror(about_the_service));
    EXPECT_NE(finding.action.find("name service (/etc/resolv.conf"), std::string::npos);
  }
  EXPECT_EQ(evaluate_host_name({{}, "no answer within 1 ms", true, true}).severity,
            Severity::unknown);
}

// ---- CPUs, memory, clock

TEST(ProcessorCheck, MissingCpusAreReported) {
  EXPECT_EQ(evaluate_processors({8, 64, 8}).severity, Severity::ok);
  EXPECT_EQ(evaluate_processors({4, 64, 8}).severity, Severity::warning);
  EXPECT_EQ(evaluate_processors({1, 64, std::nullopt}).severity, Severity::ok);
  EXPECT_EQ(evaluate_processors({std::nullopt, 64, 8}).severity, Severity::unknown);
}

TEST(ProcessorCheck, ReadsCpuMaskAndPromisedCpus) {
  const ProcessorFacts facts = read_processors(environment_of({{"SLURM_CPUS_PER_TASK", "6"}}));
  ASSERT_TRUE(facts.usable);
  EXPECT_GE(*facts.usable, 1);
  EXPECT_EQ(facts.promised, 6);
}

TEST(MemoryCheck, ParsesMeminfo) {
  const MemoryFacts facts =
      parse_meminfo("MemTotal:   2048 kB\nMemFree: 1 kB\nMemAvailable: 512 kB\n");
  EXPECT_EQ(facts.total_bytes, 2 * kMiB);
  EXPECT_EQ(facts.available_bytes, kMiB / 2);
  EXPECT_FALSE(parse_meminfo("XMemTotal: 5 kB\n").total_bytes);
  EXPECT_FALSE(parse_meminfo("MemTotal:").total_bytes);
  EXPECT_FALSE(parse_meminfo("MemTotal: 99999999999999999999 kB").total_bytes);
  EXPECT_FALSE(parse_meminfo("MemTotal: 18446744073709551615 kB").total_bytes);
}

TEST(MemoryCheck, LowMemoryIsReported) {
  const std::uint64_t gib = 1024 * kMiB;
  EXPECT_EQ(evaluate_memory({64 * gib, 32 * gib}).severity, Severity::ok);
  EXPECT_EQ(evaluate_memory({64 * gib, 3 * gib}).severity,
            Severity::warning);  // less than 5 %
  EXPECT_EQ(evaluate_memory({2 * gib, gib - 1}).severity,
            Severity::warning);  // less than 1 GiB
  EXPECT_EQ(evaluate_memory({64 * gib, gib / 2}).severity, Severity::critical);
  EXPECT_EQ(evaluate_memory({64 * gib, std::nullopt}).severity, Severity::unknown);
}

TEST(MemoryCheck, MemoryThatAJobMayUseIsNotTheFaultOfTheNode) {
  const Finding finding = evaluate_memory({65536 * kMiB, 512 * kMiB}, true);
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_EQ(finding.evidence, "out of 65536 MiB; a job runs on this node");
  EXPECT_EQ(evaluate_memory({65536 * kMiB, 32768 * kMiB}, true).evidence, "out of 65536 MiB");
}

TEST(ClockCheck, UnsynchronizedClockIsReported) {
  EXPECT_EQ(evaluate_clock({true, true, 20'000}).severity, Severity::ok);
  EXPECT_EQ(evaluate_clock({true, true, 2'000'000}).severity, Severity::warning);
  EXPECT_EQ(evaluate_clock({true, false, 20'000}).severity, Severity::warning);
  EXPECT_EQ(evaluate_clock({}).severity, Severity::unknown);
}

// ---- all checks

TEST(RunNodeChecks, FindsTheFaultsOfAFakeNode) {
  const test::FakeSysfs fake(R"(
    sys/class/net/lo/type = 772
    sys/class/infiniband/mlx5_0/ports/1/state = 1: DOWN
    sys/class/infiniband/mlx5_0/ports/1/phys_state = 3: Disabled
  )");
  NodeOptions options;
  options.node = "n7";
  options.root = fake.root();
  options.sys = fake.root() / "sys";
  options.directories = {"/nonexistent-directory"};
  const NodeOutcome outcome = run_node_checks(options, environment_of({}));
  EXPECT_FALSE(outcome.left_behind);
  std::map<std::string, Severity> by_check;
  for (const auto& finding : outcome.verdict.findings.all()) {
    EXPECT_EQ(finding.node, "n7");
    by_check[finding.check] = finding.severity;
  }
  EXPECT_EQ(by_check.at("interface.any"), Severity::critical);
  EXPECT_EQ(by_check.at("infiniband.state"), Severity::critical);
  EXPECT_EQ(by_check.at("storage.dir"), Severity::critical);
  for (const char* check :
       {"limits.memlock", "limits.nofile", "limits.nproc", "limits.stack", "storage.shm",
        "storage.tmp", "name.own", "cpu.affinity", "memory.available", "clock.synchronized"}) {
    EXPECT_TRUE(by_check.contains(check)) << check;
  }
  EXPECT_EQ(exclude_list(outcome.verdict), "n7\n");
}

// No memory may be locked.
TEST(RunNodeChecks, LockedMemoryIsNeededOnlyIfJobsUseRdma) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  limit.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  struct Case {
    const char* layer;
    const char* type;
    const char* driver;
    const char* state;
    Severity memlock;
  };
  for (const auto& [layer, type, driver, state, memlock] :
       {Case{"InfiniBand", "1: CA", "mlx5_core", "4: ACTIVE", Severity::critical},
        Case{"InfiniBand", "1: CA", "mlx5_core", "1: DOWN", Severity::ok},
        Case{"Ethernet", "4: RNIC", "irdma", "4: ACTIVE", Severity::ok},
        Case{"Ethernet", "5: usNIC", "usnic", "4: ACTIVE", Severity::ok},
        Case{"Unspecified", "7: unspecified", "efa", "4: ACTIVE", Severity::critical}}) {
    const std::string port = "sys/class/infiniband/m0/ports/1";
    const test::FakeSysfs fake("sys/class/net/lo/type = 772\n" + port + "/state = " + state + "\n" +
                               port + "/link_layer = " + layer + "\n" +
                               "sys/class/infiniband/m0/node_type = " + type + "\n" +
                               "sys/class/infiniband/m0/device -> ../../../devices/pci/x\n" +
                               "sys/devices/pci/x/driver -> ../../../bus/drivers/" + driver + "\n");
    NodeOptions options;
    options.root = fake.root();
    options.sys = fake.root() / "sys";
    const NodeOutcome outcome = run_node_checks(options, environment_of({}));
    EXPECT_EQ(severity_of(outcome.verdict.findings.all(), "limits.memlock"), memlock) << type;
  }
}

TEST(RunNodeChecks, AJobExcusesTheUseOfMemory) {
  const test::FakeSysfs fake(
      "proc/meminfo = MemTotal: 65536000 kB\\nMemAvailable: 1000 kB\n"
      "proc/7/comm = slurmstepd\n"
      "proc/7/cmdline = slurmstepd: [12.extern]\n"
      "proc/7/status = Name:\tslurmstepd\\nUid:\t0\t0\t0\t0\n");
  NodeOptions options;
  options.root = fake.root();
  options.sys = fake.root();
  const auto severity = [&options](const Variables& variables) {
    const NodeOutcome outcome = run_node_checks(options, environment_of(variables));
    return severity_of(outcome.verdict.findings.all(), "memory.available");
  };
  EXPECT_EQ(severity({}), Severity::warning);
  EXPECT_EQ(severity({{"SLURM_JOB_ID", "11"}}), Severity::warning);
  EXPECT_EQ(severity({{"SLURM_JOB_ID", "12"}}), Severity::critical) << "the job of the check";
}

TEST(RunNodeChecks, UnreadableFactsAreUnknown) {
  const test::FakeSysfs fake(R"(
    sys/class/net = no directory
    sys/class/infiniband = no directory
  )");
  NodeOptions options;
  options.root = fake.root();  // without /proc/meminfo
  options.sys = fake.root() / "sys";
  const NodeOutcome outcome = run_node_checks(options, environment_of({}));
  for (const char* check : {"interface", "infiniband", "memory.available", "memory.hugepages"}) {
    EXPECT_EQ(severity_of(outcome.verdict.findings.all(), check), Severity::unknown) << check;
  }
}

}  // namespace
}  // namespace ddp::check
