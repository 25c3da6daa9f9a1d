#include "ddp_runtime/check/net/step/task_work.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "ddp_runtime/check/net/measure/pair_links.h"
#include "ddp_runtime/check/net/measure/run_collective.h"
#include "ddp_runtime/check/net/measure/traffic.h"
#include "ddp_runtime/check/resolve.h"

namespace ddp::check {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 32;
constexpr std::chrono::milliseconds kResolvePatience{2000};
constexpr std::chrono::milliseconds kProbePatience{500};  // only where something is lost

std::chrono::milliseconds limit_of(const json& order) {
  return std::chrono::milliseconds(order.at("limit_ms").get<std::int64_t>());
}

comm::Group& group_of(const std::unique_ptr<comm::World>& world) {
  if (!world) throw RuntimeError("the MPI world was not joined");
  return world->group();
}

}  // namespace

double unix_time(const Faults& faults) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count() + faults.skew;
}

TaskWork::TaskWork(Listener data, PathProbe probe, TaskOptions options)
    : data_(std::move(data)),
      probe_(std::move(probe)),
      options_(std::move(options)),
      faults_(faults_of(options_.node, options_.injections)) {}

TaskWork::~TaskWork() {
  // Leaving MPI needs all ranks. Where one of them hangs the process ends with _Exit instead, and
  // the world must not be taken apart before that.
  if (!in_world()) return;
  static_cast<void>(world_.release());
  if (mpi_) mpi_->abandon();
}

json TaskWork::perform(const json& order) {
  const std::string what = order.at("do");
  if (what == "resolve") return resolve_names(order);
  if (what == "exchange") return exchange_data(exchange_order_from(order));
  if (what == "probe_path") return probe_path(order);
  if (what == "transport") {
    return {{"traffic", read_traffic("/sys")}, {"modules", modules_in(loaded_files())}};
  }
  if (what == "last_look") {
    return {{"unix_time", unix_time(faults_) + faults_.jump}, {"counters", read_counters("/sys")}};
  }
  if (what == "start_mpi") return start_mpi();
  if (what == "join_world") return join_world(order);
  if (what == "collective") return measure_collective(collective_order_from(order));
  if (what == "leave_world") return leave_world();
  throw RuntimeError("the leader ordered '" + what + "', which this version does not know");
}

json TaskWork::resolve_names(const json& order) const {
  json addresses = json::object();
  const auto deadline = Clock::now() + kResolvePatience;
  for (const auto& name : order.at("names").get<std::vector<std::string>>()) {
    const std::chrono::milliseconds left(milliseconds_until(deadline));
    addresses[name] = resolve(name, left).addresses;
  }
  return {{"addresses", addresses}};
}

json TaskWork::probe_path(const json& order) const {
  const auto token = order.at("token").get<std::uint64_t>();
  const auto limited = [this](int bytes) {
    return faults_.mtu > 0 ? std::min(bytes, faults_.mtu) : bytes;
  };
  probe_.send(order.at("host"), order.at("port"), limited(order.at("mtu_out")), token);
  const int arrived = probe_.receive(order.at("mtu_in"), token,
                                     Clock::now() + std::chrono::milliseconds(kProbePatience));
  return {{"arrived", limited(arrived)}};
}

// Apart from join_world, so that no task sends before MPI has started on all of them: Open MPI 4.1
// over TCP was seen to crash where a message arrives during MPI_Init.
json TaskWork::start_mpi() {
  in_world_.store(true);
  mpi_ = std::make_unique<comm::MpiEnvironment>();
  return json::object();
}

json TaskWork::join_world(const json& order) {
  comm::WorldOptions options;
  options.group.limits.timeout = limit_of(order);
  try {
    world_ = std::make_unique<comm::World>(options);
  } catch (...) {
    mpi_.reset();
    in_world_.store(false);
    throw;
  }
  if (world_->rank() != options_.rank) {
    throw RuntimeError("MPI and whoever started the step disagree on the order of the ranks");
  }
  return {{"size", world_->size()}};
}

json TaskWork::leave_world() {
  if (failed_) mpi_->abandon();  // MPI_Finalize would wait for ranks that are gone
  world_.reset();
  mpi_.reset();
  in_world_.store(false);
  return json::object();
}

json TaskWork::exchange_data(const ExchangeOrder& order) {
  if (order.bytes == 0 || order.bytes > kMaxBytes) {
    throw RuntimeError("the leader ordered an exchange of an impossible size");
  }
  if (order.stage != Stage::mpi && !is_address(order.host)) {
    throw RuntimeError("the leader ordered a connection to '" + order.host +
                       "', which is not an address");
  }
  const Faults faults = faults_between(options_.node, order.peer_node, options_.injections);
  const ExchangePlan plan{order.first, order.bytes, order.exchange, faults};
  if (order.stage == Stage::mpi) {
    failed_ = true;  // until it has worked
    ExchangePlan over_mpi = plan;
    over_mpi.faults.drop = 0;  // only TCP tells what it lost
    const auto result = exchange(*link_by_group(group_of(world_), order.peer_rank), over_mpi);
    failed_ = false;
    return to_message(result);
  }
  const Deadline deadline = Clock::now() + std::chrono::milliseconds(order.limit_ms);
  if (order.stage == Stage::verbs)
    return to_message(exchange_by_rdma(options_.rdma, order, deadline));
  if (order.stage == Stage::nccl)
    return to_message(exchange_by_nccl(options_.nccl, order, faults, deadline));
  const auto link = order.first
                        ? call_peer(order.host, order.port, order.token, deadline, {order.address})
                        : await_peer(data_, order.token, deadline);
  return to_message(exchange(*link, plan));
}

json TaskWork::measure_collective(const CollectiveOrder& order) {
  failed_ = true;  // until it has worked
  const auto result = run_collective(group_of(world_), order, faults_.corrupt);
  failed_ = false;
  return to_message(result);
}

}  // namespace ddp::check
