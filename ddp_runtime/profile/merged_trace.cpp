// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/merged_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/profile/clock_fit.h"

namespace ddp::profile {
namespace {

using nlohmann::json;
using TraceEvent = StepRecorder::TraceEvent;

// The ends of collectives on different nodes must agree at least this well.
constexpr double kMaxResidual = 1e-3;

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

Clock::time_point time_of(std::int64_t nanoseconds) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(nanoseconds)));
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// The ranks that read one clock.
struct ClockGroup {
  std::vector<const RankTrace*> ranks;
  Clock::time_point origin = Clock::time_point::max();  // of their first event
  ClockFit fit;  // from seconds since this origin to seconds since that of the first clock
};

struct Alignment {
  std::map<std::string, ClockGroup> clocks;
  std::string kind = "one";
  double residual = 0;
  std::string reason;
};

std::vector<const TraceEvent*> collectives(const RankTrace& trace) {
  std::vector<const TraceEvent*> list;
  for (const auto& event : trace.events) {
    if (event.communication) list.push_back(&event);
  }
  return list;
}

// Empty if all ranks have had the same collectives in the same order.
std::string differences(const std::vector<RankTrace>& traces) {
  const auto first = collectives(traces.front());
  if (first.empty()) return "there are no collectives in these steps";
  for (const auto& trace : traces) {
    const bool same = std::ranges::equal(
        collectives(trace), first, [](const auto* a, const auto* b) { return a->name == b->name; });
    if (!same) {
      return fmt::format("ranks {} and {} have had different collectives in these steps",
                         traces.front().rank, trace.rank);
    }
  }
  return "";
}

// When the first rank of a clock left each collective, in seconds since the clock's origin.
std::vector<double> ends_of(const ClockGroup& clock) {
  std::vector<double> ends;
  for (const auto* rank : clock.ranks) {
    const auto list = collectives(*rank);
    ends.resize(list.size(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < list.size(); ++i) {
      ends[i] = std::min(ends[i], seconds_between(clock.origin, list[i]->time.end));
    }
  }
  return ends;
}

void fit_clocks(Alignment& alignment, const std::string& first) {
  const auto here = ends_of(alignment.clocks.at(first));
  for (auto& [name, clock] : alignment.clocks) {
    if (name == first) continue;
    const auto there = ends_of(clock);
    std::vector<CommonMoment> moments;
    for (std::size_t i = 0; i < here.size(); ++i) moments.push_back({here[i], there[i]});
    clock.fit = fit_clock(moments).value_or(ClockFit{});
    alignment.residual = std::max(alignment.residual, clock.fit.residual);
  }
}

Alignment align(const std::vector<RankTrace>& traces) {
  Alignment alignment;
  for (const auto& trace : traces) {
    auto& clock = alignment.clocks[trace.clock];
    clock.ranks.push_back(&trace);
    for (const auto& event : trace.events) clock.origin = std::min(clock.origin, event.time.begin);
  }
  for (auto& [name, clock] : alignment.clocks) {
    if (clock.origin == Clock::time_point::max()) clock.origin = {};  // its ranks have no events
  }
  if (alignment.clocks.size() < 2) return alignment;
  alignment.reason = differences(traces);
  if (alignment.reason.empty()) fit_clocks(alignment, traces.front().clock);
  if (alignment.residual > kMaxResidual) {
    alignment.reason =
        fmt::format("the ends of collectives differ by {:.1f} ms between nodes, at the median",
                    1e3 * alignment.residual);
  }
  alignment.kind = alignment.reason.empty() ? "aligned" : "unknown";
  if (alignment.reason.empty()) return alignment;
  for (auto& [name, clock] : alignment.clocks) clock.fit = {};
  return alignment;
}

json metadata(int rank, const char* kind, json arguments, int thread = 0) {
  return {
      {"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", thread}, {"args", std::move(arguments)}};
}

void add_rank(json& list, const RankTrace& trace, const ClockGroup& clock, double origin) {
  const auto on = trace.node.empty() ? "" : fmt::format(" on {}", trace.node);
  list.push_back(
      metadata(trace.rank, "process_name", {{"name", fmt::format("rank {}{}", trace.rank, on)}}));
  list.push_back(metadata(trace.rank, "process_sort_index", {{"sort_index", trace.rank}}));
  list.push_back(metadata(trace.rank, "thread_name", {{"name", "compute"}}, 0));
  list.push_back(metadata(trace.rank, "thread_name", {{"name", "communication"}}, 1));
  const auto microseconds = [&](Clock::time_point time) {
    return 1e6 * (clock.fit.here(seconds_between(clock.origin, time)) - origin);
  };
  for (const auto& event : trace.events) {
    const double begin = microseconds(event.time.begin);
    list.push_back({{"ph", "X"},
                    {"name", event.name},
                    {"pid", trace.rank},
                    {"tid", event.communication ? 1 : 0},
                    {"ts", begin},
                    {"dur", microseconds(event.time.end) - begin}});
  }
}

}  // namespace

std::string to_text(const RankTrace& trace) {
  json events = json::array();
  for (const auto& event : trace.events) {
    events.push_back({event.name, nanoseconds(event.time.begin), nanoseconds(event.time.end),
                      event.communication});
  }
  return json{{"rank", trace.rank},
              {"node", trace.node},
              {"clock", trace.clock},
              {"events", std::move(events)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

RankTrace parse_trace(std::string_view text) {
  try {
    const auto read = json::parse(text);
    RankTrace trace{read.at("rank").get<int>(),
                    read.at("node").get<std::string>(),
                    read.at("clock").get<std::string>(),
                    {}};
    for (const auto& event : read.at("events")) {
      trace.events.push_back(
          {event.at(0).get<std::string>(),
           {time_of(event.at(1).get<std::int64_t>()), time_of(event.at(2).get<std::int64_t>())},
           event.at(3).get<bool>()});
    }
    return trace;
  } catch (const json::exception& error) {
    throw RuntimeError(fmt::format("a rank has sent a malformed trace: {}", error.what()));
  }
}

std::string merged_trace(const std::vector<RankTrace>& traces) {
  json list = json::array();
  const auto alignment = traces.empty() ? Alignment{} : align(traces);
  double origin = std::numeric_limits<double>::infinity();
  for (const auto& [name, clock] : alignment.clocks) {
    origin = std::min(origin, clock.fit.here(0));  // a clock's origin is its first event
  }
  for (const auto& trace : traces) {
    add_rank(list, trace, alignment.clocks.at(trace.clock), origin);
  }
  json other = {{"clocks", alignment.kind}};
  if (alignment.kind == "aligned") other["residual_us"] = 1e6 * alignment.residual;
  if (!alignment.reason.empty()) other["reason"] = alignment.reason;
  return json{
      {"traceEvents", std::move(list)}, {"displayTimeUnit", "ms"}, {"otherData", std::move(other)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<int> traced_ranks(const std::vector<double>& waiting,
                              const std::vector<std::string>& nodes, std::size_t most) {
  std::vector<int> order(waiting.size());
  std::iota(order.begin(), order.end(), 0);
  if (order.size() <= most) return order;
  std::ranges::stable_sort(order, {},
                           [&](int rank) { return waiting[static_cast<std::size_t>(rank)]; });
  std::set<int> chosen{0, order.front(), order[order.size() / 2], order.back()};
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < nodes.size() && chosen.size() < most; ++rank) {
    if (seen.insert(nodes[rank]).second) chosen.insert(static_cast<int>(rank));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace ddp::profile
