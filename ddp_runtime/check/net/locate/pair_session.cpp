// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/locate/pair_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ddp_runtime/check/net/locate/screen.h"

namespace ddp::check {
namespace {

constexpr int kMaxExtraRounds = 3;
constexpr std::size_t kMinTrusted = 3;
// Limits on how many suspects are measured at the same time: only a few, so that most nodes stay
// idle, or one per 32 nodes in a large cluster. Measuring all suspects at once would reproduce the
// traffic of the rounds.
constexpr std::size_t kFewAtOnce = 2;
constexpr std::size_t kMoreAtOnce = 4;
constexpr std::size_t kNodesForEachOfMore = 4;
constexpr std::size_t kNodesForEach = 32;
// With kManyNodes or more nodes, each suspect is measured beside two pairs of good nodes, because
// the retest needs to know how often good pairs are far below the median by chance.
constexpr std::size_t kMaxReferences = 4;
constexpr std::size_t kReferencesForEach = 2;
constexpr std::size_t kMaxReferencesOfMany = 8;
constexpr int kManyNodes = 16;
// With many suspects, each is measured less often, so that the time stays bounded.
constexpr std::size_t kMaxSteps = 90;

std::size_t suspects_at_once(int nodes) {
  const auto count = static_cast<std::size_t>(nodes);
  return std::max(std::clamp(count / kNodesForEachOfMore, kFewAtOnce, kMoreAtOnce),
                  count / kNodesForEach);
}

double slower_way(const PairResult& result) {
  return std::min(result.a_to_b, result.b_to_a);
}

// The values of one try relative to their median.
void add_ratios(std::span<const double> values, std::vector<double>& ratios) {
  if (values.size() < 2) return;
  const double middle = median(values);
  for (const double value : values) ratios.push_back(value / middle);
}

// Corrects a bias: the median of a few values is closer to them than the true value is.
double noise_of(std::span<const double> ratios, std::size_t tries) {
  if (ratios.empty() || tries == 0) return 0;
  std::vector<double> deviations;
  deviations.reserve(ratios.size());
  for (const double ratio : ratios) deviations.push_back(std::abs(std::log(ratio)));
  const double together =
      std::max(2.0, static_cast<double>(ratios.size()) / static_cast<double>(tries));
  return 1.4826 * median(deviations) * std::sqrt(together / (together - 1));
}

}  // namespace

PairSession::PairSession(SessionOptions options)
    : options_(std::move(options)),
      rounds_(plan_class_rounds(options_.nodes, options_.classes, options_.rounds, options_.seed)) {
}

std::optional<SessionStep> PairSession::next(const CanTakePart& can_take_part) {
  while (true) {
    switch (phase_) {
      case Phase::rounds:
        if (begun_ < rounds_.size() || plan_more_rounds()) {
          const Round& round = rounds_[begun_++];
          return SessionStep{SessionStep::Kind::round, static_cast<int>(begun_),
                             static_cast<int>(rounds_.size()), 0, round};
        }
        if (options_.retests) find_suspects();
        phase_ = options_.retests ? Phase::suspects : Phase::done;
        break;
      case Phase::suspects:
      case Phase::ends:
        if (auto step = next_try(can_take_part)) return step;
        finish_tries();
        phase_ = phase_ == Phase::suspects && add_ends_of_bad_links() ? Phase::ends : Phase::done;
        break;
      case Phase::done:
        return std::nullopt;
    }
  }
}

void PairSession::take(std::span<const PairResult> results) {
  auto& place = phase_ == Phase::rounds ? results_ : sub_rounds_.back().results;
  place.insert(place.end(), results.begin(), results.end());
}

// Plans more rounds if the noise hides a CRITICAL slowdown and more measurements help.
bool PairSession::plan_more_rounds() {
  const int planned = static_cast<int>(
      plan_class_rounds(options_.nodes, options_.classes, 0, options_.seed).size());
  const int extra = static_cast<int>(rounds_.size()) - planned;
  if (!options_.retests || options_.rounds > 0 || extra >= kMaxExtraRounds) return false;
  const auto limit = detection_limit(options_.nodes, results_, options_.rule, options_.classes);
  const double noise = exchange_noise(options_.nodes, results_, options_.classes);
  const double at_best = retest_limit(noise, kMaxTries, options_.rule);
  const double wanted = options_.rule.coarsest();
  if (!limit || *limit <= wanted || at_best > wanted) return false;
  const auto more =
      plan_class_rounds(options_.nodes, options_.classes, planned + extra + 1, options_.seed);
  const auto next = static_cast<std::size_t>(planned) + static_cast<std::size_t>(extra);
  rounds_.push_back(next < more.size() ? more[next] : rounds_[static_cast<std::size_t>(extra)]);
  return true;
}

void PairSession::find_suspects() {
  const Screen seen = screen(options_.nodes, results_, options_.rule, options_.classes);
  for (int node = 0; node < options_.nodes; ++node) {
    if (seen.nodes[static_cast<std::size_t>(node)]) retests_.push_back({.node = node});
  }
  const auto lossy = lossy_pairs(results_);
  for (const auto& link : lossy) retests_.push_back({.link = link, .lossy = true});
  for (const auto& link : seen.pairs) {
    if (!std::binary_search(lossy.begin(), lossy.end(), link)) retests_.push_back({.link = link});
  }
  for (const Retest& retest : retests_) {
    if (!retest.node) bad_links_.insert(retest.link);
  }
  trust_the_good();
  tries_ = tries_for(seen.noise, options_.rule);
  // The outcome for loss depends on the number of tries, even if the speeds are reliable.
  if (!lossy.empty()) tries_ = std::max(tries_, kMinTries);
  begin_tries();
}

// If a link is slow in some or all tries, one of its ends may be the slow part.
bool PairSession::add_ends_of_bad_links() {
  std::set<int> tested;
  std::set<int> ends;
  for (const Retest& retest : retests_) {
    if (retest.node) tested.insert(*retest.node);
  }
  for (const Retest& retest : retests_) {
    const Outcome found = outcome(retest, options_.rule);
    if (retest.node || (found != Outcome::slow && found != Outcome::unsteady)) continue;
    ends.insert({retest.link.a, retest.link.b});
  }
  first_ = retests_.size();
  for (const int node : ends) {
    if (!tested.contains(node)) retests_.push_back({.node = node});
  }
  begin_tries();
  return first_ < retests_.size();
}

// Chooses the reference nodes, which are measured with suspects and with each other: the faster
// half of each class, at least three, and no suspects if at least two other nodes remain. Their
// order is random, so that no node that was fast by chance is the reference for all suspects.
void PairSession::trust_the_good() {
  std::vector<bool> suspected(static_cast<std::size_t>(options_.nodes), false);
  for (const Retest& retest : retests_) {
    if (retest.node) suspected[static_cast<std::size_t>(*retest.node)] = true;
  }
  std::vector<double> best(suspected.size(), 0);
  for (const auto& result : results_) {
    if (!result.measured()) continue;
    for (const int node : {result.pair.a, result.pair.b}) {
      if (class_of(options_.classes, node) != class_of(options_.classes, result.pair)) continue;
      double& value = best[static_cast<std::size_t>(node)];
      value = std::max(value, slower_way(result));
    }
  }
  std::map<int, std::vector<int>> nodes;
  for (int node = 0; node < options_.nodes; ++node) {
    if (best[static_cast<std::size_t>(node)] > 0) {
      nodes[class_of(options_.classes, node)].push_back(node);
    }
  }
  for (auto& [number, members] : nodes) {
    const auto is_suspected = [&](int node) { return suspected[static_cast<std::size_t>(node)]; };
    const std::size_t half = std::max(kMinTrusted, members.size() / 2);
    if (std::count_if(members.begin(), members.end(), is_suspected) + 2 <=
        static_cast<std::ptrdiff_t>(members.size())) {
      std::erase_if(members, is_suspected);
    }
    std::stable_sort(members.begin(), members.end(), [&](int one, int other) {
      return best[static_cast<std::size_t>(one)] > best[static_cast<std::size_t>(other)];
    });
    if (members.size() > half) members.resize(half);
    shuffle_nodes(members, options_.seed + static_cast<std::uint64_t>(number));
    trusted_[number] = std::move(members);
  }
}

void PairSession::begin_tries() {
  const std::size_t at_once = suspects_at_once(options_.nodes);
  const std::size_t suspects = retests_.size() - first_;
  const std::size_t steps_of_try = std::max<std::size_t>(1, (suspects + at_once - 1) / at_once);
  tries_ = std::min(tries_, std::max(kMinTries, static_cast<int>(kMaxSteps / steps_of_try)));
  try_ = 0;
  references_.clear();
  left_.clear();
  sub_rounds_.clear();
}

void PairSession::begin_try() {
  ++try_;
  sub_rounds_.clear();
  for (std::size_t i = first_; i < retests_.size(); ++i) {
    if (!hopeless(retests_[i], options_.rule)) left_.push_back(i);
  }
}

std::optional<SessionStep> PairSession::next_try(const CanTakePart& can_take_part) {
  while (true) {
    if (left_.empty()) {
      if (SubRound missing = deal_references(can_take_part); !missing.pairs.empty()) {
        SessionStep step{SessionStep::Kind::retest, try_, tries_, 0, missing.pairs};
        sub_rounds_.push_back(std::move(missing));
        return step;
      }
      if (try_ > 0) end_try();
      if (try_ >= tries_ || first_ == retests_.size()) return std::nullopt;
      begin_try();
      if (left_.empty()) return std::nullopt;
    }
    SubRound round = deal(can_take_part);
    if (round.pairs.empty()) continue;
    SessionStep step{SessionStep::Kind::retest, try_, tries_, round.suspects.size(), round.pairs};
    sub_rounds_.push_back(std::move(round));
    return step;
  }
}

int PairSession::class_of_suspect(const Retest& retest) const {
  return retest.node ? class_of(options_.classes, *retest.node)
                     : class_of(options_.classes, retest.link);
}

// Each try uses a different partner.
int PairSession::partner_at(int number, std::size_t place) const {
  const auto& nodes = trusted_.at(number);
  return nodes[(place + static_cast<std::size_t>(try_)) % nodes.size()];
}

PairSession::SubRound PairSession::deal(const CanTakePart& can_take_part) {
  const std::size_t at_once = suspects_at_once(options_.nodes);
  SubRound round;
  std::set<int> busy;
  std::map<int, std::size_t> cursors;
  std::set<int> numbers;
  std::vector<std::size_t> waiting;
  for (const std::size_t i : left_) {
    const Retest& retest = retests_[i];
    const auto& trusted = trusted_[class_of_suspect(retest)];
    const bool possible =
        retest.node
            ? can_take_part(*retest.node) &&
                  std::any_of(trusted.begin(), trusted.end(),
                              [&](int node) { return node != *retest.node && can_take_part(node); })
            : can_take_part(retest.link.a) && can_take_part(retest.link.b);
    if (!possible) continue;
    if (round.suspects.size() >= at_once || !place(i, cursors, busy, round, can_take_part)) {
      waiting.push_back(i);
    } else {
      numbers.insert(class_of_suspect(retest));
    }
  }
  const bool stuck = round.suspects.empty();
  left_ = stuck ? std::vector<std::size_t>{} : std::move(waiting);
  const std::size_t count = round.suspects.size();
  const std::size_t most =
      options_.nodes < kManyNodes
          ? std::clamp<std::size_t>(count, 1, kMaxReferences)
          : std::clamp(kReferencesForEach * count, kMaxReferences, kMaxReferencesOfMany);
  for (const int number : numbers) add_references(number, most, busy, round, can_take_part);
  return round;
}

// For classes whose suspects left no pair of good nodes free in this try: measures the references
// after the suspects instead of at the same time.
PairSession::SubRound PairSession::deal_references(const CanTakePart& can_take_part) {
  std::set<int> wanted;
  std::set<int> had;
  for (const SubRound& round : sub_rounds_) {
    for (std::size_t i = 0; i < round.pairs.size(); ++i) {
      const bool suspect = i < round.suspects.size();
      (suspect ? wanted : had)
          .insert(suspect ? class_of_suspect(retests_[round.suspects[i]])
                          : class_of(options_.classes, round.pairs[i]));
    }
  }
  SubRound round;
  std::set<int> busy;
  for (const int number : wanted) {
    if (!had.contains(number)) add_references(number, 1, busy, round, can_take_part);
  }
  return round;
}

// Returns whether there is a pair for the suspect with both ends free.
bool PairSession::place(std::size_t suspect, std::map<int, std::size_t>& cursors,
                        std::set<int>& busy, SubRound& round, const CanTakePart& can_take_part) {
  const Retest& retest = retests_[suspect];
  const auto take_pair = [&](const Pair& pair) {
    busy.insert({pair.a, pair.b});
    round.pairs.push_back(pair);
    round.suspects.push_back(suspect);
    return true;
  };
  if (!retest.node) {
    if (busy.contains(retest.link.a) || busy.contains(retest.link.b)) return false;
    return take_pair(retest.link);
  }
  if (busy.contains(*retest.node)) return false;
  const int number = class_of_suspect(retest);
  const auto count = trusted_[number].size();
  std::size_t& cursor = cursors[number];
  for (const bool any : {false, true}) {  // uses a suspected link only if there is no other link
    for (std::size_t at = any ? 0 : cursor; at < count; ++at) {
      const int partner = partner_at(number, at);
      const Pair pair = make_pair_of(*retest.node, partner);
      if (partner == *retest.node || busy.contains(partner) || !can_take_part(partner)) continue;
      if (!any && suspected_link(pair)) continue;
      if (!any) cursor = at + 1;
      return take_pair(pair);
    }
  }
  return false;
}

void PairSession::add_references(int number, std::size_t most, std::set<int>& busy, SubRound& round,
                                 const CanTakePart& can_take_part) {
  const auto count = trusted_[number].size();
  int first = -1;  // first end of a pair whose other end is still missing
  std::size_t added = 0;
  for (std::size_t at = count; at > 0 && added < most; --at) {
    const int node = partner_at(number, at - 1);
    if (busy.contains(node) || !can_take_part(node)) continue;
    if (first < 0) {
      first = node;
      continue;
    }
    const Pair pair = make_pair_of(first, node);
    if (suspected_link(pair)) continue;
    busy.insert({first, node});
    round.pairs.push_back(pair);
    first = -1;
    ++added;
  }
}

// Relates each try to the references measured at the same moment or, if there are none, in the same
// try.
void PairSession::end_try() {
  std::map<int, std::vector<double>> speeds;
  std::map<int, std::vector<double>> latencies;
  std::vector<std::map<int, std::vector<double>>> own(sub_rounds_.size());
  for (std::size_t r = 0; r < sub_rounds_.size(); ++r) {
    const SubRound& round = sub_rounds_[r];
    for (const PairResult& result : round.results) {
      const auto place = std::find(round.pairs.begin(), round.pairs.end(), result.pair);
      const auto at = static_cast<std::size_t>(place - round.pairs.begin());
      if (at < round.suspects.size() || !result.measured()) continue;
      const int number = class_of(options_.classes, result.pair);
      for (auto* values : {&speeds[number], &own[r][number]}) {
        values->insert(values->end(), {result.a_to_b, result.b_to_a});
      }
      if (result.latency_seconds > 0) latencies[number].push_back(result.latency_seconds);
    }
  }
  for (auto& [number, values] : speeds) references_[number].push_back(values);
  for (std::size_t r = 0; r < sub_rounds_.size(); ++r) {
    const SubRound& round = sub_rounds_[r];
    for (const PairResult& result : round.results) {
      const auto place = std::find(round.pairs.begin(), round.pairs.end(), result.pair);
      const auto at = static_cast<std::size_t>(place - round.pairs.begin());
      if (at >= round.suspects.size() || !result.measured()) continue;
      Retest& retest = retests_[round.suspects[at]];
      const int number = class_of_suspect(retest);
      const auto& beside = own[r][number].empty() ? speeds[number] : own[r][number];
      if (beside.empty()) continue;
      const auto& answers = latencies[number];
      retest.add(result, median(beside), answers.empty() ? 0 : median(answers));
    }
  }
  sub_rounds_.clear();
}

void PairSession::finish_tries() {
  std::map<int, std::vector<double>> speeds;
  std::map<int, std::vector<double>> ratios;
  for (const auto& [number, tries] : references_) {
    for (const auto& values : tries) {
      add_ratios(values, ratios[number]);
      speeds[number].insert(speeds[number].end(), values.begin(), values.end());
    }
  }
  const double noise = exchange_noise(options_.nodes, results_, options_.classes);
  for (std::size_t i = first_; i < retests_.size(); ++i) {
    const int number = class_of_suspect(retests_[i]);
    retests_[i].references = speeds[number];
    retests_[i].reference_ratios = ratios[number];
    // During the few seconds of a retest, good pairs may look steadier than they are, because other
    // load on the CPUs can favor one pair over another for longer than that. So the noise of the
    // rounds is the minimum.
    retests_[i].noise = std::max(noise_of(ratios[number], references_[number].size()), noise);
  }
}

}  // namespace ddp::check
