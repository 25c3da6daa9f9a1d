// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/sections/stages_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

constexpr std::size_t kMaxStagesShown = 64;
constexpr double kTooHeavy = 1.1;  // times the mean

double total_seconds(const PipelineRecord& pipeline) {
  double sum = 0;
  for (const auto& stage : pipeline.stages) sum += stage.seconds;
  return sum;
}

std::string what_is_heavy(const PipelineRecord& pipeline) {
  const double sum = total_seconds(pipeline);
  if (sum <= 0) return {};
  const auto heaviest =
      std::ranges::max_element(pipeline.stages, {}, &PipelineRecord::Stage::seconds);
  const double times_mean = heaviest->seconds * static_cast<double>(pipeline.stages.size()) / sum;
  if (times_mean < kTooHeavy) return "The stages take about the same time.";
  return fmt::format(
      "Stage {} ({}) is too heavy: it takes {} times the mean of all stages, and the others wait "
      "for it.",
      heaviest - pipeline.stages.begin(), shortened(heaviest->pieces), significant(times_mean));
}

}  // namespace

std::string advice_for_stages(const PipelineRecord& pipeline) {
  if (!pipeline.better_balance.empty()) {
    return fmt::format(
        "With --stage-balance {}, the ranks would be idle for {} of the time instead of {}.",
        shortened(pipeline.better_balance), percent(pipeline.better_idle_share),
        percent(pipeline.idle_share_of_balance));
  }
  // Half of the idle time is gone with twice the micro-batches.
  constexpr double kMuchIdle = 0.2;
  if (pipeline.predicted_idle_share < kMuchIdle) return {};
  return "No other balance helps much; more micro-batches (--accumulate) would.";
}

Section stages_section(const PipelineRecord& pipeline) {
  Section section{"stages", "Stages", {}, {}, {}};
  section.paragraphs.push_back(fmt::format(
      "{} stages on {} ranks, {} micro-batches per step, schedule {}: ranks are idle for {} of the "
      "time if all stages take the same, and for {} with the times of these.",
      pipeline.stages.size(), pipeline.ranks, text_of(pipeline.micro_batches, Show::count),
      shortened(pipeline.schedule), percent(pipeline.predicted_idle_share),
      percent(pipeline.idle_share_of_balance)));
  for (auto&& sentence : {what_is_heavy(pipeline), advice_for_stages(pipeline)}) {
    if (!sentence.empty()) section.paragraphs.push_back(sentence);
  }
  if (pipeline.stages.size() > kMaxStagesShown) {
    section.paragraphs.push_back(
        fmt::format("The first {} of {} stages.", kMaxStagesShown, pipeline.stages.size()));
  }
  section.table.columns = {{"stage", "stage", Show::count},
                           {"pieces", "pieces", Show::text},
                           {"parameters", "parameters", Show::count},
                           {"seconds", "ms per step", Show::milliseconds},
                           {"share", "share of the time", Show::percent},
                           {"computing_share", "ranks computing", Show::percent},
                           {"waiting_share", "ranks waiting", Show::percent}};
  const double sum = total_seconds(pipeline);
  const auto shown = std::min(pipeline.stages.size(), kMaxStagesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& stage = pipeline.stages[i];
    section.table.rows.push_back({static_cast<double>(i), stage.pieces, stage.parameters,
                                  stage.seconds, sum > 0 ? Cell(stage.seconds / sum) : Cell(),
                                  stage.computing_share, stage.waiting_share});
  }
  return section;
}

}  // namespace ddp::report
