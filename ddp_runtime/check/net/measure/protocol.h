// The messages between the leader and the tasks, as values. Reading one that lacks something throws
// nlohmann::json::exception; whoever receives from outside catches it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/measure/collective.h"
#include "ddp_runtime/check/net/measure/exact_sum.h"
#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/node/counters_check.h"

namespace ddp::check {

// An interface of a task's node that could be one of several ways to the others.
struct Rail {
  std::string address;
  std::optional<double> bytes_per_second;  // if it is a wire's
  bool wire = false;                       // a port of its own, Ethernet or IP over InfiniBand
};

// A task presents itself.
struct Hello {
  std::string program;   // "ddp-check 0.1.0": both ends must be the same
  std::string identity;  // of the job step
  int rank = 0;
  std::string node;
  std::string host;             // what the machine calls itself
  std::string address;          // its end of the connection to the leader
  std::string leader_address;   // the leader's end, as this task reached it
  bool by_loopback = false;     // the leader's own task, when the leader's name did not lead to it
  std::uint16_t data_port = 0;  // where its pair tests listen
  std::vector<std::string> leader_addresses;    // what the leader's name resolves to here
  std::string interface;                        // that carries `address`; empty if unknown
  std::optional<double> link_bytes_per_second;  // its rate if it is a wire's
  std::optional<int> mtu;
  std::uint16_t probe_port = 0;              // of UDP, where its path tests listen
  std::string leaf;                          // the switch it hangs on, if SLURM tells; may be empty
  std::string rdma_port;                     // active, "mlx5_0:1"; empty if the node has none
  bool rdma_measurable = false;              // the tool for it is there
  int processors = 0;                        // of the machine; 0 if not known
  int gpus = 0;                              // that the task may use
  std::string nccl_version;                  // "2.18.3"; empty if NCCL cannot be used
  std::string nccl_problem;                  // why it or the GPUs cannot
  std::map<std::string, Rail> rails;         // by interface; those that are up with an address
  double unix_time = 0;                      // seconds, by its own clock
  Counters counters;                         // of errors, before anything is sent
  std::map<std::string, std::string> facts;  // that should be the same on all nodes
};
nlohmann::json to_message(const Hello& hello);
Hello hello_from(const nlohmann::json& message);

// The leader asks a task to exchange data with another. A host only if it is to call over TCP.
struct ExchangeCommand {
  TransportKind stage = TransportKind::tcp;
  std::uint64_t exchange = 0;  // number of the exchange, unique in this run
  std::string token;           // of this exchange, random: by it the two ends know each other
  bool first = false;
  std::string host;
  std::uint16_t port = 0;
  std::string rail;     // the interface to use; empty leaves it to the kernel
  std::string address;  // the task's own on that interface
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
  std::size_t elements = 0;  // float32, of all ranks together; a multiple of their number
  int iterations = 0;
};
nlohmann::json to_message(const CollectiveCommand& command);
CollectiveCommand collective_order_from(const nlohmann::json& message);

struct CollectiveResult {
  std::vector<double> seconds;  // of each iteration on this rank
  Mismatch mismatch;            // over all iterations
};
nlohmann::json to_message(const CollectiveResult& result);
CollectiveResult collective_result_from(const nlohmann::json& message);

}  // namespace ddp::check
