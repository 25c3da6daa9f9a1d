// SPDX-License-Identifier: Apache-2.0
#include "base/json/bounded_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/error_of.h"

namespace ddp {
namespace {

using testing::StartsWith;

std::string problem_of(std::string_view text, JsonLimits limits = {}) {
  return error_of<JsonError>([&] { parse_bounded_json(text, limits); });
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(BoundedJson, ReadsWhatTheLibraryReads) {
  const std::string text = R"({"a": [1, -2, 0.5, true, null, "\u00fc"], "b": {"a": {}}})";
  EXPECT_EQ(parse_bounded_json(text), nlohmann::json::parse(text));
}

TEST(BoundedJson, LimitsTheDepth) {
  EXPECT_EQ(problem_of(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(problem_of(nested(kMaxJsonDepth + 1)), "its JSON is nested too deep");
  EXPECT_EQ(problem_of(R"({"a": {"b": 1}})", {.depth = 2}), "its JSON is nested too deep");
  EXPECT_EQ(problem_of(R"([[], [], {"a": 1}])", {.depth = 3}), "");
  EXPECT_EQ(problem_of(std::string(100'000, '[')), "its JSON is nested too deep");
}

TEST(BoundedJson, LimitsTheNumberOfValues) {
  EXPECT_EQ(problem_of("[1, 2, 3]", {.values = 4}), "");
  EXPECT_EQ(problem_of("[1, 2, 3]", {.values = 3}), "its JSON holds too many values");
}

TEST(BoundedJson, RefusesANameTwice) {
  EXPECT_EQ(problem_of(R"([{"a": 1, "b": {"a": 1}}, {"a": 1}])"), "");
  EXPECT_EQ(problem_of(R"({"x": {"a": 1, "b": 2, "a": 1}})"), "its JSON has the name 'a' twice");
}

TEST(BoundedJson, SaysWhyATextIsNotJson) {
  for (const char* text : {"", "{", "[1] 2", "NaN", "[1e999]", "\"\xff\""}) {
    EXPECT_THAT(problem_of(text), StartsWith("it is not JSON: [json.exception.")) << text;
  }
  const auto problem = problem_of("\"\x1b" + std::string(100'000, 'x'));
  EXPECT_EQ(problem.find('\x1b'), problem.npos) << "a terminal shows it";
  EXPECT_LT(problem.size(), 300U);
}

TEST(BoundedJson, IsNullInsteadOfAnError) {
  EXPECT_EQ(parse_bounded_json_or_null("[1]"), nlohmann::json({1}));
  EXPECT_EQ(parse_bounded_json_or_null("{"), nullptr);
  EXPECT_EQ(parse_bounded_json_or_null("[1]", {.depth = 1}), nullptr);
}

}  // namespace
}  // namespace ddp
