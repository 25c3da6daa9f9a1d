#include "ddp_runtime/check/net/locate/retrial.h"

#include <algorithm>

namespace ddp::check {
namespace {

// Far below the threshold four measurements are enough; two were not, on a busy machine.
constexpr double kHopeless = 0.5;
constexpr std::size_t kHopelessAttempts = 4;
constexpr std::size_t kFewestTrusted = 3;
// Of 64 packets, 4 MiB as segmentation offload cuts them, all arrive once in 27 times where one in
// twenty is lost. Two measurements without a loss are one in 700.
constexpr int kCleanByLuck = 1;

double best(const std::vector<double>& speeds) {
  return *std::max_element(speeds.begin(), speeds.end());
}

}  // namespace

void Retrial::add(const PairResult& result) {
  const bool forward = !node || result.pair.a == *node;
  send.push_back(forward ? result.a_to_b : result.b_to_a);
  receive.push_back(forward ? result.b_to_a : result.a_to_b);
  lost.push_back(result.lost);
}

bool keeps_losing(const Retrial& retrial) {
  const auto clean = [](double part) { return part < kLossy; };
  return retrial.lossy &&
         std::count_if(retrial.lost.begin(), retrial.lost.end(), clean) <= kCleanByLuck;
}

Opinion opinion(const Retrial& retrial, const PeerRule& rule) {
  if (retrial.send.empty() || retrial.references.empty()) return Opinion::open;
  const double warning = thresholds_of(retrial.references, rule).warning;
  const double slower = std::min(best(retrial.send), best(retrial.receive));
  if (slower >= warning && !keeps_losing(retrial)) return Opinion::cleared;
  const std::size_t attempts = retrial.send.size();
  if (attempts >= static_cast<std::size_t>(kMostAttempts)) return Opinion::convicted;
  const bool hopeless = attempts >= kHopelessAttempts && slower < kHopeless * warning;
  return hopeless ? Opinion::convicted : Opinion::open;
}

Severity severity_of(const Retrial& retrial, Direction direction, const PeerRule& rule) {
  const auto& speeds = direction == Direction::send ? retrial.send : retrial.receive;
  if (speeds.empty() || retrial.references.empty()) return Severity::ok;
  return judge_by_peers(best(speeds), thresholds_of(retrial.references, rule));
}

std::vector<Retrial> suspects(int nodes, std::span<const PairResult> results,
                              const PeerRule& rule) {
  std::vector<Retrial> list;
  const auto slow = slow_nodes(nodes, results, rule);
  for (int node = 0; node < nodes; ++node) {
    if (slow[static_cast<std::size_t>(node)]) list.push_back({.node = node});
  }
  const auto lossy = lossy_pairs(results);
  for (const auto& link : lossy) list.push_back({.link = link, .lossy = true});
  for (const auto& link : slow_pairs(nodes, results, rule)) {
    if (std::find(lossy.begin(), lossy.end(), link) == lossy.end()) list.push_back({.link = link});
  }
  return list;
}

std::vector<int> trusted_nodes(int nodes, std::span<const PairResult> results,
                               std::span<const Retrial> suspects) {
  const auto suspected = [suspects](int node) {
    return std::any_of(suspects.begin(), suspects.end(),
                       [node](const Retrial& suspect) { return suspect.node == node; });
  };
  std::vector<int> order = fastest_first(nodes, results);
  if (std::count_if(order.begin(), order.end(), suspected) + 2 <=
      static_cast<std::ptrdiff_t>(order.size())) {
    std::erase_if(order, suspected);
  }
  const std::size_t half = std::max(kFewestTrusted, static_cast<std::size_t>(nodes) / 2);
  if (order.size() > half) order.resize(half);
  return order;
}

std::optional<Pair> pair_for(const Retrial& retrial, std::span<const int> trusted, int attempt) {
  if (!retrial.node) return retrial.link;
  std::vector<int> partners(trusted.begin(), trusted.end());
  std::erase(partners, *retrial.node);
  if (partners.empty()) return std::nullopt;
  return make_pair_of(*retrial.node, partners[static_cast<std::size_t>(attempt) % partners.size()]);
}

std::optional<Pair> reference_for(std::span<const int> trusted, std::span<const Retrial> suspects,
                                  int attempt) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < trusted.size(); ++i) {
    for (std::size_t j = i + 1; j < trusted.size(); ++j) {
      const Pair pair = make_pair_of(trusted[i], trusted[j]);
      const bool suspected = std::any_of(
          suspects.begin(), suspects.end(),
          [pair](const Retrial& suspect) { return !suspect.node && suspect.link == pair; });
      if (!suspected) pairs.push_back(pair);
    }
    if (pairs.size() >= static_cast<std::size_t>(kMostAttempts)) break;
  }
  if (pairs.empty()) return std::nullopt;
  return pairs[static_cast<std::size_t>(attempt) % pairs.size()];
}

}  // namespace ddp::check
