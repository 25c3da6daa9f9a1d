// SPDX-License-Identifier: Apache-2.0
// The commit protocol without faults; fault_test.cpp covers faults.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <thread>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/hdf5_ckpt/faulty_ops.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::ArraySet;
using test::damage;
using test::FaultyOps;
using test::Names;
using test::names_in;
using test::save_step;
using test::small_model;
using test::TempDirectory;
using test::test_info;
using test::test_owner;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

OwnerTag owner_number(int n) {
  return {"test", 0, "host", n};
}

// The name under which a damaged step 5 is kept.
std::string broken_step_5() {
  return ".broken-step-00000005." + test_owner().text();
}

TEST(Directory, SaveReportsItsFiles) {
  const TempDirectory top;
  const fs::path root = top / "a/b";
  const Saved saved = save_step(root, 12345);
  EXPECT_EQ(saved.path, root / "step-00012345");
  EXPECT_TRUE(saved.notes.empty());
  EXPECT_EQ(names_in(root), (Names{"latest", "step-00012345"}));
  EXPECT_EQ(names_in(saved.path), (Names{"manifest.json", "model.h5"}));
  const Checkpoint checkpoint = Checkpoint::open(saved.path);
  EXPECT_EQ(checkpoint.manifest().step, 12345U);
  EXPECT_EQ(checkpoint.manifest().epoch, test_info().epoch);
  EXPECT_EQ(checkpoint.manifest().run_id, test_info().run_id);
  EXPECT_EQ(checkpoint.manifest().state.dump(), test_info().state.dump());
  EXPECT_TRUE(test::holds(checkpoint, small_model(12345)));
}

TEST(Directory, HintNamesTheLastCheckpoint) {
  const TempDirectory root;
  for (const std::uint64_t step : {1, 2}) save_step(root, step);
  std::ifstream hint(root / "latest");
  std::string line;
  std::getline(hint, line);
  EXPECT_EQ(line, "step-00000002");
}

TEST(Directory, UnwritableHintIsOnlyNoted) {
  const TempDirectory root;
  fs::create_directory(root / "latest");
  EXPECT_THAT(save_step(root, 1).notes, ElementsAre(HasSubstr("cannot replace")));
  EXPECT_EQ(names_in(root), (Names{"latest", "step-00000001"}));
}

TEST(Directory, ManyRanksWriteOneCheckpoint) {
  const TempDirectory root;
  constexpr int kRanks = 4;
  CheckpointDirectory directory(root, {.write = {.threads = 2, .block_bytes = 8192}});
  const nlohmann::json broadcast = directory.begin(7, test_owner()).to_json();
  std::vector<nlohmann::json> gathered(kRanks);
  {
    std::vector<std::jthread> ranks;
    ranks.reserve(kRanks);
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&, rank] {
        ArraySet shard;
        shard.add(fmt::format("shard/{}", rank), DType::float32, {50000}, 7);
        gathered[rank] = record_to_json(CheckpointDirectory(root).write_shard(
            SaveId::from_json(broadcast), fmt::format("rank-{}.h5", rank), shard.views(),
            {{"rank", rank}}));
      });
  }
  std::vector<FileRecord> records;
  records.reserve(kRanks);
  for (const nlohmann::json& record : gathered) records.push_back(record_from_json(record));
  const Saved saved = directory.commit(SaveId::from_json(broadcast), records, test_info());
  ArraySet all;
  for (int rank = 0; rank < kRanks; ++rank)
    all.add(fmt::format("shard/{}", rank), DType::float32, {50000}, 7);
  EXPECT_TRUE(test::holds(Checkpoint::open(saved.path), all));
  EXPECT_EQ(saved.manifest.files.size(), 4U);
}

TEST(Directory, InconsistentRecordsAreNotCommitted) {
  using Records = std::vector<FileRecord>;
  const std::pair<void (*)(Records&), const char*> cases[] = {
      {[](Records& r) { r[1].arrays[0].name = r[0].arrays[0].name; }, "'a' appears twice"},
      {[](Records& r) { r[1].file.name = r[0].file.name; }, "appears twice"},
      {[](Records& r) { r[1].file.name = r[1].arrays[0].file = "r2.h5"; },
       "'r2.h5' cannot be opened: No such file"},
      {[](Records& r) { r[1].file.size += 1; }, "and should have"},
      {[](Records& r) { r[1].arrays[0].offset = 1ULL << 40; }, "outside"}};
  const TempDirectory root;
  CheckpointDirectory directory(root);
  for (const auto& [change, expected] : cases) {
    const SaveId id = directory.begin(7, test_owner());
    Records records;
    for (const std::string name : {"a", "b"}) {
      ArraySet shard;
      shard.add(name, DType::float32, {100});
      records.push_back(directory.write_shard(id, name + ".h5", shard.views()));
    }
    change(records);
    EXPECT_THAT(error_of([&] { directory.commit(id, records, test_info()); }), HasSubstr(expected));
    EXPECT_TRUE(names_in(root).empty());
  }
}

TEST(Directory, TwoShardsWithOneNameDoNotMix) {
  const TempDirectory root;
  CheckpointDirectory directory(root);
  const SaveId id = directory.begin(7, test_owner());
  directory.write_shard(id, "r0.h5", {});
  EXPECT_THAT(error_of([&] { directory.write_shard(id, "r0.h5", {}); }), HasSubstr("File exists"));
  EXPECT_THAT(error_of([&] { directory.write_shard(id, "../r0.h5", {}); }), HasSubstr("file name"));
  directory.abandon(id);
  EXPECT_TRUE(names_in(root).empty());
}

TEST(Directory, FailedSaveOfTheSameOwnerIsRemoved) {
  const TempDirectory root;
  CheckpointDirectory directory(root);
  directory.write_shard(directory.begin(7, test_owner()), "model.h5", {});
  EXPECT_NO_THROW(directory.save(7, test_owner(), small_model(7).views(), test_info()));
  EXPECT_EQ(names_in(root), (Names{"latest", "step-00000007"}));
}

TEST(Directory, LinkUnderTheNameOfADraftIsNotFollowed) {
  const TempDirectory root;
  const TempDirectory elsewhere;
  std::ofstream(elsewhere / "precious") << "x";
  const std::string draft = ".tmp-step-00000001." + test_owner().text();
  fs::create_directory_symlink(elsewhere, root / draft);
  EXPECT_EQ(save_step(root, 1).path, root / "step-00000001");
  fs::create_directory_symlink(elsewhere, root / draft);
  CheckpointDirectory(root).abandon({1, test_owner()});
  EXPECT_EQ(names_in(root), (Names{"latest", "step-00000001"}));
  EXPECT_EQ(names_in(elsewhere), (Names{"precious"}));
}

TEST(Directory, ReadBackFindsAFalselyReportedWrite) {
  const TempDirectory root;
  SaveOptions options = test::small_options();
  options.read_back = true;
  FaultyOps probe;
  save_step(root, 1, options, probe);
  int lies = 0;
  for (std::size_t k = 0; k < probe.calls().size(); ++k) {
    if (probe.calls()[k].what != "pwrite" || !probe.calls()[k].path.ends_with(".h5")) continue;
    FaultyOps ops(test::Fault::lie, k);
    const std::string error = error_of([&] { save_step(root, 2, options, ops); });
    EXPECT_THAT(error, HasSubstr("damaged")) << k;
    EXPECT_EQ(names_in(root), (Names{"latest", "step-00000001"}));
    ++lies;
  }
  EXPECT_GE(lies, 10);
}

TEST(Directory, OneOfTwoWritersOfAStepWins) {
  for (int round = 0; round < 20; ++round) {
    const TempDirectory root;
    std::latch start(2);
    std::vector<std::string> errors(2);
    {
      std::vector<std::jthread> writers;
      writers.reserve(2);
      for (int n = 0; n < 2; ++n)
        writers.emplace_back([&, n] {
          CheckpointDirectory directory(root, test::small_options());
          const SaveId id = directory.begin(5, owner_number(n + 1));
          const FileRecord record =
              directory.write_shard(id, "model.h5", small_model(100 + n).views());
          start.arrive_and_wait();
          try {
            directory.commit(id, {&record, 1}, test_info());
          } catch (const Error& error) {
            errors[n] = error.what();
          }
        });
    }
    ASSERT_NE(errors[0].empty(), errors[1].empty());
    const int winner = errors[0].empty() ? 0 : 1;
    EXPECT_THAT(errors[1 - winner],
                HasSubstr("already exists and is whole, written by another save"));
    EXPECT_EQ(names_in(root), (Names{"latest", "step-00000005"}));
    EXPECT_TRUE(test::holds(Checkpoint::open(root / "step-00000005"), small_model(100 + winner)));
  }
}

TEST(Directory, ExistingStepStaysByDefault) {
  for (const bool flags : {true, false}) {
    const TempDirectory root;
    FaultyOps ops;
    if (!flags) ops.without_rename_flags();
    SaveOptions options = test::small_options();
    test::save_arrays(root, 5, small_model(1));
    EXPECT_THAT(error_of([&] { save_step(root, 5, options, ops); }), HasSubstr("already exists"));
    EXPECT_TRUE(test::holds(Checkpoint::open(root / "step-00000005"), small_model(1)));
    options.if_exists = IfExists::replace;
    EXPECT_TRUE(save_step(root, 5, options, ops).notes.empty());
    EXPECT_TRUE(test::holds(Checkpoint::open(root / "step-00000005"), small_model(5)));
    EXPECT_EQ(names_in(root), (Names{"latest", "step-00000005"}));
  }
}

TEST(Directory, DamagedStepIsReplacedAndKept) {
  for (const bool flags : {true, false}) {
    const TempDirectory root;
    FaultyOps ops;
    if (!flags) ops.without_rename_flags();
    damage(save_step(root, 5).path);
    const Saved saved = save_step(root, 5, test::small_options(), ops);
    EXPECT_THAT(saved.notes, ElementsAre(AllOf(HasSubstr("replaced a damaged checkpoint, kept as"),
                                               HasSubstr("model/fc.weight"))));
    EXPECT_TRUE(test::holds(Checkpoint::open(saved.path), small_model(5)));
    EXPECT_EQ(names_in(root), (Names{broken_step_5(), "latest", "step-00000005"}));
  }
}

TEST(Directory, OtherContentsUnderTheNameAreKept) {
  const TempDirectory root;
  fs::create_directory(root / "step-00000005");
  EXPECT_EQ(save_step(root, 5).notes.size(), 1U);
  EXPECT_TRUE(fs::is_empty(root / broken_step_5()));
  fs::remove_all(root / broken_step_5());
  fs::remove_all(root / "step-00000005");
  std::ofstream(root / "step-00000005") << "notes";
  EXPECT_EQ(save_step(root, 5).notes.size(), 1U);
  EXPECT_TRUE(test::holds(Checkpoint::open(root / "step-00000005"), small_model(5)));
  EXPECT_EQ(test::file_bytes(root / broken_step_5()).size(), 5U);
}

TEST(Directory, ErrorNamesAnUnwritableDirectory) {
  const TempDirectory top;
  const fs::path root = top / "ro";
  fs::create_directory(root);
  const bool is_root = ::geteuid() == 0;
  if (is_root && ::mount("none", root.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0)
    GTEST_SKIP() << "root can write everywhere, and mounting failed: " << std::strerror(errno);
  if (!is_root) ::chmod(root.c_str(), 0500);
  const std::string error = error_of([&] { save_step(root, 1); });
  if (is_root) ::umount(root.c_str());
  EXPECT_THAT(error, AllOf(HasSubstr("cannot create the directory '" + root.string()),
                           HasSubstr(is_root ? "mounted read-only" : "check the owner and mode")));
  std::ofstream(top / "file") << "x";
  EXPECT_THAT(error_of([&] { save_step(top / "file", 1); }), HasSubstr("Not a directory"));
}

TEST(Directory, RelativeNameRefersToTheInitialWorkingDirectory) {
  const TempDirectory top;
  const fs::path before = fs::current_path();
  fs::current_path(top);
  CheckpointDirectory directory("ckpt", test::small_options());
  fs::current_path(before);
  directory.save(1, test_owner(), small_model(1).views(), test_info());
  EXPECT_EQ(names_in(top / "ckpt"), (Names{"latest", "step-00000001"}));
}

TEST(Directory, WrongOwnersAndIdsAreRejected) {
  const TempDirectory root;
  CheckpointDirectory directory(root);
  EXPECT_THAT(error_of([&] { directory.begin(1, {"a/b", 0, "h", 1}); }), HasSubstr("cannot name"));
  const auto read = [](const char* text) { SaveId::from_json(test::json_of(text)); };
  EXPECT_THAT(error_of([&] { read(R"({"step": 1, "owner": "../x"})"); }),
              HasSubstr("is not an owner tag"));
  EXPECT_THAT(error_of([&] { read("[1, 2]"); }), HasSubstr("not an object"));
  EXPECT_TRUE(names_in(root).empty());
}

}  // namespace
}  // namespace ddp::ckpt
