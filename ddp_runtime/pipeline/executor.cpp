// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::pipeline {
namespace {

using PassClock = std::chrono::steady_clock;

std::string describe_operation(const Operation& operation, int stages) {
  constexpr std::array kNames = {"forward", "backward", "input gradient", "weight gradient"};
  return fmt::format("{} of stage {} of {} on micro-batch {}",
                     kNames.at(static_cast<std::size_t>(operation.kind)), operation.stage, stages,
                     operation.micro_batch);
}

// Those that need something from a neighbor.
std::vector<Operation> receiving(const std::vector<Operation>& table, bool activations, int last) {
  std::vector<Operation> chosen;
  for (const auto& operation : table) {
    const bool is_forward = operation.kind == OperationKind::forward;
    if (activations ? is_forward && operation.stage > 0
                    : operation.goes_back() && operation.stage < last) {
      chosen.push_back(operation);
    }
  }
  return chosen;
}

void require_one_number(const torch::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    throw UsageError(fmt::format(
        "the loss of a micro-batch must be one number, not a tensor of shape [{}]",
        loss.defined() ? fmt::format("{}", fmt::join(loss.sizes(), ", ")) : "undefined"));
  }
  if (!loss.requires_grad()) {
    throw UsageError("the loss does not depend on a parameter that requires gradients");
  }
}

void require_output(const torch::Tensor& output) {
  if (!output.defined()) throw UsageError("the stage returns an undefined tensor");
}

}  // namespace

Executor::Executor(const std::vector<OwnStage>& stages, const Neighbors& neighbors,
                   const Loss& loss, StageReplicas& replicas, comm::FlightRecorder& recorder,
                   torch::Device device)
    : stages_(stages),
      neighbors_(neighbors),
      loss_(loss),
      replicas_(replicas),
      recorder_(recorder),
      device_(device),
      activations_(neighbors.activations_in, device),
      gradients_(neighbors.gradients_in) {}

std::size_t Executor::index_of(int stage) const noexcept {
  return static_cast<std::size_t>(stage / pass_.layout.ranks);
}

const MicroBatch& Executor::micro_batch(int number) const {
  return pass_.micro_batches[static_cast<std::size_t>(number)];
}

void Executor::begin(const std::vector<Operation>& table) {
  kept_.clear();
  postponed_.clear();
  results_.clear();
  own_activations_.clear();
  own_gradients_.clear();
  times_.clear();
  computing_ = waiting_ = {};
  if (is_alone()) return;
  const int last = pass_.layout.stages() - 1;
  activations_.begin(pass_.id, receiving(table, true, last));
  gradients_.begin(receiving(table, false, last));
}

std::vector<torch::Tensor> Executor::run(const Pass& pass, const std::vector<Operation>& table) {
  pass_ = pass;
  const torch::AutoGradMode with_grad(pass_.id.trains);
  start_ = PassClock::now();
  begin(table);
  for (const auto& operation : table) execute_timed(operation);
  const auto end = PassClock::now();
  outbox_.finish();
  computing_ = end - start_ - waiting_;
  return std::move(results_);
}

// Adds the stage to what went wrong in it.
template <class Body>
auto Executor::named(const Operation& operation, const Body& body) const {
  const auto text = [&](const std::exception& error) {
    return fmt::format("{}: {}", describe_operation(operation, pass_.layout.stages()),
                       error.what());
  };
  try {
    return body();
  } catch (const PeerFailure&) {
    throw;
  } catch (const UsageError& error) {
    throw UsageError(text(error));
  } catch (const std::exception& error) {
    throw RuntimeError(text(error));
  }
}

template <class Receive>
auto Executor::waited(const Receive& receive) {
  const auto start = PassClock::now();
  auto received = receive();
  waiting_ += PassClock::now() - start;
  return received;
}

void Executor::execute_timed(const Operation& operation) {
  const std::chrono::duration<double> begin = PassClock::now() - start_;
  const auto waited = waiting_;
  execute(operation);
  if (!pass_.keeps_times) return;
  const std::chrono::duration<double> end = PassClock::now() - start_;
  times_.push_back({operation, begin.count(), (waiting_ - waited).count(), end.count()});
}

void Executor::execute(const Operation& operation) {
  if (!is_alone()) {
    activations_.advance();
    gradients_.advance();
    outbox_.clean();
  }
  recorder_.set_phase(fmt::format("step {}: {}", pass_.id.step,
                                  describe_operation(operation, pass_.layout.stages())));
  switch (operation.kind) {
    case OperationKind::forward:
      return forward(operation);
    case OperationKind::backward:
      return backward(operation);
    case OperationKind::input_gradient:
      return input_gradient(operation);
    case OperationKind::weight_gradient:
      return weight_gradient(operation);
  }
}

torch::Tensor Executor::input_of(const Operation& operation) {
  if (operation.stage == 0) {
    const auto& input = micro_batch(operation.micro_batch).input;
    if (input.defined()) return input;
    throw UsageError("the micro-batch has no input, which the rank with the first stage needs");
  }
  auto activation = is_alone() ? own_activations_.extract(place_of(operation)).mapped()
                               : waited([&] { return activations_.take(); });
  return activation.tensor.requires_grad_(activation.wants_gradient);
}

torch::Tensor Executor::call(const Operation& operation, const torch::Tensor& input) {
  std::optional<SeededGenerators> seeded;
  if (pass_.seed) {
    const auto number = pass_.first_of_replica + operation.micro_batch;
    seeded.emplace(forward_seed(*pass_.seed, pass_.id.step, operation.stage, number), device_);
  }
  auto output = stages_[index_of(operation.stage)].stage.forward(input);
  require_output(output);
  return output;
}

void Executor::forward(const Operation& operation) {
  named(operation, [&] {
    Kept kept;
    kept.input = input_of(operation);
    if (pass_.splits_backward) kept.postponed = c10::make_intrusive<PostponedGradients>();
    const PostponeGradients postpone(kept.postponed);
    const auto output = call(operation, kept.input);
    if (is_last(operation.stage)) {
      finish_last(operation, output, kept);
    } else {
      pass_on(operation, output, kept);
    }
    if (pass_.id.trains) kept_.emplace(place_of(operation), std::move(kept));
  });
}

void Executor::finish_last(const Operation& operation, const torch::Tensor& output, Kept& kept) {
  if (!pass_.id.trains) {
    results_.push_back(output);
    return;
  }
  kept.loss = loss_(output, micro_batch(operation.micro_batch).target);
  require_one_number(kept.loss);
  results_.push_back(kept.loss.detach());
}

// See Note [Outputs of stages].
void Executor::pass_on(const Operation& operation, const torch::Tensor& output, Kept& kept) {
  const Activation activation{output.detach(), output.requires_grad()};
  if (activation.wants_gradient) {
    kept.start = torch::autograd::impl::gradient_edge(output);
    if (replicas_.follows_graph()) kept.output = output;
  }
  if (is_alone()) {
    own_activations_.emplace(Place{operation.stage + 1, operation.micro_batch}, activation);
    return;
  }
  gradients_.announce(place_of(operation), activation);
  outbox_.send_activation(neighbors_.activations_out, pass_.id, operation, activation);
}

void Executor::backward(const Operation& operation) {
  named(operation, [&] {
    const auto kept = std::move(kept_.extract(place_of(operation)).mapped());
    if (operation.micro_batch == pass_.layout.micro_batches - 1) {
      replicas_.begin_last_backward(index_of(operation.stage),
                                    kept.loss.defined() ? kept.loss : kept.output);
    }
    start_backward(operation, kept);
    return_gradient(operation, kept);
  });
}

void Executor::input_gradient(const Operation& operation) {
  named(operation, [&] {
    auto kept = std::move(kept_.extract(place_of(operation)).mapped());
    {
      const PostponeGradients postpone(kept.postponed);  // a layer may run again
      start_backward(operation, kept);
    }
    return_gradient(operation, kept);
    postponed_.emplace(place_of(operation), std::move(kept.postponed));
  });
}

void Executor::weight_gradient(const Operation& operation) {
  named(operation, [&] {
    const auto postponed = std::move(postponed_.extract(place_of(operation)).mapped());
    postponed->run();
    if (operation.micro_batch == pass_.layout.micro_batches - 1) {
      replicas_.end_split_backward(index_of(operation.stage));
    }
  });
}

void Executor::start_backward(const Operation& operation, const Kept& kept) {
  if (is_last(operation.stage)) {
    const double weight = micro_batch(operation.micro_batch).weight;
    // Rounded before it is scaled, as backward of a loss that was multiplied does.
    kept.loss.backward(torch::full_like(kept.loss, pass_.share * weight).mul_(pass_.loss_scale));
  } else if (kept.start.is_valid()) {
    const auto gradient = is_alone() ? own_gradients_.extract(place_of(operation)).mapped()
                                     : waited([&] { return gradients_.take(); });
    torch::autograd::Engine::get_default_engine().execute(
        {kept.start}, {gradient}, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true);
  }
}

// To the stage before this one, if its output wants a gradient.
void Executor::return_gradient(const Operation& operation, const Kept& kept) {
  if (operation.stage == 0 || !kept.input.requires_grad()) return;
  const auto gradient =
      kept.input.grad().defined() ? kept.input.grad() : torch::zeros_like(kept.input).detach();
  if (is_alone()) {
    own_gradients_.emplace(Place{operation.stage - 1, operation.micro_batch}, gradient);
  } else {
    outbox_.send_gradient(neighbors_.gradients_out, operation, gradient);
  }
}

}  // namespace ddp::pipeline
