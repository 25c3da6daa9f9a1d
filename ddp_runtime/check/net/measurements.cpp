// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measurements.h"

#include <array>
#include <nlohmann/json.hpp>

#include "ddp_runtime/check/findings/byte_units.h"

namespace ddp::check {
namespace {

using nlohmann::json;

json in_gigabytes(const std::vector<double>& speeds) {
  json list = json::array();
  for (const double speed : speeds) list.push_back(speed / kGB);
  return list;
}

std::vector<double> values_of(const Retest& retest, double Try::*member) {
  std::vector<double> values;
  for (const Try& one : retest.tries) values.push_back(one.*member);
  return values;
}

}  // namespace

json to_json(const std::vector<PairResult>& results, const std::vector<std::string>& names) {
  json list = json::array();
  for (const auto& r : results) {
    list.push_back({{"a", names[static_cast<std::size_t>(r.pair.a)]},
                    {"b", names[static_cast<std::size_t>(r.pair.b)]},
                    {"a_to_b_GBps", r.a_to_b / kGB},
                    {"b_to_a_GBps", r.b_to_a / kGB},
                    {"latency_us", r.latency_seconds / kMicrosecond},
                    {"lost", r.lost},
                    {"a_via", r.via_a},
                    {"b_via", r.via_b},
                    {"wrong_bytes_at_a", r.wrong_at_a},
                    {"wrong_bytes_at_b", r.wrong_at_b},
                    {"failure", r.failure}});
  }
  return list;
}

json to_json(const std::vector<Retest>& retests, const std::vector<std::string>& names,
             const PeerRule& rule) {
  constexpr std::array<const char*, 6> kOutcomes{"not measured", "cleared",  "noisy",
                                                 "undecided",    "unsteady", "slow"};
  json list = json::array();
  for (const auto& r : retests) {
    const int a = r.node.value_or(r.link.a);
    const Outcome found = outcome(r, rule);
    list.push_back({{"node", names[static_cast<std::size_t>(a)]},
                    {"peer", r.node ? "" : names[static_cast<std::size_t>(r.link.b)]},
                    {"send_GBps", in_gigabytes(values_of(r, &Try::send))},
                    {"receive_GBps", in_gigabytes(values_of(r, &Try::receive))},
                    {"beside_GBps", in_gigabytes(values_of(r, &Try::beside))},
                    {"reference_GBps", in_gigabytes(r.references)},
                    {"lost", values_of(r, &Try::lost)},
                    {"outcome", kOutcomes[static_cast<std::size_t>(found)]},
                    {"cleared", found == Outcome::cleared && !keeps_losing(r)}});
  }
  return list;
}

}  // namespace ddp::check
