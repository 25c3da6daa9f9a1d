// SPDX-License-Identifier: Apache-2.0
// Small models whose parts are units, each with something that sharded training must get right.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/layers/activation_checkpoint.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {

inline constexpr std::int64_t kInputs = 36;

// A list of modules, and a function that calls them. x [4, kInputs]
struct PartsImpl : torch::nn::Module {
  using Through = std::function<torch::Tensor(PartsImpl&, const torch::Tensor&)>;

  PartsImpl(const std::vector<std::shared_ptr<torch::nn::Module>>& modules, Through function)
      : through(std::move(function)) {
    register_module("parts", parts);
    for (const auto& module : modules) parts->push_back(module);
  }
  torch::Tensor forward(const torch::Tensor& x) { return through(*this, x); }

  template <class Module>
  Module& part(std::size_t index) {
    return *parts->ptr<Module>(index);
  }
  torch::Tensor call_linear(std::size_t index, const torch::Tensor& x) {
    return unit(part<torch::nn::LinearImpl>(index))(x);
  }

  torch::nn::ModuleList parts;
  Through through;
};
TORCH_MODULE(Parts);

inline auto linear(std::int64_t in, std::int64_t out) {
  return std::make_shared<torch::nn::LinearImpl>(in, out);
}

struct TwoOutputsImpl : torch::nn::Module {
  TwoOutputsImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    return {first(x), second(x)};
  }
  torch::nn::Linear first{8, 6};
  torch::nn::Linear second{8, 6};
};

// Its input is one of its outputs.
struct PassesOnImpl : torch::nn::Module {
  PassesOnImpl() { register_module("inner", inner); }
  std::vector<torch::Tensor> forward(const torch::Tensor& x) { return {x, torch::tanh(inner(x))}; }
  torch::nn::Linear inner{8, 8};
};

// Fewer values than ranks.
struct FewValuesImpl : torch::nn::Module {
  explicit FewValuesImpl(std::vector<std::int64_t> sizes) {
    values = register_parameter("values", torch::ones(sizes) * 0.5);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return values.dim() == 0 ? x * values : x + values.sum();
  }
  torch::Tensor values;
};

struct OuterImpl : torch::nn::Module {
  OuterImpl() {
    register_module("own", own);
    register_module("inner", inner);
  }
  torch::Tensor forward(const torch::Tensor& x) { return own(torch::tanh(unit(inner)(x))); }
  torch::nn::Linear own{8, 8};
  torch::nn::Linear inner{8, 8};
};

// Recomputes its activations itself.
struct RecomputesImpl : torch::nn::Module {
  RecomputesImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (!torch::GradMode::is_enabled()) return compute(x);
    return checkpointed([this](const std::vector<torch::Tensor>& in) { return compute(in[0]); },
                        {x}, parameters());
  }
  torch::Tensor compute(const torch::Tensor& x) { return x + second(torch::tanh(first(x))); }
  torch::nn::Linear first{8, 5};
  torch::nn::Linear second{5, 8};
};

struct PartsRow {
  std::string name;
  std::function<Parts()> make;
  std::vector<std::string> units = {"parts.*"};
  bool allow_unused = false;
  bool is_in_bf16 = true;     // also with bf16 weights
  bool is_on_devices = true;  // the simulated one lacks some operators
  // libtorch's cache of casts is that of all threads, so with ranks as threads it is a matter of
  // chance whether two uses of a weight have one cast.
  bool uses_weights_twice = false;

  friend std::ostream& operator<<(std::ostream& out, const PartsRow& row) {
    return out << row.name;
  }
};

inline Parts convolutions() {
  using torch::nn::BatchNorm2d;
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  const auto block = [](std::int64_t in, std::int64_t out) {
    return torch::nn::Sequential(Conv2d(Conv2dOptions(in, out, 2)), BatchNorm2d(out)).ptr();
  };
  return Parts(PartsImpl({block(1, 3), block(3, 2)}, [](PartsImpl& net, const torch::Tensor& x) {
    const auto y = unit(net.part<torch::nn::SequentialImpl>(0))(x.view({4, 1, 6, 6}));
    return unit(net.part<torch::nn::SequentialImpl>(1))(torch::relu(y));
  }));
}

// Results are tuples, of which the model does not use all.
inline Parts recurrent() {
  const auto lstm = std::make_shared<torch::nn::LSTMImpl>(6, 5);
  const auto gru = std::make_shared<torch::nn::GRUImpl>(5, 4);
  return Parts(PartsImpl({lstm, gru}, [](PartsImpl& net, const torch::Tensor& x) {
    const auto y = std::get<0>(unit(net.part<torch::nn::LSTMImpl>(0))(x.view({4, 6, 6})));
    return std::get<1>(unit(net.part<torch::nn::GRUImpl>(1))(y));
  }));
}

inline Parts linears(PartsImpl::Through through) {
  return Parts(PartsImpl({linear(kInputs, 8), linear(8, 8)}, std::move(through)));
}

inline Parts between_linears(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                             PartsImpl::Through through) {
  auto all = modules;
  all.insert(all.begin(), linear(kInputs, 8));
  return Parts(PartsImpl(all, std::move(through)));
}

// Units without the root, whose input needs no gradient.
inline Parts perceptron() {
  return linears([](PartsImpl& net, const torch::Tensor& x) {
    return net.call_linear(1, torch::tanh(net.call_linear(0, x)));
  });
}

inline Parts with_outputs(bool uses_second) {
  return between_linears(
      {std::make_shared<TwoOutputsImpl>()}, [=](PartsImpl& net, const torch::Tensor& x) {
        const auto both = unit(net.part<TwoOutputsImpl>(1))(torch::tanh(net.call_linear(0, x)));
        return uses_second ? both.second : both.first;
      });
}

inline Parts changed_in_place() {
  return linears([](PartsImpl& net, const torch::Tensor& x) {
    const auto y = net.call_linear(0, x).add_(1).tanh_();
    return net.call_linear(1, y).sigmoid_();
  });
}

inline Parts passed_on() {
  const auto part = std::make_shared<PassesOnImpl>();
  return between_linears({part, linear(8, 8)}, [](PartsImpl& net, const torch::Tensor& x) {
    const auto both = unit(net.part<PassesOnImpl>(1))(net.call_linear(0, x));
    return net.call_linear(2, both[0] * both[1]) + both[0];
  });
}

inline Parts few_values() {
  const auto of = [](std::vector<std::int64_t> sizes) {
    return std::make_shared<FewValuesImpl>(std::move(sizes));
  };
  return between_linears({of({}), of({2}), of({0})}, [](PartsImpl& net, const torch::Tensor& x) {
    auto y = torch::tanh(net.call_linear(0, x));
    for (std::size_t i = 1; i < 4; ++i) y = unit(net.part<FewValuesImpl>(i))(y);
    return y;
  });
}

// The inner unit is also called outside of the outer one.
inline Parts nested() {
  return between_linears(
      {std::make_shared<OuterImpl>()}, [](PartsImpl& net, const torch::Tensor& x) {
        auto& outer = net.part<OuterImpl>(1);
        return unit(outer.inner)(torch::tanh(unit(outer)(torch::tanh(net.call_linear(0, x)))));
      });
}

inline Parts recomputed_inside() {
  return between_linears(
      {std::make_shared<RecomputesImpl>(), std::make_shared<RecomputesImpl>()},
      [](PartsImpl& net, const torch::Tensor& x) {
        const auto y = unit(net.part<RecomputesImpl>(1))(torch::tanh(net.call_linear(0, x)));
        return unit(net.part<RecomputesImpl>(2))(y);
      });
}

// As a teacher: a unit is called without gradients, and then with them.
inline Parts called_without_gradients() {
  return linears([](PartsImpl& net, const torch::Tensor& x) {
    torch::Tensor teacher;
    {
      const torch::NoGradGuard no_grad;
      teacher = net.call_linear(1, torch::tanh(net.call_linear(0, x)));
    }
    return net.call_linear(1, torch::tanh(net.call_linear(0, x))) * 1.5 - teacher;
  });
}

// Backward does not reach the first unit.
inline Parts cut_off() {
  return linears([](PartsImpl& net, const torch::Tensor& x) {
    return net.call_linear(1, torch::tanh(net.call_linear(0, x)).detach());
  });
}

// Ranks and micro-batches use different units.
inline Parts chosen_by_data() {
  return between_linears({linear(8, 8), linear(8, 8)}, [](PartsImpl& net, const torch::Tensor& x) {
    const auto y = torch::tanh(net.call_linear(0, x));
    const auto sum = x.sum().item<double>();
    if (sum > 1) return net.call_linear(1, y);
    return sum > -1 ? net.call_linear(2, net.call_linear(1, y)) : net.call_linear(2, y);
  });
}

inline std::vector<PartsRow> parts_rows() {
  return {
      {.name = "perceptron", .make = perceptron},
      {.name = "convolutions", .make = convolutions},
      {.name = "recurrent", .make = recurrent, .is_in_bf16 = false, .is_on_devices = false},
      {.name = "ignored_output", .make = [] { return with_outputs(false); }, .allow_unused = true},
      {.name = "ignored_first_output",
       .make = [] { return with_outputs(true); },
       .allow_unused = true},
      {.name = "changed_in_place", .make = changed_in_place},
      {.name = "passed_on", .make = passed_on},
      {.name = "few_values", .make = few_values},
      {.name = "nested",
       .make = nested,
       .units = {"parts.*", "parts.1.inner"},
       .uses_weights_twice = true},
      {.name = "recomputed_inside", .make = recomputed_inside},
      {.name = "called_without_gradients",
       .make = called_without_gradients,
       .uses_weights_twice = true},
      {.name = "cut_off", .make = cut_off, .allow_unused = true},
      {.name = "chosen_by_data", .make = chosen_by_data, .allow_unused = true},
  };
}

}  // namespace ddp::test
