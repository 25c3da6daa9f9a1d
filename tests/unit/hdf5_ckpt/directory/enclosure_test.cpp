// SPDX-License-Identifier: Apache-2.0
// Which places belong to checkpoints that are there already.

#include "hdf5_ckpt/directory/enclosure.h"

#include <gtest/gtest.h>

#include "tests/unit/hdf5_ckpt/support.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using Kind = Enclosure::Kind;
using test::TempDirectory;

class EnclosureOf : public testing::Test {
 protected:
  EnclosureOf() {
    test::ArraySet set;
    set.add("a", DType::float32, {2});
    for (const char* root : {"run", "run/best", "other"}) test::save_arrays(at_ / root, 5, set);
    fs::create_directories(at_ / "lone");
    fs::copy(at_ / "run/step-00000005", at_ / "lone/step-00000005");
    fs::copy(at_ / "run/step-00000005", at_ / "lone/renamed");
  }

  Enclosure of(const std::string& path) const { return enclosure_of(at_ / path); }

  TempDirectory at_{test::On::memory};
};

TEST_F(EnclosureOf, ADirectoryOfCheckpointsAndANewPlaceAreNone) {
  for (const char* path : {"run", "run/", "other", "lone", "new", "new/deep", "lone/new", ""})
    EXPECT_EQ(of(path).kind, Kind::none) << path;
}

TEST_F(EnclosureOf, ACheckpointKnowsItsRun) {
  for (const char* path : {"run/step-00000005", "run/step-00000005/"}) {
    EXPECT_EQ(of(path).kind, Kind::checkpoint) << path;
    EXPECT_EQ(of(path).run, at_ / "run");
  }
  EXPECT_EQ(of("run/best/step-00000005").run, at_ / "run");
  for (const char* path : {"lone/step-00000005", "lone/renamed"}) {
    EXPECT_EQ(of(path).kind, Kind::checkpoint) << path;
    EXPECT_EQ(of(path).run, "") << "a copy in a place of its own";
  }
}

TEST_F(EnclosureOf, NothingBeginsInsideACheckpoint) {
  for (const char* path : {"run/step-00000005/new", "run/step-00000005/new/deep"}) {
    EXPECT_EQ(of(path).kind, Kind::within) << path;
    EXPECT_EQ(of(path).checkpoint, at_ / "run/step-00000005");
    EXPECT_EQ(of(path).run, at_ / "run");
  }
  EXPECT_EQ(of("lone/renamed/new").kind, Kind::within);
  EXPECT_EQ(of("lone/renamed/new").run, "");
}

TEST_F(EnclosureOf, NothingBeginsAmongTheCheckpointsOfARun) {
  for (const char* path : {"run/new", "run/new/deep", "run/step-00000006", "run/best",
                           "run/best/new", "new/../run/best"}) {
    EXPECT_EQ(of(path).kind, Kind::among) << path;
    EXPECT_EQ(of(path).run, at_ / "run") << path;
  }
  test::ArraySet set;
  set.add("a", DType::float32, {2});
  test::save_arrays(at_ / "run/old", 1, set);
  EXPECT_EQ(of("run/old").kind, Kind::none) << "what is there may continue";
}

TEST_F(EnclosureOf, ANameThatACheckpointWouldHaveIsKept) {
  for (const char* path : {"new/best", "lone/step-00000007", "new/step-00000007"})
    EXPECT_EQ(of(path).kind, Kind::kept_name) << path;
  EXPECT_EQ(of("new/step-7").kind, Kind::none);
}

TEST_F(EnclosureOf, AManifestOfAnotherKindSaysNothing) {
  ddp::test::write(at_ / "manifest.json", "{}");
  EXPECT_EQ(of("new").kind, Kind::none);
  EXPECT_EQ(of("").kind, Kind::none);
}

}  // namespace
}  // namespace ddp::ckpt
