// Ranks that lose step with each other are told so, instead of adding what does not belong
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(StepAgreement, ARankThatLeftOutAStepIsNamed) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                for (int batch = 0; batch < 5; ++batch) {
                  if (batch == 2 && group.rank() == 1) continue;
                  auto step = replica.begin_step(1, batch);
                  step.backward(loss_of(net->forward(input_of(0), "abc")));
                }
              }),
              HasSubstr("rank 0 is in step 3 with 1 micro-batch (tag 2), rank 1 in step 3 with 1 "
                        "micro-batch (tag 3)"));
}

TEST(StepAgreement, ALossThatIsNotANumberNamesItsRank) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error_of_three_ranks([&](comm::Group& group) {
                  auto net = make_branches();
                  DistributedDataParallel replica(*net, group);
                  auto step = replica.begin_step();
                  const auto loss = loss_of(net->forward(input_of(0), "abc"));
                  step.backward(group.rank() == 2 ? loss * bad : loss);
                }),
                HasSubstr("the loss is not finite on rank 2 in step 1"));
  }
}

TEST(StepAgreement, AStepThatOneRankAloneBeganInVainIsFound) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                if (group.rank() == 1) replica.begin_step();
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(0), "abc")));
              }),
              HasSubstr("rank 0 is in step 1 with 1 micro-batch (tag 0), rank 1 in step 2 with"));
}

// Of the same length, so that no message is too short: only the values would have been wrong.
TEST(StepAgreement, AnotherCollectiveOfTheSameLengthIsNamed) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                group.all_reduce_value(
                    1.0F, group.rank() == 1 ? comm::ReduceOp::max : comm::ReduceOp::sum);
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(0), "abc")));
              }),
              AllOf(HasSubstr("rank 1 called all_reduce #"), HasSubstr("maximum of 1 float32"),
                    HasSubstr("sum of 1 float32")));
}

// The recorders hold the last collectives only.
TEST(StepAgreement, AnotherCollectiveOfLongAgoIsFound) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                group.all_reduce_value(
                    1.0F, group.rank() == 1 ? comm::ReduceOp::max : comm::ReduceOp::sum);
                for (int i = 0; i < 100; ++i) group.barrier().wait();
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(0), "abc")));
              }),
              HasSubstr("different collectives before step 1"));
}

TEST(StepAgreement, AnotherNumberOfMicroBatchesIsNamed) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                const int micro_batches = group.rank() == 2 ? 2 : 1;
                auto step = replica.begin_step(micro_batches);
                for (int i = 0; i < micro_batches; ++i) {
                  step.backward(loss_of(net->forward(input_of(0), "abc")));
                }
              }),
              HasSubstr("rank 0 is in step 1 with 1 micro-batch (tag 0), rank 2 in step 1 with 2 "
                        "micro-batches (tag 0)"));
}

}  // namespace
}  // namespace ddp::test
