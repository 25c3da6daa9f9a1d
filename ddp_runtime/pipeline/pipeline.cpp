// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/pipeline.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/parallel/replica/loss_check.h"
#include "ddp_runtime/parallel/replica/step_agreement.h"
#include "ddp_runtime/pipeline/executor.h"
#include "ddp_runtime/pipeline/neighbors.h"
#include "ddp_runtime/pipeline/stage_replicas.h"

namespace ddp::pipeline {
namespace {

using StepClock = std::chrono::steady_clock;

// Ranks of one replica. Throws if stages and replicas do not fit.
int ranks_per_replica(const comm::Group& group, int stages, int replicas) {
  if (replicas < 1 || group.size() % replicas != 0) {
    throw UsageError(fmt::format("{} ranks cannot be divided into {} replicas of a pipeline",
                                 group.size(), replicas));
  }
  const int ranks = group.size() / replicas;
  if (stages > 0 && stages % ranks == 0) return ranks;
  throw UsageError(fmt::format(
      "{} stages cannot be divided among {} ranks; each rank of a pipeline has the same "
      "number of stages, so cut the model into a multiple of {}",
      stages, ranks, ranks));
}

void require_supported(const PipelineOptions& options) {
  const auto& unsupported = options.data_parallel;
  if (!unsupported.ignore.empty() || unsupported.hook || unsupported.reduce_type ||
      unsupported.ordered_blocks || unsupported.check_parameters_every != 0) {
    throw UsageError(
        "a pipeline supports neither ignore nor hook nor reduce_type nor ordered_blocks nor "
        "check_parameters_every of PipelineOptions::data_parallel; leave them at their defaults");
  }
}

std::string describe_options(const PipelineOptions& options, std::size_t stages) {
  return fmt::format("{} stages, {} replicas, schedule {}, {} tied weights, {}", stages,
                     options.replicas, to_string(options.schedule), options.tied.size(),
                     options.seed ? fmt::format("seed {}", *options.seed) : "no seed");
}

void require_same_options(comm::Group& group, const std::string& mine) {
  const auto all = group.all_gather_text(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw RuntimeError(fmt::format(
        "the ranks have different pipelines: rank {} has {}, rank {} has {}", group.world_rank(0),
        all[0], group.world_rank(static_cast<int>(rank)), all[rank]));
  }
}

std::vector<OwnStage> pick(std::vector<Stage> stages, const std::vector<int>& own, int world_rank) {
  std::vector<OwnStage> picked;
  for (const int number : own) {
    auto& stage = stages[static_cast<std::size_t>(number)];
    if (stage.empty()) {
      throw UsageError(
          fmt::format("stage {} is empty on rank {}, which runs it", number, world_rank));
    }
    picked.push_back({number, std::move(stage)});
  }
  return picked;
}

double norm_of(const torch::Tensor& gradient) {
  return at::linalg_vector_norm(gradient, 2, c10::nullopt, false, torch::kFloat64).item<double>();
}

torch::Device device_of(const std::vector<OwnStage>& stages, const PipelineOptions& options) {
  if (options.device) return *options.device;
  for (const auto& own : stages) {
    const auto parameters = parameters_of(own);
    if (!parameters.empty()) return parameters.front().tensor.device();
  }
  return torch::kCPU;
}

}  // namespace

class Pipeline::Parts {
 public:
  Parts(comm::Group& group, std::vector<Stage> all, Loss loss, PipelineOptions options)
      : group_(group),
        options_(std::move(options)),
        count_(static_cast<int>(all.size())),
        ranks_(ranks_per_replica(group, count_, options_.replicas)),
        stages_(pick(std::move(all), ddp::pipeline::own_stages(group, count_, options_.replicas),
                     group.world_rank(group.rank()))),
        loss_(std::move(loss)),
        device_(device_of(stages_, options_)),
        pipe_(options_.replicas == 1
                  ? &group
                  : group.split(replica(), group.rank(), fmt::format("replica {}", replica()))),
        alike_(options_.replicas == 1
                   ? nullptr
                   : group.split(group.rank() / options_.replicas, group.rank(),
                                 fmt::format("stage {}", stages_.front().number))),
        replicas_(alike_, stages_, options_.data_parallel),
        tied_(*pipe_, stages_, options_.tied),
        executor_(stages_, connect_neighbors(*pipe_, stages_.size() > 1), loss_, replicas_,
                  group.flight_recorder(), device_),
        losses_(!device_.is_cpu()),
        agreement_(group) {
    if (last_stage() && !loss_) {
      throw UsageError("the rank with the last stage of a pipeline needs a loss");
    }
  }

  int replica() const noexcept { return group_.rank() % options_.replicas; }
  bool first_stage() const noexcept { return stages_.front().number == 0; }
  bool last_stage() const noexcept { return stages_.back().number == count_ - 1; }
  Layout layout(int micro_batches) const {
    return {ranks_, micro_batches, static_cast<int>(stages_.size())};
  }

  void begin_step(int micro_batches) {
    require_possible(options_.schedule, layout(micro_batches));
    require_intact();
    ++steps_;
    replicas_.begin_step(micro_batches);
    losses_.begin_step();
  }

  std::vector<torch::Tensor> train(std::span<const MicroBatch> micro_batches, int count,
                                   std::int64_t tag, float loss_scale) {
    auto pass = make_pass(micro_batches, {steps_, count, tag, true});
    pass.loss_scale = loss_scale;
    intact_ = false;
    auto losses = run(pass, operations(options_.schedule, pass.layout, pipe_->rank()));
    with_names([&] { finish(losses, pass.id); });
    intact_ = true;
    return losses;
  }

  std::vector<torch::Tensor> evaluate(std::span<const MicroBatch> micro_batches) {
    require_intact();
    const auto count = static_cast<std::int64_t>(micro_batches.size());
    if (count == 0) throw UsageError("an evaluation needs at least one micro-batch on each rank");
    const auto pass = make_pass(micro_batches, {steps_, count, ++evaluations_, false});
    intact_ = false;
    auto outputs = run(pass, forward_operations(pass.layout, pipe_->rank()));
    intact_ = true;
    return outputs;
  }

  double norm_of_gradients() {
    const auto sums = std::make_shared<std::vector<double>>(static_cast<std::size_t>(count_));
    for (const auto& own : stages_) {
      double& sum = (*sums)[static_cast<std::size_t>(own.number)];
      for (const auto& [name, tensor] : parameters_of(own)) {
        if (!tensor.grad().defined() || tied_.is_further_copy(tensor)) continue;
        const double norm = norm_of(tensor.grad());
        sum += norm * norm;
      }
    }
    with_names([&] {
      pipe_
          ->all_reduce(comm::buffer_of(std::span(*sums)), comm::ReduceOp::sum,
                       "norm of the gradients", sums)
          .wait();
    });
    return std::sqrt(std::accumulate(sums->begin(), sums->end(), 0.0));
  }

  std::string describe_stages_of(int world_rank) const {
    int rank = 0;
    while (rank < group_.size() && group_.world_rank(rank) != world_rank) ++rank;
    if (rank == group_.size()) return {};
    const int first = rank / options_.replicas;
    std::string text = fmt::format("{}", first);
    for (int stage = first + ranks_; stage < count_; stage += ranks_) {
      text += fmt::format(" and {}", stage);
    }
    return fmt::format("it ran stage{} {} of the pipeline in step {}",
                       stages_.size() > 1 ? "s" : "", text, steps_);
  }

  double mean_over_ranks(double part) {
    double sum = 0;
    with_names([&] { sum = group_.all_reduce_value(part, comm::ReduceOp::sum); });
    return sum;
  }

  comm::Group& group_;
  PipelineOptions options_;
  int count_;  // of all stages
  int ranks_;  // of a replica
  std::vector<OwnStage> stages_;
  Loss loss_;
  torch::Device device_;
  comm::Group* pipe_;   // the ranks of this replica
  comm::Group* alike_;  // the ranks with the same stages; null with one replica
  StageReplicas replicas_;
  TiedWeights tied_;
  Executor executor_;
  LossCheck losses_;
  StepAgreement agreement_;
  PipelineTimes times_;
  std::int64_t steps_ = 0;  // steps begun
  std::int64_t evaluations_ = 0;
  bool intact_ = true;  // messages of a pass that failed may be under way

 private:
  void require_intact() const {
    if (intact_) return;
    throw RuntimeError(
        fmt::format("step {} of the pipeline ended with an error, so this rank cannot take part in "
                    "another one; "
                    "let the error end the program, and resume from a checkpoint",
                    steps_));
  }

  Pass make_pass(std::span<const MicroBatch> micro_batches, const StepId& id) const {
    const bool needs_data = first_stage() || last_stage();
    const auto given = static_cast<std::int64_t>(micro_batches.size());
    if (given != id.micro_batches && (needs_data || given != 0)) {
      throw UsageError(
          fmt::format("the step was begun with {} micro-batches, but backward() got {}",
                      id.micro_batches, given));
    }
    const auto count = static_cast<int>(id.micro_batches);
    return {.id = id,
            .layout = layout(count),
            .micro_batches = micro_batches,
            .share = 1.0 / (static_cast<double>(options_.replicas) * count),
            .seed = options_.seed,
            .first_of_replica = static_cast<std::int64_t>(replica()) * count,
            .splits_backward = options_.schedule == Schedule::zb_h1 && id.trains,
            .keeps_times = options_.record_operations};
  }

  std::vector<torch::Tensor> run(const Pass& pass, const std::vector<Operation>& table) {
    std::vector<torch::Tensor> results;
    const auto start = StepClock::now();
    with_names([&] { results = executor_.run(pass, table); });
    times_.seconds = std::chrono::duration<double>(StepClock::now() - start).count();
    times_.computing = executor_.computing().count();
    times_.operations = executor_.operation_times();
    group_.flight_recorder().set_phase(fmt::format("after the pipeline's step {}", steps_));
    return results;
  }

  void finish(const std::vector<torch::Tensor>& losses, const StepId& id) {
    if (options_.data_parallel.check_loss) {
      for (const auto& loss : losses) losses_.add(loss);
    }
    const auto loss = losses_.end_step(steps_);
    agreement_.ask({.step = id.step,
                    .micro_batches = id.micro_batches,
                    .tag = id.tag,
                    .loss_is_finite = loss.finite,
                    .loss_step = loss.step});
    replicas_.finish();
    tied_.add_up();
    static_cast<void>(agreement_.check());
  }

  // Adds its stages to the text about a rank that was lost: only the others can still name them.
  template <class Body>
  void with_names(const Body& body) const {
    try {
      body();
    } catch (const PeerFailure& failure) {
      const auto stages = failure.lost() ? describe_stages_of(failure.rank()) : "";
      if (stages.empty()) throw;
      throw PeerFailure(failure.rank(), fmt::format("{}; {}", failure.what(), stages), true,
                        failure.is_usage_error());
    }
  }
};

Pipeline::Pipeline(comm::Group& group, std::vector<Stage> stages, Loss loss,
                   const PipelineOptions& options) {
  require_supported(options);
  require_same_options(group, describe_options(options, stages.size()));
  parts_ = std::make_unique<Parts>(group, std::move(stages), std::move(loss), options);
}

Pipeline::~Pipeline() = default;

PipelineStep Pipeline::begin_step(int micro_batches, std::int64_t tag) {
  parts_->begin_step(micro_batches);
  return {*this, micro_batches, tag, parts_->steps_};
}

std::string Pipeline::describe_stages_of(int world_rank) const {
  return parts_->describe_stages_of(world_rank);
}

std::vector<torch::Tensor> Pipeline::evaluate(std::span<const MicroBatch> micro_batches) {
  return parts_->evaluate(micro_batches);
}

double Pipeline::clip_gradients(double max_norm) {
  const torch::NoGradGuard no_grad;
  const double norm = parts_->norm_of_gradients();
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const auto& parameter : parameters()) {
    if (parameter.grad().defined()) parameter.grad().mul_(factor);
  }
  return norm;
}

std::vector<NamedTensor> Pipeline::named_parameters() const {
  std::vector<NamedTensor> all;
  for (const auto& own : parts_->stages_) {
    for (auto& parameter : parameters_of(own)) all.push_back(std::move(parameter));
  }
  return all;
}

std::vector<torch::Tensor> Pipeline::parameters() const {
  std::vector<torch::Tensor> all;
  for (auto& [name, tensor] : named_parameters()) all.push_back(std::move(tensor));
  return all;
}

std::vector<int> Pipeline::own_stages() const {
  std::vector<int> numbers;
  for (const auto& own : parts_->stages_) numbers.push_back(own.number);
  return numbers;
}

bool Pipeline::has_first_stage() const noexcept {
  return parts_->first_stage();
}

bool Pipeline::has_last_stage() const noexcept {
  return parts_->last_stage();
}

int Pipeline::replica() const noexcept {
  return parts_->replica();
}

const PipelineTimes& Pipeline::times() const noexcept {
  return parts_->times_;
}

void PipelineStep::require_newest() const {
  if (number_ == pipeline_->parts_->steps_) return;
  throw RuntimeError(fmt::format("step {} is over, because begin_step() has begun step {}", number_,
                                 pipeline_->parts_->steps_));
}

std::vector<torch::Tensor> PipelineStep::backward(std::span<const MicroBatch> micro_batches,
                                                  float loss_scale) {
  require_newest();
  if (complete_) throw RuntimeError("backward() was called twice in one step; begin a new step");
  auto& parts = *pipeline_->parts_;
  losses_ = parts.train(micro_batches, micro_batches_, tag_, loss_scale);
  complete_ = true;
  const double share = 1.0 / (static_cast<double>(parts.options_.replicas) * micro_batches_);
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    weights_.push_back(micro_batches[i].weight * share);
  }
  return losses_;
}

double PipelineStep::mean_loss() const {
  require_newest();
  double part = 0;
  for (std::size_t i = 0; i < losses_.size(); ++i) part += losses_[i].item<double>() * weights_[i];
  return pipeline_->parts_->mean_over_ranks(part);
}

void PipelineStep::apply(torch::optim::Optimizer& optimizer) {
  require_newest();
  if (!complete_) {
    throw RuntimeError("apply() needs the gradients of all micro-batches; call backward() first");
  }
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw UsageError(
        "LBFGS computes the loss and its gradients several times in one step, but a step of a "
        "pipeline does so once; use SGD, Adam, AdamW or another optimizer whose step() takes no "
        "closure");
  }
  optimizer.step();
}

std::vector<int> own_stages(const comm::Group& group, int stages, int replicas) {
  const int ranks = ranks_per_replica(group, stages, replicas);
  std::vector<int> own;
  for (int stage = group.rank() / replicas; stage < stages; stage += ranks) own.push_back(stage);
  return own;
}

}  // namespace ddp::pipeline
