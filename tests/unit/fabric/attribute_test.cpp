// SPDX-License-Identifier: Apache-2.0
// The bounded readers of single attributes.
#include "spank_plugin/fabric/files/attribute.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::fabric {
namespace {

TEST(Attribute, IsTrimmed) {
  const test::FakeSysfs fake("a =   4: ACTIVE  ");
  EXPECT_EQ(read_attribute(fake.root() / "a"), "4: ACTIVE");
}

TEST(Attribute, IsAbsentIfUnreadable) {
  const test::FakeSysfs fake("directory/");
  EXPECT_FALSE(read_attribute(fake.root() / "nothing"));
  EXPECT_FALSE(
      read_attribute(fake.root() / "directory"));  // read(2) fails, as EINVAL does in sysfs
}

TEST(Attribute, IsAbsentIfLargerThanAPage) {
  const test::FakeSysfs fake("directory/");
  std::ofstream(fake.root() / "page") << std::string(4096, 'x');
  std::ofstream(fake.root() / "more") << std::string(4097, 'x');
  EXPECT_TRUE(read_attribute(fake.root() / "page"));
  EXPECT_FALSE(read_attribute(fake.root() / "more"));
}

TEST(Attribute, DoesNotBlockOnAFifoWithoutWriter) {
  const test::FakeSysfs fake("directory/");
  ASSERT_EQ(mkfifo((fake.root() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_attribute(fake.root() / "fifo"), "");
}

TEST(Attribute, ReadsIntegersInTheKernelsFormats) {
  const test::FakeSysfs fake(
      "decimal = 9000\nhex = 0x1a\nnamed = 5: LinkUp\nminus = -1\nword = up\n"
      "huge = 99999999999999999999");
  EXPECT_EQ(read_integer(fake.root() / "decimal"), 9000);
  EXPECT_EQ(read_integer(fake.root() / "hex"), 26);
  EXPECT_EQ(read_integer(fake.root() / "named"), 5);
  EXPECT_EQ(read_integer(fake.root() / "minus"), -1);
  EXPECT_FALSE(read_integer(fake.root() / "word"));
  EXPECT_FALSE(read_integer(fake.root() / "huge"));
}

TEST(Attribute, ListsAreSortedAndBounded) {
  const test::FakeSysfs fake("b/\na/\nc/");
  EXPECT_EQ(list_names(fake.root(), 8), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(list_names(fake.root(), 2).size(), 2U);
  EXPECT_TRUE(list_names(fake.root() / "nothing", 8).empty());
}

TEST(Attribute, LinkNameIsTheLastComponent) {
  const test::FakeSysfs fake("device -> ../../0000:17:00.0\nfile = x");
  EXPECT_EQ(read_link_name(fake.root() / "device"), "0000:17:00.0");
  EXPECT_FALSE(read_link_name(fake.root() / "file"));
}

}  // namespace
}  // namespace ddp::fabric
