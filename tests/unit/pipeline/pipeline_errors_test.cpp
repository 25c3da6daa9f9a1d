// SPDX-License-Identifier: Apache-2.0
// Errors in a pipeline reach all ranks, with the stage and the micro-batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/error_of.h"
#include "tests/unit/pipeline/staged_model.h"

namespace ddp::pipeline::test {
namespace {

using ddp::test::run_ranks;
using testing::Each;
using testing::HasSubstr;

using OnRank = std::function<void(comm::Group&)>;

// The errors of the ranks.
std::vector<std::string> errors_of(int ranks, const OnRank& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  error_of([&] {
    run_ranks(ranks,
              [&](comm::Group& group) {
                try {
                  body(group);
                } catch (const std::exception& error) {
                  errors[static_cast<std::size_t>(group.rank())] = error.what();
                  throw;
                }
              },
              {.limits = {.timeout = std::chrono::seconds(10)}});
  });
  return errors;
}

// Throws on call number `when` (from 0), in forward or in backward.
Stage failing(const Part& part, int when, bool in_backward) {
  const auto calls = std::make_shared<int>(0);
  return {part, [=](const torch::Tensor& input) {
            auto output = part->forward(input);
            if ((*calls)++ != when) return output;
            if (!in_backward) throw std::runtime_error("the coffee is cold");
            output.register_hook([](const torch::Tensor&) -> torch::Tensor {
              throw std::runtime_error("the coffee is cold");
            });
            return output;
          }};
}

class PipelineErrors : public PipelineTest {};

TEST_F(PipelineErrors, OfAStageReachAllRanks) {
  for (const bool in_backward : {false, true}) {
    for (const int stage : {0, 1, 2}) {
      for (const int micro_batch : {0, 2, 3}) {
        const auto errors = errors_of(3, [&](comm::Group& group) {
          const auto parts = make_parts(3);
          auto stages = stages_of(parts);
          stages[static_cast<std::size_t>(stage)] =
              failing(parts[static_cast<std::size_t>(stage)], micro_batch, in_backward);
          Pipeline pipe(group, std::move(stages), loss_of);
          auto step = pipe.begin_step(4);
          step.backward(micro_batches_of(4));
        });
        const auto where = fmt::format("{} of stage {} of 3 on micro-batch {}: the coffee is cold",
                                       in_backward ? "backward" : "forward", stage, micro_batch);
        EXPECT_THAT(errors, Each(HasSubstr(where)));
      }
    }
  }
}

TEST_F(PipelineErrors, EndTheUseOfAPipeline) {
  run_ranks(1, [](comm::Group& group) {
    const auto parts = make_parts(1);
    Pipeline pipe(group, {failing(parts[0], 0, false)}, loss_of);
    auto step = pipe.begin_step(1);
    EXPECT_THAT(error_of([&] { step.backward(micro_batches_of(1)); }), HasSubstr("coffee"));
    EXPECT_THAT(error_of([&] { pipe.begin_step(1); }),
                HasSubstr("step 1 of the pipeline ended with an error"));
    EXPECT_THAT(error_of([&] { pipe.evaluate(micro_batches_of(1)); }),
                HasSubstr("step 1 of the pipeline ended with an error"));
  });
}

TEST_F(PipelineErrors, NameRanksThatAreInDifferentSteps) {
  const auto train = [](Pipeline& pipe, int micro_batches, std::int64_t tag) {
    auto step = pipe.begin_step(micro_batches, tag);
    step.backward(micro_batches_of(micro_batches));
  };
  const auto errors = [&](const std::function<void(Pipeline&, int)>& body) {
    return errors_of(2, [&](comm::Group& group) {
      Pipeline pipe(group, stages_of(make_parts(2)), loss_of);
      body(pipe, group.rank());
    });
  };
  EXPECT_THAT(
      errors([&](Pipeline& pipe, int rank) { train(pipe, rank == 0 ? 4 : 3, 0); }),
      Each(HasSubstr("rank 1 is in training step 1 with 3 micro-batches (tag 0), but rank 0 "
                     "sent an activation of training step 1 with 4 micro-batches (tag 0)")));
  EXPECT_THAT(errors([&](Pipeline& pipe, int rank) { train(pipe, 4, rank); }),
              Each(HasSubstr("(tag 1), but rank 0 sent")));
  EXPECT_THAT(errors([&](Pipeline& pipe, int rank) {
                if (rank == 0) train(pipe, 4, 0);
                if (rank == 1) pipe.evaluate(micro_batches_of(4));
              }),
              Each(HasSubstr("rank 1 is in evaluation step 0")));
}

TEST_F(PipelineErrors, NameTheRankWhoseLossIsNotFinite) {
  const auto errors = errors_of(2, [](comm::Group& group) {
    Pipeline pipe(group, stages_of(make_parts(2)), [](const auto& output, const auto& target) {
      return loss_of(output, target) * std::numeric_limits<float>::quiet_NaN();
    });
    auto step = pipe.begin_step(2);
    step.backward(micro_batches_of(2));
    // On a device, the loss is known one step later.
    auto another = pipe.begin_step(2);
    another.backward(micro_batches_of(2));
  });
  EXPECT_THAT(errors, Each(HasSubstr("not finite")));
  EXPECT_THAT(errors, Each(HasSubstr("rank 1")));
}

TEST_F(PipelineErrors, OfPipelinesThatDifferReachAllRanks) {
  const auto errors = errors_of(2, [](comm::Group& group) {
    PipelineOptions options;
    options.schedule = group.rank() == 0 ? Schedule::gpipe : Schedule::one_f_one_b;
    const Pipeline pipe(group, stages_of(make_parts(2)), loss_of, options);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 0 has 2 stages, 1 replicas, schedule gpipe")));
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 has 2 stages, 1 replicas, schedule 1f1b")));
}

std::string error_with(int ranks, int stages, const PipelineOptions& options) {
  return error_of([&] {
    run_ranks(ranks, [&](comm::Group& group) {
      const Pipeline pipe(group, stages_of(make_parts(stages)), loss_of, options);
    });
  });
}

TEST_F(PipelineErrors, SayWhatDoesNotFit) {
  PipelineOptions options;
  EXPECT_THAT(error_with(2, 3, options), HasSubstr("3 stages cannot be divided among 2 ranks"));
  options.replicas = 2;
  EXPECT_THAT(error_with(3, 3, options), HasSubstr("3 ranks cannot be divided into 2 replicas"));
  options = {};
  options.data_parallel.ignore = {"head.*"};
  EXPECT_THAT(error_with(2, 2, options), HasSubstr("supports neither ignore"));
  options.data_parallel = {.check_parameters_every = 0, .reduce_type = torch::kFloat32};
  EXPECT_THAT(error_with(2, 2, options), HasSubstr("nor reduce_type"));
  EXPECT_THAT(error_of([] {
                run_ranks(2, [](comm::Group& group) {
                  auto stages = stages_of(make_parts(2));
                  stages[1] = {};
                  const Pipeline pipe(group, std::move(stages), loss_of);
                });
              }),
              HasSubstr("stage 1 is empty on rank 1, which runs it"));
}

TEST_F(PipelineErrors, NameStagesOnDifferentKindsOfDevices) {
  if (!ddp::test::on_device()) GTEST_SKIP() << "needs a device";
  EXPECT_THAT(error_of([] {
                run_ranks(2, [](comm::Group& group) {
                  const auto parts = make_parts(2);
                  Pipeline pipe(group,
                                {make_stage(parts[0]), {nullptr, [](const auto& x) { return x; }}},
                                loss_of);
                  auto step = pipe.begin_step(1);
                  step.backward(micro_batches_of(1));
                });
              }),
              HasSubstr("the stages of rank 1 are on cpu, but rank 0 sent an activation from"));
}

TEST_F(PipelineErrors, OfStepsSayWhatIsMissing) {
  run_ranks(1, [](comm::Group& group) {
    PipelineOptions options;
    options.schedule = Schedule::interleaved;
    Pipeline pipe(group, stages_of(make_parts(2)), loss_of, options);
    torch::optim::SGD optimizer(pipe.parameters(), 0.1);
    EXPECT_THAT(error_of([&] { pipe.begin_step(0); }), HasSubstr("must be at least 1"));
    auto step = pipe.begin_step(2);
    EXPECT_THAT(error_of([&] { step.apply(optimizer); }), HasSubstr("call backward() first"));
    EXPECT_THAT(error_of([&] { step.backward(micro_batches_of(3)); }),
                HasSubstr("begun with 2 micro-batches, but backward() got 3"));
    EXPECT_THAT(error_of([&] { pipe.evaluate({}); }), HasSubstr("at least one micro-batch"));
    step.backward(micro_batches_of(2));
    EXPECT_THAT(error_of([&] { step.backward(micro_batches_of(2)); }), HasSubstr("called twice"));
    torch::optim::LBFGS lbfgs(pipe.parameters());
    EXPECT_THAT(error_of([&] { step.apply(lbfgs); }), HasSubstr("LBFGS"));
    pipe.begin_step(2);
    EXPECT_THAT(error_of([&] { step.apply(optimizer); }), HasSubstr("step 1 is over"));
  });
}

TEST_F(PipelineErrors, OfTensorsThatCannotBeUsedAreNamed) {
  const auto error = [](const std::function<torch::Tensor(const torch::Tensor&)>& first,
                        const Loss& loss) {
    return error_of([&] {
      run_ranks(2, [&](comm::Group& group) {
        const auto parts = make_parts(2);
        Pipeline pipe(group, {{parts[0], first}, make_stage(parts[1])}, loss);
        auto step = pipe.begin_step(1);
        step.backward(micro_batches_of(1));
      });
    });
  };
  const auto part = make_parts(2)[0];
  if (!ddp::test::on_device()) {
    EXPECT_THAT(error([&](const torch::Tensor& x) { return part->forward(x); },
                      [](const auto& output, const auto&) { return output; }),
                HasSubstr("must be one number, not a tensor of shape [5, 11]"));
  }
  EXPECT_THAT(
      error([](const torch::Tensor&) { return torch::Tensor(); }, loss_of),
      HasSubstr("forward of stage 0 of 2 on micro-batch 0: the stage returns an undefined"));
  EXPECT_THAT(error(
                  [](const torch::Tensor&) {
                    return torch::ones({1, 1, 1, 1, 1, 1, 1, 1, 6});
                  },
                  loss_of),
              HasSubstr("with at most 8 dimensions"));
}

}  // namespace
}  // namespace ddp::pipeline::test
