// SPDX-License-Identifier: Apache-2.0
// Combines every system call of a save with every fault, one at a time. An earlier checkpoint has
// already been acknowledged. The invariants are:
//   I1 a checkpoint loads       I2 it is the acknowledged one or a later one
//   I3 it is bitwise equal      I4 no half-written file looks like an HDF5 file
//   I5 leftovers can be removed I6 nothing hangs or crashes
// After an error (not a crash), save() must also have thrown a one-line error and left no files.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/retention.h"
#include "tests/unit/hdf5_ckpt/fault_matrix.h"
#include "tests/unit/hdf5_ckpt/faulty_ops.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::Fault;
using test::FaultyOps;
using test::small_model;
using test::TempDirectory;

// The state before the save of step 2, and the features of the file system.
struct Scenario {
  const char* name;
  std::function<void(FaultyOps&)> lacks;
  bool step_2_exists = false;
  bool step_2_damaged = false;
};

std::vector<Scenario> scenarios() {
  const auto nothing = [](FaultyOps&) {};
  return {{"first save of a step", nothing},
          {"no fallocate, no rename flags, no O_DIRECT",
           [](FaultyOps& ops) {
             ops.without_fallocate();
             ops.without_rename_flags();
             ops.without_direct_open();
           }},
          {"replaces an intact checkpoint", nothing, true},
          {"replaces a damaged checkpoint", nothing, true, true},
          {"replaces a damaged checkpoint without rename flags", &FaultyOps::without_rename_flags,
           true, true}};
}

const OwnerTag kOwner = {"test", 0, "host", 100};

// The seeds of the contents of step 2: an older checkpoint that may exist, and the one that is
// saved.
constexpr std::uint64_t kOld = 20;
constexpr std::uint64_t kNew = 2;

class FaultySave {
 public:
  FaultySave(const Scenario& scenario, Fault fault, std::size_t index, int code)
      : ops_(fault, index, code) {
    scenario.lacks(ops_);
    save(system_file_ops(), 1, 1);
    if (!scenario.step_2_exists) return;
    save(system_file_ops(), 2, kOld);
    if (!scenario.step_2_damaged) return;
    std::fstream file(root_ / "step-00000002/model.h5", std::ios::in | std::ios::out);
    file.seekp(100000);
    file.put('\0');
  }

  // Saves step 2 with the fault and records the error message, if any.
  void save_with_fault() {
    try {
      save(ops_, 2, kNew);
      acknowledged_ = true;
    } catch (const Error& error) {
      error_ = error.what();
    } catch (const test::Crashed&) {
      crashed_ = true;
    }
  }

  // Checks the checkpoints that a new process finds.
  void expect_loadable(const Scenario& scenario) {
    const auto loaded = CheckpointDirectory(root_).newest_verified();
    ASSERT_TRUE(loaded);
    const std::uint64_t step = loaded->checkpoint.manifest().step;
    const bool is_new = test::holds(loaded->checkpoint, small_model(kNew));
    const bool is_old = test::holds(loaded->checkpoint, small_model(kOld));
    const bool is_first = test::holds(loaded->checkpoint, small_model(1));
    ASSERT_TRUE(step == 2 ? is_new || is_old : is_first);
    if (acknowledged_) {
      ASSERT_TRUE(is_new);
    } else if (scenario.step_2_exists && !scenario.step_2_damaged) {
      ASSERT_TRUE(is_new || is_old);
    }
    if (!error_.empty()) {
      ASSERT_FALSE(is_new);
    }
  }

  // A file that starts with the HDF5 signature must be complete: equal to the file of a save
  // without faults.
  void expect_no_torn_hdf5() {
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      if (entry.path().filename() != "model.h5" ||
          !entry.path().parent_path().filename().string().starts_with(".tmp"))
        continue;
      const auto bytes = test::file_bytes(entry.path());
      const std::string_view signature = "\x89HDF\r\n\x1a\n";
      if (bytes.size() < signature.size() ||
          std::memcmp(bytes.data(), signature.data(), signature.size()) != 0)
        continue;
      // The file may belong to the old checkpoint, which was exchanged for the new one, or to the
      // new one.
      const bool complete = bytes == complete_file(kNew) || bytes == complete_file(kOld) ||
                            fs::exists(entry.path().parent_path() / "manifest.json");
      ASSERT_TRUE(complete) << entry.path();
    }
  }

  std::vector<std::string> leftovers() const {
    std::vector<std::string> names;
    for (const std::string& name : test::names_in(root_))
      if (name.starts_with(".") && !name.starts_with(".broken")) names.push_back(name);
    return names;
  }

  const FaultyOps& ops() const { return ops_; }
  const fs::path& root() const { return root_.path(); }
  const std::string& error() const { return error_; }
  bool acknowledged() const { return acknowledged_; }
  bool crashed() const { return crashed_; }

  static std::vector<std::byte> complete_file(std::uint64_t contents) {
    static std::map<std::uint64_t, std::vector<std::byte>> files;
    if (!files.contains(contents)) {
      const TempDirectory dir;
      CheckpointDirectory(dir.path(), test::small_options())
          .save(2, kOwner, small_model(contents).views(), test::test_info());
      files[contents] = test::file_bytes(dir / "step-00000002/model.h5");
    }
    return files[contents];
  }

 private:
  void save(FileOps& ops, std::uint64_t step, std::uint64_t contents) {
    SaveOptions options = test::small_options();
    options.if_exists = IfExists::replace;
    CheckpointDirectory(root_, options, ops)
        .save(step, kOwner, small_model(contents).views(), test::test_info());
  }

  TempDirectory root_{test::On::memory};
  FaultyOps ops_;
  std::string error_;
  bool acknowledged_ = false;
  bool crashed_ = false;
};

std::size_t count_calls(const Scenario& scenario) {
  FaultySave run(scenario, Fault::none, 0, 0);
  run.save_with_fault();
  EXPECT_TRUE(run.acknowledged()) << run.error();
  EXPECT_TRUE(run.leftovers().empty());
  return run.ops().calls().size();
}

std::string describe(const Scenario& scenario, const FaultySave& run, std::size_t k) {
  const auto call = run.ops().struck();
  return fmt::format("{}: call {}, {} of {}; {}", scenario.name, k, call.what, call.path,
                     run.error());
}

class Faults : public testing::TestWithParam<std::size_t> {
 protected:
  void report(const char* fault, std::size_t points) const {
    test::expect_in_fault_matrix(fmt::format("{}: {}", fault, scenario_.name), points);
  }

  const Scenario scenario_ = scenarios().at(GetParam());
};

INSTANTIATE_TEST_SUITE_P(EveryScenario, Faults, testing::Range<std::size_t>(0, 5));

TEST_P(Faults, CrashAtAnyCallLosesNothing) {
  const std::size_t calls = count_calls(scenario_);
  for (const Fault fault : {Fault::crash_before, Fault::crash_after, Fault::crash_half_written})
    for (std::size_t k = 0; k < calls; ++k) {
      FaultySave run(scenario_, fault, k, 0);
      run.save_with_fault();
      SCOPED_TRACE(describe(scenario_, run, k));
      ASSERT_TRUE(run.crashed());
      ASSERT_NO_FATAL_FAILURE(run.expect_loadable(scenario_));
      ASSERT_NO_FATAL_FAILURE(run.expect_no_torn_hdf5());
      remove_leftovers(run.root(), [](const OwnerTag& owner) { return owner == kOwner; });
      ASSERT_TRUE(run.leftovers().empty());
      ASSERT_NO_FATAL_FAILURE(run.expect_loadable(scenario_));
    }
  report("process dies at a call", 3 * calls);
}

// True for calls whose failure does not make the save fail: calls after the commit; trying
// O_DIRECT, which not every file system supports; closing a directory, which loses no data; and
// checking whether a path exists, because the next call reports the error.
bool may_fail(const FaultyOps::Call& call) {
  const fs::path path = call.path;
  return path.filename().string().find("latest") != std::string::npos ||
         call.path.find(".trash") != std::string::npos || (call.what == "open" && call.direct) ||
         call.what == "lstat" ||
         (call.what == "close" && path.extension() != ".h5" && path.extension() != ".json");
}

TEST_P(Faults, ErrorAtAnyCallIsReportedAndLeavesNothing) {
  const std::size_t calls = count_calls(scenario_);
  for (const int code : {ENOSPC, EIO})
    for (std::size_t k = 0; k < calls; ++k) {
      FaultySave run(scenario_, Fault::error, k, code);
      run.save_with_fault();
      SCOPED_TRACE(describe(scenario_, run, k));
      ASSERT_FALSE(run.crashed());
      if (run.acknowledged()) {
        // The last three calls make the hint durable in ROOT.
        const bool after_commit = k + 3 >= run.ops().calls().size();
        ASSERT_TRUE(may_fail(run.ops().struck()) || after_commit);
      } else {
        ASSERT_NE(run.error().find(code == EIO ? "Input/output error" : "No space left"),
                  std::string::npos);
        ASSERT_EQ(run.error().find('\n'), std::string::npos);
        ASSERT_TRUE(run.leftovers().empty());
      }
      ASSERT_NO_FATAL_FAILURE(run.expect_loadable(scenario_));
    }
  report("call fails with ENOSPC or EIO", 2 * calls);
}

TEST_P(Faults, DiskThatStaysDeadLosesNothing) {
  const std::size_t calls = count_calls(scenario_);
  for (std::size_t k = 0; k < calls; ++k) {
    FaultySave run(scenario_, Fault::error_from_here_on, k, EIO);
    run.save_with_fault();
    SCOPED_TRACE(describe(scenario_, run, k));
    ASSERT_NE(run.acknowledged(), !run.error().empty());
    const auto loaded = CheckpointDirectory(run.root()).newest_verified();
    ASSERT_TRUE(loaded);
    const Checkpoint& checkpoint = loaded->checkpoint;
    ASSERT_TRUE(test::holds(checkpoint, small_model(1)) ||
                test::holds(checkpoint, small_model(kOld)) ||
                test::holds(checkpoint, small_model(kNew)));
    ASSERT_TRUE(!run.acknowledged() || test::holds(checkpoint, small_model(kNew)));
  }
  report("disk fails at a call and stays dead", calls);
}

TEST_P(Faults, FalselyReportedWriteIsFoundWhenLoading) {
  const std::size_t calls = count_calls(scenario_);
  std::size_t lies = 0;
  for (std::size_t k = 0; k < calls; ++k) {
    FaultySave run(scenario_, Fault::lie, k, 0);
    run.save_with_fault();
    if (run.ops().struck().what != "pwrite") continue;
    SCOPED_TRACE(describe(scenario_, run, k));
    const auto loaded = CheckpointDirectory(run.root()).newest_verified();
    ASSERT_TRUE(loaded);
    const bool in_hint = run.ops().struck().path.find("latest") != std::string::npos;
    ASSERT_EQ(test::holds(loaded->checkpoint, small_model(kNew)), in_hint);
    ASSERT_TRUE(in_hint || test::holds(loaded->checkpoint, small_model(1)) ||
                test::holds(loaded->checkpoint, small_model(kOld)));
    ++lies;
  }
  report("write that reports success and does nothing", lies);
}

TEST(FaultsInThreads, ErrorInWriterThreadsIsReportedOnce) {
  for (std::size_t k = 0; k < 24; ++k) {
    const TempDirectory root;
    FaultyOps ops(Fault::error_from_here_on, k, ENOSPC);
    CheckpointDirectory directory(root, {.write = {.threads = 4, .block_bytes = 8192}}, ops);
    const std::string error =
        error_of([&] { directory.save(1, kOwner, small_model(1).views(), test::test_info()); });
    EXPECT_NE(error.find("No space left"), std::string::npos) << k;
  }
}

}  // namespace
}  // namespace ddp::ckpt
