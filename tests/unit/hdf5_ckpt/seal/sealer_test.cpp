// SPDX-License-Identifier: Apache-2.0
// Which checkpoints of a running job are sealed from outside, and when.

#include "hdf5_ckpt/seal/sealer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "hdf5_ckpt/seal/finish_marker.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using ddp::test::write;
using std::chrono::seconds;
using test::Names;
using test::TempDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kZipEnd = std::string("PK\5\6", 4) + std::string(18, '\0');

class SealerOf : public testing::Test {
 protected:
  // The names of what is sealed at this time.
  Names sealed_at(int second) {
    Names names;
    for (const auto& outcome : sealer_.look(Clock::time_point(seconds(second))))
      names.push_back(outcome.checkpoint.filename().string() +
                      (outcome.problem.empty() ? "" : ": " + outcome.problem));
    return names;
  }

  TempDirectory root_{test::On::memory};
  Sealer sealer_{root_.path(), seconds(10), {}};
};

TEST_F(SealerOf, EachProgramsLastFileIsKnown) {
  write(root_ / "checkpoint-5/model.safetensors", "x");
  write(root_ / "step-5/__0_0.distcp", "x");
  write(root_ / "global_step5/mp_rank_00_model_states.pt", "x");
  write(root_ / "iter_0000050/mp_rank_00/model.pt", "x");
  write(root_ / "last.ckpt", "PK" + kZipEnd.substr(0, 21));
  const Names names = {"checkpoint-5", "step-5", "global_step5", "iter_0000050", "last.ckpt"};
  for (const std::string& name : names)
    EXPECT_EQ(finish_marker(root_ / name), std::nullopt) << name;
  write(root_ / "checkpoint-5/trainer_state.json", "{}");
  write(root_ / "step-5/.metadata", "x");
  write(root_ / "latest", "global_step5\n");
  write(root_ / "latest_checkpointed_iteration.txt", "50");
  write(root_ / "last.ckpt", "PK" + kZipEnd);
  for (const std::string& name : names)
    EXPECT_NE(finish_marker(root_ / name), std::nullopt) << name;
  write(root_ / "last.ckpt", kZipEnd);  // of nothing
  EXPECT_NE(finish_marker(root_ / "last.ckpt"), std::nullopt);
  write(root_ / "latest", "global_step4");
  write(root_ / "latest_checkpointed_iteration.txt", "release");
  EXPECT_EQ(finish_marker(root_ / "global_step5"), std::nullopt);
  EXPECT_EQ(finish_marker(root_ / "iter_0000050"), std::nullopt);
}

TEST_F(SealerOf, WaitsForTheMarkerAndThenForQuiet) {
  EXPECT_THAT(sealed_at(0), IsEmpty());
  write(root_ / "checkpoint-5/model.safetensors", "weights");
  for (const int time : {1, 60, 120}) EXPECT_THAT(sealed_at(time), IsEmpty());
  EXPECT_FALSE(sealer_.is_waiting());
  EXPECT_THAT(sealer_.unfinished(), ElementsAre(root_ / "checkpoint-5"));
  write(root_ / "checkpoint-5/trainer_state.json", "{}");
  EXPECT_THAT(sealed_at(130), IsEmpty());
  EXPECT_TRUE(sealer_.is_waiting());
  write(root_ / "checkpoint-5/rng_state_1.pth", "by another rank");
  for (const int time : {141, 150}) EXPECT_THAT(sealed_at(time), IsEmpty());
  EXPECT_THAT(sealed_at(151), ElementsAre("checkpoint-5"));
  EXPECT_EQ(verify_sealed(root_ / "checkpoint-5", {}).files, 3U);
  EXPECT_FALSE(sealer_.is_waiting());
  EXPECT_THAT(sealer_.unfinished(), IsEmpty());
  for (const int time : {152, 300}) EXPECT_THAT(sealed_at(time), IsEmpty());
}

// Sets when a file was last changed: so many seconds from now.
void change_at(const fs::path& file, int from_now) {
  timespec times[2] = {
      {.tv_sec = time(nullptr) + from_now, .tv_nsec = 0},  // NOLINT(*-avoid-c-arrays)
      {.tv_sec = time(nullptr) + from_now, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

TEST_F(SealerOf, TheMarkerOfAnEarlierSaveCountsForNothing) {
  write(root_ / "checkpoint-5/trainer_state.json", "{}");
  write(root_ / "checkpoint-5/model.safetensors", "half");
  change_at(root_ / "checkpoint-5/trainer_state.json", -100);
  for (const int time : {0, 20, 40}) EXPECT_THAT(sealed_at(time), IsEmpty());
  change_at(root_ / "checkpoint-5/trainer_state.json", 0);
  for (const int time : {50}) EXPECT_THAT(sealed_at(time), IsEmpty());
  EXPECT_THAT(sealed_at(60), ElementsAre("checkpoint-5"));
}

TEST_F(SealerOf, AMarkerThatAKillHasCutOffIsNone) {
  for (const char* text : {"", "{\"log_history\": [{\"loss\": 1}"}) {
    write(root_ / "checkpoint-5/trainer_state.json", text);
    for (const int time : {0, 20, 40}) EXPECT_THAT(sealed_at(time), IsEmpty());
  }
}

TEST_F(SealerOf, WhatIsSavedAgainIsSealedAgain) {
  write(root_ / "checkpoint-5/trainer_state.json", "{}");
  sealed_at(0);
  EXPECT_THAT(sealed_at(10), ElementsAre("checkpoint-5"));
  write(root_ / "checkpoint-5/trainer_state.json", "{\"again\": 1}");
  change_at(root_ / "checkpoint-5/trainer_state.json", 5);
  sealed_at(20);
  EXPECT_THAT(sealed_at(30), ElementsAre("checkpoint-5"));
  EXPECT_EQ(verify_sealed(root_ / "checkpoint-5", {}).files, 1U);
}

TEST_F(SealerOf, AFailureIsToldOnce) {
  write(root_ / "step-5/.metadata", "x");
  ASSERT_EQ(mkfifo((root_ / "step-5/pipe").c_str(), 0600), 0);
  sealed_at(0);
  EXPECT_THAT(sealed_at(10), ElementsAre(HasSubstr("'pipe' is neither a file nor a link")));
  for (const int time : {20, 310, 620}) EXPECT_THAT(sealed_at(time), IsEmpty());
  EXPECT_FALSE(sealer_.is_waiting());
  fs::remove(root_ / "step-5/pipe");
  sealed_at(630);
  EXPECT_THAT(sealed_at(640), ElementsAre("step-5"));
}

TEST_F(SealerOf, CheckpointsOfThisProjectNeedNone) {
  test::save_step(root_, 1);
  write(root_ / "step-00000001/.metadata", "x");
  sealed_at(0);
  EXPECT_THAT(sealed_at(10), IsEmpty());
  EXPECT_THAT(sealer_.unfinished(), IsEmpty());
}

TEST_F(SealerOf, WhatIsDeletedIsForgotten) {
  write(root_ / "step-6/.metadata", "x");
  sealed_at(0);
  fs::remove_all(root_ / "step-6");  // as an old one
  EXPECT_THAT(sealed_at(10), IsEmpty());
  EXPECT_FALSE(sealer_.is_waiting());
}

TEST_F(SealerOf, AFailureIsFollowedByAnotherTry) {
  write(root_ / "step-5/.metadata", "x");
  fs::create_directory(root_ / "step-5/seal.json");
  change_at(root_ / "step-5/seal.json", -100);
  sealed_at(0);
  EXPECT_THAT(sealed_at(10), ElementsAre(HasSubstr("is not a regular file")));
  fs::remove(root_ / "step-5/seal.json");
  for (const int time : {20, 300}) EXPECT_THAT(sealed_at(time), IsEmpty());
  EXPECT_THAT(sealed_at(310), ElementsAre("step-5"));
}

}  // namespace
}  // namespace ddp::ckpt
