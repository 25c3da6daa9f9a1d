// SPDX-License-Identifier: Apache-2.0
#include "bench/staged_training.h"

#include <utility>

#include "bench/staged_model.h"
#include "bench/training_loop.h"
#include "ddp_runtime/profile/interval.h"

namespace ddp::bench {
namespace {

using pipeline::MicroBatch;
using pipeline::OperationKind;
using pipeline::Stage;
using profile::Clock;

pipeline::Layout layout_of(const comm::Group& group, const StagedStep& step) {
  return {group.size(), step.micro_batches, step.stages_per_rank};
}

std::vector<Stage> make_stages(const comm::Group& group, const StagedStep& step) {
  const int count = layout_of(group, step).stages();
  std::vector<Stage> stages(static_cast<std::size_t>(count));
  for (const int number : pipeline::own_stages(group, count)) {
    stages[static_cast<std::size_t>(number)] = make_bench_stage(step.model, number, count);
  }
  return stages;
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(scores.flatten(0, -2), target.flatten());
}

MicroBatch make_micro_batch(const StagedStep& step) {
  auto sizes = step.model.input;
  sizes.insert(sizes.begin(), step.samples);
  const auto classes = step.model.classes;
  if (step.model.tokens) {
    return {.input = torch::randint(0, classes, sizes, torch::kInt64),
            .target = torch::randint(0, classes, sizes, torch::kInt64)};
  }
  return {.input = torch::randn(sizes),
          .target = torch::randint(0, classes, {step.samples}, torch::kInt64)};
}

std::vector<MicroBatch> make_data(const StagedStep& step) {
  std::vector<MicroBatch> data;
  for (int i = 0; i < step.micro_batches; ++i) data.push_back(make_micro_batch(step));
  return data;
}

pipeline::PipelineOptions options_of(const comm::Group& group, const StagedStep& step,
                                     pipeline::Schedule schedule) {
  pipeline::PipelineOptions options;
  options.schedule = schedule;
  options.tied = tied_weights_of(step.model, layout_of(group, step).stages());
  options.record_operations = true;
  return options;
}

PassTimes empty_pass(const pipeline::Layout& layout) {
  PassTimes pass;
  pass.operations.resize(static_cast<std::size_t>(4 * layout.stages() * layout.micro_batches));
  return pass;
}

template <class Body>
double seconds_of(const Body& body) {
  const auto begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Only the first one has something to train, so that the gradient travels all the way.
std::vector<Stage> make_empty_stages(int count) {
  std::vector<Stage> stages;
  const auto first = torch::nn::Linear(1, 1);
  stages.push_back({first.ptr(), [first](const torch::Tensor& x) { return x + first->bias; }});
  while (static_cast<int>(stages.size()) < count) {
    stages.push_back({nullptr, [](const torch::Tensor& x) { return x.view(x.sizes()); }});
  }
  return stages;
}

}  // namespace

std::size_t place_in_pass(const pipeline::Operation& operation, const pipeline::Layout& layout) {
  const int row = static_cast<int>(operation.kind) * layout.stages() + operation.stage;
  return static_cast<std::size_t>(row * layout.micro_batches + operation.micro_batch);
}

PipelineTraining::PipelineTraining(comm::Group& group, const StagedStep& step,
                                   pipeline::Schedule schedule)
    : layout_(layout_of(group, step)),
      pipe_(group, make_stages(group, step), loss_of, options_of(group, step, schedule)),
      optimizer_(make_optimizer(pipe_.parameters(), step.optimizer, TrainingLoop::Library::ours)),
      data_(make_data(step)) {}

void PipelineTraining::step() {
  auto step = pipe_.begin_step(layout_.micro_batches);
  step.backward(data_);
  step.apply(*optimizer_);
  const auto& times = pipe_.times();
  auto pass = empty_pass(layout_);
  pass.seconds = times.seconds;
  pass.computing = times.computing;
  for (const auto& one : times.operations) {
    pass.operations[place_in_pass(one.operation, layout_)] = one.computing();
  }
  passes_.push_back(std::move(pass));
}

LoneStages::LoneStages(const comm::Group& group, const StagedStep& step)
    : step_(step),
      layout_(layout_of(group, step)),
      own_(pipeline::own_stages(group, layout_.stages())),
      activation_(torch::randn(activation_shape(step.model, step.samples))) {
  for (const int number : own_) {
    modules_.push_back(make_bench_stage(step.model, number, layout_.stages()));
  }
  const auto batch = make_micro_batch(step);
  input_ = batch.input;
  target_ = batch.target;
}

void LoneStages::run(int number, const Stage& stage, PassTimes& pass) {
  const bool is_last = number == layout_.stages() - 1;
  const auto gradient = torch::full_like(activation_, 1e-6);
  for (int i = 0; i < step_.micro_batches; ++i) {
    const auto input = number == 0 ? input_ : activation_.detach().clone().requires_grad_();
    torch::Tensor output;
    const auto note = [&](OperationKind kind, double seconds) {
      pass.operations[place_in_pass({kind, number, i}, layout_)] = seconds;
    };
    note(OperationKind::forward, seconds_of([&] {
           output = stage.forward(input);
           if (is_last) output = loss_of(output, target_);
         }));
    note(OperationKind::backward, seconds_of([&] {
           output.backward(is_last ? torch::full_like(output, 0.125) : gradient);
         }));
  }
}

void LoneStages::step() {
  auto pass = empty_pass(layout_);
  for (std::size_t i = 0; i < own_.size(); ++i) {
    for (auto& parameter : modules_[i].module->parameters()) parameter.mutable_grad().reset();
    run(own_[i], modules_[i], pass);
  }
  passes_.push_back(std::move(pass));
}

EmptyStages::EmptyStages(comm::Group& group, const StagedStep& step)
    : messages_(2 * (group.size() - 1)),
      pipe_(group, make_empty_stages(group.size()),
            [](const torch::Tensor& x, const torch::Tensor&) { return x.select(0, 0).sum(); }) {
  data_.push_back({.input = torch::randn(activation_shape(step.model, step.samples))});
}

double EmptyStages::step() {
  auto step = pipe_.begin_step(1);
  step.backward(data_);
  return messages_ > 0 ? pipe_.times().seconds / messages_ : 0;
}

}  // namespace ddp::bench
