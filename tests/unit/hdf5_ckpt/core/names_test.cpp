// SPDX-License-Identifier: Apache-2.0
// Tables of valid and invalid names of arrays, files, directories and owners.

#include "hdf5_ckpt/core/names.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "hdf5_ckpt/core/blocks.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/extents.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/layout.h"

namespace ddp::ckpt {
namespace {

TEST(ArrayNames, AcceptsNamesThatModelsUse) {
  for (const char* name : {"w", "model/conv1.weight", "optim/conv1.weight/momentum_buffer",
                           "rng/rank-3/cpu", "a/b/c/d/e/f/g", "mod\xC3\xA8le/\xE2\x82\xAC",
                           "with space", "...", "model/%2F", "\xF0\x9F\x8E\xB2"})
    EXPECT_EQ(array_name_problem(name), "") << name;
  EXPECT_EQ(array_name_problem(std::string(1024, 'n')), "");
}

TEST(ArrayNames, RejectsInvalidPathsAndTerminalControl) {
  for (const std::string& name : {std::string(),
                                  std::string("/a"),
                                  std::string("a/"),
                                  std::string("a//b"),
                                  std::string("."),
                                  std::string(".."),
                                  std::string("a/../b"),
                                  std::string("./a"),
                                  std::string("a\nb"),
                                  std::string("a\0b", 3),
                                  std::string("\x1b[2J"),
                                  std::string("\x7f"),
                                  std::string("\xC2\x9B"),
                                  std::string("\xff"),
                                  std::string("\xC0\xAF"),
                                  std::string("\xED\xA0\x80"),
                                  std::string("\xF4\x90\x80\x80"),
                                  std::string("\xE2\x82"),
                                  std::string("\xE0\x80\xAF"),
                                  std::string("\xF0\x80\x80\xAF"),
                                  std::string(1025, 'n')})
    EXPECT_NE(array_name_problem(name), "") << testing::PrintToString(name);
}

TEST(FileNames, AcceptsOnlyPlainHdf5Names) {
  for (const char* name : {"model.h5", "rank-00003-of-00008.h5"})
    EXPECT_EQ(file_name_problem(name), "") << name;
  for (const std::string& name :
       {std::string("model.hdf5"), std::string("../model.h5"), std::string("/etc/model.h5"),
        std::string("a/b.h5"), std::string(".h5"), std::string("..h5"), std::string(".hidden.h5"),
        std::string("a b.h5"), std::string("a\n.h5"), std::string("manifest.json"), std::string(),
        std::string(300, 'x') + ".h5"})
    EXPECT_NE(file_name_problem(name), "") << name;
}

TEST(NameSets, RejectsDuplicatesAndArraysThatAreGroups) {
  const auto problem = [](const std::vector<std::string_view>& names) {
    return name_set_problem(names);
  };
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({"a", "a-b", "ab", "b/a", "b/a-c"}), "");
  EXPECT_EQ(problem({"a", "a"}), "the array 'a' appears twice");
  // '-' sorts before '/', so 'a' and 'a/b/c' are not adjacent.
  EXPECT_EQ(problem({"a", "a-b", "a/b/c"}), "'a' is an array and also the group of 'a/b/c'");
  EXPECT_EQ(problem({"x/a", "x/a/b"}), "'x/a' is an array and also the group of 'x/a/b'");
}

TEST(StepDirectories, NameAndStepAreInverse) {
  EXPECT_EQ(step_directory_name(12345), "step-00012345");
  for (const std::uint64_t step : {0ULL, 7ULL, 99999999ULL, 100000000ULL, 9223372036854775807ULL})
    EXPECT_EQ(step_of_directory(step_directory_name(step)), step);
  for (const char* name :
       {"step-", "step-1", "step-000000001", "step-0000000x", "step--0000001", "Step-00000001",
        "step-00000001 ", "step-00000001.bak", "best", "step-99999999999999999999"})
    EXPECT_FALSE(step_of_directory(name)) << name;
}

TEST(Owners, TextAndTagAreInverse) {
  const OwnerTag tag{"123_4", 2, "node-1.my_cluster.example", 4567};
  EXPECT_EQ(tag.text(), "123_4.r2.node-1.my_cluster.example.p4567");
  EXPECT_EQ(OwnerTag::parse(tag.text()), tag);
  for (const char* text :
       {"", ".", "..", "...", "1.r0.n", "1.r0.p5", "1.0.n.p5", "1.r0.n.5", "1.r00.n.p5",
        "1.r0.n.p05", "1.r0.n.p0", "1.r0.n.p-5", "1.r-1.n.p5", "a b.r0.n.p5", "1.r0.n/m.p5",
        "1.r0..p5", ".r0.n.p5", "1.r0.n.p99999999999"})
    EXPECT_FALSE(OwnerTag::parse(text)) << text;
  EXPECT_THROW((OwnerTag{"a.b", 0, "n", 1}.text()), Error);
  EXPECT_THROW((OwnerTag{"a/b", 0, "n", 1}.text()), Error);
  EXPECT_THROW((OwnerTag{"", 0, "n", 1}.text()), Error);
}

// Returns a process id that is no longer used.
pid_t dead_pid() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(Owners, OnlyProcessesOfTheSameJobCanBeDead) {
  const OwnerTag own = OwnerTag::of_this_process("77", 1);
  const OwnerIsDead is_dead = dead_relatives_of(own);
  const auto with = [&own](auto change) {
    OwnerTag tag = own;
    change(tag);
    return tag;
  };
  const pid_t gone = dead_pid();
  EXPECT_TRUE(is_dead(with([](OwnerTag& t) { t.restart = 0, t.host = "elsewhere"; })));
  EXPECT_TRUE(is_dead(with([&](OwnerTag& t) { t.pid = gone; })));
  EXPECT_FALSE(is_dead(own));
  EXPECT_FALSE(is_dead(with([](OwnerTag& t) { t.pid = ::getppid(); })));
  EXPECT_FALSE(is_dead(with([&](OwnerTag& t) { t.pid = gone, t.host = "elsewhere"; })));
  EXPECT_FALSE(is_dead(with([&](OwnerTag& t) { t.pid = gone, t.restart = 2; })));
  EXPECT_FALSE(is_dead(with([&](OwnerTag& t) { t.pid = gone, t.job = "78", t.restart = 0; })));
}

TEST(Owners, ZombieProcessIsDead) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  OwnerTag own = OwnerTag::of_this_process("1", 0);
  OwnerTag zombie = own;
  zombie.pid = child;
  EXPECT_TRUE(dead_relatives_of(own)(zombie));
  OwnerTag parent = own;
  parent.pid = ::getppid();
  EXPECT_FALSE(dead_relatives_of(own)(parent));
  ::waitpid(child, nullptr, 0);
}

TEST(Leftovers, AreRecognizedByTheirNames) {
  const OwnerTag tag{"1", 0, "n", 5};
  for (const std::string_view kind : {kBuilding, kDeleting})
    EXPECT_EQ(owner_of_leftover(owned_directory_name(kind, 12, tag)), tag);
  EXPECT_EQ(owned_directory_name(kBuilding, 12, tag), ".tmp-step-00000012.1.r0.n.p5");
  EXPECT_EQ(owner_of_leftover(hint_draft_name(tag)), tag);
  // Only users delete directories that were set aside as damaged.
  EXPECT_FALSE(owner_of_leftover(owned_directory_name(kDamaged, 12, tag)));
  for (const char* name : {"latest", ".latest", ".tmp", ".tmp-x.1.r0.n.p5", "step-00000012",
                           ".tmp-step-12.1.r0.n.p5", ".tmp-step-00000012", ".tmp-step-00000012.x"})
    EXPECT_FALSE(owner_of_leftover(name)) << name;
}

TEST(Extents, GapsAreTheUnclaimedRanges) {
  using Extents = std::vector<Extent>;
  EXPECT_EQ(gaps_between(Extents{}, 0), Extents{});
  EXPECT_EQ(gaps_between(Extents{}, 10), (Extents{{0, 10}}));
  EXPECT_EQ(gaps_between(Extents{{0, 10}}, 10), Extents{});
  EXPECT_EQ(gaps_between(Extents{{2, 3}, {5, 1}, {8, 1}}, 10), (Extents{{0, 2}, {6, 2}, {9, 1}}));
}

TEST(Blocks, CoverAnArrayOnce) {
  EXPECT_EQ(block_count(0, 8), 0U);
  EXPECT_EQ(block_count(8, 8), 1U);
  EXPECT_EQ(block_count(9, 8), 2U);
  std::vector<std::byte> bytes(20);
  EXPECT_EQ(block_of(std::span(bytes), 2, 8).data(), bytes.data() + 16);
  EXPECT_EQ(block_of(std::span(bytes), 2, 8).size(), 4U);
  const auto blocks = blocks_of(std::vector<std::uint64_t>{9, 0, 8}, 8);
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[1].array, 0U);
  EXPECT_EQ(blocks[1].block, 1U);
  EXPECT_EQ(blocks[2].array, 2U);
}

TEST(Arrays, ByteCountRejectsOverflow) {
  EXPECT_EQ(byte_count(DType::float32, {}), 4U);
  EXPECT_EQ(byte_count(DType::int64, {3, 5}), 120U);
  EXPECT_EQ(byte_count(DType::int64, {3, 0, 5}), 0U);
  EXPECT_FALSE(byte_count(DType::int64, {1ULL << 60}));
  EXPECT_FALSE(byte_count(DType::int8, {1ULL << 32, 1ULL << 32}));
  EXPECT_FALSE(byte_count(DType::int8, {0, 1ULL << 32, 1ULL << 32}));
  for (const DType dtype : kAllDTypes) EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  EXPECT_FALSE(dtype_from_name("float8"));
}

}  // namespace
}  // namespace ddp::ckpt
