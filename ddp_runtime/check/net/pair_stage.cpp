// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/pair_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/secret/random_token.h"
#include "base/socket.h"
#include "base/text.h"
#include "ddp_runtime/check/findings/resolve.h"
#include "ddp_runtime/check/net/locate/pair_session.h"

namespace ddp::check {
namespace {

constexpr int kMaxAttempts = 3;  // for one round

std::string title_of(const PairStageOptions& options) {
  const std::string name = title_of(options.stage);
  return options.rail.empty() ? name : fmt::format("{} over {}", name, options.rail);
}

class PairStage {
 public:
  PairStage(Leader& leader, const std::vector<NodeEntry>& nodes, const PairStageOptions& options);
  PairStageResult run(const Leader::Progress& progress);

 private:
  std::vector<PairResult> run_round(const Round& round, const std::string& during);
  std::vector<PairResult> run_once(const Round& round, const std::string& during);
  int rank_of(int node) const { return nodes_[static_cast<std::size_t>(node)].ranks.front(); }
  ExchangeCommand order_for(int node, int partner, bool first, std::uint64_t exchange,
                            const std::string& token) const;
  std::optional<PairResult> result_of(const Pair& pair, const ByRank& answers) const;
  std::string failure_of(const Pair& pair, const ByRank& answers) const;

  Leader& leader_;
  const std::vector<NodeEntry>& nodes_;
  const PairStageOptions& options_;
  std::uint64_t next_exchange_;
  PairSession session_;
  std::string broken_;
};

PairStage::PairStage(Leader& leader, const std::vector<NodeEntry>& nodes,
                     const PairStageOptions& options)
    : leader_(leader),
      nodes_(nodes),
      options_(options),
      next_exchange_(options.seed),
      session_({.nodes = static_cast<int>(nodes.size()),
                .classes = options.classes,
                .rounds = options.rounds,
                .seed = options.seed,
                .rule = options.rule}) {}

PairStageResult PairStage::run(const Leader::Progress& progress) {
  const auto can = [this](int node) { return leader_.reachable(rank_of(node)); };
  while (const auto step = session_.next(can)) {
    const bool round = step->kind == SessionStep::Kind::round;
    const std::string during = fmt::format("{} {} {} of {}", title_of(options_),
                                           round ? "round" : "retest", step->number, step->of);
    if (round) {
      progress(fmt::format("{}: {} at once", during, counted(step->pairs.size(), "pair")));
    } else if (step->suspects > 0) {
      progress(fmt::format("{}: {}", during, counted(step->suspects, "suspect")));
    }
    session_.take(run_round(step->pairs, during));
    if (!broken_.empty()) break;
  }
  return {session_.results(), session_.retests(), broken_};
}

ExchangeCommand PairStage::order_for(int node, int partner, bool first, std::uint64_t exchange,
                                     const std::string& token) const {
  const auto& tasks = leader_.present();
  const Hello& own = tasks.at(rank_of(node));
  const Hello& other = tasks.at(rank_of(partner));
  ExchangeCommand command;
  command.stage = options_.stage;
  command.exchange = exchange;
  command.token = token;
  command.first = first;
  command.host = address_for(own, other);
  if (options_.stage == TransportKind::verbs) {
    command.rail = options_.ports.at(own.node).name;
  } else if (!options_.rail.empty()) {
    command.rail = options_.rail;
    command.address = own.rails.at(options_.rail).address;
    command.host = other.rails.at(options_.rail).address;
  }
  command.port = other.data_port;
  command.peer_rank = other.rank;
  command.peer_node = other.node;
  command.bytes = options_.bytes;
  command.limit_ms = options_.limit.count();
  return command;
}

// While rank 0 is suspended, its own exchange stands still, and its partner gives up. So the round
// is repeated; if that does not help, it has no results instead of bad ones.
std::vector<PairResult> PairStage::run_round(const Round& round, const std::string& during) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto before = leader_.suspended();
    auto results = run_once(round, during);
    if (leader_.suspended() == before) return results;
    if (!broken_.empty()) {
      broken_ = "rank 0 was suspended during " + during;
      return {};
    }
  }
  return {};
}

std::vector<PairResult> PairStage::run_once(const Round& round, const std::string& during) {
  ByRank commands;
  std::vector<Pair> playing;
  for (const Pair& pair : round) {
    if (!leader_.reachable(rank_of(pair.a)) || !leader_.reachable(rank_of(pair.b))) continue;
    const std::uint64_t exchange = next_exchange_++;
    const std::string token = random_token();
    commands[rank_of(pair.a)] = to_message(order_for(pair.a, pair.b, true, exchange, token));
    commands[rank_of(pair.b)] = to_message(order_for(pair.b, pair.a, false, exchange, token));
    playing.push_back(pair);
  }
  const ByRank answers = leader_.ask(commands, during, options_.limit + options_.grace);
  std::vector<PairResult> results;
  for (const Pair& pair : playing) {
    const auto result = result_of(pair, answers);
    if (result) results.push_back(*result);
    if (options_.stage == TransportKind::mpi && broken_.empty()) {
      if (result && !result->failure.empty()) broken_ = result->failure;
      if (!result) broken_ = "a task was lost during " + during;
    }
  }
  return results;
}

// The errors that the two ends report; empty if there are none.
std::string PairStage::failure_of(const Pair& pair, const ByRank& answers) const {
  std::string failure;
  for (const int node : {pair.a, pair.b}) {
    const auto answer = answers.find(rank_of(node));
    std::string said;
    if (answer == answers.end()) {
      said = fmt::format("no result within {:g} s",
                         std::chrono::duration<double>(options_.limit + options_.grace).count());
    } else if (answer->second.contains("error")) {
      said = answer->second.at("error").get<std::string>();
    }
    if (!said.empty())
      failure += fmt::format("{}{}: {}", failure.empty() ? "" : "; ",
                             nodes_[static_cast<std::size_t>(node)].name, said);
  }
  return failure;
}

// Returns nullopt if the exchange provides no information about the two nodes: one end was lost,
// which has its own finding, or MPI failed elsewhere.
std::optional<PairResult> PairStage::result_of(const Pair& pair, const ByRank& answers) const {
  const int a = rank_of(pair.a);
  const int b = rank_of(pair.b);
  if (!leader_.reachable(a) || !leader_.reachable(b)) return std::nullopt;
  for (const int rank : {a, b}) {
    const auto answer = answers.find(rank);
    if (answer != answers.end() && answer->second.contains("of_peer")) return std::nullopt;
  }
  PairResult result;
  result.pair = pair;
  try {
    result.failure = failure_of(pair, answers);
    if (!result.failure.empty()) return result;
    const ExchangeResult at_a = exchange_result_from(answers.at(a));
    const ExchangeResult at_b = exchange_result_from(answers.at(b));
    result.a_to_b = std::max(at_b.received_per_second, at_a.sent_per_second);
    result.b_to_a = std::max(at_a.received_per_second, at_b.sent_per_second);
    result.via_a = at_a.via;
    result.via_b = at_b.via;
    result.wrong_at_a = at_a.wrong_bytes;
    result.wrong_at_b = at_b.wrong_bytes;
    result.latency_seconds = at_a.latency_seconds;
    result.lost = std::max(at_a.lost, at_b.lost);
  } catch (const nlohmann::json::exception&) {
    result.failure = "an answer was invalid";
  }
  return result;
}

}  // namespace

std::string address_for(const Hello& caller, const Hello& called) {
  if (!is_loopback(called.address) || is_loopback(caller.address)) return called.address;
  return caller.leader_address;
}

PairStageResult run_pair_stage(Leader& leader, const std::vector<NodeEntry>& nodes,
                               const PairStageOptions& options, const Leader::Progress& progress) {
  return PairStage(leader, nodes, options).run(progress);
}

}  // namespace ddp::check
