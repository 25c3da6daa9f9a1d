// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "tests/unit/parallel/branches.h"

namespace ddp {
namespace {

using testing::HasSubstr;

struct ModelDifference {
  const char* name;
  // Returns the model of rank 2 of 3, which differs from the others' model.
  std::function<std::vector<NamedTensor>()> other;
  std::vector<const char*> expected;
};

std::vector<NamedTensor> model() {
  return {{"fc.weight", torch::zeros({4, 3}).requires_grad_()}, {"fc.bias", torch::zeros({4})}};
}

void move_to_test_device(std::vector<NamedTensor>& tensors) {
  for (auto& named : tensors) {
    const bool learns = named.tensor.requires_grad();
    named.tensor = test::on_test_device(named.tensor.detach()).requires_grad_(learns);
  }
}

class RequireSameModel : public testing::TestWithParam<ModelDifference> {};

TEST_P(RequireSameModel, EveryRankThrowsTheSameText) {
  const ModelDifference& c = GetParam();
  const auto text = test::error_on_each_of_three_ranks([&](comm::Group& group) {
    auto mine = group.rank() == 2 ? c.other() : model();
    move_to_test_device(mine);
    require_same_model(group, mine);
  });
  for (const char* part : c.expected) EXPECT_THAT(text, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Differences, RequireSameModel,
    testing::Values(ModelDifference{"Shape",
                                    [] {
                                      auto m = model();
                                      m[1].tensor = torch::zeros({5});
                                      return m;
                                    },
                                    {"rank 2", "fc.bias Float [4]", "fc.bias Float [5]"}},
                    ModelDifference{"Swapped",
                                    [] {
                                      auto m = model();
                                      std::swap(m[0], m[1]);
                                      return m;
                                    },
                                    {"tensor 0", "fc.weight", "fc.bias"}},
                    ModelDifference{"ExtraLayer",
                                    [] {
                                      auto m = model();
                                      m.push_back({"extra", torch::zeros({1})});
                                      return m;
                                    },
                                    {"tensor 2", "missing on rank 0", "extra"}},
                    ModelDifference{"Type",
                                    [] {
                                      auto m = model();
                                      m[1].tensor = torch::zeros({4}, torch::kDouble);
                                      return m;
                                    },
                                    {"Float", "Double"}},
                    ModelDifference{"Frozen",
                                    [] {
                                      auto m = model();
                                      m[0].tensor = torch::zeros({4, 3});
                                      return m;
                                    },
                                    {"frozen"}},
                    ModelDifference{
                        "Strides",
                        [] {
                          auto m = model();
                          m[0].tensor = torch::zeros({3, 4}).t().detach().requires_grad_();
                          return m;
                        },
                        {"strides [3, 1]", "strides [1, 4]"}}),
    [](const auto& shape) { return shape.param.name; });

TEST(BroadcastFromLeader, GivesEveryRankTheValuesOfRankZero) {
  test::run_ranks(3, [](comm::Group& group) {
    const auto mine = static_cast<float>(group.rank() + 1);
    std::vector<NamedTensor> tensors{{"a", torch::full({5, 2}, mine)},
                                     {"transposed", torch::full({2, 3}, mine).t()},
                                     {"empty", torch::zeros({0})},
                                     {"scalar", torch::tensor(mine)},
                                     {"counts", torch::full({4}, group.rank() + 1, torch::kInt64)},
                                     {"half", torch::full({3}, mine, torch::kBFloat16)},
                                     // larger than one message
                                     {"large", torch::full({9 * 1048576}, mine)}};
    move_to_test_device(tensors);
    broadcast_from_leader(group, tensors);
    for (const auto& [name, tensor] : tensors) {
      EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << name << " on rank " << group.rank();
    }
  });
}

TEST(NamedParameters, TiedParametersAppearOnce) {
  torch::nn::Sequential net{torch::nn::Linear(2, 2)};
  net->register_parameter("alias", net->ptr<torch::nn::LinearImpl>(0)->weight);
  const auto parameters = named_parameters(*net);
  EXPECT_EQ(parameters.size(), 2U);
}

// A broadcast moves bytes, so buffers may have any type, even without addition.
TEST(BroadcastFromLeader, SupportsEveryElementType) {
  const std::vector<torch::ScalarType> types{
      torch::kInt8,    torch::kInt16,   torch::kInt32,        torch::kInt64,
      torch::kUInt8,   torch::kBool,    torch::kFloat16,      torch::kBFloat16,
      torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kComplexDouble};
  test::run_ranks(3, [&](comm::Group& group) {
    std::vector<NamedTensor> tensors;
    for (const auto type : types) {
      const auto options = torch::TensorOptions(type);
      const double value = group.rank() == 0 ? 1 : 0;
      tensors.push_back({"small", torch::full({3}, value, options)});
      tensors.push_back({"large", torch::full({1 << 20}, value, options)});  // sent on its own
    }
    move_to_test_device(tensors);
    broadcast_from_leader(group, tensors);
    for (const auto& [name, tensor] : tensors) {
      EXPECT_TRUE(tensor.eq(1).all().item<bool>())
          << name << " " << c10::toString(tensor.scalar_type()) << " on rank " << group.rank();
    }
  });
}

}  // namespace
}  // namespace ddp
