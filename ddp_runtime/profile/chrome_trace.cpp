// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/chrome_trace.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ddp::profile {

std::string chrome_trace(const std::vector<StepRecorder::TraceEvent>& events, int rank) {
  using nlohmann::json;
  json list = json::array();
  const auto name = [&](int thread, const char* kind, const std::string& text) {
    list.push_back(
        {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", thread}, {"args", {{"name", text}}}});
  };
  name(0, "process_name", fmt::format("rank {}", rank));
  name(0, "thread_name", "compute");
  name(1, "thread_name", "communication");

  Clock::time_point origin = Clock::time_point::max();
  for (const auto& event : events) origin = std::min(origin, event.time.begin);
  const auto microseconds = [](Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
  };
  for (const auto& event : events) {
    list.push_back({{"ph", "X"},
                    {"name", event.name},
                    {"pid", rank},
                    {"tid", event.communication ? 1 : 0},
                    {"ts", microseconds(event.time.begin - origin)},
                    {"dur", microseconds(event.time.end - event.time.begin)}});
  }
  return json{{"traceEvents", std::move(list)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace ddp::profile
