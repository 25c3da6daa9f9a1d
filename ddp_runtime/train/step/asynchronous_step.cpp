// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/asynchronous_step.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/train/model/optimizer.h"
#include "ddp_runtime/train/step/forward_pass.h"
#include "ddp_runtime/train/step/skipped_updates.h"

namespace ddp::train {
namespace {

using profile::Phase;

constexpr std::string_view kMomentum = "/momentum_buffer";

void refuse(bool asked_for, const std::string& what, const char* why) {
  if (!asked_for) return;
  throw UsageError(
      fmt::format("--staleness cannot be combined with {}: {}; leave out one of them", what, why));
}

// Refuses options that need the gradients of all ranks at once: asynchronous training applies each
// rank's gradients separately.
const TrainOptions& require_possible(const TrainOptions& o) {
  refuse(o.optimizer.name != "sgd", fmt::format("--optimizer {}", o.optimizer.name),
         "gradients are applied one by one, which equals applying their sum only with SGD");
  refuse(o.clip_norm > 0, "--clip",
         "the gradients of all ranks are never combined, so they have no common norm");
  refuse(o.loss_scale > 0 || o.precision == amp::Precision::fp16, "loss scaling",
         "ranks in different steps have no common scale");
  refuse(o.param_type != amp::Precision::fp32, "--param-type bf16",
         "the parameter server keeps float32 weights only");
  refuse(static_cast<bool>(o.parallel.hook), "--comm-hook",
         "gradients are sent to servers, not reduced in buckets");
  refuse(o.parallel.reduce_type.has_value(), "--reduce-type",
         "gradients are sent to servers, which add them up in float32");
  refuse(o.shard != Shard::none, "--shard",
         "ranks in different steps cannot divide an update among themselves");
  refuse(!o.offload_directory.empty() || o.offload_to_host, "--offload-optimizer",
         "servers keep the optimizer's state, in memory");
  refuse(o.channels_last, "--channels-last",
         "the parameter server keeps weights in the order of their dimensions");
  refuse(!o.parallel.ignore.empty(), "parallel.ignore",
         "the parameter server keeps all parameters");
  refuse(o.parallel.static_graph, "static_graph", "asynchronous training does not use the graph");
  return o;
}

StaleSynchronousOptions stale_options(const TrainOptions& o) {
  return {.staleness = *o.staleness,
          .momentum = o.optimizer.momentum,
          .weight_decay = o.optimizer.weight_decay,
          .allow_unused = o.parallel.allow_unused};
}

}  // namespace

AsynchronousStep::AsynchronousStep(const StepTask& task, const TrainOptions& options,
                                   LogFunction log)
    : task_(task),
      options_(require_possible(options)),
      device_(device_of(task.module)),
      log_(std::move(log)),
      optimizer_(make_optimizer(task.module, options.optimizer)),
      optimizer_state_(*optimizer_, named_parameters(task.module)),
      replica_(task.module, task.group, stale_options(options), decay_groups(task.module).decayed) {
  amp::require_precision(device_.type(), options_.precision);
}

// Restores the momentum from the checkpoint, if there is one.
void AsynchronousStep::take_momentum() {
  for (const auto& saved : optimizer_state_.arrays()) {
    for (const auto& momentum : replica_.momentum()) {
      if (saved.name == momentum.name + std::string(kMomentum)) momentum.tensor.copy_(saved.tensor);
    }
  }
}

StepOutcome AsynchronousStep::run(data::Prefetcher& batches, double learning_rate,
                                  std::int64_t /*tag*/) {
  if (steps_++ == 0) take_momentum();
  if (options_.on_nan == OnNan::skip) buffers_before_ = copy_buffers(task_.module);
  StepOutcome outcome;
  for (std::int64_t micro = 0; micro < options_.micro_batches; ++micro) {
    outcome.loss.add(run_micro_batch(batches));
  }
  const auto why = why_leave_out(outcome.loss.value());
  if (why.empty()) {
    left_out_in_a_row_ = 0;
  } else {
    leave_out(why, steps_);
  }
  hand_in(why, learning_rate);
  return outcome;
}

LateValue AsynchronousStep::run_micro_batch(data::Prefetcher& batches) {
  const auto loss = forward_loss(next_batch(batches, task_.recorder), task_.objective, device_,
                                 options_.precision, task_.recorder);
  LateValue value(loss);
  const auto span = task_.recorder.measure(Phase::backward);
  replica_.backward(loss, static_cast<int>(options_.micro_batches));
  return value;
}

std::string AsynchronousStep::why_leave_out(double loss) const {
  if (!std::isfinite(loss)) return "the loss is not finite";
  if (options_.on_nan == OnNan::stop) return {};
  const bool finite = amp::unscale_gradients(task_.module.parameters(), 1);
  return finite ? "" : reason_of_gradients(nullptr, 1);
}

void AsynchronousStep::leave_out(const std::string& why, std::int64_t step) {
  if (options_.on_nan == OnNan::stop) {
    throw RuntimeError(fmt::format(
        "{} on rank {} in its step {}; check that rank's data, or lower the learning rate", why,
        task_.group.rank(), step));
  }
  if (++left_out_in_a_row_ >= kMaxLeftOut) {
    throw RuntimeError(
        fmt::format("rank {} skipped the updates of {} steps in a row, most recently because {}; "
                    "check the data, "
                    "or lower the learning rate",
                    task_.group.rank(), left_out_in_a_row_, why));
  }
  // Each rank logs its own warning: asynchronous ranks do not synchronize for it.
  log_.warning(
      fmt::format("rank {} skipped the update of its step {}: {}", task_.group.rank(), step, why));
  put_back_buffers(task_.module, buffers_before_);
}

void AsynchronousStep::hand_in(const std::string& left_out, double learning_rate) {
  const auto begin = profile::Clock::now();
  if (left_out.empty()) {
    replica_.step(learning_rate);
  } else {
    replica_.step_without_update();
  }
  const profile::Interval time{begin, profile::Clock::now()};
  task_.recorder.add(Phase::exposed_comm, time);
  task_.recorder.add_communication({{"push and pull", replica_.bytes_per_step(), time}}, {});
}

void AsynchronousStep::settle() {
  replica_.settle();
  if (steps_ == 0) return;
  const torch::NoGradGuard no_grad;
  std::vector<std::string> names;
  for (const auto& momentum : replica_.momentum()) {
    names.push_back(momentum.name + std::string(kMomentum));
  }
  const auto saved = optimizer_state_.allocate(names);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    saved[i].tensor.copy_(replica_.momentum()[i].tensor);
  }
}

nlohmann::json AsynchronousStep::finish() {
  replica_.close();
  const auto lead = replica_.lead();
  const auto largest = task_.group.all_reduce_value(lead.largest, comm::ReduceOp::max);
  const double mean =
      task_.group.all_reduce_value(lead.mean, comm::ReduceOp::sum) / task_.group.size();
  return {{"asynchronous",
           {{"staleness", *options_.staleness}, {"largest_lead", largest}, {"mean_lead", mean}}}};
}

}  // namespace ddp::train
