// SPDX-License-Identifier: Apache-2.0
// Which parameters are updated in one pass, and that libtorch's step updates the others. The rules
// of these optimizers store a mark, so that the parameters updated in one pass can be told.
#include <gtest/gtest.h>

#include <algorithm>

#include "ddp_runtime/optim/fused_update.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "pair_of_optimizers.h"

namespace ddp::optim {
namespace {

constexpr float kMark = 1234;

template <class Arrays>
void mark(const Arrays& arrays, std::size_t count) {
  std::fill_n(arrays.parameter, count, kMark);
}
constexpr UpdateRules kMarking{
    "mark", Rounding::separate,
    [](const SgdUpdate&, const SgdArrays& arrays, std::size_t count) { mark(arrays, count); },
    [](const AdamUpdate&, const AdamArrays& arrays, std::size_t count) { mark(arrays, count); }};

template <class Base, const UpdateRules* kRules>
class With : public Base {
 public:
  using Base::Base;

 protected:
  const UpdateRules* rules() const override { return kRules; }
};

template <class Ours, class Options>
OptimizerPointer marking(const Tensors& parameters, const Options& options) {
  return std::make_unique<With<Ours, &kMarking>>(parameters, options);
}

OptimizerPointer marking_sgd(const Tensors& parameters) {
  return marking<SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
}
OptimizerPointer marking_adamw(const Tensors& parameters) {
  return marking<AdamW>(parameters, torch::optim::AdamWOptions(0.1));
}

torch::Tensor parameter(const torch::Tensor& values) {
  auto p = values.detach().requires_grad_(true);
  p.mutable_grad() = torch::ones_like(p).detach();
  return p;
}

bool marked(const torch::Tensor& p) {
  return p.detach().eq(kMark).all().item<bool>();
}
bool has_mark(const torch::Tensor& p) {
  return p.detach().eq(kMark).any().item<bool>();
}

TEST(Fitting, DenseFloatsTakeOnePass) {
  const Tensors p{parameter(torch::ones({3})), parameter(torch::ones({2, 3})),
                  parameter(torch::ones({})), parameter(torch::ones({2, 3}).t()),
                  parameter(torch::ones({2, 3, 4, 5}, torch::MemoryFormat::ChannelsLast))};
  for (const auto& make : {marking_sgd, marking_adamw}) {
    const auto optimizer = make(p);
    optimizer->step();
    optimizer->step();
    for (const auto& t : p) {
      EXPECT_TRUE(marked(t)) << t.sizes();
      t.detach().fill_(1);
    }
  }
}

// Each of these is updated as by libtorch's optimizer, beside a parameter that takes one pass.
TEST(Fitting, OthersAreUpdatedByLibtorch) {
  const auto doubles = torch::TensorOptions(torch::kFloat64);
  const auto wide = torch::ones({4, 6});
  Tensors p{parameter(torch::ones({3}, doubles)), parameter(torch::ones({3}).to(torch::kBFloat16)),
            parameter(wide.narrow(1, 0, 3)), parameter(torch::ones({2, 3}))};
  p[3].mutable_grad() = torch::ones({3, 2}).t();  // another order than the parameter's
  for (const auto& make : {marking_sgd, marking_adamw}) {
    auto all = p;
    const auto fitting = parameter(torch::ones({3}));
    all.insert(all.begin() + 1, fitting);
    const auto optimizer = make(all);
    optimizer->step();
    EXPECT_TRUE(marked(fitting));
    for (const auto& t : p) {
      EXPECT_FALSE(has_mark(t));
      EXPECT_TRUE(t.detach().ne(1).all().item<bool>()) << "was updated";
      t.detach().fill_(1);
    }
    ASSERT_EQ(optimizer->param_groups().size(), 1U);
    EXPECT_EQ(optimizer->param_groups()[0].params().size(), all.size());
    EXPECT_EQ(optimizer->state().size(), all.size());
  }
}

TEST(Fitting, AStateOfAnotherTypeIsLeftToLibtorch) {
  const auto p = parameter(torch::ones({3}));
  const auto optimizer = marking_sgd({p});
  auto state = std::make_unique<torch::optim::SGDParamState>();
  state->momentum_buffer(torch::ones({3}, torch::kFloat64));
  optimizer->state()[torch_compat::state_key(p)] = std::move(state);
  optimizer->step();
  EXPECT_FALSE(has_mark(p));
}

TEST(Fitting, AMSGradIsLeftToLibtorch) {
  const auto p = parameter(torch::ones({3}));
  marking<AdamW>({p}, torch::optim::AdamWOptions(0.1).amsgrad(true))->step();
  EXPECT_FALSE(has_mark(p));
  marking<Adam>({p}, torch::optim::AdamOptions(0.1).amsgrad(true))->step();
  EXPECT_FALSE(has_mark(p));
}

// libtorch reports a learning rate that no float can hold.
TEST(Fitting, CoefficientsTooLargeForAFloatAreLeftToLibtorch) {
  const auto p = parameter(torch::ones({3}));
  EXPECT_ANY_THROW(marking<SGD>({p}, torch::optim::SGDOptions(1e39))->step());
  EXPECT_FALSE(has_mark(p));
}

TEST(Fitting, ParametersThatShareMemoryAreLeftToLibtorch) {
  const auto memory = torch::ones({10});
  const auto a = parameter(memory.narrow(0, 0, 6));
  const auto b = parameter(memory.narrow(0, 5, 5));
  marking_adamw({a, b})->step();
  EXPECT_FALSE(has_mark(memory));
  const auto c = parameter(memory.narrow(0, 6, 4));
  marking_adamw({a, c})->step();
  EXPECT_TRUE(marked(memory)) << "neighbors do not overlap";

  const auto twice = parameter(torch::ones({3}));
  marking_sgd({twice, twice})->step();
  EXPECT_FALSE(has_mark(twice));
  const auto own_gradient = parameter(torch::ones({3}));
  own_gradient.mutable_grad() = own_gradient.detach();
  marking_sgd({own_gradient})->step();
  EXPECT_FALSE(has_mark(own_gradient));
}

TEST(Fitting, ParametersMayShareAGradient) {
  const auto a = parameter(torch::ones({3}));
  const auto b = parameter(torch::ones({3}));
  b.mutable_grad() = a.grad();
  marking_sgd({a, b})->step();
  EXPECT_TRUE(marked(a) && marked(b));
}

TEST(Fitting, WithoutRulesEverythingIsLeftToLibtorch) {
  torch::manual_seed(3);
  const auto a = torch::randn({40}).requires_grad_(true);
  const auto b = a.detach().clone().requires_grad_(true);
  const auto options = torch::optim::AdamWOptions(0.1);
  With<AdamW, nullptr> ours(Tensors{a}, options);
  torch::optim::AdamW theirs(Tensors{b}, options);
  for (int i = 0; i < 3; ++i) {
    a.mutable_grad() = torch::randn({40});
    b.mutable_grad() = a.grad().clone();
    ours.step();
    theirs.step();
  }
  EXPECT_TRUE(same_bits(a, b));
}

torch::Tensor sparse_gradient() {
  return torch::sparse_coo_tensor(torch::tensor({{0, 2}}), torch::ones({2, 3}), {4, 3});
}

TEST(Fitting, SparseGradientsAreLeftToLibtorch) {
  const auto table = parameter(torch::ones({4, 3}));
  table.mutable_grad() = sparse_gradient();
  const auto fitting = parameter(torch::ones({3}));
  marking<SGD>({table, fitting}, torch::optim::SGDOptions(0.5))->step();
  EXPECT_TRUE(marked(fitting));
  const auto expected = torch::tensor({{0.5F}, {1.0F}, {0.5F}, {1.0F}}).expand({4, 3});
  EXPECT_TRUE(torch::equal(table.detach(), expected));
}

// A refused gradient leaves the optimizer as it was.
TEST(Fitting, AnErrorOfLibtorchLeavesTheOthersAlone) {
  const auto table = parameter(torch::ones({4, 3}));
  table.mutable_grad() = sparse_gradient();
  const auto fitting = parameter(torch::ones({3}));
  const auto optimizer = marking_adamw({fitting, table});
  EXPECT_THROW(optimizer->step(), c10::Error);
  EXPECT_FALSE(has_mark(fitting));
  EXPECT_EQ(state_of<torch::optim::AdamWParamState>(*optimizer, fitting), nullptr);
  EXPECT_EQ(optimizer->param_groups()[0].params().size(), 2U);
  table.mutable_grad() = torch::ones({4, 3});
  optimizer->step();
  EXPECT_TRUE(marked(fitting) && marked(table));
  EXPECT_EQ(state_of<torch::optim::AdamWParamState>(*optimizer, fitting)->step(), 1);
}

TEST(PlainMemory, IsWhatTheTensorMeans) {
  EXPECT_TRUE(is_plain(torch::ones({2, 3})));
  EXPECT_TRUE(is_plain(torch::ones({0})));
  EXPECT_FALSE(is_plain({}));
  EXPECT_FALSE(is_plain(torch::ones({2, 3}, torch::kFloat64)));
  EXPECT_FALSE(is_plain(torch::ones({2}).expand({3, 2})));
  EXPECT_FALSE(is_plain(torch::_neg_view(torch::ones({2}))));
  EXPECT_FALSE(is_plain(torch::_efficientzerotensor({2}, torch::kFloat32)));
  EXPECT_FALSE(is_plain(torch::ones({2}, torch::TensorOptions().device(torch::kMeta))));
}

TEST(PlainMemory, SeesLongRangesThatHoldShortOnes) {
  const auto memory = torch::ones({100});
  MemoryRanges ranges;
  ranges.add_read(memory.narrow(0, 0, 90));
  ranges.add_read(memory.narrow(0, 1, 2));
  EXPECT_FALSE(ranges.overlap());
  ranges.add_written(memory.narrow(0, 90, 10));
  EXPECT_FALSE(ranges.overlap());
  ranges.add_written(memory.narrow(0, 80, 2));
  EXPECT_TRUE(ranges.overlap());
}

TEST(FusedOperators, TakeDenseTensorsOfOneKind) {
  const auto p = torch::ones({2, 3});
  const auto columns = torch::ones({3, 2}).t();
  EXPECT_TRUE(can_be_fused(p, {}));
  EXPECT_TRUE(can_be_fused(p, {torch::zeros({2, 3}), torch::ones({2, 3})}));
  EXPECT_TRUE(can_be_fused(columns, {torch::ones({3, 2}).t()}));
  EXPECT_TRUE(can_be_fused(torch::ones({}), {torch::ones({})}));
  // A 1x1 convolution in channels-last memory, and its gradient.
  const auto channels_last = torch::empty_strided({4, 3, 1, 1}, {3, 1, 3, 3});
  EXPECT_TRUE(can_be_fused(channels_last, {torch::ones({4, 3, 1, 1})}));
  EXPECT_FALSE(can_be_fused(channels_last, {torch::ones({3, 4, 1, 1}).transpose(0, 1)}));

  EXPECT_FALSE(can_be_fused(p.to_sparse(), {}));
  EXPECT_FALSE(can_be_fused(torch::ones({2, 3}, torch::kComplexFloat), {}));
  EXPECT_FALSE(can_be_fused(torch::ones({2, 6}).narrow(1, 0, 3), {})) << "gaps";
  EXPECT_FALSE(can_be_fused(torch::ones({3}).expand({2, 3}), {})) << "elements share memory";
  EXPECT_FALSE(can_be_fused(torch::ones({0}), {}));

  const auto meta = torch::TensorOptions(torch::kMeta);
  for (const auto& other :
       {torch::Tensor(), p.to_sparse(), torch::ones({2, 3}, meta),
        torch::ones({2, 3}).to(torch::kHalf), torch::ones({4, 3}), torch::ones({3}), columns}) {
    EXPECT_FALSE(can_be_fused(p, {other, p})) << other.toString();
    EXPECT_FALSE(can_be_fused(p, {p, other})) << other.toString();
  }
}

// Its state must not be made twice.
TEST(Fitting, AnEmptyParameterThatIsListedTwiceIsLeftToLibtorch) {
  const auto empty = torch::empty({0}).requires_grad_(true);
  const auto other = parameter(torch::ones({3}));
  AdamW optimizer(Tensors{empty, empty, other}, torch::optim::AdamWOptions(0.1));
  for (int i = 0; i < 2; ++i) {
    empty.mutable_grad() = torch::empty({0});
    optimizer.step();
  }
  auto& state = *optimizer.state().at(torch_compat::state_key(empty));
  EXPECT_EQ(static_cast<torch::optim::AdamWParamState&>(state).step(), 4);
}

}  // namespace
}  // namespace ddp::optim
