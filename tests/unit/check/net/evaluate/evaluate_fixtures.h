// SPDX-License-Identifier: Apache-2.0
// Synthetic measurements for the tests of the verdicts: every kind of fault has the right name, and
// a healthy run has no findings.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"
#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "tests/unit/check/complaints.h"

namespace ddp::check {

// The report of each task, by rank; a task without a node ("") did not report.
inline std::map<int, Hello> reports(const std::vector<std::string>& nodes) {
  std::map<int, Hello> present;
  int rank = 0;
  for (const auto& node : nodes) {
    if (!node.empty()) {
      Hello hello;
      hello.rank = rank;
      hello.node = node;
      hello.leader_host = "n1";
      hello.leader_addresses = {"10.0.0.1"};
      hello.address = "10.0.0.2";
      hello.mtu = 9000;
      present[rank] = hello;
    }
    ++rank;
  }
  return present;
}

// The exchanges of all pairs of n1, n2, ..., each at `speed` bytes per second.
inline PairsMeasured fleet(int nodes, double speed = 1e9) {
  PairsMeasured measured;
  measured.kind = "tcp";
  for (int i = 1; i <= nodes; ++i) {
    std::string name = "n";
    name += std::to_string(i);
    measured.nodes.push_back(name);
  }
  measured.already_flagged.assign(measured.nodes.size(), false);
  measured.link_rate.assign(measured.nodes.size(), std::nullopt);
  for (const auto& round : all_rounds(nodes)) {
    for (const auto& pair : round) {
      PairResult result;
      result.pair = pair;
      result.a_to_b = result.b_to_a = speed;
      result.latency_seconds = 1e-5;
      measured.results.push_back(result);
    }
  }
  return measured;
}

}  // namespace ddp::check
