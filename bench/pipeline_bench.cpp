// SPDX-License-Identifier: Apache-2.0
#include "bench/pipeline_bench.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "bench/contenders.h"
#include "bench/staged_training.h"
#include "bench/statistics.h"
#include "bench/training_loop.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/pipeline/simulate.h"

namespace ddp::bench {
namespace {

using nlohmann::json;
using pipeline::Layout;
using pipeline::StageTimes;

constexpr std::array kMeasured = {pipeline::Schedule::gpipe, pipeline::Schedule::one_f_one_b,
                                  pipeline::Schedule::interleaved, pipeline::Schedule::zb_h1};

int stages_per_rank(pipeline::Schedule schedule, const PipelineBenchOptions& options) {
  return schedule == pipeline::Schedule::interleaved ? options.stages_per_rank : 1;
}

StagedStep staged_step(const comm::Group& group, const PipelineBenchOptions& options,
                       int per_rank) {
  const auto samples = options.batch * group.size();
  if (samples % options.micro_batches != 0) {
    throw UsageError(fmt::format(
        "{} samples (--batch {} on {} ranks) cannot be divided into {} equal micro-batches",
        samples, options.batch, group.size(), options.micro_batches));
  }
  return {options.model, options.optimizer, samples / options.micro_batches, options.micro_batches,
          per_rank};
}

// A pass of all ranks.
struct WholePass {
  double seconds = 0;    // from the first operation of the first rank to its last one
  double computing = 0;  // sum over ranks
  std::vector<double> operations;
};

// Collective. Without the first `skipped`.
std::vector<WholePass> whole_passes(comm::Group& group, const std::vector<PassTimes>& mine,
                                    std::int64_t skipped) {
  std::vector<WholePass> all;
  for (auto i = static_cast<std::size_t>(skipped); i < mine.size(); ++i) {
    std::vector<double> values = mine[i].operations;
    values.push_back(group.rank() == 0 ? mine[i].seconds : 0);
    values.push_back(mine[i].computing);
    group.all_reduce(comm::buffer_of(std::span(values)), comm::ReduceOp::sum, "times").wait();
    WholePass pass{values[values.size() - 2], values.back(), {}};
    values.resize(values.size() - 2);
    pass.operations = std::move(values);
    all.push_back(std::move(pass));
  }
  return all;
}

template <class Value>
double median_of(std::span<const WholePass> passes, const Value& value) {
  std::vector<double> values;
  for (const auto& pass : passes) values.push_back(value(pass));
  return median(values);
}

// The mean over the micro-batches of each pass, and the median of that.
std::vector<StageTimes> median_stages(std::span<const WholePass> passes, const Layout& layout) {
  using pipeline::OperationKind;
  std::vector<StageTimes> stages;
  for (int stage = 0; stage < layout.stages(); ++stage) {
    const auto mean = [&](OperationKind kind) {
      return median_of(passes, [&](const WholePass& pass) {
        double sum = 0;
        for (int i = 0; i < layout.micro_batches; ++i) {
          sum += pass.operations[place_in_pass({kind, stage, i}, layout)];
        }
        return sum / layout.micro_batches;
      });
    };
    // A backward in one part counts as the first of the two.
    stages.push_back({mean(OperationKind::forward),
                      mean(OperationKind::backward) + mean(OperationKind::input_gradient),
                      mean(OperationKind::weight_gradient)});
  }
  return stages;
}

// The measured passes of one schedule beside what the times of the stages predict.
struct Verdict {
  std::vector<double> bubble;     // measured: the part of all ranks' time in which they wait
  std::vector<double> predicted;  // from the stages' times in the same passes
  std::vector<double> bubble_over_predicted;
  std::vector<double> bubble_over_replayed;  // from each operation's time in the same pass
  std::vector<double> pass_over_predicted;
  std::vector<double> pass_over_replayed;
  std::vector<double> pass_over_alone;  // from the times of the stages alone

  json as_json() const {
    return {{"bubble", percentiles(bubble)},
            {"predicted_bubble", percentiles(predicted)},
            {"bubble_over_predicted", percentiles(bubble_over_predicted)},
            {"bubble_over_replayed", percentiles(bubble_over_replayed)},
            {"pass_over_predicted", percentiles(pass_over_predicted)},
            {"pass_over_replayed", percentiles(pass_over_replayed)},
            {"pass_over_predicted_from_stages_alone", percentiles(pass_over_alone)}};
  }
};

double bubble_of(const WholePass& pass, const Layout& layout) {
  return 1 - pass.computing / (pass.seconds * layout.ranks);
}

// Round by round, because a slowdown of the machine affects both.
Verdict judge(pipeline::Schedule schedule, const Layout& layout,
              const std::vector<WholePass>& passes, const std::vector<WholePass>& alone,
              double message, std::int64_t block) {
  Verdict verdict;
  const auto replay = [&](const WholePass& pass) {
    return simulate(
        schedule, layout,
        [&](const pipeline::Operation& operation) {
          return pass.operations[place_in_pass(operation, layout)];
        },
        message);
  };
  const auto width = static_cast<std::size_t>(block);
  for (std::size_t at = 0; at + width <= std::min(passes.size(), alone.size()); at += width) {
    const auto round = std::span(passes).subspan(at, width);
    const auto round_alone = std::span(alone).subspan(at, width);
    const double seconds = median_of(round, [](const auto& pass) { return pass.seconds; });
    const double bubble = median_of(round, [&](const auto& p) { return bubble_of(p, layout); });
    const auto expected = simulate(schedule, layout, median_stages(round, layout), message);
    const auto from_alone = simulate(schedule, layout, median_stages(round_alone, layout), message);
    verdict.bubble.push_back(bubble);
    verdict.predicted.push_back(expected.bubble);
    verdict.bubble_over_predicted.push_back(bubble / expected.bubble);
    verdict.pass_over_predicted.push_back(seconds / expected.span);
    verdict.pass_over_alone.push_back(seconds / from_alone.span);
    verdict.bubble_over_replayed.push_back(
        median_of(round, [&](const auto& p) { return bubble_of(p, layout) / replay(p).bubble; }));
    verdict.pass_over_replayed.push_back(
        median_of(round, [&](const auto& p) { return p.seconds / replay(p).span; }));
  }
  return verdict;
}

json stages_as_json(const std::vector<WholePass>& passes, const Layout& layout) {
  json stages = json::array();
  for (const auto& stage : median_stages(passes, layout)) {
    stages.push_back({{"forward_seconds", stage.forward},
                      {"backward_seconds", stage.input_gradient + stage.weight_gradient}});
  }
  return stages;
}

// One schedule, and what it is compared with.
struct Measured {
  pipeline::Schedule schedule;
  PipelineTraining training;
  LoneStages alone;
  StartedPythonPeer python;
  std::size_t contender = 0;  // its place; the stages alone have the next one
  std::size_t python_contender = 0;

  Measured(comm::Group& group, pipeline::Schedule its_schedule, const PipelineBenchOptions& options)
      : schedule(its_schedule),
        training(group, staged_step(group, options, stages_per_rank(schedule, options)), schedule),
        alone(group, staged_step(group, options, stages_per_rank(schedule, options))) {}
};

StartedPythonPeer start_python_pipeline(comm::Group& group, pipeline::Schedule schedule,
                                        const PipelineBenchOptions& options) {
  auto peer = options.python;
  peer.optimizer = options.optimizer;
  peer.pipeline = {std::string(to_string(schedule)), options.micro_batches,
                   stages_per_rank(schedule, options)};
  return start_python_peer(group, options.model, options.batch, peer, {});
}

std::string python_name(pipeline::Schedule schedule) {
  return fmt::format("python_{}_gloo", to_string(schedule));
}

}  // namespace

json run_pipeline_bench(comm::World& world, const PipelineBenchOptions& options) {
  comm::Group& group = world.group();
  std::deque<Measured> all;
  std::vector<Contender> contenders;
  const auto add = [&](std::string name, std::function<std::vector<double>(std::int64_t)> run) {
    contenders.push_back({std::move(name), std::move(run)});
    return contenders.size() - 1;
  };
  const auto add_step = [&](std::string name, std::function<void()> step) {
    return add(std::move(name),
               [step = std::move(step)](std::int64_t n) { return time_steps(n, step); });
  };
  TrainingLoop whole(options.model, options.batch, options.optimizer, TrainingLoop::Library::ours);
  DistributedDataParallel replica(whole.model(), group, {.buckets = options.buckets});
  const auto data_parallel = add_step("data_parallel", [&] { whole.step(replica); });
  for (const auto schedule : kMeasured) {
    auto& one = all.emplace_back(group, schedule, options);
    one.contender = add_step(std::string(to_string(schedule)), [&one] { one.training.step(); });
    add_step(fmt::format("stages of {} alone", to_string(schedule)), [&one] { one.alone.step(); });
    if (!options.with_python) continue;
    one.python = start_python_pipeline(group, schedule, options);
    if (auto* const peer = one.python.peer.get()) {
      one.python_contender =
          add(python_name(schedule), [peer](std::int64_t n) { return peer->run(n); });
    }
  }
  EmptyStages empty(group, staged_step(group, options, 1));
  const auto messages = add("message", [&](std::int64_t n) {
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < n; ++i) seconds.push_back(empty.step());
    return seconds;
  });
  take_turns(group, contenders, options.steps, options.block);

  const auto& of_message = contenders[messages].seconds;
  json result = {
      {"benchmark", "pipeline"},
      {"world_size", world.size()},
      {"model", options.model.name},
      {"parameters", models::parameter_count(whole.model())},
      {"batch", options.batch},
      {"micro_batches", options.micro_batches},
      {"optimizer", options.optimizer},
      {"threads", torch::get_num_threads()},
      {"steps", contenders.front().seconds.size()},
      {"block", options.block},
      {"message_seconds", percentiles(of_message)},
      {"data_parallel", {{"step_seconds", percentiles(contenders[data_parallel].seconds)}}}};
  for (auto& one : all) {
    const auto passes = whole_passes(group, one.training.passes(), options.block);
    const auto alone = whole_passes(group, one.alone.passes(), options.block);
    const Layout layout{group.size(), options.micro_batches,
                        stages_per_rank(one.schedule, options)};
    auto& entry = result["schedules"][std::string(to_string(one.schedule))];
    entry = judge(one.schedule, layout, passes, alone, median(of_message), options.block).as_json();
    const auto& ours = contenders[one.contender];
    entry["step_seconds"] = percentiles(ours.seconds);
    entry["pass_seconds"] = median_of(passes, [](const auto& pass) { return pass.seconds; });
    entry["bubble_of_equal_stages"] = simulate(one.schedule, layout).bubble;
    entry["stages"] = stages_as_json(passes, layout);
    entry["stages_alone"] = stages_as_json(alone, layout);
    entry["over_data_parallel"] = ratios(ours, contenders[data_parallel], options.block);
    if (one.python.peer) {
      entry["python"] = comparison(ours, contenders[one.python_contender], options.block);
      entry["python"]["torch"] = one.python.version;
    } else if (!one.python.missing.empty()) {
      result["not_compared"][python_name(one.schedule)] = one.python.missing;
    }
  }
  return result;
}

}  // namespace ddp::bench
