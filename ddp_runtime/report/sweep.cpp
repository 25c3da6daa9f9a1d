// SPDX-License-Identifier: Apache-2.0
// The document of a sweep: whether the runs scale and, if not, why.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "ddp_runtime/report/analysis/late_rank.h"
#include "ddp_runtime/report/analysis/named_losses.h"
#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/document/format.h"
#include "ddp_runtime/report/sections/step_parts.h"
#include "ddp_runtime/report/sections/sweep_sections.h"
#include "ddp_runtime/report/sections/wall_time.h"

namespace ddp::report {
namespace {

std::string kind_name(ScalingKind kind) {
  switch (kind) {
    case ScalingKind::strong:
      return "Strong scaling";
    case ScalingKind::weak:
      return "Weak scaling";
    case ScalingKind::mixed:
      return "Scaling with changing batch sizes";
    case ScalingKind::single:
      break;
  }
  return "One world size";
}

std::string kind_explained(ScalingKind kind) {
  switch (kind) {
    case ScalingKind::strong:
      return "strong: the global batch is the same for all numbers of ranks";
    case ScalingKind::weak:
      return "weak: the batch per rank is the same for all numbers of ranks";
    case ScalingKind::mixed:
      return "mixed: neither the global batch nor the batch per rank stays the same";
    case ScalingKind::single:
      break;
  }
  return "none: all runs have the same number of ranks";
}

std::string spread(const ScalingPoint& base, const ScalingPoint& point) {
  if (!point.interval) return "";
  return fmt::format(" (90 % interval: {} to {}, {} runs including the base's)",
                     percent(point.interval->least), percent(point.interval->most),
                     point.runs.size() + base.runs.size());
}

std::string loss_text(const ScalingPoint& point) {
  const auto loss = biggest_loss(point);
  if (!loss) return "";
  if (const auto rival = rival_of_biggest_loss(point)) {
    return fmt::format(
        " The biggest losses cannot be distinguished: {} ({} of the ideal) and {} ({}).",
        loss->name, percent(loss->part), rival->name, percent(rival->part));
  }
  return fmt::format(" Biggest loss: {}, {} of the ideal.", loss->name, percent(loss->part));
}

std::string verdict(const Scaling& scaling) {
  const ScalingPoint& last = scaling.points.back();
  if (const auto what = unlike(scaling); !what.empty()) {
    return fmt::format("The runs differ in {}: scaling cannot be computed.", fmt::join(what, ", "));
  }
  if (scaling.kind == ScalingKind::single) {
    return fmt::format("Only one world size, {}: scaling cannot be computed.", ranks(scaling.base));
  }
  const std::string what = fmt::format("{} from {} to {}", kind_name(scaling.kind), scaling.base,
                                       ranks(last.world_size));
  if (!last.efficiency)
    return what + ": the efficiency is unknown because the throughput is unknown.";
  std::string text = fmt::format("{}: {} efficiency{}.", what, percent(*last.efficiency),
                                 spread(scaling.points.front(), last));
  if (const auto why = sentences_of(find_cause(last.median)); !why.empty()) text += " " + why;
  return text + loss_text(last);
}

std::set<std::string> distinct(const Scaling& scaling,
                               const std::function<std::string(const RunRecord&)>& value) {
  std::set<std::string> values;
  for (const auto& point : scaling.points) {
    for (const auto& run : point.runs) values.insert(value(run));
  }
  return values;
}

std::string joined(const std::set<std::string>& values) {
  std::string text;
  for (const auto& value : values)
    text += (text.empty() ? "" : ", ") + (value.empty() ? "?" : value);
  return text;
}

// A single rank does not need a backend, so its backend is not compared.
std::set<std::string> backends(const Scaling& scaling) {
  std::set<std::string> names;
  for (const auto& point : scaling.points) {
    for (const auto& run : point.runs) {
      if (run.world_size > 1) names.insert(run.backend);
    }
  }
  return names;
}

void differ(std::vector<std::string>& texts, const char* what,
            const std::set<std::string>& values) {
  if (values.size() < 2) return;
  texts.push_back(fmt::format("The runs differ in {} ({}), so they are not directly comparable.",
                              what, joined(values)));
}

std::vector<std::string> cautions(const Scaling& scaling) {
  std::vector<std::string> texts;
  const std::pair<const char*, std::string RunRecord::*> comparable[] = {
      {"model", &RunRecord::model},
      {"data", &RunRecord::data},
      {"device", &RunRecord::device},
      {"program", &RunRecord::program}};
  for (const auto& [name, member] : comparable) {
    differ(texts, name, distinct(scaling, [m = member](const RunRecord& run) { return run.*m; }));
  }
  differ(texts, "backend", backends(scaling));
  if (scaling.kind == ScalingKind::mixed) {
    texts.emplace_back(
        "Neither the global batch nor the batch per rank is the same throughout; efficiency still "
        "compares samples per second and rank.");
  }
  const bool once = std::all_of(scaling.points.begin(), scaling.points.end(),
                                [](const ScalingPoint& point) { return point.runs.size() == 1; });
  if (once) {
    texts.emplace_back("Each number of ranks was run only once, so the spread is unknown.");
  } else if (!scaling.noise) {
    texts.emplace_back(
        "Too few runs were repeated to know the noise, so the efficiencies have no interval.");
  }
  for (const auto& point : scaling.points) {
    if (point.runs.size() > 2 || point.runs.size() % 2 != 0) continue;
    texts.push_back(
        fmt::format("With {} there are only two runs, and the report shows the slower one; a third "
                    "run would give a median.",
                    ranks(point.world_size)));
  }
  for (const auto& point : scaling.points) {
    if (!steps_vary(point.median)) continue;
    texts.push_back(
        fmt::format("With {}, step times vary widely: 5 % took more than twice the median.",
                    ranks(point.world_size)));
  }
  for (const auto& point : scaling.points) {
    for (auto& text : wall_cautions(point.median)) texts.push_back(std::move(text));
  }
  for (const auto& point : scaling.points) {
    if (!std::any_of(point.runs.begin(), point.runs.end(), parts_do_not_sum)) continue;
    texts.push_back(
        fmt::format("With {}, the parts of a step do not sum to the step; the rest is shown as "
                    "unaccounted.",
                    ranks(point.world_size)));
  }
  return texts;
}

std::vector<std::pair<std::string, std::string>> facts(const Scaling& scaling) {
  const auto all = [&scaling](auto value) { return joined(distinct(scaling, value)); };
  std::size_t count = 0;
  for (const auto& point : scaling.points) count += point.runs.size();
  std::vector<std::pair<std::string, std::string>> result{
      {"model", all([](const RunRecord& run) { return run.model; })},
      {"data", all([](const RunRecord& run) { return run.data; })},
      {"parameters",
       all([](const RunRecord& run) { return text_of(cell_of(run.parameters), Show::count); })},
      {"device", all([](const RunRecord& run) { return run.device; })},
      {"backend", joined(backends(scaling))},
      {"scaling", kind_explained(scaling.kind)},
      {"base", ranks(scaling.base)},
      {"runs", std::to_string(count)},
      {"program", all([](const RunRecord& run) { return run.program; })}};
  const auto jobs = distinct(scaling, [](const RunRecord& run) {
    const auto found = run.environment.find("SLURM_JOB_ID");
    return found == run.environment.end() ? std::string() : found->second;
  });
  if (jobs != std::set<std::string>{""}) result.emplace_back("SLURM job", joined(jobs));
  return result;
}

std::vector<KeyFigure> key_figures(const Scaling& scaling) {
  const ScalingPoint& last = scaling.points.back();
  const std::string at = "with " + ranks(last.world_size);
  std::vector<KeyFigure> figures;
  if (scaling.kind != ScalingKind::single) {
    figures.push_back({"efficiency", text_of(cell_of(last.efficiency), Show::percent), at});
    figures.push_back({"speedup", text_of(cell_of(last.speedup), Show::significant),
                       fmt::format("from {} to {}", scaling.base, ranks(last.world_size))});
  }
  figures.push_back({"samples per second",
                     text_of(cell_of(last.median.samples_per_second), Show::significant), at});
  if (const auto loss = biggest_loss(last)) {
    figures.push_back({"biggest loss", percent(loss->part), loss->name});
  }
  return figures;
}

nlohmann::json summary(const Scaling& scaling) {
  const ScalingPoint& last = scaling.points.back();
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  constexpr const char* kKinds[] = {"single", "strong", "weak", "mixed"};
  const auto loss = biggest_loss(last);
  const auto rival = rival_of_biggest_loss(last);
  return {{"scaling", kKinds[static_cast<std::size_t>(scaling.kind)]},
          {"base_world_size", scaling.base},
          {"largest_world_size", last.world_size},
          {"speedup", number(last.speedup)},
          {"efficiency", number(last.efficiency)},
          {"biggest_loss", loss ? nlohmann::json(loss->kind) : nlohmann::json()},
          {"biggest_loss_part", loss ? nlohmann::json(loss->part) : nlohmann::json()},
          {"not_distinguishable_from", rival ? nlohmann::json(rival->kind) : nlohmann::json()},
          {"noise", number(scaling.noise)},
          {"cause", json_of(find_cause(last.median))}};
}

}  // namespace

namespace {

std::string sweep_advice(const Scaling& scaling) {
  const ScalingPoint& last = scaling.points.back();
  const auto loss = biggest_loss(last);
  const Cause cause = find_cause(last.median);
  // A late rank affects only the waiting; shared CPUs slow down everything.
  const bool waits = loss && loss->kind == "waiting";
  if (cause.shared || (cause.late && waits)) return advice_against(cause);
  if (!loss) return "";
  if (rival_of_biggest_loss(last)) {
    return "Repeat the runs, such as five times for each number of ranks, to learn which loss is "
           "larger.";
  }
  return std::string(advice_for(loss->kind));
}

// Lists runs with different workloads one by one.
void describe_mixed(Document& document, const Scaling& scaling) {
  document.title = "Runs with different workloads";
  document.sections = {step_section(scaling), runs_section(scaling)};
  document.summary = {{"scaling", "mixed_work"}, {"differ_in", unlike(scaling)}};
}

std::optional<Section> wall_of(const Scaling& scaling) {
  std::vector<const RunRecord*> runs;
  for (const auto& point : scaling.points) {
    for (const auto& run : point.runs) runs.push_back(&run);
  }
  return wall_section(runs);
}

}  // namespace

Document sweep_document(const Scaling& scaling, const std::string& program) {
  Document document;
  document.kind = "sweep";
  document.program = program;
  const RunRecord& first = scaling.points.front().median;
  document.title =
      fmt::format("Scaling of {} on {}", first.model.empty() ? "a model" : shortened(first.model),
                  first.data.empty() ? "unnamed data" : shortened(first.data));
  document.verdict = verdict(scaling);
  document.cautions = cautions(scaling);
  document.facts = facts(scaling);
  document.glossary = step_glossary();
  if (!unlike(scaling).empty()) {
    describe_mixed(document, scaling);
    return document;
  }
  document.advice = sweep_advice(scaling);
  document.figures = key_figures(scaling);
  document.sections = {speed_section(scaling),         throughput_section(scaling),
                       step_section(scaling),          loss_section(scaling),
                       extrapolation_section(scaling), overlap_section(scaling),
                       runs_section(scaling)};
  if (auto wall = wall_of(scaling)) document.sections.push_back(std::move(*wall));
  document.glossary.insert(document.glossary.begin(),
                           {{"speedup", "throughput with N ranks divided by that of the base"},
                            {"efficiency", "speedup divided by the ratio of ranks, N / base"},
                            {"median run",
                             "of several runs with the same number of ranks, the median run by "
                             "throughput (lower median for an even count)"}});
  document.summary = summary(scaling);
  return document;
}

}  // namespace ddp::report
