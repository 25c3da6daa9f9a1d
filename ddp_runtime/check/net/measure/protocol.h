// SPDX-License-Identifier: Apache-2.0
// The messages between the leader and the tasks, as values. Parsing an incomplete message throws
// nlohmann::json::exception; callers that receive messages from outside catch it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/counters_check.h"
#include "ddp_runtime/check/net/measure/collective.h"
#include "ddp_runtime/check/net/measure/exact_sum.h"
#include "ddp_runtime/check/net/measure/exchange.h"

namespace ddp::check {

// An interface of a task's node that could be one of several paths to the others.
struct Rail {
  std::string address;
  std::optional<double> bytes_per_second;  // rate, if the interface has a physical link
  bool wire = false;                       // a physical port, Ethernet or IP over InfiniBand
};

// A port of a task's node over which RDMA is measured.
struct RdmaPort {
  std::string name;                        // "mlx5_3:1"
  std::string bus_address;                 // "0000:17:00.0"; empty if unknown
  std::optional<double> bytes_per_second;  // its rate; unknown if the kernel does not report it
};
// Limits on the ports in a hello, which comes from another node. What exceeds them is cut off.
inline constexpr std::size_t kMaxRdmaPorts = 32;
inline constexpr std::size_t kMaxRdmaPortText = 80;

// The first message of a task, with its identity and the facts about its node.
struct Hello {
  std::string program;   // "ddp-check 0.1.0"; must be the same at both ends
  std::string identity;  // identity of the job step
  int rank = 0;
  std::string node;
  std::string host;             // the machine's own host name
  std::string address;          // this task's end of the connection to the leader
  std::string leader_address;   // the address at which this task reached the leader
  bool by_loopback = false;     // the leader's own task reached the leader only at 127.0.0.1
  std::uint16_t data_port = 0;  // port for pair tests
  std::string leader_host;      // the leader's name or address in this task
  std::vector<std::string> leader_addresses;    // addresses of the leader's name on this node
  std::string leader_lookup_error;              // why there are none; may be empty
  std::string interface;                        // the interface with `address`; empty if unknown
  std::optional<double> link_bytes_per_second;  // rate of that interface if it has a physical link
  std::optional<int> mtu;
  std::uint16_t probe_port = 0;              // UDP port for path tests
  std::string leaf;                          // the leaf switch, if SLURM reports it; may be empty
  std::vector<RdmaPort> rdma_ports;          // ports of the compute fabric, in PCI order
  std::string rdma_untested;                 // why other ports cannot be measured; may be empty
  bool rdma_measurable = false;              // the measuring tool is installed
  int processors = 0;                        // CPUs of the machine; 0 if not known
  int gpus = 0;                              // GPUs that the task may use
  std::string nccl_version;                  // "2.18.3"; empty if NCCL cannot be used
  std::string nccl_problem;                  // why NCCL or the GPUs cannot be used
  std::map<std::string, Rail> rails;         // by name; interfaces that are up and have an address
  double unix_time = 0;                      // seconds since 1970 by the task's clock
  Counters counters;                         // error counters before anything is sent
  std::map<std::string, std::string> facts;  // facts that should be the same on all nodes
};
nlohmann::json to_message(const Hello& hello);
Hello hello_from(const nlohmann::json& message);

// The leader's command to exchange data with another task. It has a host only for the task that
// opens the TCP connection.
struct ExchangeCommand {
  TransportKind stage = TransportKind::tcp;
  std::uint64_t exchange = 0;  // number of the exchange, unique in this run
  std::string token;           // random token with which the two ends identify each other
  bool first = false;
  std::string host;
  std::uint16_t port = 0;
  std::string rail;     // the interface to use; empty: chosen by the kernel
  std::string address;  // this task's address on that interface
  int peer_rank = 0;
  std::string peer_node;
  std::size_t bytes = 0;
  std::int64_t limit_ms = 0;
};
nlohmann::json to_message(const ExchangeCommand& command);
ExchangeCommand exchange_order_from(const nlohmann::json& message);

nlohmann::json to_message(const ExchangeResult& result);
ExchangeResult exchange_result_from(const nlohmann::json& message);

struct CollectiveCommand {
  Collective collective = Collective::all_reduce;
  std::uint64_t seed = 0;
  std::size_t elements = 0;  // float32 values over all ranks; a multiple of the number of ranks
  int iterations = 0;
};
nlohmann::json to_message(const CollectiveCommand& command);
CollectiveCommand collective_order_from(const nlohmann::json& message);

struct CollectiveResult {
  std::vector<double> seconds;  // time of each iteration on this rank
  Mismatch mismatch;            // wrong elements over all iterations
};
nlohmann::json to_message(const CollectiveResult& result);
CollectiveResult collective_result_from(const nlohmann::json& message);

}  // namespace ddp::check
