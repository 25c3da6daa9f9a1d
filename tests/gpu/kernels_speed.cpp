// SPDX-License-Identifier: Apache-2.0
// The speed of the kernels beside that of copies by cudaMemcpyAsync, in GB/s of bytes read and
// written, as JSON on standard output. All take turns; times are of host clocks around several
// launches.
//
// Usage: kernels_speed [REPETITIONS [MIB]]
//
// Default: 30 repetitions, 256 MiB of fp32 elements. Without a GPU the JSON has the reason under
// "skipped". Exits with 1 if a kernel fails.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/gpu/kernel_memory.h"

namespace ddp::kernels::gpu {
namespace {

using comm::ElementType;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int kLaunches = 10;  // between two looks at the clock
constexpr std::size_t kPieces = 160;

struct Settings {
  int repetitions = 30;
  std::size_t elements = (std::size_t{256} << 20) / sizeof(float);
};

struct Contender {
  std::string name;
  double bytes = 0;  // read and written by one launch
  std::function<void()> launch;
  std::vector<double> rates = {};  // GB/s
};

Json quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double index = share * static_cast<double>(values.size() - 1);
    return std::round(values[static_cast<std::size_t>(index + 0.5)] * 10) / 10;
  };
  return {{"p10", at(0.1)}, {"p50", at(0.5)}, {"p90", at(0.9)}};
}

// Random elements: equal ones would be faster.
Memory random_memory(std::size_t count, unsigned seed, const Stream& stream) {
  test::Array<F32> values(count);
  values.randomize(seed);
  for (std::size_t i = 0; i < count; ++i) values.set(i, std::abs(values.get(i)));
  return {values.data(), count * sizeof(float), stream};
}

// Pieces as in a model: an eighth of what is left in each, so ever smaller ones. All begin at
// a multiple of 16 bytes.
std::vector<std::size_t> piece_sizes(std::size_t elements) {
  std::vector<std::size_t> sizes;
  while (sizes.size() + 1 < kPieces && elements > 64) {
    sizes.push_back(std::max<std::size_t>(elements / 8 / 4 * 4, 4));
    elements -= sizes.back();
  }
  sizes.push_back(elements);
  return sizes;
}

class Speed {
 public:
  explicit Speed(const Settings& settings)
      : settings_(settings),
        launcher_(machine().driver),
        a_(random_memory(settings.elements, 1, stream_)),
        b_(random_memory(settings.elements, 2, stream_)),
        c_(random_memory(settings.elements, 3, stream_)),
        d_(random_memory(settings.elements, 4, stream_)),
        weight_(settings.elements * sizeof(std::uint16_t)),
        partials_(kMaxCheckBlocks * sizeof(double)),
        results_(std::vector<double>(2).data(), 2 * sizeof(double), stream_) {
    make_tables();
  }

  Json measure() {
    const double n = static_cast<double>(settings_.elements);
    std::vector<Contender> all = {
        {"copy", 8 * n, [this] { copy(); }},
        {"pack_f32_f32", 8 * n, [this] { pack(ElementType::f32); }},
        {"pack_f32_bf16", 6 * n, [this] { pack(ElementType::bf16); }},
        {"check_f32", 4 * n, [this] { check(); }},
        {"adamw_f32", 28 * n, [this] { adamw(false); }},
        {"adamw_f32_and_weight", 30 * n, [this] { adamw(true); }},
    };
    for (int i = -2; i < settings_.repetitions; ++i) {
      for (auto& contender : all) {
        stream_.finish();
        const auto begin = Clock::now();
        for (int k = 0; k < kLaunches; ++k) contender.launch();
        stream_.finish();
        const std::chrono::duration<double> seconds = Clock::now() - begin;
        if (i >= 0) contender.rates.push_back(kLaunches * contender.bytes / seconds.count() / 1e9);
      }
    }
    Json result;
    for (const auto& contender : all) result[contender.name] = quantiles(contender.rates);
    return result;
  }

 private:
  void make_tables() {
    std::vector<PackPiece> pack;
    std::vector<AdamWPiece> adamw;
    std::size_t first = 0;
    for (const std::size_t count : piece_sizes(settings_.elements)) {
      pack.push_back({a_.as<float>() + first, first, count, 0});
      adamw.push_back({a_.as<float>() + first, b_.as<float>() + first, c_.as<float>() + first,
                       d_.as<float>() + first, weight_.as<std::uint16_t>() + first, count, 0, 0.1F,
                       0});
      first += count;
    }
    tiles_ = number_tiles(std::span(pack));
    number_tiles(std::span(adamw));
    pieces_ = pack.size();
    pack_.emplace(pack.data(), pack.size() * sizeof(PackPiece), stream_);
    adamw_.emplace(adamw.data(), adamw.size() * sizeof(AdamWPiece), stream_);
    for (auto& piece : adamw) piece.weight = nullptr;
    adamw_without_weight_.emplace(adamw.data(), adamw.size() * sizeof(AdamWPiece), stream_);
    const float step = 10;
    step_.emplace(&step, sizeof(step), stream_);
  }
  void copy() {
    comm::check_device(calls(),
                       calls().copy(b_.as<void>(), a_.as<void>(), settings_.elements * 4,
                                    comm::cuda::kCopyDefault, stream_.get()),
                       "copy");
  }
  void pack(ElementType to) {
    launcher_.pack(ElementType::f32, to,
                   {pack_->as<PackPiece>(), pieces_, tiles_, b_.as<void>(), 0.5F}, stream_.get());
  }
  void check() {
    launcher_.check(ElementType::f32,
                    {a_.as<void>(), settings_.elements, partials_.as<double>(),
                     results_.as<std::uint32_t>(), results_.as<double>() + 1, nullptr},
                    stream_.get());
  }
  void adamw(bool with_weight) {
    AdamWArguments arguments;
    arguments.pieces = (with_weight ? adamw_ : adamw_without_weight_)->as<AdamWPiece>();
    arguments.count = pieces_;
    arguments.tiles = tiles_;
    arguments.step = step_->as<float>();
    arguments.lr = 1e-3F;
    arguments.beta1 = 0.9F;
    arguments.beta2 = 0.999F;
    arguments.eps = 1e-8F;
    launcher_.adamw(ElementType::f32, arguments, stream_.get());
  }

  Settings settings_;
  Stream stream_;
  KernelLauncher launcher_;
  Memory a_;
  Memory b_;
  Memory c_;
  Memory d_;
  Memory weight_;
  Memory partials_;
  Memory results_;  // ticket, then sum of squares
  std::optional<Memory> pack_;
  std::optional<Memory> adamw_;
  std::optional<Memory> adamw_without_weight_;
  std::optional<Memory> step_;
  std::uint64_t pieces_ = 0;
  std::uint64_t tiles_ = 0;
};

int main_of(const Settings& settings) {
  Json result = {{"program", "kernels_speed"},
                 {"repetitions", settings.repetitions},
                 {"launches", kLaunches},
                 {"elements", settings.elements}};
  if (!machine().missing.empty()) {
    result["skipped"] = machine().missing;
  } else {
    try {
      comm::check_device(calls(), calls().set_device(0), "be used by this thread");
      result["GBps"] = Speed(settings).measure();
    } catch (const std::exception& e) {
      result["error"] = e.what();
    }
  }
  std::printf("%s\n", result.dump(1).c_str());
  return result.contains("error") ? 1 : 0;
}

}  // namespace
}  // namespace ddp::kernels::gpu

int main(int argc, char** argv) {
  ddp::kernels::gpu::Settings settings;
  if (argc > 1) settings.repetitions = std::atoi(argv[1]);
  const int mib = argc > 2 ? std::atoi(argv[2]) : 256;
  if (argc > 3 || settings.repetitions < 1 || mib < 1 || mib > 4096) {
    std::fprintf(stderr, "usage: kernels_speed [REPETITIONS [MIB]]\n");
    return 2;
  }
  settings.elements = (static_cast<std::size_t>(mib) << 20) / sizeof(float);
  return ddp::kernels::gpu::main_of(settings);
}
