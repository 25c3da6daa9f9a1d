// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/sections/resilience_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

constexpr std::size_t kMaxGenerationsShown = 100;
// On a strip of 900 pixels; neighbors share one if there are more.
constexpr std::size_t kMaxParts = 200;
constexpr double kMinuteSeconds = 60;
constexpr double kHourSeconds = 3600;

double total_of(const UseSeconds& seconds) {
  double sum = 0;
  for (const double one : seconds) sum += one;
  return sum;
}

void add_uses(UseSeconds& to, const UseSeconds& seconds) {
  for (std::size_t i = 0; i < seconds.size(); ++i) to[i] += seconds[i];
}

std::string duration_text(double seconds) {
  if (seconds < 2 * kMinuteSeconds) return significant(seconds) + " s";
  if (seconds < 2 * kHourSeconds) return significant(seconds / kMinuteSeconds) + " min";
  return significant(seconds / kHourSeconds) + " h";
}

std::string plural(double count, const char* noun) {
  return fmt::format("{:.0f} {}{}", count, noun, count == 1 ? "" : "s");
}

// Several generations that follow each other, drawn as one.
struct StripPart {
  std::string name;
  UseSeconds seconds{};
  double faults = 0;
};

std::vector<StripPart> strip_parts(const ResilienceRecord& resilience) {
  std::vector<StripPart> parts;
  if (total_of(resilience.older) > 0) parts.push_back({"older generations", resilience.older, 0});
  const auto& generations = resilience.generations;
  const auto together = std::max<std::size_t>((generations.size() + kMaxParts - 1) / kMaxParts, 1);
  for (std::size_t i = 0; i < generations.size(); ++i) {
    const auto& one = generations[i];
    if (i % together == 0) parts.push_back({fmt::format("{:.0f}", one.number), {}, 0});
    add_uses(parts.back().seconds, one.seconds);
    if (one.failed) ++parts.back().faults;
  }
  if (total_of(resilience.after) > 0) parts.push_back({"after the last", resilience.after, 0});
  return parts;
}

struct TimeUnit {
  std::string name;
  double factor = 1;  // of seconds
};

TimeUnit unit_for(double seconds) {
  if (seconds >= 2 * kHourSeconds) return {"h", 1 / kHourSeconds};
  if (seconds >= 2 * kMinuteSeconds) return {"min", 1 / kMinuteSeconds};
  return {"s", 1};
}

StripChart strip_chart(const ResilienceRecord& resilience) {
  auto unit = unit_for(resilience.wall_seconds);
  StripChart chart{"The run",
                   "Time from left to right. Above: the generations, each with its number; a mark "
                   "is a failure. Below: what their time was used for.",
                   std::move(unit.name),
                   {},
                   unit.factor};
  for (const auto& part : strip_parts(resilience)) {
    StripChart::Part drawn{part.name, {}, {}};
    if (part.faults > 0) drawn.mark = plural(part.faults, "failure");
    for (std::size_t i = 0; i < kUsesOfTime.size(); ++i) {
      if (part.seconds[i] <= 0) continue;
      drawn.segments.push_back({fmt::format("use-{}", kUsesOfTime[i].key),
                                std::string(kUsesOfTime[i].name), part.seconds[i],
                                duration_text(part.seconds[i])});
    }
    chart.parts.push_back(std::move(drawn));
  }
  return chart;
}

std::string summary_sentence(const ResilienceRecord& resilience) {
  auto text =
      fmt::format("{} in {}: {} in {}.", plural(resilience.generations_in_all, "generation"),
                  plural(resilience.jobs, "job"), plural(resilience.faults, "failure"),
                  duration_text(resilience.wall_seconds));
  if (resilience.ettr) {
    text += fmt::format(" Without the queue, {} of the time made progress (ETTR).",
                        percent(*resilience.ettr));
  }
  if (resilience.mtti_seconds) {
    text += fmt::format(" The mean time between failures was {}.",
                        duration_text(*resilience.mtti_seconds));
  }
  return text;
}

std::string interval_sentence(const ResilienceRecord& resilience) {
  if (!resilience.checkpoint_interval) return {};
  auto text = fmt::format("There was a checkpoint each {}.",
                          duration_text(*resilience.checkpoint_interval));
  if (resilience.young_interval) {
    text += fmt::format(" By Young's formula, with the measured failures and costs, {} is best.",
                        duration_text(*resilience.young_interval));
  }
  return text;
}

}  // namespace

Section resilience_section(const ResilienceRecord& resilience) {
  Section section{"resilience", "Where the time of the run went", {}, {}, {}};
  section.paragraphs = {summary_sentence(resilience)};
  if (auto text = interval_sentence(resilience); !text.empty()) {
    section.paragraphs.push_back(std::move(text));
  }
  section.charts = {strip_chart(resilience)};
  section.table.columns = {{"use", "use", Show::text},
                           {"seconds", "seconds", Show::significant},
                           {"share", "share of the wall time", Show::percent}};
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < kUsesOfTime.size(); ++i) order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return resilience.seconds[a] > resilience.seconds[b];
  });
  const double wall = resilience.wall_seconds;
  for (const auto i : order) {
    const double seconds = resilience.seconds[i];
    section.table.rows.push_back(
        {std::string(kUsesOfTime[i].name), seconds, wall > 0 ? Cell(seconds / wall) : Cell()});
  }
  return section;
}

Section generations_section(const ResilienceRecord& resilience) {
  Section section{"generations", "Generations", {}, {}, {}};
  const auto& all = resilience.generations;
  const auto shown = std::min(all.size(), kMaxGenerationsShown);
  if (static_cast<double>(shown) < resilience.generations_in_all) {
    section.paragraphs.push_back(
        fmt::format("The last {} of {:.0f}.", shown, resilience.generations_in_all));
  }
  section.table.columns = {{"number", "number", Show::count},
                           {"job", "job", Show::text},
                           {"nodes", "nodes", Show::count},
                           {"world_size", "ranks", Show::count},
                           {"restored_from", "restored from", Show::text},
                           {"from_step", "from step", Show::count},
                           {"to_step", "to step", Show::count},
                           {"steps_repeated", "steps repeated", Show::count},
                           {"seconds", "seconds", Show::significant},
                           {"why_ended", "why it ended", Show::text},
                           {"blamed", "blamed", Show::text},
                           {"detected_after", "detected after, s", Show::significant},
                           {"recovered_after", "recovered after, s", Show::significant}};
  for (auto one = all.end() - static_cast<std::ptrdiff_t>(shown); one != all.end(); ++one) {
    section.table.rows.push_back(
        {one->number, one->job, one->nodes, one->ranks, one->restored_from, cell_of(one->from_step),
         cell_of(one->to_step), one->steps_repeated, total_of(one->seconds), one->why_ended,
         one->blamed, cell_of(one->detected_after), cell_of(one->recovered_after)});
  }
  return section;
}

std::vector<std::pair<std::string, std::string>> resilience_glossary() {
  return {
      {"generation", "one start of the program by ddp-run"},
      {"ETTR",
       "effective training time ratio: the time of the steps that count, as if all nodes took "
       "part, divided by the time without the queue"},
      {"repeated steps", "steps whose results were lost with a failure"},
      {"missing nodes", "the part of the steps' time that the nodes left out would have saved"}};
}

}  // namespace ddp::report
