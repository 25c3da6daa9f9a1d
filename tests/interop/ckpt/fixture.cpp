// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints for tests that are not C++:
//   ckpt_fixture save ROOT STEP [CHANGE]  commits a checkpoint; CHANGE is added to one value
//   ckpt_fixture parts ROOT STEP          commits one with arrays in parts: rows and tiles
//   ckpt_fixture expected                 prints the data that save writes, as JSON in hex
//   ckpt_fixture torn DIRECTORY           files of writers that died at each system call

#include <array>
#include <cstring>
#include <iostream>
#include <limits>
#include <numeric>
#include <string>

#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/write/writer.h"
#include "tests/unit/hdf5_ckpt/faulty_ops.h"

namespace {

using namespace ddp::ckpt;

struct Named {
  std::string name;
  OwnedArray array;
};

template <typename Element>
Named make(const std::string& name, DType dtype, const Shape& shape,
           const std::vector<Element>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, {dtype, shape, {bytes.begin(), bytes.end()}}};
}

// Returns arrays with every bit pattern of 16-bit types, the extremes of the other types, and
// special shapes.
std::vector<Named> arrays(float change) {
  std::vector<std::uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  std::vector<float> weights(30000);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(i) / 7.0F - 1000.0F;
  weights[12345] += change;
  std::vector<std::uint8_t> random_state(5056);
  for (std::size_t i = 0; i < random_state.size(); ++i)
    random_state[i] = static_cast<std::uint8_t>(i * 37);
  using I64 = std::numeric_limits<std::int64_t>;
  using F64 = std::numeric_limits<double>;
  return {
      make("model/conv1.weight", DType::float32, {30, 1000}, weights),
      make<float>("model/conv1.bias", DType::float32, {3}, {0.5F, -0.0F, 1e-45F}),
      make<float>("model/empty", DType::float32, {0, 3}, {}),
      make("model/half", DType::float16, {256, 256}, patterns),
      make("model/brain", DType::bfloat16, {65536}, patterns),
      make<double>("optim/conv1.weight/exp_avg", DType::float64, {4},
                   {F64::max(), F64::denorm_min(), F64::infinity(), -F64::quiet_NaN()}),
      make<std::int64_t>("optim/step", DType::int64, {}, {I64::min()}),
      make<std::int64_t>("data/order", DType::int64, {2}, {I64::max(), -1}),
      make<std::int32_t>("data/i32", DType::int32, {2, 1}, {-2147483647, 7}),
      make<std::int16_t>("data/i16", DType::int16, {1, 2}, {-32768, 7}),
      make<std::int8_t>("data/i8", DType::int8, {2}, {-128, 127}),
      make<std::uint8_t>("data/mask", DType::boolean, {3}, {1, 0, 1}),
      make("rng/rank-0/cpu", DType::uint8, {5056}, random_state),
      make<std::uint8_t>("mod\xC3\xA8le", DType::uint8, {1}, {200}),
  };
}

std::vector<ArrayView> views_of(const std::vector<Named>& named) {
  std::vector<ArrayView> views;
  views.reserve(named.size());
  for (const auto& [name, array] : named)
    views.push_back({name, array.dtype, array.shape, array.bytes});
  return views;
}

void save(const std::string& root, std::uint64_t step, float change) {
  const auto all = arrays(change);
  CheckpointDirectory(root).save(step, OwnerTag::of_this_process("fixture", 0), views_of(all),
                                 {.epoch = 2,
                                  .world_size = 1,
                                  .run_id = "fixture",
                                  .state = {{"lr", 0.1}, {"seed", 18446744073709551615ULL}}});
}

// Returns one rank's part of a 6 x 8 matrix whose element (i, j) is 8 i + j.
OwnedArray tile(const PartOf& part, const Shape& shape) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < shape[0]; ++i)
    for (std::uint64_t j = 0; j < shape[1]; ++j)
      values.push_back(static_cast<float>(8 * (part.start[0] + i) + part.start[1] + j));
  return make("", DType::float32, shape, values).array;
}

// Saves as four ranks. "rows" is divided into 3, 0, 2 and 1 rows, and "tiles" into four tiles of 3
// x 4. One rank has all of "alone" and the others have empty parts. "bias" is whole.
void save_parts(const std::string& root, std::uint64_t step) {
  CheckpointDirectory directory(root, {.write = {.block_bytes = 4096}});
  const SaveId id = directory.begin(step, OwnerTag::of_this_process("fixture", 0));
  constexpr std::array<std::uint64_t, 5> kFirstRow = {0, 3, 3, 5, 6};
  std::vector<FileRecord> records;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const PartOf rows{{6, 8}, {kFirstRow[rank], 0}};
    const Shape rows_shape = {kFirstRow[rank + 1] - kFirstRow[rank], 8};
    const PartOf tiles{{6, 8}, {rank / 2 * 3, rank % 2 * 4}};
    const PartOf alone{{6, 8}, {0, 0}};
    const Shape alone_shape = {rank == 1 ? 6U : 0U, 8};
    const std::array<OwnedArray, 3> held = {tile(rows, rows_shape), tile(tiles, {3, 4}),
                                            tile(alone, alone_shape)};
    std::vector<ArrayView> views = {
        {"optim/rows", DType::float32, rows_shape, held[0].bytes, rows},
        {"optim/tiles", DType::float32, {3, 4}, held[1].bytes, tiles},
        {"optim/alone", DType::float32, alone_shape, held[2].bytes, alone}};
    const std::array<float, 2> bias = {0.5F, -1.0F};
    if (rank == 2)
      views.push_back({"model/bias", DType::float32, {2}, std::as_bytes(std::span(bias)), {}});
    records.push_back(
        directory.write_shard(id, "rank-0000" + std::to_string(rank) + "-of-00004.h5", views));
  }
  directory.commit(id, records, {.world_size = 4, .run_id = "fixture"});
}

void print_expected() {
  nlohmann::json expected = nlohmann::json::object();
  for (const auto& [name, array] : arrays(0)) {
    std::string hex;
    for (const std::byte b : array.bytes) {
      const char* const digits = "0123456789abcdef";
      hex.push_back(digits[std::to_integer<unsigned>(b) >> 4]);
      hex.push_back(digits[std::to_integer<unsigned>(b) & 15]);
    }
    expected[name] = {{"dtype", dtype_name(array.dtype)}, {"shape", array.shape}, {"hex", hex}};
  }
  std::cout << expected.dump() << "\n";
}

void write_torn(const std::filesystem::path& dir) {
  const auto all = arrays(0);
  const auto views = views_of(all);
  const WriteOptions options{.threads = 1, .block_bytes = 65536};
  const nlohmann::json attributes = {{"step", 1}};
  test::FaultyOps probe;
  write_hdf5_file(dir / "complete.h5", views, attributes, options, probe);
  for (const test::Fault fault : {test::Fault::crash_before, test::Fault::crash_half_written})
    for (std::size_t k = 1; k < probe.calls().size(); ++k) {
      const char* const kind = fault == test::Fault::crash_before ? "before" : "half";
      const std::string name = std::string("torn-") + kind + "-" + std::to_string(k) + ".h5";
      test::FaultyOps ops(fault, k);
      try {
        write_hdf5_file(dir / name, views, attributes, options, ops);
      } catch (const test::Crashed&) {
      }
    }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() >= 3 && words[0] == "save") {
      save(words[1], std::stoull(words[2]), words.size() > 3 ? std::stof(words[3]) : 0);
    } else if (words.size() == 3 && words[0] == "parts") {
      save_parts(words[1], std::stoull(words[2]));
    } else if (words == std::vector<std::string>{"expected"}) {
      print_expected();
    } else if (words.size() == 2 && words[0] == "torn") {
      write_torn(words[1]);
    } else {
      std::cerr << "usage: see the first lines of fixture.cpp\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
