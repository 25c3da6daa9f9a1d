// SPDX-License-Identifier: Apache-2.0
// The HTML page of a network check, from made-up reports.
#include "ddp_runtime/report/render/check_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::report {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

json pair_of(const char* a, const char* b, double a_to_b, double b_to_a) {
  return {{"a", a}, {"b", b}, {"a_to_b_GBps", a_to_b}, {"b_to_a_GBps", b_to_a}};
}

json report_of(const json& measurements) {
  auto report = R"({"command": "net", "verdict": "ddp-check net OK", "nodes": ["n1", "n2", "n3"],
                    "findings": []})"_json;
  report["measurements"] = measurements;
  return report;
}

// Returns all texts between `begin` and `end`.
std::vector<std::string> between(const std::string& page, const std::string& begin,
                                 const std::string& end) {
  std::vector<std::string> found;
  for (std::size_t at = page.find(begin); at != page.npos; at = page.find(begin, at + 1)) {
    const std::size_t from = at + begin.size();
    found.push_back(page.substr(from, page.find(end, from) - from));
  }
  return found;
}

std::vector<std::string> headings(const std::string& page) {
  return between(page, "<h2>Pairs over ", "</h2>");
}

TEST(CheckPage, EachTransportHasItsMap) {
  auto measurements = R"({"tcp_retests": [{"node": "n1"}],
                          "mpi_retrials": [{"node": "n1"}],
                          "tcp_eth1_transport": [{"node": "n1"}],
                          "all_reduce": {"bytes": 16}})"_json;
  for (const char* way : {"mpi", "tcp", "tcp_eth1", "tcp_ib0", "verbs", "nccl"}) {
    measurements[way] = {pair_of("n1", "n2", 1, 2), pair_of("n1", "n3", 1, 2)};
  }
  const auto page = check_page(report_of(measurements));
  EXPECT_THAT(headings(page),
              ElementsAre("TCP", "TCP over eth1", "TCP over ib0", "RDMA", "NCCL", "MPI"));
  EXPECT_THAT(between(page, "<section id=\"way", "\""), ElementsAre("1", "2", "3", "4", "5", "6"));
  EXPECT_THAT(between(page, "<title id=\"way", "-t\">"), ElementsAre("1", "2", "3", "4", "5", "6"));
  EXPECT_EQ(between(page, "<rect", ">").size(), 6U * 6U) << "three pairs have two directions each";
}

TEST(CheckPage, EachRdmaPortHasItsMap) {
  json pairs;
  for (const char* rail : {"mlx5_1:1", "mlx5_0:1"}) {
    const bool fast = pairs.empty();
    pairs.push_back(pair_of("n1", "n2", fast ? 24 : 0, fast ? 23 : 0));
    pairs.back()["rail"] = rail;
  }
  const auto page = check_page(report_of({{"verbs", pairs}}));
  EXPECT_THAT(headings(page), ElementsAre("RDMA over mlx5_1:1", "RDMA over mlx5_0:1"));
  EXPECT_THAT(between(page, "<title>n1 to n2: ", "<"), ElementsAre("24 GB/s", "0 GB/s"));
}

TEST(CheckPage, MissingMeasurementsHaveNoMap) {
  EXPECT_THAT(headings(check_page(report_of({{"tcp", json::array()}, {"tcp_x", json::array()}}))),
              IsEmpty());
  const auto page = check_page(report_of({{"tcp", {pair_of("n1", "n2", 1, 2)}}}));
  EXPECT_THAT(headings(page), ElementsAre("TCP"));
  EXPECT_THAT(page, HasSubstr("<title>n1 to n3: not measured</title>"));
  EXPECT_THAT(page, HasSubstr("<title>n2 to n1: 2 GB/s</title>"));
}

TEST(CheckPage, ExternalNamesAreEscaped) {
  const auto page = check_page(report_of({{"tcp_<b>", {pair_of("n1", "n2", 1, 2)}}}));
  EXPECT_THAT(headings(page), ElementsAre("TCP over &lt;b&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
}

}  // namespace
}  // namespace ddp::report
