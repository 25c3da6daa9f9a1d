#include "ddp_runtime/tools/bench/step_bench.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::bench {
namespace {

using profile::Clock;

// One model with its optimiser and what a step of it does.
struct Contender {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<torch::optim::SGD> optimizer;
  std::function<void()> step;
  std::vector<double> seconds;  // of every measured step
};

Contender make_contender(const models::ModelOptions& options) {
  torch::manual_seed(1);
  Contender c;
  c.model = models::make_model(options);
  c.optimizer = std::make_unique<torch::optim::SGD>(c.model->parameters(),
                                                    torch::optim::SGDOptions(0.01).momentum(0.9));
  return c;
}

void run_block(Contender& contender, std::int64_t steps, bool measured) {
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    contender.step();
    if (measured) {
      contender.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
}

// A step is as slow as its slowest rank.
std::vector<double> slowest(comm::Group& group, std::vector<double> seconds) {
  group.all_reduce(comm::buffer_of(std::span(seconds)), comm::ReduceOp::max, "times").wait();
  return seconds;
}

nlohmann::json percentiles(const std::vector<double>& seconds) {
  return {{"p10", profile::percentile(seconds, 0.1)},
          {"p50", profile::percentile(seconds, 0.5)},
          {"p90", profile::percentile(seconds, 0.9)}};
}

}  // namespace

nlohmann::json run_step_bench(comm::World& world, const StepBenchOptions& options) {
  auto sizes = options.model.input;
  sizes.insert(sizes.begin(), options.batch);
  const auto inputs = torch::randn(sizes);
  const auto targets = torch::randint(0, options.model.classes, {options.batch}, torch::kInt64);
  const auto loss_of = [&](models::Model& model) {
    return torch::nn::functional::cross_entropy(model.forward(inputs), targets);
  };

  Contender plain = make_contender(options.model);
  plain.step = [&] {
    // As torch 2's zero_grad() does by default: undefined gradients are the fastest.
    for (auto& p : plain.model->parameters()) p.mutable_grad().reset();
    loss_of(*plain.model).backward();
    plain.optimizer->step();
  };
  Contender ours = make_contender(options.model);
  DistributedDataParallel replica(*ours.model, world.group(), {.buckets = options.buckets});
  ours.step = [&] {
    auto step = replica.begin_step();
    step.backward(loss_of(*ours.model));
    step.apply(*ours.optimizer);
  };

  for (std::int64_t done = -options.block; done < options.steps; done += options.block) {
    for (Contender* contender : {&plain, &ours}) {
      world.group().barrier("bench").wait();
      run_block(*contender, options.block, done >= 0);
    }
  }
  const auto plain_seconds = slowest(world.group(), plain.seconds);
  const auto our_seconds = slowest(world.group(), ours.seconds);
  const auto ratio =
      profile::percentile(our_seconds, 0.5) / profile::percentile(plain_seconds, 0.5);
  return {{"benchmark", "step"},
          {"world_size", world.size()},
          {"model", options.model.name},
          {"parameters", models::parameter_count(*ours.model)},
          {"batch", options.batch},
          {"steps", our_seconds.size()},
          {"buckets", replica.bucket_count()},
          {"step_seconds", percentiles(our_seconds)},
          {"compared",
           {{"plain_loop_without_communication",
             {{"step_seconds", percentiles(plain_seconds)}, {"our_p50_over_its_p50", ratio}}}}}};
}

}  // namespace ddp::bench
