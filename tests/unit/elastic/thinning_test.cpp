// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/thinning.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::elastic {
namespace {

using nlohmann::json;
using Written = std::vector<std::string>;

Written names_of(const std::vector<json>& entries) {
  Written names;
  for (const auto& entry : entries) {
    std::string name = entry.contains("event") ? entry.at("event") : entry.at("action");
    if (entry.contains("step")) name += "@" + std::to_string(entry.at("step").get<int>());
    names.push_back(name);
  }
  return names;
}

json progress(int step) {
  return {{"event", "progress"}, {"step", step}};
}
json kept(int step) {
  return {{"event", "kept"}, {"step", step}};
}

TEST(Thinning, OfTheStepsFewAreWritten) {
  Thinning thinning;
  EXPECT_EQ(names_of(thinning.pass(progress(1), 0)), Written{"progress@1"});
  for (int step = 2; step < 300; ++step) {
    EXPECT_TRUE(thinning.pass(progress(step), 0.1 * step).empty());
  }
  EXPECT_EQ(names_of(thinning.pass(progress(301), 30.1)), Written{"progress@301"});
  EXPECT_TRUE(thinning.pass(progress(302), 30.2).empty());
  EXPECT_TRUE(thinning.due(60).empty());
  EXPECT_EQ(names_of(thinning.due(60.1)), Written{"progress@302"});
  EXPECT_TRUE(thinning.due(90).empty());
}

TEST(Thinning, TheLastOnePrecedesWhateverElseHappens) {
  Thinning thinning;
  thinning.pass(progress(1), 0);
  thinning.pass(kept(1), 0);
  thinning.pass(progress(2), 1);
  thinning.pass(kept(2), 0.5);
  EXPECT_EQ(names_of(thinning.pass({{"event", "rank_ended"}}, 1)),
            (Written{"progress@2", "kept@2", "rank_ended"}));
  EXPECT_EQ(names_of(thinning.pass({{"action", "stop"}}, 1)), Written{"stop"});
}

TEST(Thinning, TheFirstStateOfAGenerationIsWrittenAtOnceAndLaterOnesOnceASecond) {
  Thinning thinning;
  EXPECT_EQ(names_of(thinning.pass(kept(1), 0)), Written{"kept@1"});
  EXPECT_TRUE(thinning.pass(kept(2), 0.2).empty());
  EXPECT_TRUE(thinning.pass(kept(3), 0.9).empty());
  EXPECT_EQ(names_of(thinning.due(1)), Written{"kept@3"});
  EXPECT_EQ(names_of(thinning.pass({{"action", "start"}}, 1.1)), Written{"start"});
  EXPECT_EQ(names_of(thinning.pass(kept(4), 1.2)), Written{"kept@4"});
}

}  // namespace
}  // namespace ddp::elastic
