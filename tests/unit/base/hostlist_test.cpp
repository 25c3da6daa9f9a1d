// SPDX-License-Identifier: Apache-2.0
#include "base/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

struct Expansion {
  std::string text;
  std::vector<std::string> names;
};

class HostlistExpands : public testing::TestWithParam<Expansion> {};

TEST_P(HostlistExpands, InTheOrderOfTheList) {
  EXPECT_EQ(expand_hostlist(GetParam().text), GetParam().names) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, HostlistExpands,
    testing::Values(Expansion{"", {}}, Expansion{"n1", {"n1"}}, Expansion{"n1,m5", {"n1", "m5"}},
                    // Numeric order, which differs from string order.
                    Expansion{"n[8-11]", {"n8", "n9", "n10", "n11"}},
                    Expansion{"n[001,007-009],x2", {"n001", "n007", "n008", "n009", "x2"}},
                    Expansion{"n[098-101]", {"n098", "n099", "n100", "n101"}},
                    Expansion{"n[1-2]-ib", {"n1-ib", "n2-ib"}},
                    Expansion{
                        "r[1-2]n[03,05-07]",
                        {"r1n03", "r1n05", "r1n06", "r1n07", "r2n03", "r2n05", "r2n06", "r2n07"}},
                    Expansion{"a1,b[2-3]", {"a1", "b2", "b3"}}, Expansion{"[1-2]", {"1", "2"}},
                    Expansion{"gpu-a.site.org", {"gpu-a.site.org"}}, Expansion{"n[5]", {"n5"}},
                    // SLURM's order is the numbering of the nodes, so the list is neither sorted
                    // nor made unique.
                    Expansion{"z,a,z", {"z", "a", "z"}}));

struct Refusal {
  std::string text;
  const char* message;
};

class HostlistRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(HostlistRefuses, WithTheReason) {
  const auto& [text, message] = GetParam();
  try {
    expand_hostlist(text);
    FAIL() << "accepted " << text;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot read the node list"));
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

constexpr const char* kOpen = "'[' without ']'";
constexpr const char* kNested = "a bracket inside a bracket";
constexpr const char* kNoNumber = "is not a number or a range of numbers";
constexpr const char* kEmpty = "it contains an empty name";
constexpr const char* kNoName = "is not part of a host name";
constexpr const char* kTooMany = "more than 65536 nodes";

INSTANTIATE_TEST_SUITE_P(
    Malformed, HostlistRefuses,
    testing::Values(
        Refusal{"n[1-2", kOpen}, Refusal{"n1-2]", "']' without '['"}, Refusal{"n[1-[2]]", kNested},
        Refusal{"n[]", kNoNumber}, Refusal{"n[,]", kNoNumber}, Refusal{"n[1,]", kNoNumber},
        Refusal{"n[a-b]", kNoNumber}, Refusal{"n[2-1]", "runs backwards"},
        Refusal{"n[-1]", kNoNumber}, Refusal{"n[1-]", kNoNumber}, Refusal{"n[1-2-3]", kNoNumber},
        Refusal{",", kEmpty}, Refusal{"a,", kEmpty}, Refusal{",a", kEmpty}, Refusal{"a,,b", kEmpty},
        Refusal{"n 1", kNoName}, Refusal{"n\t1", kNoName}, Refusal{"n$(reboot)", kNoName},
        Refusal{"n\n", kNoName}, Refusal{"n[+1-2]", kNoNumber}, Refusal{"n[0x1-0x2]", kNoNumber},
        Refusal{"n[99999999999999999999-99999999999999999999]", kNoNumber}));

// Expanding any of these lists would take gigabytes of memory or hours.
INSTANTIATE_TEST_SUITE_P(
    TooMuch, HostlistRefuses,
    testing::Values(
        Refusal{"n[0-999999999]", kTooMany}, Refusal{"n[0-999999999999999999]", kTooMany},
        Refusal{"a[0-999]b[0-999]", kTooMany},
        Refusal{"a[0-99]b[0-99]c[0-99]d[0-99]e[0-99]f[0-99]g[0-99]h[0-99]i[0-99]j[0-99]k[0-99]",
                kTooMany},
        Refusal{"n[0-65535],m", kTooMany}, Refusal{"n[0-40000],m[0-40000]", kTooMany},
        Refusal{std::string(300, 'a'), kNoName},
        Refusal{std::string(200, 'a') + "[1-2]" + std::string(60, 'b'), "a name that is too long"},
        Refusal{std::string(200'000, 'a'), "longer than 131072 characters"},
        Refusal{"n[000000000000000000000000001-2]", kNoNumber},
        Refusal{"a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]j[1]k[1]l[1]m[1]n[1]o[1]p[1]q[1]r[1]",
                "too many brackets"}));

TEST(Hostlist, AcceptsSlurmsMaximumNumberOfNodes) {
  const auto names = expand_hostlist("n[00000-65535]");
  ASSERT_EQ(names.size(), kMaxHosts);
  EXPECT_EQ(names.front(), "n00000");
  EXPECT_EQ(names.back(), "n65535");
}

TEST(Hostlist, ReadsALongListWithoutRanges) {
  std::string text = "n[0000";
  for (int i = 2; i < 8192; i += 2) text.append(",").append(std::to_string(i));
  EXPECT_EQ(expand_hostlist(text + "]").size(), 4096U);
}

TEST(Hostlist, MessageDoesNotRepeatControlCharacters) {
  try {
    expand_hostlist("n\x1b[31m");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
  }
}

std::string compressed(const std::vector<std::string>& names) {
  return compress_hostlist(names);
}

TEST(Compressed, MatchesSlurmsFormat) {
  EXPECT_EQ(compressed({}), "");
  EXPECT_EQ(compressed({"n1"}), "n1");
  EXPECT_EQ(compressed({"n1", "n2", "n3", "n7"}), "n[1-3,7]");
  EXPECT_EQ(compressed({"n09", "n10", "n11"}), "n[09-11]");
  EXPECT_EQ(compressed({"n9", "n10"}), "n[9-10]");
  EXPECT_EQ(compressed({"n09", "n010"}), "n[09,010]");
  EXPECT_EQ(compressed({"login", "r1n1", "r1n2", "r2n1"}), "login,r1n[1-2],r2n1");
}

TEST(Compressed, RoundTrips) {
  const std::vector<std::vector<std::string>> lists{{"a1", "a2", "b", "c08", "c09", "c10", "c12"},
                                                    {"n3", "n1", "n2"},
                                                    {"n99999999999", "n100000000000"}};
  for (const auto& names : lists) {
    EXPECT_EQ(expand_hostlist(compress_hostlist(names)), names);
  }
}

}  // namespace
}  // namespace ddp
