// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/name_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NameList : public testing::Test {
 protected:
  std::string file(const std::string& content) {
    const auto path = directory_.path() / ("names" + std::to_string(++files_));
    test::write(path, content);
    return path.string();
  }
  std::string directory() const { return directory_.path().string(); }

 private:
  test::TemporaryDirectory directory_;
  int files_ = 0;
};

TEST_F(NameList, HasOneNamePerLine) {
  EXPECT_THAT(read_names({file("n1\n\nn2.cluster\n"), file(""), file("n3")}),
              ElementsAre("n1", "n2.cluster", "n3"));
  const std::string longest(255, 'n');
  EXPECT_THAT(read_names({file(longest + "\n" + longest)}), ElementsAre(longest, longest));
  EXPECT_THAT(read_names({"/dev/null"}), IsEmpty());
}

TEST_F(NameList, OtherContentIsRefused) {
  for (const auto& content : {std::string("n1; rm -rf\n"), std::string("n1\nn 2"),
                              std::string(256, 'n'), std::string("n1\0\n", 4)}) {
    const auto path = file(content);
    EXPECT_EQ(error_of([&] { read_names({path}); }),
              path + " does not contain node names, one per line");
  }
}

TEST_F(NameList, EndlessFilesAreRefused) {
  EXPECT_THAT(error_of([] { read_names({"/dev/zero"}); }),
              HasSubstr("does not contain node names"));
  std::string many;
  for (int i = 0; i <= 100'000; ++i) many += "\n";
  EXPECT_THAT(error_of([&] { read_names({file(many)}); }),
              HasSubstr("does not contain node names"));
}

TEST_F(NameList, DirectoryIsRefused) {
  EXPECT_EQ(error_of([this] { read_names({directory()}); }),
            directory() + " is a directory; name a file of node names, one per line");
}

TEST_F(NameList, MayComeFromAPipe) {
  const std::string pipe = directory() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "n1\nn2\n"; });
  EXPECT_THAT(read_names({pipe}), ElementsAre("n1", "n2"));
  writer.join();
}

}  // namespace
}  // namespace ddp::tools
