// Who is suspected, with whom suspects are measured again, and when they are cleared or convicted.
#include "ddp_runtime/check/net/locate/retrial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace ddp::check {
namespace {

PairResult exchange(int a, int b, double speed) {
  PairResult result;
  result.pair = make_pair_of(a, b);
  result.a_to_b = result.b_to_a = speed;
  return result;
}

std::vector<PairResult> fleet(int nodes, int slow, double speed) {
  std::vector<PairResult> results;
  for (const auto& round : all_rounds(nodes)) {
    for (const auto& [a, b] : round) {
      results.push_back(exchange(a, b, a == slow || b == slow ? speed : 100));
    }
  }
  return results;
}

Retrial tried(std::vector<double> speeds, double reference) {
  Retrial retrial;
  retrial.node = 0;
  retrial.references.assign(2 * speeds.size(), reference);
  retrial.send = speeds;
  retrial.receive = std::move(speeds);
  return retrial;
}

TEST(Retrial, OneGoodMeasurementClears) {
  EXPECT_EQ(opinion(tried({95}, 100), {}), Opinion::cleared);
  EXPECT_EQ(opinion(tried({20, 30, 91}, 100), {}), Opinion::cleared);
}

TEST(Retrial, FiveBadOnesOrFourHopelessOnesConvict) {
  EXPECT_EQ(opinion(Retrial{}, {}), Opinion::open);
  EXPECT_EQ(opinion(tried({10}, 100), {}), Opinion::open);
  EXPECT_EQ(opinion(tried({10, 12, 9}, 100), {}), Opinion::open);
  EXPECT_EQ(opinion(tried({10, 12, 9, 11}, 100), {}), Opinion::convicted);
  EXPECT_EQ(opinion(tried({80, 85, 70, 88}, 100), {}), Opinion::open);
  EXPECT_EQ(opinion(tried({80, 85, 70, 88, 60}, 100), {}), Opinion::convicted);
}

// What slows everybody at this moment slows the references too.
TEST(Retrial, OnlyWhatIsMeasuredBesideItCounts) {
  EXPECT_EQ(opinion(tried({10}, 11), {}), Opinion::cleared);
  Retrial noisy = tried({40}, 100);
  noisy.references = {30, 100, 45, 70};  // these say nothing about ten percent
  EXPECT_EQ(opinion(noisy, {}), Opinion::cleared);
}

TEST(Retrial, EachDirectionIsJudgedAlone) {
  Retrial retrial = tried({50, 50, 50, 50, 50}, 100);
  retrial.receive.assign(5, 100);
  EXPECT_EQ(opinion(retrial, {}), Opinion::convicted);
  EXPECT_EQ(severity_of(retrial, Direction::send, {}), Severity::critical);
  EXPECT_EQ(severity_of(retrial, Direction::receive, {}), Severity::ok);
  Retrial second_of_pair;
  second_of_pair.node = 7;
  PairResult result = exchange(3, 7, 100);
  result.b_to_a = 50;  // what 7 sends
  second_of_pair.add(result);
  EXPECT_EQ(second_of_pair.send, std::vector<double>{50});
  EXPECT_EQ(second_of_pair.receive, std::vector<double>{100});
}

TEST(Retrial, ALossyLinkIsClearedByNoSpeedAndByNoLuck) {
  Retrial retrial = tried({100, 100, 100, 100, 100}, 100);
  retrial.node.reset();
  retrial.lossy = true;
  retrial.lost = {0.05, 0.0002, 0.04, 0.03, 0.02};
  EXPECT_EQ(opinion(retrial, {}), Opinion::convicted);
  EXPECT_TRUE(keeps_losing(retrial));
  retrial.lost[3] = 0;
  EXPECT_EQ(opinion(retrial, {}), Opinion::cleared);
  EXPECT_FALSE(keeps_losing(retrial));
  // A link that was only slow in the rounds needs one good measurement.
  retrial.lossy = false;
  retrial.lost.assign(5, 0.02);
  EXPECT_EQ(opinion(retrial, {}), Opinion::cleared);
}

TEST(Retrial, LossyLinksAreSuspectedOnce) {
  auto results = fleet(6, -1, 100);
  results[2].lost = 0.02;
  results[2].a_to_b = 10;  // slow as well
  const auto list = suspects(6, results, {});
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].link, results[2].pair);
  EXPECT_TRUE(list[0].lossy);
}

TEST(Retrial, SuspectsMeetAnotherGoodNodeEachTime) {
  const auto results = fleet(8, 2, 50);
  const auto list = suspects(8, results, {});
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].node, 2);
  const auto trusted = trusted_nodes(8, results, list);
  EXPECT_EQ(std::count(trusted.begin(), trusted.end(), 2), 0);
  std::set<Pair> met;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto pair = pair_for(list[0], trusted, attempt);
    ASSERT_TRUE(pair);
    EXPECT_TRUE(pair->a == 2 || pair->b == 2);
    met.insert(*pair);
    const auto reference = reference_for(trusted, list, attempt);
    ASSERT_TRUE(reference);
    EXPECT_NE(reference->a, 2);
    EXPECT_NE(reference->b, 2);
  }
  EXPECT_EQ(met.size(), 4U);
}

TEST(Retrial, ASuspectedLinkIsNoReference) {
  const auto results = fleet(4, -1, 100);
  const std::vector<Retrial> list{{.link = {0, 1}}, {.link = {1, 2}}};
  const auto trusted = trusted_nodes(4, results, list);
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto reference = reference_for(trusted, list, attempt);
    ASSERT_TRUE(reference);
    EXPECT_NE(*reference, (Pair{0, 1}));
    EXPECT_NE(*reference, (Pair{1, 2}));
  }
  EXPECT_EQ(pair_for(list[1], trusted, 3), (Pair{1, 2}));
}

TEST(Retrial, NoSuspectIsTrustedWhileTwoOthersAreLeft) {
  const auto results = fleet(4, 2, 95);  // slower than the others, but in the fastest half's three
  const std::vector<Retrial> list{{.node = 1}, {.node = 0}};
  const auto trusted = trusted_nodes(4, results, list);
  EXPECT_EQ(std::set<int>(trusted.begin(), trusted.end()), (std::set<int>{2, 3}));
}

// With noise everybody may be suspected; then the fastest stand in for the good ones.
TEST(Retrial, SomebodyIsTrustedEvenIfAllAreSuspects) {
  const auto results = fleet(4, -1, 100);
  std::vector<Retrial> all;
  for (int node = 0; node < 4; ++node) all.push_back({.node = node});
  const auto trusted = trusted_nodes(4, results, all);
  EXPECT_EQ(trusted.size(), 3U);
  for (const auto& suspect : all) {
    const auto pair = pair_for(suspect, trusted, 0);
    ASSERT_TRUE(pair);
    EXPECT_NE(pair->a, pair->b);
  }
}

}  // namespace
}  // namespace ddp::check
