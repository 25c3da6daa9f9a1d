// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/command_handler.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/channel/connection.h"
#include "base/errors.h"
#include "base/host.h"
#include "ddp_runtime/check/findings/resolve.h"
#include "ddp_runtime/check/net/measure/pair_links.h"
#include "ddp_runtime/check/net/measure/run_collective.h"
#include "ddp_runtime/check/net/measure/traffic.h"
#include "ddp_runtime/check/net/measure/way_out.h"
#include "ddp_runtime/comm/node/machine_key.h"
#include "ddp_runtime/comm/p2p/p2p_group.h"
#include "ddp_runtime/comm/transport/mpi/process_manager.h"
#include "ddp_runtime/comm/transport/tcp/tcp_transport.h"

namespace ddp::check {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 32;
constexpr std::chrono::milliseconds kResolveTimeout{2000};
constexpr std::chrono::milliseconds kProbeTimeout{500};  // reached only if a packet is lost

std::chrono::milliseconds limit_of(const json& command) {
  return std::chrono::milliseconds(command.at("limit_ms").get<std::int64_t>());
}

}  // namespace

double unix_time(const Faults& faults) {
  return unix_seconds() + faults.skew;
}

CommandHandler::CommandHandler(Listener data, PathProbe probe, TaskOptions options)
    : data_(std::move(data)),
      probe_(std::move(probe)),
      options_(std::move(options)),
      faults_(faults_of(options_.node, options_.injections)) {}

CommandHandler::~CommandHandler() {
  // Leaving MPI requires all ranks. If one of them hangs, the process exits with _Exit instead, and
  // the world must not be destroyed before that.
  if (!in_world()) return;
  static_cast<void>(world_.release());
  if (mpi_) mpi_->abandon();
}

json CommandHandler::execute(const json& command) {
  const std::string what = command.at("do");
  if (what == "resolve") return resolve_names(command);
  if (what == "exchange") return exchange_data(exchange_order_from(command));
  if (what == "probe_path") return probe_path(command);
  if (what == "transport") {
    return {{"traffic", read_traffic("/sys")}, {"modules", modules_in(loaded_files())}};
  }
  if (what == "final_checks") {
    return {{"unix_time", unix_time(faults_) + faults_.jump}, {"counters", read_counters("/sys")}};
  }
  if (what == "start_mpi") return start_mpi();
  if (what == "join_world") return join_world(command);
  if (what == "listen_for_ranks") return listen_for_ranks();
  if (what == "connect_ranks") return connect_ranks(command);
  if (what == "collective") return measure_collective(collective_order_from(command));
  if (what == "leave_world") return leave_world();
  throw RuntimeError("unknown command '" + what + "' from the leader");
}

json CommandHandler::resolve_names(const json& command) const {
  json addresses = json::object();
  const auto deadline = Clock::now() + kResolveTimeout;
  for (const auto& name : command.at("names").get<std::vector<std::string>>()) {
    const std::chrono::milliseconds left(milliseconds_until(deadline));
    addresses[name] = resolve(name, left).addresses;
  }
  return {{"addresses", addresses}};
}

// The MTU is that of the interface to this peer. It is 0 if there is no network between the two, as
// on one machine.
json CommandHandler::probe_path(const json& command) const {
  const auto token = command.at("token").get<std::uint64_t>();
  const auto limited = [this](int bytes) {
    return faults_.mtu > 0 ? std::min(bytes, faults_.mtu) : bytes;
  };
  const std::string host = command.at("host");
  const auto way = way_out_to(host);
  const bool is_judged = way && (!way->loopback || command.at("over_loopback"));
  if (!is_judged) return {{"arrived", 0}, {"mtu", 0}};
  probe_.send(host, command.at("port"), way->mtu, limited(way->mtu), token);
  const int arrived = probe_.receive(token, Clock::now() + kProbeTimeout);
  return {{"arrived", limited(arrived)}, {"mtu", way->mtu}};
}

// This is separate from join_world, so that no task sends before MPI has started on all tasks. Open
// MPI 4.1 over TCP was observed to crash if a message arrives during MPI_Init.
json CommandHandler::start_mpi() {
  // Open MPI would terminate the process, and the step with it, before there is a verdict.
  if (const auto report = comm::missing_process_manager(getenv, comm::pmi_support_of_mpi())) {
    throw UsageError(*report);
  }
  in_world_.store(true);
  mpi_ = std::make_unique<comm::MpiEnvironment>();
  return json::object();
}

json CommandHandler::join_world(const json& command) {
  comm::WorldOptions options;
  options.group.limits.timeout = limit_of(command);
  try {
    world_ = std::make_unique<comm::World>(options);
  } catch (...) {
    mpi_.reset();
    in_world_.store(false);
    throw;
  }
  if (world_->rank() != options_.rank) {
    throw RuntimeError("MPI and the launcher disagree on the order of the ranks");
  }
  return {{"size", world_->size()}};
}

// The plan's port is that of the leader, so rank 0 takes another one.
json CommandHandler::listen_for_ranks() {
  ranks_port_ = listen_anywhere();
  return {{"port", ranks_port_.port}};
}

json CommandHandler::connect_ranks(const json& command) {
  const comm::TcpPlan plan{
      options_.leader,
      command.at("port"),
      options_.rank,
      options_.ranks,
      hmac_sha256(options_.key, "ranks of ddp-check"),
      comm::machine_key() + options_.node,  // tasks may pretend to be on several
  };
  if (options_.rank != 0) ranks_port_ = listen_anywhere();
  comm::GroupOptions options;
  options.limits.timeout = limit_of(command);
  over_tcp_ = std::make_unique<comm::P2pGroup>(
      comm::make_tcp_transport(plan, std::move(ranks_port_), failures_, limit_of(command)),
      failures_, options);
  return {{"size", over_tcp_->size()}};
}

comm::Group& CommandHandler::group() const {
  if (over_tcp_) return *over_tcp_;
  if (!world_) throw RuntimeError("the ranks are not connected");
  return world_->group();
}

json CommandHandler::leave_world() {
  over_tcp_.reset();
  if (!mpi_) return json::object();
  if (failed_) mpi_->abandon();  // MPI_Finalize would wait for lost ranks
  world_.reset();
  mpi_.reset();
  in_world_.store(false);
  return json::object();
}

json CommandHandler::exchange_data(const ExchangeCommand& command) {
  if (command.bytes == 0 || command.bytes > kMaxBytes) {
    throw RuntimeError("the leader requested an exchange with an invalid size");
  }
  if (command.stage != TransportKind::mpi && !is_address(command.host)) {
    throw RuntimeError("the leader requested a connection to '" + command.host +
                       "', which is not an address");
  }
  const Faults faults = faults_between(options_.node, command.peer_node, options_.injections);
  const ExchangePlan plan{command.first, command.bytes, command.exchange, faults};
  if (command.stage == TransportKind::mpi) {
    failed_ = true;  // reset on success
    ExchangePlan over_mpi = plan;
    over_mpi.faults.drop = 0;  // only TCP reports losses
    const auto result = exchange(*link_by_group(group(), command.peer_rank), over_mpi);
    failed_ = false;
    return to_message(result);
  }
  const Deadline deadline = Clock::now() + std::chrono::milliseconds(command.limit_ms);
  if (command.stage == TransportKind::verbs)
    return to_message(exchange_by_rdma(options_.rdma, command, deadline));
  if (command.stage == TransportKind::nccl)
    return to_message(exchange_by_nccl(options_.nccl, command, faults, deadline));
  const auto link = command.first ? call_peer(command.host, command.port, command.token, deadline,
                                              {command.address})
                                  : await_peer(data_, command.token, deadline);
  return to_message(exchange(*link, plan));
}

json CommandHandler::measure_collective(const CollectiveCommand& command) {
  failed_ = true;  // reset on success
  const auto result = run_collective(group(), command, faults_.corrupt);
  failed_ = false;
  return to_message(result);
}

}  // namespace ddp::check
