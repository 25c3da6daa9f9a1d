#include "ddp_runtime/check/net/pair_stage.h"

#include <fmt/format.h>

#include "ddp_runtime/check/resolve.h"

namespace ddp::check {
namespace {

const char* name_of(Stage stage) {
  return stage == Stage::tcp ? "TCP" : "MPI";
}

// Where `caller` reaches `called`. Tasks on the leader's node may know themselves by a loopback
// address; others reach them where they reached the leader.
std::string address_for(const Hello& caller, const Hello& called) {
  if (!is_loopback(called.address) || is_loopback(caller.address)) return called.address;
  return caller.leader_address;
}

}  // namespace

PairStage::PairStage(Leader& leader, const std::vector<NodeEntry>& nodes,
                     const PairStageOptions& options)
    : leader_(leader), nodes_(nodes), options_(options), next_exchange_(options.seed) {}

void PairStage::run(const Leader::Progress& progress) {
  const auto count = static_cast<int>(nodes_.size());
  const auto rounds = plan_rounds(count, options_.seed);
  for (std::size_t r = 0; r < rounds.size() && broken_.empty(); ++r) {
    const std::string during =
        fmt::format("{} round {} of {}", name_of(options_.stage), r + 1, rounds.size());
    progress(fmt::format("{}: {} pairs at once", during, rounds[r].size()));
    run_round(rounds[r], during);
  }
  if (!broken_.empty()) return;
  const Round confirmation = confirmation_round(count, results_, options_.rule);
  if (confirmation.empty()) return;
  const std::string during = fmt::format("{} confirmation", name_of(options_.stage));
  progress(fmt::format("{}: {} pairs once more", during, confirmation.size()));
  run_round(confirmation, during);
}

bool PairStage::can_take_part(int node) const {
  const auto& ranks = nodes_[static_cast<std::size_t>(node)].ranks;
  return !ranks.empty() && leader_.reachable(ranks.front());
}

ExchangeOrder PairStage::order_for(int node, int partner, bool first,
                                   std::uint64_t exchange) const {
  const auto& tasks = leader_.present();
  const Hello& own = tasks.at(nodes_[static_cast<std::size_t>(node)].ranks.front());
  const Hello& other = tasks.at(nodes_[static_cast<std::size_t>(partner)].ranks.front());
  ExchangeOrder order;
  order.stage = options_.stage;
  order.exchange = exchange;
  order.first = first;
  order.host = address_for(own, other);
  order.port = other.data_port;
  order.peer_rank = other.rank;
  order.bytes = options_.bytes;
  order.limit_ms = options_.limit.count();
  return order;
}

void PairStage::run_round(const Round& round, const std::string& during) {
  ByRank orders;
  std::vector<Pair> playing;
  for (const Pair& pair : round) {
    if (!can_take_part(pair.a) || !can_take_part(pair.b)) continue;
    const std::uint64_t exchange = next_exchange_++;
    const auto rank_of = [this](int node) {
      return nodes_[static_cast<std::size_t>(node)].ranks.front();
    };
    orders[rank_of(pair.a)] = to_message(order_for(pair.a, pair.b, true, exchange));
    orders[rank_of(pair.b)] = to_message(order_for(pair.b, pair.a, false, exchange));
    playing.push_back(pair);
  }
  const ByRank answers = leader_.ask(orders, during, options_.limit + options_.grace);
  for (const Pair& pair : playing) {
    const auto result = result_of(pair, answers);
    if (result) results_.push_back(*result);
    if (options_.stage == Stage::mpi && broken_.empty()) {
      if (result && !result->failure.empty()) broken_ = result->failure;
      if (!result) broken_ = "a task was lost during " + during;
    }
  }
}

// What the two ends say went wrong; empty if nothing did.
std::string PairStage::failure_of(const Pair& pair, const ByRank& answers) const {
  std::string failure;
  for (const int node : {pair.a, pair.b}) {
    const NodeEntry& entry = nodes_[static_cast<std::size_t>(node)];
    const auto answer = answers.find(entry.ranks.front());
    std::string said;
    if (answer == answers.end()) {
      said = fmt::format("no result within {:g} s",
                         std::chrono::duration<double>(options_.limit + options_.grace).count());
    } else if (answer->second.contains("error")) {
      said = answer->second.at("error").get<std::string>();
    }
    if (!said.empty())
      failure += fmt::format("{}{}: {}", failure.empty() ? "" : "; ", entry.name, said);
  }
  return failure;
}

// Nothing where the exchange says nothing about the two: one end was lost, which is a finding of
// its own, or MPI failed elsewhere.
std::optional<PairResult> PairStage::result_of(const Pair& pair, const ByRank& answers) {
  const int a = nodes_[static_cast<std::size_t>(pair.a)].ranks.front();
  const int b = nodes_[static_cast<std::size_t>(pair.b)].ranks.front();
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
    result.a_to_b = at_b.received_per_second;
    result.b_to_a = at_a.received_per_second;
    result.wrong_at_a = at_a.wrong_bytes;
    result.wrong_at_b = at_b.wrong_bytes;
    result.latency_seconds = at_a.latency_seconds;
  } catch (const nlohmann::json::exception&) {
    result.failure = "an answer could not be understood";
  }
  return result;
}

}  // namespace ddp::check
