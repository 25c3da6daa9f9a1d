#include "ddp_runtime/check/net/measurements.h"

#include <nlohmann/json.hpp>

#include "ddp_runtime/check/byte_units.h"

namespace ddp::check {
namespace {

using nlohmann::json;

json in_gigabytes(const std::vector<double>& speeds) {
  json list = json::array();
  for (const double speed : speeds) list.push_back(speed / kGB);
  return list;
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

json to_json(const std::vector<Retrial>& retrials, const std::vector<std::string>& names,
             const PeerRule& rule) {
  json list = json::array();
  for (const auto& r : retrials) {
    const int a = r.node.value_or(r.link.a);
    list.push_back({{"node", names[static_cast<std::size_t>(a)]},
                    {"peer", r.node ? "" : names[static_cast<std::size_t>(r.link.b)]},
                    {"send_GBps", in_gigabytes(r.send)},
                    {"receive_GBps", in_gigabytes(r.receive)},
                    {"reference_GBps", in_gigabytes(r.references)},
                    {"lost", r.lost},
                    {"cleared", opinion(r, rule) == Opinion::cleared}});
  }
  return list;
}

}  // namespace ddp::check
