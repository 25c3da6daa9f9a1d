// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/protocol.h"

#include <algorithm>

namespace ddp::check {
namespace {

template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

template <class T>
std::optional<T> optional_at(const nlohmann::json& message, const char* key) {
  const auto& value = message.at(key);
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

nlohmann::json rails_json(const std::map<std::string, Rail>& rails) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, rail] : rails) {
    object[name] = {{"address", rail.address},
                    {"bytes_per_second", or_null(rail.bytes_per_second)},
                    {"wire", rail.wire}};
  }
  return object;
}

std::map<std::string, Rail> rails_from(const nlohmann::json& object) {
  std::map<std::string, Rail> rails;
  for (const auto& [name, rail] : object.items()) {
    rails[name] = {rail.at("address"), optional_at<double>(rail, "bytes_per_second"),
                   rail.at("wire")};
  }
  return rails;
}

nlohmann::json rdma_ports_json(const std::vector<RdmaPort>& ports) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& port : ports) {
    list.push_back({{"name", port.name},
                    {"bus_address", port.bus_address},
                    {"bytes_per_second", or_null(port.bytes_per_second)}});
  }
  return list;
}

std::vector<RdmaPort> rdma_ports_from(const nlohmann::json& list) {
  std::vector<RdmaPort> ports;
  const std::size_t count = std::min(list.size(), kMaxRdmaPorts);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& port = list.at(i);
    const auto text = [&port](const char* key) {
      return port.at(key).get<std::string>().substr(0, kMaxRdmaPortText);
    };
    ports.push_back(
        {text("name"), text("bus_address"), optional_at<double>(port, "bytes_per_second")});
  }
  return ports;
}

}  // namespace

nlohmann::json to_message(const Hello& hello) {
  return {{"program", hello.program},
          {"identity", hello.identity},
          {"rank", hello.rank},
          {"node", hello.node},
          {"host", hello.host},
          {"address", hello.address},
          {"leader_address", hello.leader_address},
          {"by_loopback", hello.by_loopback},
          {"data_port", hello.data_port},
          {"leader_host", hello.leader_host},
          {"leader_addresses", hello.leader_addresses},
          {"leader_lookup_error", hello.leader_lookup_error},
          {"interface", hello.interface},
          {"link_bytes_per_second", or_null(hello.link_bytes_per_second)},
          {"mtu", or_null(hello.mtu)},
          {"probe_port", hello.probe_port},
          {"rails", rails_json(hello.rails)},
          {"leaf", hello.leaf},
          {"rdma_ports", rdma_ports_json(hello.rdma_ports)},
          {"rdma_untested", hello.rdma_untested},
          {"rdma_measurable", hello.rdma_measurable},
          {"processors", hello.processors},
          {"gpus", hello.gpus},
          {"nccl_version", hello.nccl_version},
          {"nccl_problem", hello.nccl_problem},
          {"unix_time", hello.unix_time},
          {"counters", hello.counters},
          {"facts", hello.facts}};
}

Hello hello_from(const nlohmann::json& message) {
  Hello hello;
  message.at("program").get_to(hello.program);
  message.at("identity").get_to(hello.identity);
  message.at("rank").get_to(hello.rank);
  message.at("node").get_to(hello.node);
  message.at("host").get_to(hello.host);
  message.at("address").get_to(hello.address);
  message.at("leader_address").get_to(hello.leader_address);
  message.at("by_loopback").get_to(hello.by_loopback);
  message.at("data_port").get_to(hello.data_port);
  message.at("leader_host").get_to(hello.leader_host);
  message.at("leader_addresses").get_to(hello.leader_addresses);
  message.at("leader_lookup_error").get_to(hello.leader_lookup_error);
  message.at("interface").get_to(hello.interface);
  hello.link_bytes_per_second = optional_at<double>(message, "link_bytes_per_second");
  hello.mtu = optional_at<int>(message, "mtu");
  message.at("probe_port").get_to(hello.probe_port);
  hello.rails = rails_from(message.at("rails"));
  message.at("leaf").get_to(hello.leaf);
  hello.rdma_ports = rdma_ports_from(message.at("rdma_ports"));
  message.at("rdma_untested").get_to(hello.rdma_untested);
  message.at("rdma_measurable").get_to(hello.rdma_measurable);
  message.at("processors").get_to(hello.processors);
  message.at("gpus").get_to(hello.gpus);
  message.at("nccl_version").get_to(hello.nccl_version);
  message.at("nccl_problem").get_to(hello.nccl_problem);
  message.at("unix_time").get_to(hello.unix_time);
  message.at("counters").get_to(hello.counters);
  message.at("facts").get_to(hello.facts);
  return hello;
}

nlohmann::json to_message(const ExchangeCommand& command) {
  return {{"do", "exchange"},
          {"stage", name_of(command.stage)},
          {"exchange", command.exchange},
          {"token", command.token},
          {"first", command.first},
          {"host", command.host},
          {"port", command.port},
          {"rail", command.rail},
          {"address", command.address},
          {"peer_rank", command.peer_rank},
          {"peer_node", command.peer_node},
          {"bytes", command.bytes},
          {"limit_ms", command.limit_ms}};
}

ExchangeCommand exchange_order_from(const nlohmann::json& message) {
  ExchangeCommand command;
  command.stage = stage_named(message.at("stage").get<std::string>());
  message.at("exchange").get_to(command.exchange);
  message.at("token").get_to(command.token);
  message.at("first").get_to(command.first);
  message.at("host").get_to(command.host);
  message.at("port").get_to(command.port);
  message.at("rail").get_to(command.rail);
  message.at("address").get_to(command.address);
  message.at("peer_rank").get_to(command.peer_rank);
  message.at("peer_node").get_to(command.peer_node);
  message.at("bytes").get_to(command.bytes);
  message.at("limit_ms").get_to(command.limit_ms);
  return command;
}

nlohmann::json to_message(const ExchangeResult& result) {
  return {{"received_per_second", result.received_per_second},
          {"wrong_bytes", result.wrong_bytes},
          {"sent_per_second", result.sent_per_second},
          {"lost", result.lost},
          {"via", result.via},
          {"latency_seconds", result.latency_seconds}};
}

ExchangeResult exchange_result_from(const nlohmann::json& message) {
  ExchangeResult result;
  message.at("received_per_second").get_to(result.received_per_second);
  message.at("wrong_bytes").get_to(result.wrong_bytes);
  message.at("sent_per_second").get_to(result.sent_per_second);
  message.at("lost").get_to(result.lost);
  message.at("via").get_to(result.via);
  message.at("latency_seconds").get_to(result.latency_seconds);
  return result;
}

nlohmann::json to_message(const CollectiveCommand& command) {
  return {{"do", "collective"},
          {"collective", name_of(command.collective)},
          {"seed", command.seed},
          {"elements", command.elements},
          {"iterations", command.iterations}};
}

CollectiveCommand collective_order_from(const nlohmann::json& message) {
  CollectiveCommand command;
  command.collective = collective_named(message.at("collective").get<std::string>());
  message.at("seed").get_to(command.seed);
  message.at("elements").get_to(command.elements);
  message.at("iterations").get_to(command.iterations);
  return command;
}

nlohmann::json to_message(const CollectiveResult& result) {
  return {{"seconds", result.seconds},
          {"wrong", result.mismatch.count},
          {"first_wrong", result.mismatch.first},
          {"got", result.mismatch.got},
          {"wanted", result.mismatch.wanted}};
}

CollectiveResult collective_result_from(const nlohmann::json& message) {
  CollectiveResult result;
  message.at("seconds").get_to(result.seconds);
  message.at("wrong").get_to(result.mismatch.count);
  message.at("first_wrong").get_to(result.mismatch.first);
  // A wrong element may be NaN or infinite, which JSON writes as null.
  result.mismatch.got = message.at("got").is_null() ? 0 : message.at("got").get<float>();
  message.at("wanted").get_to(result.mismatch.wanted);
  return result;
}

}  // namespace ddp::check
