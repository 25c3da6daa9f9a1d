// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/net_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "ddp_runtime/check/byte_units.h"
#include "ddp_runtime/check/counted.h"
#include "ddp_runtime/check/net/collective_stage.h"
#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/evaluate/evaluate_leaves.h"
#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"
#include "ddp_runtime/check/net/evaluate/evaluate_names.h"
#include "ddp_runtime/check/net/evaluate/evaluate_transport.h"
#include "ddp_runtime/check/net/join_tasks.h"
#include "ddp_runtime/check/net/measurements.h"
#include "ddp_runtime/check/net/pair_stage.h"
#include "ddp_runtime/check/net/path_stage.h"
#include "ddp_runtime/check/net/rails.h"
#include "ddp_runtime/check/net/rdma_rails.h"

namespace ddp::check {
namespace {

using nlohmann::json;

// Limit on the names that every node resolves, to limit the load on the name servers.
constexpr std::size_t kMaxNames = 64;
constexpr std::chrono::milliseconds kNameTimeout{5000};
constexpr std::uint64_t kExchangesOfAWay = 1'000'000;
constexpr int kRoundsOfARail = 3;

// The traffic of a node's devices, and the modules of its MPI library.
struct TransportAnswer {
  Traffic traffic;
  std::string modules;
};

std::size_t nodes_with_slower_links(const Classes& classes) {
  return static_cast<std::size_t>(std::count_if(classes.begin(), classes.end(), [&](int number) {
    return number < *std::max_element(classes.begin(), classes.end());
  }));
}

// One configuration for measuring the pairs.
struct PathConfig {
  TransportKind stage = TransportKind::tcp;
  std::string kind;   // "tcp", "tcp_eth1", "mpi": used in figures and measurements
  std::string title;  // for people
  std::string rail;   // the interface to use; empty: chosen by the kernel
  std::map<std::string, RdmaPort> ports = {};  // RDMA: the ports of the rail, by node
  bool few_rounds = false;                     // it is one of several RDMA ports
};

// Whether a task has an address or an RDMA port on the rail, or GPUs for NCCL.
bool has_path(const Hello& task, const PathConfig& way) {
  if (way.stage == TransportKind::verbs) {
    return task.rdma_measurable && way.ports.contains(task.node);
  }
  if (way.stage == TransportKind::nccl) return task.gpus > 0 && !task.nccl_version.empty();
  return way.rail.empty() || task.rails.contains(way.rail);
}

// `node`: the only node that has the path; empty if none has.
std::string skipped_text(const std::string& path, const std::string& node) {
  return fmt::format("{} was not tested: it can be measured {}", path,
                     node.empty() ? "on no node" : "only on " + node);
}

// One run of the leader, with the results so far.
class NetCheck {
 public:
  NetCheck(Leader& leader, const NetOptions& options) : leader_(leader), options_(options) {}

  Verdict run() {
    verdict_.command = "net";
    call_roll();
    if (count_present() < 2) {
      verdict_.findings.add(evaluate_no_pair(options_.step));
    } else {
      ask_names();
      probe_paths();
      measure_pairs({TransportKind::tcp, "tcp", "TCP", ""});
      for (const auto& rail : rails()) measure_rail(rail);
      if (options_.verbs) measure_rdma();
      if (options_.nccl) measure_nccl();
      if (options_.mpi) measure_ranks();
    }
    final_checks();
    return concluded();
  }

 private:
  struct PathMeasured {
    PairsMeasured pairs;
    std::string carriers;  // " through eth0"
    std::string broken;    // reason for an early stop; empty if the stage completed
  };

  void call_roll();
  Verdict concluded() const;
  void write_partial_verdict();
  void ask_names();
  void probe_paths();
  void final_checks();
  std::vector<NodeEntry> nodes_with(const PathConfig& way) const;
  PathMeasured measure_path(const PathConfig& way, const std::vector<NodeEntry>& nodes);
  std::string measure_pairs(const PathConfig& way);
  std::map<std::string, TransportAnswer> ask_transport();
  std::string report_transport(const PathConfig& way,
                               const std::map<std::string, TransportAnswer>& before);
  void append_measurements(const std::string& name, const PathConfig& way, json list);
  std::vector<std::string> rails() const;
  void measure_rail(const std::string& rail);
  bool accept(const DevicePlan& plan);
  void measure_rdma();
  void measure_nccl();
  void measure_ranks();
  void measure_mpi();
  void measure_over_tcp();
  void measure_collectives(TransportKind over);
  std::size_t count_present() const;
  void add_figures(const std::string& kind, const PairSummary& summary);
  void report_limit(const std::string& kind, const std::vector<PairsMeasured>& measured);
  Classes classes_of(const PathConfig& way, const std::vector<NodeEntry>& nodes) const;
  int rounds_of(const PathConfig& way) const;
  std::string summary_line() const;
  std::optional<double> link_rate(int rank, const PathConfig& way) const;

  Leader& leader_;
  const NetOptions& options_;
  std::vector<NodeEntry> nodes_;
  Verdict verdict_;
  std::string summary_;             // text for the verdict line
  std::uint64_t first_of_way_ = 0;  // number of the next path's first exchange; numbers are unique
  std::map<TransportKind, PairBasis> pairs_;           // basis for judging the collectives
  std::map<std::string, std::set<std::string>> used_;  // devices that carried data, by node
};

void NetCheck::call_roll() {
  leader_.roll_call(options_.step.size, Clock::now() + options_.deadline, options_.progress);
  nodes_ = node_table(options_.step, leader_.present());
  verdict_.nodes = names_of(nodes_);
  verdict_.findings.add(
      evaluate_roll_call(options_.step, leader_.present(), options_.deadline, leader_.refusals()));
  if (!options_.step.pretended) {
    verdict_.findings.add(evaluate_reports(options_.step, leader_.present()));
  }
  verdict_.findings.add(evaluate_known_bad(options_.known_bad, verdict_.nodes));
  verdict_.measurements["seed"] = options_.seed;
  if (static_cast<int>(nodes_.size()) > kMaxNodesForAllPairs) {
    options_.progress(fmt::format("random pairs with --seed {}", options_.seed));
  }
  verdict_.figures = {{"nodes", static_cast<double>(nodes_.size())},
                      {"tasks", static_cast<double>(leader_.present().size())}};
}

std::size_t NetCheck::count_present() const {
  return static_cast<std::size_t>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const NodeEntry& node) { return !node.ranks.empty(); }));
}

void NetCheck::ask_names() {
  if (options_.step.pretended) return;
  std::vector<std::string> names = verdict_.nodes;
  if (names.size() > kMaxNames) names.resize(kMaxNames);
  ByRank commands;
  for (const auto& node : nodes_) {
    if (!node.ranks.empty()) commands[node.ranks.front()] = {{"do", "resolve"}, {"names", names}};
  }
  options_.progress("resolving node names");
  Resolutions resolutions;
  for (const auto& [rank, answer] : leader_.ask(commands, "name resolution", kNameTimeout)) {
    if (!answer.contains("addresses")) continue;
    resolutions[leader_.present().at(rank).node] =
        answer.at("addresses").get<std::map<std::string, std::vector<std::string>>>();
  }
  verdict_.findings.add(evaluate_names(resolutions));
}

void NetCheck::probe_paths() {
  options_.progress("probing packet sizes");
  const auto suspended_before = leader_.suspended();
  const bool over_loopback = options_.step.pretended;
  auto results = ddp::check::probe_paths(leader_, nodes_, options_.seed, over_loopback);
  // Datagrams for rank 0 were lost meanwhile.
  if (leader_.suspended() != suspended_before) {
    results = ddp::check::probe_paths(leader_, nodes_, options_.seed + 1, over_loopback);
  }
  if (!results.empty()) verdict_.findings.add(evaluate_paths(verdict_.nodes, results));
}

void NetCheck::final_checks() {
  ClockOffsets offsets;
  offsets.first = leader_.clock_offsets();
  const json command{{"do", "final_checks"}};
  for (const auto& [rank, answer] : leader_.ask_all(command, "the end", options_.grace)) {
    if (!answer.contains("unix_time") || !answer.contains("counters")) continue;
    offsets.last[rank] =
        answer.at("unix_time").get<double>() - answer.at("arrival_time").get<double>();
    const Hello& hello = leader_.present().at(rank);
    const auto& devices = used_[hello.node];
    for (auto& finding :
         evaluate_counters(counters_of(hello.counters, devices),
                           counters_of(answer.at("counters").get<Counters>(), devices),
                           "net.counters", "during the check")) {
      finding.node = hello.node;
      verdict_.findings.add(std::move(finding));
    }
  }
  // A suspended leader reads the tasks' times too late.
  if (leader_.suspended() == Clock::duration::zero()) {
    verdict_.findings.add(evaluate_clocks(offsets, leader_.present()));
  }
}

// Returns the verdict from the results so far.
Verdict NetCheck::concluded() const {
  Verdict verdict = verdict_;
  verdict.findings.add(evaluate_drift(leader_.present()));
  verdict.findings.add(evaluate_lost(options_.step, nodes_, leader_.lost()));
  verdict.findings.add(
      evaluate_suspension(std::chrono::duration<double>(leader_.suspended()).count()));
  verdict.findings.add(evaluate_leaves(verdict.findings, leaves_of(leader_.present())));
  verdict.summary = summary_line();
  return verdict;
}

// If a node vanishes while MPI starts or runs, MPI libraries terminate the process, and SLURM
// terminates the whole step. The results up to that point must not be lost with this process.
void NetCheck::write_partial_verdict() {
  Verdict verdict = concluded();
  verdict.finished = false;
  verdict.findings.add(Finding{
      .check = "net.finished",
      .severity = Severity::unknown,
      .value = "no",
      .expected = "yes",
      .rule = "the check runs to completion",
      .evidence = "it was terminated while MPI was running; these are the results up to that point",
      .action = "look for a node that vanished meanwhile, or rerun with --no-mpi"});
  options_.keep(verdict);
}

std::map<std::string, TransportAnswer> NetCheck::ask_transport() {
  ByRank commands;
  for (const auto& node : nodes_) {
    if (node.ranks.empty() || !leader_.reachable(node.ranks.front())) continue;
    commands[node.ranks.front()] = {{"do", "transport"}};
  }
  std::map<std::string, TransportAnswer> answers;
  for (const auto& [rank, answer] :
       leader_.ask(commands, "reading interface counters", options_.grace)) {
    if (!answer.contains("traffic") || !answer.contains("modules")) continue;
    answers[leader_.present().at(rank).node] = {answer.at("traffic").get<Traffic>(),
                                                answer.at("modules").get<std::string>()};
  }
  return answers;
}

std::string NetCheck::report_transport(const PathConfig& way,
                                       const std::map<std::string, TransportAnswer>& before) {
  Transports transports;
  json list = json::array();
  for (const auto& [node, answer] : ask_transport()) {
    const auto earlier = before.find(node);
    if (earlier == before.end()) continue;
    NodeTransport transport{carriers(earlier->second.traffic, answer.traffic),
                            way.stage == TransportKind::mpi ? answer.modules : ""};
    used_[node].insert(transport.carriers.begin(), transport.carriers.end());
    list.push_back(
        {{"node", node}, {"devices", transport.carriers}, {"modules", transport.modules}});
    transports[node] = std::move(transport);
  }
  append_measurements(way.kind + "_transport", way, std::move(list));
  // The port of RDMA is chosen by its name, so its data cannot stray.
  const bool may_stray = way.stage == TransportKind::tcp;
  auto findings =
      evaluate_transport(may_stray ? "tcp" : way.kind, transports, may_stray ? way.rail : "");
  for (auto& finding : findings) finding.device = way.rail;
  verdict_.findings.add(std::move(findings));
  return transports.empty() ? "" : " through " + carriers_text(transports);
}

// All rails of RDMA have one list, in which the entries name the rail.
void NetCheck::append_measurements(const std::string& name, const PathConfig& way, json list) {
  json& all = verdict_.measurements[name];
  if (all.is_null()) all = json::array();
  for (auto& entry : list) {
    if (way.stage == TransportKind::verbs) entry["rail"] = way.rail;
    all.push_back(std::move(entry));
  }
}

// The nodes between which the path is measured. A node never has a partner that lacks the path,
// which would leave it without a measurement.
std::vector<NodeEntry> NetCheck::nodes_with(const PathConfig& way) const {
  std::vector<NodeEntry> nodes;
  for (const auto& node : nodes_) {
    if (node.ranks.empty() || !leader_.reachable(node.ranks.front())) continue;
    const Hello& task = leader_.present().at(node.ranks.front());
    if (has_path(task, way)) nodes.push_back(node);
  }
  return nodes;
}

// Measures one path between the nodes that have it, and adds its findings and measurements.
NetCheck::PathMeasured NetCheck::measure_path(const PathConfig& way,
                                              const std::vector<NodeEntry>& nodes) {
  const std::string& kind = way.kind;
  const PairStageOptions stage{way.stage,
                               options_.bytes,
                               options_.pair_limit,
                               options_.grace,
                               options_.seed + first_of_way_,
                               options_.rules.peers,
                               rounds_of(way),
                               way.rail,
                               classes_of(way, nodes),
                               way.ports};
  first_of_way_ += kExchangesOfAWay;
  const auto before = ask_transport();
  PairStage pairs(leader_, nodes, stage);
  pairs.run(options_.progress);
  PathMeasured path;
  PairsMeasured& measured = path.pairs;
  measured.kind = way.stage == TransportKind::tcp ? "tcp" : kind;
  measured.rail = way.rail;
  for (const auto& [node, port] : way.ports) measured.own_rails[node] = port.name;
  measured.nodes = names_of(nodes);
  measured.results = pairs.results();
  measured.retests = pairs.retests();
  measured.classes = stage.classes;
  for (const auto& node : nodes) {
    const bool answers = leader_.reachable(node.ranks.front());
    // If the stage stopped early, unmeasured nodes do not get their own findings.
    measured.already_flagged.push_back(!answers || !pairs.broken().empty());
    measured.link_rate.push_back(answers ? link_rate(node.ranks.front(), way) : std::nullopt);
  }
  verdict_.findings.add(evaluate_pairs(measured, options_.rules));
  append_measurements(kind, way, to_json(pairs.results(), measured.nodes));
  append_measurements(kind + "_retests", way,
                      to_json(pairs.retests(), measured.nodes, options_.rules.peers));
  path.carriers = report_transport(way, before);
  path.broken = pairs.broken();
  return path;
}

// Measures one path, and adds its figures as well. Returns the reason for an early stop; empty if
// the stage completed.
std::string NetCheck::measure_pairs(const PathConfig& way) {
  const auto nodes = nodes_with(way);
  if (nodes.size() < 2) {
    verdict_.notes.push_back(skipped_text(way.title, nodes.empty() ? "" : nodes[0].name));
    return {};
  }
  const PathMeasured path = measure_path(way, nodes);
  const PairsMeasured& measured = path.pairs;
  const PairSummary summary = summarize(measured.results);
  add_figures(way.kind, summary);
  if (summary.exchanges > 0) {
    summary_ += fmt::format("; {} {:.3g} GB/s (lowest {:.3g})", way.title,
                            summary.median_per_second / kGB, summary.lowest_per_second / kGB);
  }
  summary_ += path.carriers;
  report_limit(way.kind, {measured});
  if (way.rail.empty()) {
    PairBasis& basis = pairs_[way.stage];
    basis = pair_basis_of(measured.results);
    basis.processors_shared = processors_shared(leader_.present());
    const PeerRule
        rule;  // the defaults: the user's thresholds must not affect the prediction from the pairs
    basis.noisy = detection_limit_of(measured, rule).value_or(0) > rule.coarsest();
  }
  return path.broken;
}

// The interfaces to measure separately. "auto" selects physical ports that all nodes have under the
// same name and at the same speed, because a slower port is assumed to be for management.
std::vector<std::string> NetCheck::rails() const {
  if (options_.rails != std::vector<std::string>{"auto"}) return options_.rails;
  return alike_rails(leader_.present());
}

void NetCheck::measure_rail(const std::string& rail) {
  verdict_.findings.add(evaluate_rail(rail, leader_.present()));
  measure_pairs({TransportKind::tcp, "tcp_" + rail, "TCP over " + rail, rail});
}

// Returns whether there is a pair to measure.
bool NetCheck::accept(const DevicePlan& plan) {
  verdict_.findings.add(plan.findings);
  verdict_.notes.insert(verdict_.notes.end(), plan.notes.begin(), plan.notes.end());
  return plan.nodes >= 2;
}

// One rail after the other, because a training uses all of them, and one that is slow or dead must
// be named.
void NetCheck::measure_rdma() {
  const RdmaRails found = find_rdma_rails(leader_.present());
  verdict_.findings.add(found.findings);
  verdict_.notes.insert(verdict_.notes.end(), found.notes.begin(), found.notes.end());
  if (!accept(plan_rdma(leader_.present(), options_.missing_tool))) return;
  const bool several = found.rails.size() > 1;
  std::vector<PairsMeasured> measured;
  std::vector<RailSpeed> speeds;
  std::vector<PairResult> all;
  std::map<std::string, std::vector<std::string>> skipped;  // rails, by the only node that has them
  for (const auto& rail : found.rails) {
    const PathConfig way{TransportKind::verbs, "verbs", "RDMA", rail.name, rail.ports, several};
    const auto nodes = nodes_with(way);
    if (nodes.size() < 2) {
      skipped[nodes.empty() ? "" : nodes.front().name].push_back(rail.name);
      continue;
    }
    measured.push_back(measure_path(way, nodes).pairs);
    const auto& results = measured.back().results;
    speeds.push_back({rail.name, rate_of(rail), summarize(results)});
    all.insert(all.end(), results.begin(), results.end());
  }
  for (const auto& [node, rails] : skipped) {
    verdict_.notes.push_back(
        skipped_text(fmt::format("RDMA over {}", fmt::join(rails, " ")), node));
  }
  add_figures("verbs", summarize(all));
  summary_ += rail_speeds_text(speeds);
  report_limit("verbs", measured);
  verdict_.findings.add(evaluate_rail_speeds(speeds));
}

void NetCheck::measure_nccl() {
  if (accept(plan_nccl(leader_.present(), options_.missing_tool))) {
    measure_pairs({TransportKind::nccl, "nccl", "NCCL", ""});
  }
}

// The rate that the user gave, else the rate of the TCP connection's interface. MPI may use another
// interface, whose rate is unknown.
std::optional<double> NetCheck::link_rate(int rank, const PathConfig& way) const {
  if (options_.link_bytes_per_second) return options_.link_bytes_per_second;
  if (way.stage != TransportKind::tcp) return std::nullopt;
  const Hello& hello = leader_.present().at(rank);
  return way.rail.empty() ? hello.link_bytes_per_second : hello.rails.at(way.rail).bytes_per_second;
}

void NetCheck::add_figures(const std::string& kind, const PairSummary& summary) {
  if (summary.exchanges == 0) return;
  verdict_.figures.emplace_back(kind + "_GBps", summary.median_per_second / kGB);
  verdict_.figures.emplace_back(kind + "_min_GBps", summary.lowest_per_second / kGB);
  verdict_.figures.emplace_back(kind + "_latency_us", summary.latency_seconds / kMicrosecond);
}

// Adds the smallest slowdown that the check would have found on this path, on any of its rails.
void NetCheck::report_limit(const std::string& kind, const std::vector<PairsMeasured>& measured) {
  std::optional<double> limit;
  std::size_t slower = 0;
  for (const auto& rail : measured) {
    const auto own = detection_limit_of(rail, options_.rules.peers);
    if (own) limit = std::max(limit.value_or(0), *own);
    slower = std::max(slower, nodes_with_slower_links(rail.classes));
  }
  if (!limit) return;
  verdict_.figures.emplace_back(kind + "_detection_limit_percent", 100 * *limit);
  summary_ += fmt::format(", a node {:.0f} % slower would have been detected", 100 * *limit);
  if (slower > 0) {
    summary_ +=
        fmt::format(", {} with slower links compared among themselves", counted(slower, "node"));
  }
}

// With several RDMA ports, each is measured in few rounds, even if all pairs would be possible: a
// round takes seconds, and there may be many ports. Each of them has other pairs.
int NetCheck::rounds_of(const PathConfig& way) const {
  return options_.rounds == 0 && way.few_rounds ? kRoundsOfARail : options_.rounds;
}

// Only nodes with the same link rate are compared. If the user gave one rate for all links, all
// nodes are in one class.
Classes NetCheck::classes_of(const PathConfig& way, const std::vector<NodeEntry>& nodes) const {
  if (options_.link_bytes_per_second) return {};
  std::vector<std::optional<double>> rates;
  for (const auto& node : nodes) {
    rates.emplace_back();
    const Hello& hello = leader_.present().at(node.ranks.front());
    const auto rail = hello.rails.find(way.rail);
    const auto port = way.ports.find(hello.node);
    if (way.rail.empty()) rates.back() = hello.link_bytes_per_second;
    if (rail != hello.rails.end()) rates.back() = rail->second.bytes_per_second;
    if (port != way.ports.end()) rates.back() = port->second.bytes_per_second;
  }
  return classes_by_rate(rates);
}

// Together, as a training connects them.
void NetCheck::measure_ranks() {
  const auto why_tcp = reason_for_tcp();
  if (why_tcp) verdict_.findings.add(mpi_not_used(*why_tcp));
  const auto expected = static_cast<std::size_t>(options_.step.size);
  if (leader_.present().size() < expected || !leader_.all_reachable()) {
    verdict_.findings.add(not_run(why_tcp ? TransportKind::tcp : TransportKind::mpi,
                                  "not run: all tasks take part, and some are missing or silent"));
  } else if (why_tcp) {
    measure_over_tcp();
  } else {
    measure_mpi();
  }
}

void NetCheck::measure_over_tcp() {
  options_.progress("connecting all tasks over TCP");
  auto failures = connect_over_tcp(leader_, options_.join_limit, options_.pair_limit);
  if (!failures.empty()) return verdict_.findings.add(std::move(failures));
  measure_collectives(TransportKind::tcp);
  if (leader_.all_reachable()) {
    leader_.ask_all({{"do", "leave_world"}}, "ending the connections", options_.join_limit);
  }
}

void NetCheck::measure_mpi() {
  write_partial_verdict();
  options_.progress("starting MPI");
  auto failures = start_mpi(leader_, options_.join_limit, options_.pair_limit);
  if (!failures.empty()) return verdict_.findings.add(std::move(failures));
  const auto broken = measure_pairs({TransportKind::mpi, "mpi", "MPI", ""});
  if (broken.empty()) {
    measure_collectives(TransportKind::mpi);
  } else {
    verdict_.findings.add(
        not_run(TransportKind::mpi,
                "stopped early, because MPI cannot continue after an error: " + broken));
  }
  if (leader_.all_reachable()) {
    leader_.ask_all({{"do", "leave_world"}}, "leaving MPI", options_.join_limit);
  }
}

void NetCheck::measure_collectives(TransportKind over) {
  CollectivesMeasured measured =
      ddp::check::measure_collectives(leader_,
                                      {options_.step.size, options_.seed, options_.pair_limit,
                                       options_.fewest_bus_bytes_per_second, over, pairs_[over]},
                                      options_.progress);
  verdict_.findings.add(std::move(measured.findings));
  verdict_.figures.insert(verdict_.figures.end(), measured.figures.begin(), measured.figures.end());
  verdict_.measurements.update(measured.measurements);
  summary_ += measured.words;
}

std::string NetCheck::summary_line() const {
  std::string text = fmt::format("{}, {}{}", counted(nodes_.size(), "node"),
                                 counted(leader_.present().size(), "task"), summary_);
  if (nodes_.size() == 1) {
    return text + "; a job of one node uses no network between nodes, so no network was measured";
  }
  if (nodes_.size() < kMinPeers) {
    text += fmt::format(
        "; {} nodes are too few to compare with each other: reachability and data were checked, "
        "but speed was not; slow nodes can be found with at least {} nodes, or with --expect-gbps",
        nodes_.size(), kMinPeers);
  }
  return text;
}

}  // namespace

Verdict run_leader(Leader& leader, const NetOptions& options) {
  return NetCheck(leader, options).run();
}

Verdict verdict_without_port(const NetOptions& options, const std::string& why) {
  Verdict verdict;
  verdict.command = "net";
  verdict.nodes = names_of(node_table(options.step, {}));
  verdict.findings.add(
      Finding{.check = "net.leader_port",
              .severity = Severity::critical,
              .device = fmt::format("port {}", options.step.leader_port),
              .value = "in use",
              .expected = "a free port on rank 0's node",
              .rule = "the leader listens on the port that rank 0 of the training will use",
              .evidence = fmt::format("{}: {}", options.step.node, why),
              .action = "stop the process that listens on it, or choose another port with --port "
                        "or MASTER_PORT"});
  return verdict;
}

}  // namespace ddp::check
