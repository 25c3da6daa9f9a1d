// SPDX-License-Identifier: Apache-2.0
#include "base/duration.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

TEST(Duration, ParsesUnitsAndSequencesOfThem) {
  struct Case {
    const char* text;
    double seconds;
  };
  for (const auto& [text, seconds] :
       {Case{"90s", 90}, Case{"10min", 600}, Case{"10m", 600}, Case{"1h", 3600}, Case{"2d", 172800},
        Case{"1.5h", 5400}, Case{"0.25s", 0.25}, Case{"1h30min", 5400}, Case{"1d2h3m4s", 93784},
        Case{"0h5s", 5}, Case{"007s", 7}, Case{"3650d", 315360000}}) {
    const auto parsed = parse_duration(text);
    ASSERT_TRUE(parsed.has_value()) << text;
    EXPECT_DOUBLE_EQ(*parsed, seconds) << text;
  }
}

TEST(Duration, RefusesEverythingElse) {
  for (const char* text : {"",
                           "10",
                           "s",
                           "min",
                           "10 min",
                           " 10min",
                           "10min ",
                           "10MIN",
                           "10sec",
                           "10minutes",
                           "1e3s",
                           "-5s",
                           "+5s",
                           "0s",
                           "0h0s",
                           ".5h",
                           "5.h",
                           "1.2.3s",
                           "1..2s",
                           "inf",
                           "nan",
                           "infs",
                           "1h2",
                           "30min1h",
                           "1h1h",
                           "1m2min",
                           "1,5h",
                           "3653d",
                           "99999999999999999999999999d",
                           "0x10s",
                           "10\xc2\xb5s",
                           "epoch",
                           "1h-5s"}) {
    EXPECT_FALSE(parse_duration(text).has_value()) << text;
  }
  // The digits of a number that overflows a double.
  EXPECT_FALSE(parse_duration(std::string(400, '9') + "s").has_value());
  EXPECT_FALSE(parse_duration(std::string_view("5s\0", 3)).has_value());
}

TEST(Duration, RoundsForDisplay) {
  EXPECT_EQ(rounded_duration(0.25), "0.25 s");
  EXPECT_EQ(rounded_duration(90), "90 s");
  EXPECT_EQ(rounded_duration(252), "4.2 min");
  EXPECT_EQ(rounded_duration(600), "10 min");
  EXPECT_EQ(rounded_duration(9000), "2.5 h");
  EXPECT_EQ(rounded_duration(110 * 86400), "110 d");
  EXPECT_EQ(rounded_duration(3650.0 * 86400), "3650 d");
}

}  // namespace
}  // namespace ddp
