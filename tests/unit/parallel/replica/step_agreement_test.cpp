// SPDX-License-Identifier: Apache-2.0
// Ranks that are not in the same step get an error and do not add unrelated data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// One rank's part of a small training.
struct Trainee {
  explicit Trainee(comm::Group& its_group) : group(its_group), replica(*net, group) {}

  torch::Tensor loss() { return loss_of(net->forward(input_of(0), "abc")); }
  void train_a_step(int micro_batches = 1, std::int64_t tag = 0) {
    auto step = replica.begin_step(micro_batches, tag);
    for (int i = 0; i < micro_batches; ++i) step.backward(loss());
  }

  comm::Group& group;
  Branches net = make_branches();
  DistributedDataParallel replica;
};

std::string error_of_trainees(const std::function<void(Trainee&)>& body) {
  return error_of_three_ranks([&](comm::Group& group) {
    Trainee trainee(group);
    body(trainee);
  });
}

TEST(StepAgreement, RankThatSkippedAStepIsNamed) {
  const auto error = error_of_trainees([](Trainee& self) {
    for (int batch = 0; batch < 5; ++batch) {
      if (batch != 2 || self.group.rank() != 1) self.train_a_step(1, batch);
    }
  });
  EXPECT_THAT(error, HasSubstr("rank 0 is in step 3 with 1 micro-batch (tag 2), rank 1 in step 3 "
                               "with 1 micro-batch (tag 3)"));
}

TEST(StepAgreement, NanLossNamesItsRank) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto error = error_of_trainees([bad](Trainee& self) {
      auto step = self.replica.begin_step();
      step.backward(self.group.rank() == 2 ? self.loss() * bad : self.loss());
      // Without this, a device reports it in the next step.
      if (on_device()) self.replica.require_finite_loss();
    });
    EXPECT_THAT(error, HasSubstr("the loss is not finite on rank 2 in step 1"));
  }
}

TEST(StepAgreement, LossOfAnAbandonedStepDoesNotCount) {
  const auto error = error_of_trainees([](Trainee& self) {
    auto abandoned = self.replica.begin_step(2);
    abandoned.backward(self.loss() * std::numeric_limits<double>::quiet_NaN());
    self.train_a_step();
  });
  EXPECT_EQ(error, "");
}

TEST(StepAgreement, AbandonedStepOnOneRankIsFound) {
  const auto error = error_of_trainees([](Trainee& self) {
    if (self.group.rank() == 1) self.replica.begin_step();
    self.train_a_step();
  });
  EXPECT_THAT(error,
              HasSubstr("rank 0 is in step 1 with 1 micro-batch (tag 0), rank 1 in step 2 with"));
}

// Errors name the ranks of the job, also if some of them train together.
std::string error_of_ranks_1_and_2(const std::function<void(Trainee&)>& body) {
  return error_of_three_ranks([&](comm::Group& all) {
    comm::Group& part = *all.split(all.rank() == 0 ? 0 : 1, 0, "pair");
    Trainee trainee(part);
    if (all.rank() > 0) body(trainee);
    all.barrier().wait();  // so that rank 0 learns of the error
  });
}

TEST(StepAgreement, PartNamesTheRankOfTheJobWithANanLoss) {
  const auto error = error_of_ranks_1_and_2([](Trainee& self) {
    auto step = self.replica.begin_step();
    const double bad = std::numeric_limits<double>::quiet_NaN();
    step.backward(self.group.rank() == 1 ? self.loss() * bad : self.loss());
    if (on_device()) self.replica.require_finite_loss();
  });
  EXPECT_THAT(error, HasSubstr("the loss is not finite on rank 2 in step 1"));
}

TEST(StepAgreement, PartNamesTheRankOfTheJobThatSkippedAStep) {
  const auto error = error_of_ranks_1_and_2([](Trainee& self) {
    if (self.group.rank() == 1) self.train_a_step(1, 0);
    self.train_a_step(1, 1);
  });
  EXPECT_THAT(error, HasSubstr("rank 1 is in step 1 with 1 micro-batch (tag 1), rank 2 in step 1 "
                               "with 1 micro-batch (tag 0)"));
}

TEST(StepAgreement, PartNamesTheRankOfTheJobWhoseParametersDiffer) {
  const auto error = error_of_ranks_1_and_2([](Trainee& self) {
    const torch::NoGradGuard no_grad;
    if (self.group.rank() == 1) self.net->parameters().front().add_(1);
    self.replica.require_same_parameters();
  });
  EXPECT_THAT(error, HasSubstr("rank 2 (first in '"));
  EXPECT_THAT(error, HasSubstr("differs from rank 1"));
}

TEST(StepAgreement, PartNamesTheRankOfTheJobWithAnotherModel) {
  const auto error = error_of_three_ranks([](comm::Group& all) {
    comm::Group& part = *all.split(all.rank() == 0 ? 0 : 1, 0, "pair");
    const auto values = on_test_device(torch::zeros({all.rank() == 2 ? 4 : 3}));
    const std::vector<NamedTensor> model = {{"weight", values}};
    require_same_model(part, model);
    all.barrier().wait();
  });
  EXPECT_THAT(error, HasSubstr("the model of rank 2 differs from that of rank 1"));
}

void reduce_in_another_way_on_rank_1(comm::Group& group) {
  group.all_reduce_value(1.0F, group.rank() == 1 ? comm::ReduceOp::max : comm::ReduceOp::sum);
}

// Both collectives have the same length, so no message is too short: only the values would be
// wrong.
TEST(StepAgreement, DifferentCollectiveOfTheSameLengthIsNamed) {
  const auto error = error_of_trainees([](Trainee& self) {
    reduce_in_another_way_on_rank_1(self.group);
    self.train_a_step();
  });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1 called all_reduce #"),
                           HasSubstr("maximum of 1 float32"), HasSubstr("sum of 1 float32")));
}

// The flight recorders hold only the most recent collectives.
TEST(StepAgreement, EarlierDifferentCollectiveIsFound) {
  const auto error = error_of_trainees([](Trainee& self) {
    reduce_in_another_way_on_rank_1(self.group);
    for (int i = 0; i < 100; ++i) self.group.barrier().wait();
    self.train_a_step();
  });
  EXPECT_THAT(error, HasSubstr("different collectives before step 1"));
}

TEST(StepAgreement, DifferentNumberOfMicroBatchesIsNamed) {
  const auto error =
      error_of_trainees([](Trainee& self) { self.train_a_step(self.group.rank() == 2 ? 2 : 1); });
  EXPECT_THAT(error, HasSubstr("rank 0 is in step 1 with 1 micro-batch (tag 0), rank 2 in step 1 "
                               "with 2 micro-batches (tag 0)"));
}

}  // namespace
}  // namespace ddp::test
