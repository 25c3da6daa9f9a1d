// SPDX-License-Identifier: Apache-2.0
// The document of one run: its configuration, and how each rank spent its time.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "ddp_runtime/report/analysis/late_rank.h"
#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/document/format.h"
#include "ddp_runtime/report/sections/resilience_section.h"
#include "ddp_runtime/report/sections/stages_section.h"
#include "ddp_runtime/report/sections/step_parts.h"
#include "ddp_runtime/report/sections/wall_time.h"

namespace ddp::report {
namespace {

// Number of ranks on a page; if there are more, those with the longest steps are shown.
constexpr std::size_t kMaxRanksShown = 64;

std::string number(const std::optional<double>& value, Show show) {
  return text_of(cell_of(value), show);
}

std::vector<const RankRecord*> ranks_to_show(const RunRecord& run) {
  std::vector<const RankRecord*> ranks;
  for (const auto& rank : run.ranks) ranks.push_back(&rank);
  if (ranks.size() > kMaxRanksShown) {
    std::sort(ranks.begin(), ranks.end(), [](const RankRecord* a, const RankRecord* b) {
      return a->step.mean.value_or(0) > b->step.mean.value_or(0);
    });
    ranks.resize(kMaxRanksShown);
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankRecord* a, const RankRecord* b) { return a->rank < b->rank; });
  return ranks;
}

Section step_section(const RunRecord& run) {
  Section section{"step", "Where the step time goes", {}, {}, {}};
  BarChart chart{"Step time",   "The mean step of all ranks, split into phases.",
                 "ms per step", {step_bar("all ranks", run.step)},
                 1000,          {}};
  section.charts = {chart};
  section.table.columns = step_columns();
  section.table.columns.push_back({"step_p50", "p50, ms", Show::milliseconds});
  section.table.columns.push_back({"step_p95", "p95, ms", Show::milliseconds});
  auto cells = step_cells(run.step);
  cells.push_back(cell_of(run.step.p50));
  cells.push_back(cell_of(run.step.p95));
  section.table.rows = {cells};
  return section;
}

std::vector<Cell> where_it_ran(const RankRecord& rank) {
  constexpr double kMiB = 1048576;
  const auto& memory = rank.peak_memory_bytes;
  const auto processors = static_cast<double>(rank.processors.size());
  std::vector<Cell> cells{cell_of(rank.late_share)};
  cells.push_back(cell_of(processors > 0 ? std::optional(processors) : std::nullopt));
  cells.push_back(cell_of(rank.threads));
  cells.push_back(cell_of(rank.preemptions));
  cells.push_back(cell_of(memory ? std::optional(*memory / kMiB) : std::nullopt));
  return cells;
}

std::string how_waiting_is_known(const RunRecord& run) {
  if (run.pipeline) {
    return "Ranks wait for their neighbors in the pipeline, so their steps are equally long. "
           "Exposed communication beyond that of the rank with the least counts as waiting.";
  }
  if (!run.waiting_estimated) {
    return "Ranks wait for each other in the all-reduce, so their steps are equally long. Time of "
           "a rank's collectives beyond the shortest on any rank is waiting; the rank with the "
           "least waiting is the one that the others wait for.";
  }
  return "Ranks wait for each other in the all-reduce, so their steps are equally long. This run "
         "did not measure the waiting: it is estimated as the excess of a rank's exposed "
         "communication over that of the rank with the least.";
}

Section ranks_section(const RunRecord& run) {
  const auto ranks = ranks_to_show(run);
  Section section{"ranks", "Ranks", {}, {}, {}};
  BarChart chart{"Step time per rank",
                 "One bar per rank, showing its mean step, split into phases.",
                 "ms per step",
                 {},
                 1000,
                 {}};
  section.table.columns = step_columns();
  section.table.columns.insert(section.table.columns.begin(),
                               {{"rank", "rank", Show::count}, {"node", "node", Show::text}});
  section.table.columns.push_back({"late_share", "steps in which it was late", Show::percent});
  section.table.columns.push_back({"processors", "CPUs", Show::count});
  section.table.columns.push_back({"threads", "threads", Show::count});
  section.table.columns.push_back({"preemptions", "preempted per s", Show::significant});
  section.table.columns.push_back({"peak_memory_mib", "peak memory, MiB", Show::count});
  for (const RankRecord* rank : ranks) {
    chart.bars.push_back(step_bar(fmt::format("rank {}", rank->rank), rank->step));
    auto cells = step_cells(rank->step);
    cells.insert(cells.begin(), {double(rank->rank), rank->node});
    for (auto& cell : where_it_ran(*rank)) cells.push_back(std::move(cell));
    section.table.rows.push_back(std::move(cells));
  }
  if (!chart.bars.empty()) section.charts = {chart};
  section.paragraphs = {how_waiting_is_known(run)};
  if (ranks.size() < run.ranks.size()) {
    section.paragraphs.push_back(
        fmt::format("The {} slowest of {} ranks.", ranks.size(), run.ranks.size()));
  }
  return section;
}

Section communication_section(const RunRecord& run) {
  Section section{"communication", "Communication", {}, {}, {}};
  section.table.columns = {{"overlap_ratio", "overlap", Show::percent},
                           {"bytes_per_step", "bytes per step", Show::count},
                           {"busbw_GBps", "bus bandwidth, GB/s", Show::significant}};
  section.table.rows = {
      {cell_of(run.overlap_ratio), cell_of(run.bytes_per_step), cell_of(run.busbw_GBps)}};
  return section;
}

const Segment* largest_part(const Bar& bar) {
  const auto largest =
      std::max_element(bar.segments.begin(), bar.segments.end(),
                       [](const Segment& a, const Segment& b) { return a.value < b.value; });
  return largest == bar.segments.end() ? nullptr : &*largest;
}

std::string verdict(const RunRecord& run, const Cause& cause) {
  std::string text =
      fmt::format("{} on {} with {} on {}: {} samples per second.", shortened(run.model),
                  shortened(run.data), counted(run.world_size, "rank"), counted(run.nodes, "node"),
                  number(run.samples_per_second, Show::significant));
  if (const auto why = sentences_of(cause); !why.empty()) text += " " + why;
  const Bar bar = step_bar("", run.step);
  if (const Segment* largest = largest_part(bar)) {
    text += fmt::format(" Most of a step's {} goes to {}: {}.", bar.total, largest->name,
                        largest->label);
  }
  return text;
}

// Advice against the cause of the waiting or, without one, against the waiting and the
// communication. A step that is mostly computation needs no advice.
std::string advice(const RunRecord& run, const Cause& cause) {
  if (auto against = advice_against(cause); !against.empty()) return against;
  if (run.pipeline) return advice_for_stages(*run.pipeline);
  const Bar bar = step_bar("", run.step);
  const Segment* largest = largest_part(bar);
  const bool computing =
      largest == nullptr || largest->kind == "forward" || largest->kind == "backward";
  return computing ? std::string() : std::string(advice_for(largest->kind));
}

std::vector<std::string> cautions(const RunRecord& run) {
  std::vector<std::string> texts = wall_cautions(run);
  if (parts_do_not_sum(run)) {
    texts.emplace_back(
        "The parts of a step do not sum to the step; the rest is shown as unaccounted.");
  }
  if (run.world_size > 0 && run.ranks.size() < static_cast<std::size_t>(run.world_size)) {
    texts.push_back(
        fmt::format("run.json describes {} of {} ranks.", run.ranks.size(), run.world_size));
  }
  if (steps_vary(run)) {
    texts.push_back(fmt::format(
        "Step times vary widely: 5 % of the steps took more than {} ms, half took at most {} ms; "
        "means hide this.",
        number(run.step.p95, Show::milliseconds), number(run.step.p50, Show::milliseconds)));
  }
  return texts;
}

std::string mebibytes(std::optional<double> bytes) {
  constexpr double kMiB = 1048576;
  return bytes ? fmt::format("{:.1f} MiB", *bytes / kMiB) : std::string("unknown");
}

std::string sharding_text(const ShardingRecord& sharding) {
  std::string text = sharding.strategy;
  if (sharding.divided_by.value_or(1) > 1) {
    text += fmt::format(" among {} ranks", number(sharding.divided_by, Show::count));
  }
  std::optional<double> in_step;
  if (sharding.bytes_between_steps && sharding.bytes_in_step) {
    in_step = *sharding.bytes_between_steps + *sharding.bytes_in_step;
  }
  return text + fmt::format(
                    "; memory per rank: {} predicted between steps and {} in a step, without "
                    "activations, {} measured; {} sent per step",
                    mebibytes(sharding.bytes_between_steps), mebibytes(in_step),
                    mebibytes(sharding.measured_peak_bytes),
                    mebibytes(sharding.bytes_sent_per_step));
}

std::vector<std::pair<std::string, std::string>> facts(const RunRecord& run) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"run", run.source},
      {"program", run.program},
      {"command", run.command},
      {"parameters", number(run.parameters, Show::count)},
      {"global batch", number(run.global_batch, Show::count)},
      {"steps", number(run.steps, Show::count)},
      {"device", run.device},
      {"backend", run.backend},
      {"training loss", number(run.train_loss, Show::significant)},
      {"evaluation loss", number(run.eval_loss, Show::significant)},
      {"accuracy", number(run.eval_accuracy, Show::percent)},
      {"parameters' CRC-32C", run.parameters_crc32c}};
  if (!run.sharding.strategy.empty()) {
    facts.emplace_back("sharding", sharding_text(run.sharding));
  }
  for (auto& fact : coverage_facts(run)) facts.push_back(std::move(fact));
  for (const auto& [name, value] : run.environment) facts.emplace_back(name, value);
  return facts;
}

void add_resilience(Document& document, const ResilienceRecord& resilience) {
  document.figures.push_back(
      {"ETTR", number(resilience.ettr, Show::percent), "of the time made progress"});
  document.sections.push_back(resilience_section(resilience));
  document.sections.push_back(generations_section(resilience));
  for (auto& entry : resilience_glossary()) document.glossary.push_back(std::move(entry));
}

}  // namespace

Document run_document(const RunRecord& run, const std::string& program) {
  Document document;
  document.kind = "run";
  document.program = program;
  document.title = fmt::format("{} on {}", shortened(run.model), shortened(run.data));
  Cause cause = find_cause(run);
  // Ranks have different stages, so one that computes longer is not slow.
  if (run.pipeline) cause.late.reset();
  document.verdict = verdict(run, cause);
  document.advice = advice(run, cause);
  document.cautions = cautions(run);
  document.figures = {
      {"samples per second", number(run.samples_per_second, Show::significant), "all ranks"},
      {"step", number(run.step.p50, Show::milliseconds) + " ms", "median of the slowest rank"},
      {"overlap", number(run.overlap_ratio, Show::percent), "of communication with backward"},
      {"accuracy", number(run.eval_accuracy, Show::percent), "held-out data"}};
  document.facts = facts(run);
  document.sections = {step_section(run), ranks_section(run), communication_section(run)};
  if (run.pipeline) document.sections.push_back(stages_section(*run.pipeline));
  if (auto wall = wall_section({&run})) document.sections.push_back(std::move(*wall));
  document.glossary = step_glossary();
  if (run.resilience) add_resilience(document, *run.resilience);
  document.summary = {
      {"world_size", run.world_size},
      {"samples_per_second",
       run.samples_per_second ? nlohmann::json(*run.samples_per_second) : nlohmann::json()},
      {"outcome", run.outcome.empty() ? nlohmann::json() : nlohmann::json(run.outcome)},
      {"cause", json_of(cause)}};
  if (run.resilience) {
    document.summary["ettr"] =
        run.resilience->ettr ? nlohmann::json(*run.resilience->ettr) : nlohmann::json();
    document.summary["faults"] = run.resilience->faults;
  }
  return document;
}

}  // namespace ddp::report
