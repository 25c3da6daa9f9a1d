// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/answers.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/traffic.h"

namespace ddp::check {
namespace {

using nlohmann::json;

constexpr double kMaxBytesPerSecond = 1e15;
constexpr double kLatestTime = 1e12;  // seconds since 1970 or another epoch
constexpr double kMaxLost = 1e6;      // relative to the data, which may be retransmitted repeatedly
constexpr int kMaxPacket = 1 << 24;

bool within(double value, double most) {
  return value >= 0 && value <= most;
}

// Rejects negative numbers, which would become large ones if they were read as unsigned.
bool counts(const json& numbers) {
  return numbers.is_object() && std::all_of(numbers.begin(), numbers.end(), [](const json& number) {
           return number.is_number_unsigned();
         });
}

bool is_packet_size(const json& number) {
  return number.is_number_integer() && within(number.get<double>(), kMaxPacket);
}

bool is_exchange(const json& answer) {
  const ExchangeResult result = exchange_result_from(answer);
  return within(result.received_per_second, kMaxBytesPerSecond) &&
         within(result.sent_per_second, kMaxBytesPerSecond) && result.wrong_bytes >= 0 &&
         within(result.latency_seconds, kLatestTime) && within(result.lost, kMaxLost);
}

bool is_collective(const json& command, const json& answer) {
  const CollectiveResult result = collective_result_from(answer);
  const auto iterations = static_cast<std::size_t>(collective_order_from(command).iterations);
  return result.seconds.size() == iterations &&
         std::all_of(result.seconds.begin(), result.seconds.end(),
                     [](double seconds) { return within(seconds, kLatestTime); });
}

bool has_what_is_asked(const json& command, const json& answer) {
  const std::string what = command.at("do");
  if (answer.contains("error")) return answer.at("error").is_string();
  if (what == "exchange") return is_exchange(answer);
  if (what == "collective") return is_collective(command, answer);
  if (what == "probe_path") {
    return is_packet_size(answer.at("arrived")) && is_packet_size(answer.at("mtu"));
  }
  if (what == "transport") {
    return counts(answer.at("traffic")) && answer.at("modules").is_string();
  }
  if (what == "final_checks") {
    return within(answer.at("unix_time").get<double>(), kLatestTime) &&
           counts(answer.at("counters"));
  }
  if (what == "resolve") {
    static_cast<void>(
        answer.at("addresses").get<std::map<std::string, std::vector<std::string>>>());
  }
  return true;
}

}  // namespace

bool is_answer_to(const json& command, const json& answer) {
  try {
    return has_what_is_asked(command, answer);
  } catch (const json::exception&) {
    return false;
  }
}

}  // namespace ddp::check
